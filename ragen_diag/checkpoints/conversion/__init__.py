"""Shards and pickled weights -> a folder that can be loaded, without running code of the files.

`torchfiles` and `shards` read, `export` writes, `convert` knows what goes where. Importing this
package imports no torch.
"""
