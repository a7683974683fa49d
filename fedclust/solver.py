"""The solver of clients under the path that configs name."""

from fedclust.core.solver import Solver

__all__ = ["Solver"]
