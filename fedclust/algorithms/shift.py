"""The address of `ShiftTest` in configs."""

from fedclust.algorithms.cold_start import ShiftTest

__all__ = ["ShiftTest"]
