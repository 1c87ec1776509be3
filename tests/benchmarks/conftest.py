"""The benchmark needs packages of its own, so its modules are not searched for doctests."""

collect_ignore = ["scoring"]
