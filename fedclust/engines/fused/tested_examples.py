"""The examples that tests look at: what is the same in every test is prepared once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedclust.core.calls import Shards
from fedclust.core.pool import Pool
from fedclust.engines.fused.scoring import Grouped

_MOST = 256 << 20  # bytes of converted examples that stay between tests
# examples of a model: with fewer, models by themselves take longer than the conversion
_LEAST = 128


class TestedExamples:
    """The examples of the last test, by the model that looks at them; see `Grouped`.

    On a CPU the examples are kept as models see them, where they take no more than 256 MiB and are
    many for every model. That hangs on the call alone, never on those before it: a job that
    continues must test as one that was never stopped, to the bit.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._asked: tuple[Tensor, ...] = ()
        self._grouped: Grouped | None = None

    def of(self, label: Tensor, shards: Shards, num_models: int) -> Grouped:
        """The examples of `shards` grouped by the label [C] of their row, of `num_models`."""
        if label.is_cuda:  # the host would have to wait to compare
            return Grouped.of(label, shards, num_models, self._pool)
        asked = label, shards.count, shards.index
        pairs = zip(asked, self._asked, strict=False)
        alike = all(a is b or torch.equal(a, b) for a, b in pairs)
        if self._grouped is None or not alike:
            self._asked = label.clone(), *asked[1:]  # a State may change its own
            self._grouped = None  # its memory is free before the next takes more
            grouped = Grouped.of(label, shards, num_models, self._pool)
            self._grouped = grouped.converted() if self._pays(grouped) else grouped
        return self._grouped

    def _pays(self, grouped: Grouped) -> bool:
        """Whether examples are kept as models see them."""
        examples, models = len(grouped.index), int(grouped.count.count_nonzero())
        bytes_of_inputs = 4 * examples * math.prod(self._pool.shape)
        return examples >= _LEAST * models and bytes_of_inputs <= _MOST
