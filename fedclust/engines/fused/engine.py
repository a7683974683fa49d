"""The fused engine: stacked rows, hand-written backward, updates fused into the products."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedclust.calls import GradCall, LocalResult, LossCall, Shards, TestCall, TestResult, TrainCall
from fedclust.engines.chunks import auto_rows, each_chunk
from fedclust.engines.fused.graphs import Graphs, enabled
from fedclust.engines.fused.network import Network, Stack, obstacle
from fedclust.engines.fused.regression import knows
from fedclust.engines.fused.scoring import AllPairs, Grouped, score_chunk
from fedclust.engines.fused.span import pays
from fedclust.engines.fused.training import (
    Batches,
    anchor_of,
    gradient_chunk,
    in_one_call,
    rule_of,
    train_chunk,
)
from fedclust.engines.fused.weights import Accumulate, Rule
from fedclust.engines.schedule import in_host_memory, schedule
from fedclust.errors import ConfigError, require
from fedclust.models.params import layout
from fedclust.models.sequence import Model
from fedclust.rng import Stream
from fedclust.solver import Solver
from fedclust.types import Pool

_BLOCK_CPU = 64 << 20  # bytes of the widest activation of one block
_BLOCK_CUDA = 1 << 30
_BLOCK_LEAST, _BLOCK_MOST_CPU = (
    128,
    1024,
)  # examples: fewer make poor products, more leave the cache
# examples of a row at once that are counted as memory; more are taken in blocks where possible
_BATCH = 256
_WASTE = 0.1
_KEPT = 1 << 30  # bytes of parameters of training on a GPU that stay between calls


class FusedEngine:
    """The fastest engine, for models that are a sequence of known layers; see
    `fedclust.verbs.Engine`.

    Args:
        model: the architecture.
        pool: the examples, on the device to compute on.
        max_rows: rows computed at once, None to choose by cache or memory.

    Attributes:
        padding: fraction of the examples computed in the last `train` call that were padding.
        together: most rows that were computed at once in that call.

    Raises:
        ConfigError: if the model has a layer that this engine does not know.
    """

    name = "fused"

    def __init__(self, model: Model, pool: Pool, max_rows: int | None = None) -> None:
        require(not obstacle(model), "engine", "fused", f"{obstacle(model)}; use engine=auto")
        require(
            max_rows is None or max_rows >= 1, "max_rows", max_rows, "at least 1, or null to choose"
        )
        self.model, self.pool = model, pool
        self.network = Network.of(model)
        self.layout = layout(model)
        self.padding, self.together = 0.0, 0
        self._max_rows = max_rows
        device = self.pool.x.device
        # a graph is bound to the memory it was made for, so that is kept from call to call
        kept = enabled(device)
        self._stacks = {
            spanned: _Stacks(self.network, device, _KEPT) for spanned in (True, False) if kept
        }

    @staticmethod
    def obstacle(model: Model) -> str:
        """Why this engine cannot run a model, in words; empty where it can."""
        return obstacle(model)

    def init(self, stream: Stream) -> Tensor:
        """Freshly initialised parameters, [P]."""
        return self.model.draw(stream.torch()).to(self.pool.x.device)

    @torch.no_grad()
    def train(self, call: TrainCall) -> LocalResult:
        """Local training of C rows; row i starts at models[label[i]]."""
        models, shards, solver = call.models, call.shards, call.solver
        frozen = self._frozen(call.frozen)
        result = LocalResult(
            params=models.new_empty(len(shards), self.layout.num_params),
            slots=models.new_empty(len(shards), self.layout.num_params)
            if solver.momentum
            else None,
            loss=models.new_zeros(len(shards)),
            first_loss=models.new_zeros(len(shards)),
            steps=torch.zeros_like(shards.count),
        )
        rule = rule_of(call)
        computed, real = 0, 0  # examples
        self.together = 0

        # how much there is to do is planned by the host, so that it waits for the device once
        known = in_host_memory(shards)
        count, steps = known.count, known.num_steps(solver)

        def work(spanned: bool, chunk: Tensor) -> None:
            nonlocal computed, real
            rows = chunk.to(models.device, non_blocking=True)
            taken = call.take(rows, int(count[chunk].max()))
            here = taken.shards
            part = known.work if known.work is None else known.work[chunk]
            plan = schedule(here, solver, replace(here, count=count[chunk], work=part))
            stack = stacks.of(len(rows), rule, frozen)
            if spanned:
                own = call.anchor is not None or call.linear is not None
                stack.use_span(rule, here.index.shape[1], own_anchor=own)

            def load() -> Batches:
                stack.load(models, taken.label, call.slots, anchor_of(taken))
                stack.key.copy_(here.key)
                return Batches.of(self.pool, taken, plan, stack)

            batches = load()
            loss = stacks.train(stack, batches, load)
            result.loss[rows], result.first_loss[rows] = loss.unbind(1)
            if stack.span is not None:
                stack.span.finish(plan.known_steps)
            result.steps[rows] = plan.steps
            stack.store(rows, result.params, result.slots)
            computed, real = computed + batches.computed, real + batches.real
            self.together = max(self.together, len(rows))

        width = count if solver.batch_size is None else count.clamp(max=solver.batch_size)
        floats = self._floats
        if not frozen and knows(
            self.network, models.device
        ):  # looks at a row's examples where they lie, not at batches
            width, floats = count, self._data_floats
        # by steps first, so that the rows still running are always the first ones of a chunk
        size = steps * (shards.index.shape[1] + 1) + count
        copies = 1 + bool(solver.momentum) + bool(rule.pull)
        chosen = self._spanned(count, steps, solver, frozen)
        for spanned in (True, False):
            stacks = (
                self._stacks[spanned] if self._stacks else _Stacks(self.network, self.pool.x.device)
            )
            self._each(
                size,
                count if spanned else width,
                partial(self._span_floats if spanned else floats, copies),
                partial(work, spanned),
                (chosen == spanned).nonzero().squeeze(1),
            )
        self.padding = 1 - real / computed if computed else 0.0
        return result

    @torch.no_grad()
    def loss(self, call: LossCall) -> Tensor:
        """Mean loss of every model on every row [C, K], or of each example [C, n, K]; nats."""
        models, shards = call.models, call.shards
        look = AllPairs.of(shards, self.pool)
        if call.per_example:
            each = models.new_zeros(*shards.index.shape, len(models))

            def keep(which: Tensor, stack: Stack) -> None:
                look.keep_losses(stack, self._block(len(which)), each, which)

            self._each_model(models, keep)
            return each
        sums = torch.zeros(len(models), len(shards), dtype=torch.float64, device=models.device)

        def add(which: Tensor, stack: Stack) -> None:
            part = sums.new_zeros(len(which), len(shards))
            look.add_losses(stack, self._block(len(which)), part)
            sums[which] = part

        self._each_model(models, add)
        return (sums.T / shards.count.clamp(min=1).unsqueeze(1)).to(torch.float32)

    def _each_model(self, models: Tensor, work: Callable[[Tensor, Stack], None]) -> None:
        """Calls `work` with some of the models [K, P], which are int64 [R], and their stack."""
        stacks = _Stacks(self.network, self.pool.x.device)

        def load(chunk: Tensor) -> None:
            which = chunk.to(models.device, non_blocking=True)
            stack = stacks.of(len(which), None)
            stack.load(models, which)
            work(which, stack)

        like = torch.zeros(len(models), dtype=torch.int64)
        self._each(like, like, partial(self._floats, 1), load)

    @torch.no_grad()
    def grad(self, call: GradCall) -> Tensor:
        """Full-batch gradient of the mean loss of models[label[i]] on shard i, [C, P]."""
        models, label, shards = call.models, call.label, call.shards
        stacks = _Stacks(self.network, self.pool.x.device)
        gradient = models.new_empty(len(shards), self.layout.num_params)

        count = shards.count.cpu()

        def work(chunk: Tensor) -> None:
            rows = chunk.to(models.device, non_blocking=True)
            here = shards.take(rows, int(count[chunk].max()))
            stack = stacks.of(len(rows), Accumulate())
            stack.load(models, label[rows])
            gradient_chunk(stack, self.pool, here, count[chunk].tolist(), self._block(len(rows)))
            stack.store(rows, None, gradient)

        self._each(count, count, partial(self._floats, 2), work)
        return gradient

    @torch.no_grad()
    def test(self, call: TestCall) -> TestResult:
        """Test results of models[label[i]], or of a mixture, on row i."""
        models, label, shards = call.models, call.label, call.shards
        if call.weight is not None:
            return self._test_mixtures(models, call.weight, shards)
        stacks = _Stacks(self.network, self.pool.x.device)
        grouped = Grouped.of(label, shards, len(models))
        examples = len(grouped.index)
        # of every example, and of padding
        loss = torch.zeros(examples + 1, dtype=torch.float64, device=models.device)
        hit = torch.zeros(examples + 1, dtype=torch.int64, device=models.device)

        count = grouped.count.cpu()

        def work(chunk: Tensor) -> None:
            rows = chunk.to(models.device, non_blocking=True)
            stack = stacks.of(len(rows), None)
            stack.load(models, rows)
            score_chunk(
                stack, self.pool, grouped, rows, count[chunk].tolist(), self._block(1), (loss, hit)
            )

        self._each(count, count, partial(self._floats, 1), work, count.nonzero().squeeze(1))
        sums = torch.zeros(len(shards), dtype=torch.float64, device=models.device)
        hits = torch.zeros_like(shards.count)
        return TestResult(
            loss_sum=sums.index_add_(0, grouped.owner, loss[:examples]),
            correct=hits.index_add_(0, grouped.owner, hit[:examples]),
        )

    def _test_mixtures(self, models: Tensor, weight: Tensor, shards: Shards) -> TestResult:
        """Test results of mixtures [C, K] of all models on the rows."""
        look = AllPairs.of(shards, self.pool)
        mixed = models.new_zeros(self.pool.num_classes, len(look.index))

        def mix(which: Tensor, stack: Stack) -> None:
            part = torch.zeros_like(mixed)
            look.mix(stack, self._block(len(which)), weight[:, which], part)
            mixed.add_(part)

        self._each_model(models, mix)
        return look.score(mixed, len(shards))

    def _frozen(self, mask: Tensor | None) -> frozenset[str]:
        """Names of the parameters that a mask [P] covers.

        Raises:
            ConfigError: if it cuts through one.
        """
        if mask is None:
            return frozenset()
        known, names = mask.cpu(), set()
        for name, field in self.network.fields.items():
            part = known[field.offset : field.offset + field.size]
            if part.any():
                if not part.all():
                    raise ConfigError(
                        f"TrainCall.frozen covers a part of the parameter {name}, engine=fused "
                        "freezes whole parameters only; use engine=vmap or loop"
                    )
                names.add(name)
        return frozenset(names)

    def _each(
        self,
        size: Tensor,
        width: Tensor,
        floats: Callable[[int], int],
        work: Callable[[Tensor], None],
        among: Tensor | None = None,
    ) -> None:
        """Calls `work` on chunks of rows of like width, sizes descending; all tensors are the
        host's.

        Args:
            size: [C] int64 what sorts the rows of a chunk.
            width: [C] int64 what a row is padded in, for instance examples of its largest batch.
            floats: numbers that a row of a width keeps busy.
            work: see `each_chunk`.
            among: int64 the rows to work on; None for all.
        """
        among = torch.arange(len(size), device=size.device) if among is None else among
        for part in buckets(width[among]):
            bucket = among[part]
            each = self._max_rows or self._auto_rows(len(bucket), floats(int(width[bucket[0]])))
            each_chunk(size[bucket], each, partial(_among, work, bucket))

    def _floats(self, copies: int, width: int) -> int:
        """Numbers of a row with `copies` sets of parameters and batches of `width` examples."""
        return copies * self.layout.num_params + 2 * min(width, _BATCH) * self.network.activations

    def _data_floats(self, copies: int, width: int) -> int:
        """Numbers of a row with all of its `width` examples."""
        return copies * self.layout.num_params + width * math.prod(self.pool.shape)

    def _span_floats(self, copies: int, width: int) -> int:
        """Numbers of a row with `width` examples that is trained in their span."""
        layer = self._first_dense
        assert layer is not None
        rest = self.layout.num_params - layer.weight.numel()
        return width * (width + (1 + copies) * layer.out_features) + copies * rest

    def _spanned(
        self, count: Tensor, steps: Tensor, solver: Solver, frozen: frozenset[str]
    ) -> Tensor:
        """[C] bool rows whose first layer is trained in the span of their examples."""
        layer = self._first_dense
        still = f"{self.network.first_dense}.weight" in frozen
        if layer is None or still or self.pool.view is not None:
            return torch.zeros_like(count, dtype=torch.bool)
        return pays(count, steps, solver.batch_size, layer.in_features, layer.out_features)

    @property
    def _first_dense(self) -> nn.Linear | None:
        place = self.network.first_dense
        layer = None if place is None else self.network.layers[place]
        return layer if isinstance(layer, nn.Linear) else None

    def _auto_rows(self, rows: int, floats: int) -> int:
        """Rows of a chunk so that a call of `rows` rows falls into chunks of about equal size."""
        device = self.pool.x.device
        chunks = -(-rows // auto_rows(max(1, 4 * floats), device))
        # a batched product gives whole rows to threads, so their number should divide the rows
        threads = torch.get_num_threads() if device.type == "cpu" else 1
        return -(-rows // (chunks * threads)) * threads

    def _block(self, models: int) -> int:
        """Examples per model that `models` models look at together."""
        each = 4 * self.network.widest * models  # bytes
        if self.pool.x.device.type == "cuda":
            return max(_BLOCK_LEAST, _BLOCK_CUDA // each)
        return min(max(_BLOCK_LEAST, _BLOCK_CPU // each), _BLOCK_MOST_CPU)


_Key = tuple[int, Rule | None, frozenset[str]]


class _Stacks:
    """The stacks of the last chunks, used again by the next ones of as many rows.

    Args:
        network: the architecture.
        device: where to compute.
        kept: bytes of parameters that more than one stack may keep.
    """

    def __init__(self, network: Network, device: torch.device, kept: int = 0) -> None:
        self._network, self._device, self._most = network, device, kept
        self._last: dict[_Key, tuple[Stack, Graphs | None]] = {}

    def of(self, rows: int, rule: Rule | None, frozen: frozenset[str] = frozenset()) -> Stack:
        """A stack of `rows` rows with any content; see `Stack`."""
        key = (rows, rule, frozen)
        if key not in self._last:
            # before the next one is made, so that there is never room for more
            while self._last and 4 * self._network.num_params * (rows + self._rows) > self._most:
                del self._last[next(iter(self._last))]
            stack = Stack(self._network, rows, self._device, rule, frozen)
            self._last[key] = stack, Graphs() if enabled(self._device) else None
        else:
            self._last[key] = self._last.pop(key)  # the newest
        return self._last[key][0]

    def train(self, stack: Stack, batches: Batches, again: Callable[[], Batches]) -> Tensor:
        """As `train_chunk` on the stack given last; see `Graphs.train`."""
        graphs = next(reversed(self._last.values()))[1]
        if graphs is None or in_one_call(
            stack, batches
        ):  # a graph of one kernel would start nothing faster
            return train_chunk(stack, batches)
        return graphs.train(stack, batches, again)

    @property
    def _rows(self) -> int:
        """Rows of all stacks."""
        return sum(rows for rows, *_ in self._last)


def _among(work: Callable[[Tensor], None], bucket: Tensor, rows: Tensor) -> None:
    """`work` on some rows of a bucket."""
    work(bucket[rows])


def buckets(width: Tensor) -> list[Tensor]:
    """Rows by descending width, cut where batches of one width would be more than a tenth padding.

    Args:
        width: [C] int64 examples of every row's largest batch.

    Returns:
        Tensors of rows, together every row once.
    """
    order = width.argsort(descending=True, stable=True)
    cuts, widest, real = [0], 0, 0
    for place, here in enumerate(width[order].tolist()):
        if real + here < (1 - _WASTE) * widest * (place + 1 - cuts[-1]):
            cuts.append(place)
            widest = real = 0
        widest, real = max(widest, here), real + here
    return [order[a:b] for a, b in pairwise([*cuts, len(order)]) if b > a]
