"""Few classes per client with Dirichlet shares: the extended Dirichlet strategy ExDir(C, alpha) of
Li and Lyu, arXiv 2311.03154, as PFLlib does it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.ranges import AtLeastOne
from fedclust.partitions.dirichlet_balanced import BalancedDirichlet

_TRIES = 1000


@dataclass(frozen=True, kw_only=True)
class ClassDirichlet(BalancedDirichlet):
    """Every client draws its classes; each class is divided by Dirichlet(alpha) among the clients
    that have it.

    Classes are drawn anew until each has at least half of its mean number of clients, C M / Y / 2
    rounded down, and one. A client that holds N / M examples or more gets none of the classes that
    come later, unless all clients of such a class are full. No true groups.
    """

    classes_per_client: AtLeastOne = 2  # C

    def instead(self, room: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        last: npt.NDArray[np.bool_] = np.arange(len(room)) == len(room) - 1
        return last

    def owns(self, num_classes: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        each = self.classes_per_client
        allowed = f"at most the {num_classes} classes of the dataset"
        require(each <= num_classes, "partition.classes_per_client", each, allowed)
        least = max(each * self.num_clients // num_classes // 2, 1)
        owns: npt.NDArray[np.bool_]
        for _ in range(_TRIES):
            owns = rng.random((self.num_clients, num_classes)).argsort(1) < each
            if owns.sum(0).min() >= least:
                return owns
        raise ConfigError(
            f"partition.classes_per_client={each} is not allowed: {_TRIES} draws left a class with "
            f"fewer than {least} clients: raise it or partition.num_clients"
        )
