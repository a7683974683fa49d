"""Dirichlet label shares, class by class: Yurochkin et al., arXiv 1905.12022.

Hsu, Qi, Brown (arXiv 1909.06335) draw the label shares of every client instead, which leaves all
clients with equally many examples (`dirichlet_clients`); here sizes differ too. Further forms:
`dirichlet_balanced`, `dirichlet_classes`, `dirichlet_label_groups`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedclust.core.types import Dataset, Split
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.ranges import AtLeastOne, Clients, Positive
from fedclust.helpers.rng import Stream
from fedclust.partitions.cut import (
    OfExamples,
    Rows,
    check_test,
    consecutive,
    deal,
    labels,
    no_group,
    shuffled_classes,
    too_few,
)
from fedclust.partitions.shares import equal_shares

_TRIES = 100


@dataclass(frozen=True, kw_only=True)
class DirichletLabels(OfExamples):
    """Every class is divided among the clients by a draw from Dirichlet(alpha, …, alpha); no true
    groups.

    The test set is divided in the same proportions as the training set, so that a client is tested
    on the distribution it trains on.
    """

    needs_classes: ClassVar[bool] = True

    num_clients: Clients  # M
    alpha: Positive = 0.5  # concentration, above 0
    # training examples every client has at least; all shares are redrawn until it holds
    min_examples: AtLeastOne = 10

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Splits, group [M] of -1; `ConfigError` if no draw gives everybody enough."""
        check_test(dataset)
        y_train, y_test = labels(dataset.y_train), labels(dataset.y_test)
        if len(y_train) < self.min_examples * self.num_clients:
            what = f"{len(y_train)} for {self.num_clients} clients with {self.min_examples} each"
            cure = "lower partition.num_clients or partition.min_examples"
            raise too_few(dataset, what, cure)
        share = self._shares(np.bincount(y_train, minlength=dataset.num_classes), stream.fold(0))
        train = self._deal(y_train, share, stream.fold(1), 0)
        test = self._deal(y_test, share, stream.fold(2), len(y_train))
        return train, test, no_group(self.num_clients)

    def draw(self, supply: Rows, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Weight of every client in every class, [M, Y]; `supply` [Y] examples of each class."""
        return rng.dirichlet(np.full(self.num_clients, self.alpha), len(supply)).T

    def _shares(self, supply: Rows, stream: Stream) -> npt.NDArray[np.float64]:
        """Share of each class for each client, [M, Y]."""
        rng = stream.numpy()
        for _ in range(_TRIES):
            share = self.draw(supply, rng)
            if equal_shares(share, supply).sum(1).min() >= self.min_examples:
                return share
        raise ConfigError(
            f"partition.alpha={self.alpha} is not allowed: {_TRIES} draws left a client with "
            f"fewer than partition.min_examples={self.min_examples}: raise alpha, or lower "
            "min_examples or num_clients"
        )

    def _deal(self, y: Rows, share: npt.NDArray[np.float64], stream: Stream, first: int) -> Split:
        classes = shuffled_classes(y, share.shape[1], stream.numpy())
        counts = equal_shares(share, np.bincount(y, minlength=share.shape[1]))
        rows, sizes = deal(counts, classes)
        return consecutive(rows + first, sizes)
