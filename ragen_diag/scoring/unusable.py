"""The signal between the ways of scoring and the choice of one. Knows neither."""


class PathUnusable(Exception):
    """This way of scoring can't be taken with this model; another one can."""
