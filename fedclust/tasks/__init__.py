"""What can be predicted; `fedclust.core.task` says what a task is, and holds classification."""

from fedclust.core.task import Classification

__all__ = ["Classification"]
