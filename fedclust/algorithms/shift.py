"""Whose data changed: the test of FlexCFL, arXiv:2108.09749, eq. (9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedclust.algorithms import check_choice
from fedclust.errors import require
from fedclust.ranges import NonNegative

ShiftDistance = Literal["label_freq_l1", "label_count_l1", "scipy_counts"]


@dataclass(frozen=True, kw_only=True)
class ShiftTest:
    """A client's labels changed if their distance to those at its last start exceeds `fraction` /
    L.

    L is the number of classes. The paper's threshold on counts, 0.2 n_i / L, is that of
    `label_count_l1`; the default compares relative frequencies, so that more data of the same
    mixture are no shift.

    Attributes:
        distance: mean over the labels of the absolute difference of their relative frequencies
            (`label_freq_l1`) or of their counts divided by the present n_i (`label_count_l1`). Or
            `scipy_counts`, that of the released code: the counts are sorted first, so that it does
            not matter which label a count belongs to, and n_i is that of the last start.
        fraction: 0.2 in the paper.
        oracle: also require that the data really changed this round, which the released code looks
            up in the simulator.
    """

    distance: ShiftDistance = "label_freq_l1"
    fraction: NonNegative = 0.2
    oracle: bool = False

    def __post_init__(self) -> None:
        check_choice("algorithm.shift.distance", self.distance, ShiftDistance)
        require(self.fraction >= 0, "algorithm.shift.fraction", self.fraction, "at least 0")

    def __call__(self, now: Tensor, reference: Tensor, changed: Tensor) -> Tensor:
        """Who shifted, [A] bool.

        Args:
            now, reference: [A, L] int64 training examples of every label now and at the last start.
            changed: [A] bool, whose data really changed this round; read with `oracle` only.
        """
        found = self.gap(now, reference) > self.fraction / now.shape[1]  # eq. (9) divided by n_i
        return found & changed if self.oracle else found

    def gap(self, now: Tensor, reference: Tensor) -> Tensor:
        """The distance, [A] float64 per example; arguments as above."""
        size, before = (
            now.sum(1, keepdim=True).clamp(min=1),
            reference.sum(1, keepdim=True).clamp(min=1),
        )
        if self.distance == "label_freq_l1":
            return (now.double() / size - reference.double() / before).abs().mean(1)
        if self.distance == "label_count_l1":
            return ((now - reference).double() / size).abs().mean(1)
        # scipy.stats.wasserstein_distance of the counts taken as two samples
        return ((now.sort(1).values - reference.sort(1).values).double() / before).abs().mean(1)
