"""The examples that tests look at: what is the same in every test is prepared once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.calls import Shards
from fedclust.engines.fused.scoring import Grouped
from fedclust.pool import Pool

_MOST = 256 << 20  # bytes of converted examples that stay between tests
# examples of a model: with fewer, models by themselves take longer than the conversion
_LEAST = 128


@dataclass(frozen=True)
class _Asked:
    """Whose examples a test looked at, and with which model."""

    label: Tensor
    index: Tensor
    count: Tensor

    def equals(self, other: _Asked) -> bool:
        """Whether another test looks at the same, for which the host does not wait on a GPU."""
        pairs = (
            (self.label, other.label),
            (self.count, other.count),
            (self.index, other.index),
        )
        return not self.label.is_cuda and all(a is b or torch.equal(a, b) for a, b in pairs)


class Tested:
    """The examples of the last test, by the model that looks at them; see `Grouped`.

    From the second test of the same on, the examples are kept as models see them, where they take
    no more than 256 MiB and are many for every model.

    Args:
        pool: all examples.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._asked: _Asked | None = None
        self._grouped: Grouped | None = None

    def of(self, label: Tensor, shards: Shards, num_models: int) -> Grouped:
        """The examples of `shards` grouped by the label [C] of their row, of `num_models`."""
        asked, last = _Asked(label, shards.index, shards.count), self._grouped
        if self._asked is None or last is None or not asked.equals(self._asked):
            self._asked = replace(asked, label=label.clone())  # a State may change its own
            self._grouped = Grouped.of(label, shards, num_models, self._pool)
        elif last.inputs is None and self._pays(last):
            self._grouped = last.converted()
        assert self._grouped is not None
        return self._grouped

    def _pays(self, grouped: Grouped) -> bool:
        """Whether examples are kept as models see them."""
        examples, models = len(grouped.index), int(grouped.count.count_nonzero())
        bytes_of_inputs = 4 * examples * math.prod(self._pool.shape)
        return examples >= _LEAST * models and bytes_of_inputs <= _MOST
