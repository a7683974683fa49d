"""The solvers of clients under the paths that configs name; `Solver` is that of `solver=sgd`."""

from fedclust.core.optimizers import SGD as Solver
from fedclust.core.optimizers import Adagrad, Adam, AdamW, RMSprop

__all__ = ["Adagrad", "Adam", "AdamW", "RMSprop", "Solver"]
