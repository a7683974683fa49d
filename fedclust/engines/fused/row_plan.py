"""Which rows are computed together, and how many examples of each at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from fedclust.core.pool import Pool
from fedclust.engines.chunks import auto_rows, each_chunk
from fedclust.engines.fused.network import Network
from fedclust.engines.located import at_rows

_BLOCK_CPU = 64 << 20  # bytes of the widest activation of one block
_BLOCK_CUDA = 1 << 30
# examples: fewer make poor products, more leave the cache
_BLOCK_LEAST, _BLOCK_MOST_CPU, _BLOCK_OF = 128, 1024, 64
# examples of a row at once that are counted as memory; more are taken in blocks where possible
_BATCH = 256
# padding among the examples of a chunk; compiled code passes it over, and every chunk costs
# milliseconds besides
WASTE, WASTE_OF_ONE_CALL = 0.1, 0.3
NO_PADDING = 1.0  # rows are taken one by one, so those of any size go together


class RowPlan:
    """Rows of a pool in chunks of like size, of `max_rows` or as fit the device's memory."""

    def __init__(self, network: Network, pool: Pool, max_rows: int | None) -> None:
        self._network, self._pool, self._max_rows = network, pool, max_rows

    def each(
        self,
        size: Tensor,
        width: Tensor,
        floats: Callable[[int], int],
        work: Callable[[Tensor], None],
        among: Tensor | None = None,
        *,
        waste: float = WASTE,
        alone: bool = False,
    ) -> None:
        """Calls `work` on chunks of rows of like width, sizes descending; all tensors are the
        host's.

        Args:
            size: [C] int64 what sorts the rows of a chunk.
            width: [C] int64 what a row is padded in, for instance examples of its largest batch.
            floats: numbers that a row of a width keeps busy.
            among: int64 the rows to work on; None for all.
            waste: see `buckets`.
            alone: whether every row is a chunk of its own.
        """
        among = torch.arange(len(size), device=size.device) if among is None else among
        for part in buckets(width[among], waste):
            bucket = among[part]
            each = self._max_rows or self._auto_rows(len(bucket), floats(int(width[bucket[0]])))
            with at_rows(bucket):
                each_chunk(size[bucket], 1 if alone else each, partial(_among, work, bucket))

    def floats(self, copies: int, width: int) -> int:
        """Numbers of a row with `copies` sets of parameters and batches of `width` examples."""
        return (
            copies * self._network.num_params + 2 * min(width, _BATCH) * self._network.activations
        )

    def data_floats(self, copies: int, width: int) -> int:
        """Numbers of a row with all of its `width` examples."""
        return copies * self._network.num_params + width * math.prod(self._pool.shape)

    def model_floats(self, copies: int, width: int) -> int:
        """Numbers of a row whose `width` examples are only pointed to."""
        return copies * self._network.num_params + 2 * width

    def span_floats(self, copies: int, width: int) -> int:
        """Numbers of a row with `width` examples that is trained in their span."""
        layer = self._network.first_layer
        assert layer is not None
        rest = self._network.num_params - layer.weight.numel()
        return width * (width + (1 + copies) * layer.out_features) + copies * rest

    def _auto_rows(self, rows: int, floats: int) -> int:
        """Rows of a chunk so that a call of `rows` rows falls into chunks of about equal size."""
        device = self._pool.x.device
        chunks = -(-rows // auto_rows(max(1, 4 * floats), device))
        # a batched product gives whole rows to threads, so their number should divide the rows
        threads = torch.get_num_threads() if device.type == "cpu" else 1
        return -(-rows // (chunks * threads)) * threads

    def block(self, models: int) -> int:
        """Examples per model that `models` models look at together."""
        each = 4 * self._network.widest * models  # bytes
        if self._pool.x.device.type == "cuda":
            return max(_BLOCK_LEAST, _BLOCK_CUDA // each)
        # a product of 445 columns is a tenth slower than one of 448
        size = -(-_BLOCK_CPU // each // _BLOCK_OF) * _BLOCK_OF
        return min(max(_BLOCK_LEAST, size), _BLOCK_MOST_CPU)


def _among(work: Callable[[Tensor], None], bucket: Tensor, rows: Tensor) -> None:
    """`work` on some rows of a bucket."""
    work(bucket[rows])


def buckets(width: Tensor, waste: float = WASTE) -> list[Tensor]:
    """Rows by descending width, cut where batches of one width would be more padding than allowed.

    Args:
        width: [C] int64 examples of every row's largest batch.
        waste: fraction that may be padding.

    Returns:
        Tensors of rows, together every row once.
    """
    order = width.argsort(descending=True, stable=True)
    cuts, widest, real = [0], 0, 0
    for number, own in enumerate(width[order].tolist()):
        if real + own < (1 - waste) * widest * (number + 1 - cuts[-1]):
            cuts.append(number)
            widest = real = 0
        widest, real = max(widest, own), real + own
    return [order[a:b] for a, b in pairwise([*cuts, len(order)]) if b > a]
