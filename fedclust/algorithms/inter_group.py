"""The address of `InterGroup` in configs."""

from fedclust.algorithms.flexcfl import InterGroup

__all__ = ["InterGroup"]
