"""The fused engine: stacked rows, hand-written backward, updates fused into the products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedclust.core.calls import (
    AlignCall,
    Alignment,
    GradCall,
    GradSumCall,
    GradSums,
    LocalResult,
    LossCall,
    PredictCall,
    Shards,
    SumCall,
    Sums,
    TestCall,
    TestResult,
    TrainCall,
)
from fedclust.core.pool import Pool
from fedclust.engines.adopted import adopted
from fedclust.engines.aligned import by_gradients
from fedclust.engines.base import Computing, kept_losses
from fedclust.engines.fused import aligning, gpu
from fedclust.engines.fused.chunk import Chunk, ChunkTask, RoomCache, train
from fedclust.engines.fused.heads import head_of
from fedclust.engines.fused.layers import StackedModels
from fedclust.engines.fused.native import adding, softmax
from fedclust.engines.fused.network import Network, obstacle
from fedclust.engines.fused.plan import Path, Plan, plans
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.row_plan import NO_PADDING, WASTE, WASTE_OF_ONE_CALL, RowPlan
from fedclust.engines.fused.rules import Accumulate, Rule
from fedclust.engines.fused.scoring import AllPairs, Grouped, judged, looked, summed
from fedclust.engines.fused.tested_examples import TestedExamples
from fedclust.engines.fused.training import add_gradients, pulled, targets
from fedclust.engines.schedule import in_host_memory, schedule
from fedclust.engines.sums import by_blocks, empty_totals, to_add
from fedclust.helpers.errors import require
from fedclust.helpers.meter import meter
from fedclust.models.foreign import Runnable
from fedclust.models.sequence import Model

# what is done with some rows [R], the examples of each, and their models
Look = Callable[[Tensor, list[int], StackedModels], None]

_KEPT = 1 << 30  # bytes of parameters of training on a GPU that stay between calls


class FusedEngine(Computing[Runnable]):
    """The fastest engine, for models that are a sequence of known layers, or are read as one; see
    `fedclust.verbs.Engine`.

    Args:
        pool: the examples, on the device to compute on.
        max_rows: rows computed at once, None to choose by cache or memory.
        precision: see `Products`.

    Attributes:
        products: computes products, with the precision.

    Raises:
        ConfigError: if the model has a layer that this engine does not know.
    """

    name = "fused"
    exact = False

    def __init__(
        self,
        model: nn.Module,
        pool: Pool,
        max_rows: int | None = None,
        precision: str = "highest",
    ) -> None:
        if not isinstance(model, Model):  # it is read alone, and a copy would take memory
            model = adopted(model, pool)
        reason = obstacle(model, softmax=pool.task.softmax, device=pool.x.device.type)
        require(not reason, "engine", "fused", f"{reason}; use engine=auto")
        require(
            max_rows is None or max_rows >= 1, "max_rows", max_rows, "at least 1, or null to choose"
        )
        super().__init__(model, pool)
        self.network = Network.of(model, softmax=pool.task.softmax)
        self._sizes: list[Tensor] = []  # of the batches of every chunk trained last, [R, S]
        self._rows, self.products = RowPlan(self.network, pool, max_rows), Products(precision)
        self._tested = TestedExamples(pool)
        device = self.pool.x.device
        # a graph is bound to the memory it was made for, so that is kept from call to call
        self._kept = {path: self._chunks(_KEPT) for path in Path if gpu.graphs(device)}

    @staticmethod
    def obstacle(model: Runnable, device: str = "cpu") -> str:
        """Why this engine cannot run a model on a kind of device, in words; empty where it can."""
        return obstacle(model, device=device)

    @torch.no_grad()
    def train(self, call: TrainCall) -> LocalResult:
        """Local training of C rows; row i starts at models[label[i]]."""
        params = call.models.new_empty(len(call.shards), self.layout.num_params)
        kept = call.solver.law.width(self.layout.num_params)
        slots = params.new_empty(len(params), kept) if kept else None

        def keep(chunk: Chunk, some: Tensor) -> None:
            chunk.parameters.store(some.to(params.device, non_blocking=True), params, slots)

        return LocalResult(params=params, slots=slots, **self._train(call, keep))

    @torch.no_grad()
    def sums(self, call: SumCall) -> Sums:
        """Sums of what local training of the rows makes of every model."""
        if not call.models.is_cpu or adding.compiled() is None:
            return by_blocks(self, call)
        label, weight = to_add(call)
        params, slots = empty_totals(call, torch.float64)
        factor = torch.ones(len(label), dtype=torch.float64) if weight is None else weight.double()

        # where a chunk lies: room for every row would be written once and read once
        def keep(chunk: Chunk, some: Tensor) -> None:
            chunk.parameters.add(label[some], factor[some], params, slots)

        return Sums(params=params, slots=slots, **self._train(call.train, keep))

    def _train(self, call: TrainCall, keep: Callable[[Chunk, Tensor], None]) -> dict[str, Tensor]:
        """Train all rows, giving each trained chunk and its rows, int64 on the host, to `keep`.

        Returns, by name, what a result has of every row besides the models.
        """
        models, shards = call.models, call.shards
        results = {
            "loss": models.new_zeros(len(shards)),
            "first_loss": models.new_zeros(len(shards)),
            "steps": torch.zeros_like(shards.count),
        }
        if call.each_step:
            results["step_loss"] = models.new_full((len(shards), call.most_steps), torch.nan)
        # how much there is to do is planned by the host, so that it waits for the device once
        known = in_host_memory(shards)
        steps = known.num_steps(call.solver)
        self._sizes = []
        for plan in plans(call, known, steps, self.network, self.pool, self.products):
            self._train_some(plan, known, steps, results, keep)
        return results

    @property
    def padding(self) -> float:
        """Padding's share of the batches of the last `train`; compiled code passes it over."""
        sizes = [size for size in self._sizes if size.numel()]
        computed = sum(int(((size > 0).sum(0) * size.amax(0)).sum()) for size in sizes)
        return 1 - sum(int(size.sum()) for size in sizes) / computed if computed else 0.0

    @property
    def together(self) -> int:
        """Most rows that were computed at once in that call."""
        return max((len(size) for size in self._sizes), default=0)

    def _train_some(
        self,
        plan: Plan,
        known: Shards,
        steps: Tensor,
        results: dict[str, Tensor],
        keep: Callable[[Chunk, Tensor], None],
    ) -> None:
        """Local training of the rows of a plan, noted in `found`; see `_train` and `plans`."""
        call, path = plan.call, plan.path
        solver, device, count = call.solver, call.models.device, known.count
        chunks = self._kept.get(path) or self._chunks()

        def train_chunk(some: Tensor) -> None:
            rows = some.to(device, non_blocking=True)
            own = pulled(call.take(rows, int(count[some].max())))
            part = known.work if known.work is None else known.work[some]
            order = schedule(own.shards, solver, replace(own.shards, count=count[some], work=part))
            order.check_batches(lone=self.model.lone)
            chunk = chunks.of(len(rows), plan.rule, plan.pulls, *sorted(plan.frozen))
            task = ChunkTask(
                call=own,
                schedule=order,
                pool=self.pool,
                path=path,
                compiled=plan.compiled,
                in_span=plan.in_span[some],
            )
            losses = train(chunk, task)
            keep(chunk, some)
            results["loss"][rows], results["first_loss"][rows] = losses[:, :2].unbind(1)
            if call.each_step:
                each = losses[:, 2:].where(order.size > 0, torch.nan)
                results["step_loss"][rows, : each.shape[1]] = each
            results["steps"][rows] = order.steps
            self._sizes.append(order.known_size)

        copies = 1 + solver.law.slots + bool(plan.rule.pull) + (not plan.rule.linear)
        width = count if solver.batch_size is None else count.clamp(max=solver.batch_size)
        floats, waste = self._rows.floats, WASTE
        if path is Path.COMPILED:
            width, floats, waste = count, self._rows.model_floats, NO_PADDING
        elif (
            not call.each_step
            and plan.rule.linear
            and gpu.trains_in_one_launch(self.network, device, plan.frozen)
        ):
            # looks at a row's examples where they lie, not at batches
            width, floats, waste = count, self._rows.data_floats, WASTE_OF_ONE_CALL
        if path is Path.SPAN:
            width, floats = count, self._rows.span_floats
        # by steps first, so that the rows still running are always the first ones of a chunk
        size = steps * (known.index.shape[1] + 1) + count
        self._rows.each(size, width, partial(floats, copies), train_chunk, plan.rows, waste=waste)

    @torch.no_grad()
    def loss(self, call: LossCall) -> Tensor:
        """Mean loss of every model on every row [C, K], or of each example [C, n, K]; nats."""
        models, shards = call.models, call.shards
        examples, head = AllPairs.of(shards, self.pool), head_of(self.pool.task)
        each = models.new_zeros(*shards.index.shape, len(models)) if call.per_example else None
        sums = torch.zeros(len(models), len(shards), dtype=torch.float64, device=models.device)
        table = kept_losses(self, call, sums)

        def look(which: Tensor, _: list[int], stacked: StackedModels) -> None:
            if table.has(which):
                return
            total = sums.new_zeros(len(which), len(shards))
            blocks = examples.blocks(stacked, len(which), self._rows.block(len(which)))
            for some, label, given in blocks:
                losses, owner = head.losses(given, label), examples.owner[some]
                if each is not None:
                    to = owner.unsqueeze(1), examples.column[some].unsqueeze(1), which
                    each.index_put_(to, losses.neg_().T)
                else:
                    owner = owner.expand(len(which), -1)
                    total.scatter_add_(1, owner, losses.to(torch.float64).neg_())
            sums[which] = total
            table.note(which)

        self._each_model(models, look)
        if each is not None:
            return each
        return (sums.T / shards.count.clamp(min=1).unsqueeze(1)).to(torch.float32)

    def _each_model(self, models: Tensor, look: Look, **more: Any) -> None:
        """Calls `look` with all of the models [K, P], some at a time; see `_each_stack`."""
        meter.begin(meter.doing, len(models), "models")
        self._each_stack(models, torch.zeros(len(models), dtype=torch.int64), look, **more)

    def _each_stack(
        self,
        models: Tensor,
        count: Tensor,
        look: Look,
        *,
        among: Tensor | None = None,
        label: Tensor | None = None,
        rule: Rule | None = None,
        anchor: Tensor | None = None,
        alone: bool = False,
    ) -> None:
        """Calls `look` with some rows, int64 [R], the examples of each, descending, and their
        models, stacked.

        Args:
            models: [K, P].
            count: int64 [C], the host's, examples of the rows.
            among: int64, the host's, which rows; None for all.
            label: int64 [C] the model of each row; None for one row per model.
            rule: what becomes of gradients; None for models that only look forward.
            anchor: [C, P] what the rule keeps beside the models; None for nothing.
            alone: whether every row is a chunk of its own.
        """
        device = self.pool.x.device
        room = RoomCache(
            lambda rows: StackedModels(self.network, rows, device, self.products, rule),
            4 * self.network.num_params,
        )

        def load(chunk: Tensor) -> None:
            rows = chunk.to(models.device, non_blocking=True)
            stacked = room.of(len(rows))
            beside = None if anchor is None else anchor[rows]
            which = rows if label is None else label[rows]
            stacked.parameters.load(models, which, anchor=beside)
            look(rows, count[chunk].tolist(), stacked)

        floats = partial(self._rows.floats, 1 + (rule is not None))
        self._rows.each(count, count, floats, load, among, alone=alone)

    @torch.no_grad()
    def grad(self, call: GradCall) -> Tensor:
        """Full-batch gradient of the mean loss of models[label[i]] on shard i, [C, P]."""
        models, shards = call.models, call.shards
        gradient = models.new_empty(len(shards), self.layout.num_params)

        def look(rows: Tensor, counts: list[int], stacked: StackedModels) -> None:
            own, block = shards.take(rows, counts[0]), self._rows.block(len(rows))
            add_gradients(stacked, self.pool, own.index, own.share, counts, block)
            stacked.parameters.store(rows, None, gradient)

        rule = Accumulate(self.products)
        self._each_stack(models, shards.count.cpu(), look, label=call.label, rule=rule)
        return gradient

    @torch.no_grad()
    def grad_sums(self, call: GradSumCall) -> GradSums:
        """Sums of the gradients of every model's rows: one gradient of all their examples."""
        models, shards = call.models, call.shards
        grouped = Grouped.of(call.grad.label, shards, len(models), self.pool)
        each = 1 / shards.count.clamp(min=1).to(torch.float32)
        each = (each if call.weight is None else each * call.weight)[grouped.owner]
        total = torch.zeros_like(models)

        def look(rows: Tensor, counts: list[int], stacked: StackedModels) -> None:
            example, inside = grouped.padded(rows, counts[0])
            index, share = grouped.index[example], each[example] * inside
            add_gradients(stacked, self.pool, index, share, counts, self._rows.block(len(rows)))
            stacked.parameters.store(rows, None, total)

        count, rule = grouped.count.cpu(), Accumulate(self.products)
        self._each_stack(models, count, look, among=count.nonzero().squeeze(1), rule=rule)
        return GradSums(total=total)

    @torch.no_grad()
    def align(self, call: AlignCall) -> Alignment:
        """How the gradients of every model on every row lie to the model's direction."""
        models, shards = call.models, call.shards
        if not shards.index.numel() or not aligning.pays(self.network, shards.index.shape[1]):
            return by_gradients(self, call)
        inner = torch.zeros(len(shards), len(models), dtype=torch.float64, device=models.device)
        square, rule = torch.zeros_like(inner), aligning.AlignRule()
        loss = models.new_zeros(len(shards), len(models))

        def look(which: Tensor, _: list[int], stacked: StackedModels) -> None:
            block = self._rows.block(len(which))
            # the losses of some models decide nothing
            own = call if len(which) == len(models) else replace(call, margin=None)
            found = aligning.align(stacked, rule, self.pool, own, block)
            inner[:, which], square[:, which], loss[:, which] = found

        self._each_model(models, look, rule=rule, anchor=call.directions)
        asked = call.undecided(loss).unsqueeze(1)
        return Alignment(inner.where(asked, 0.0), square.where(asked, 0.0), loss)

    @torch.no_grad()
    def test(self, call: TestCall) -> TestResult:
        """Test results of models[label[i]], or of a mixture, on row i."""
        models, label, shards = call.models, call.label, call.shards
        head = head_of(self.pool.task)
        if call.weight is not None:
            examples = AllPairs.of(shards, self.pool)
            mixed = self._mixed(models, call.weight, examples)
            settled = head.settle(mixed, self.pool.y[examples.index])
            return summed(examples.owner, *settled, len(shards))
        if softmax.scores(self.network, self.pool, self.products):
            return softmax.score_softmax(self.network, self.pool, call)
        if softmax.gives(self.network, self.pool, self.products):
            return judged(softmax.outputs_of(self.network, self.pool, call), shards, self.pool)
        grouped = self._tested.of(label, shards, len(models))
        block = self._rows.block(1)
        # of every example, and of padding
        loss = torch.zeros(len(grouped.index) + 1, dtype=torch.float64, device=models.device)
        sums = loss.new_zeros(len(loss), self.pool.num_sums)

        def look(rows: Tensor, counts: list[int], stacked: StackedModels) -> None:
            for example, to, given in looked(stacked, grouped, rows, counts, block):
                own = targets(self.pool, grouped.index[example])
                loss[to] = -head.losses(given, own).to(torch.float64)
                sums[to] = head.sums(given, own).to(torch.float64)

        self._each_group(models, grouped, look)
        return summed(grouped.owner, loss[:-1], sums[:-1], len(shards))

    def _each_group(self, models: Tensor, grouped: Grouped, look: Look) -> None:
        """Calls `look` with those of the models [K, P] that have examples; see `_each_stack`."""
        count = grouped.count.cpu()
        among, alone = count.nonzero().squeeze(1), grouped.inputs is not None
        meter.begin(meter.doing, len(among), "models")
        self._each_stack(models, count, look, among=among, alone=alone)

    @torch.no_grad()
    def predict(self, call: PredictCall) -> Tensor:
        """Outputs of models[label[i]], or of a mixture, for the examples of row i, [C, n, Y]."""
        models, shards = call.models, call.shards
        out, head = models.new_zeros(*shards.index.shape, self.pool.width), head_of(self.pool.task)
        if call.weight is not None:
            examples = AllPairs.of(shards, self.pool)
            mixed = self._mixed(models, call.weight, examples)
            outputs = head.settled(mixed, self.pool.y[examples.index])
            out[examples.owner, examples.column] = outputs.to(out.dtype)
            return out
        grouped, block = Grouped.of(call.label, shards, len(models), self.pool), self._rows.block(1)
        outputs = models.new_zeros(len(grouped.index) + 1, self.pool.width)

        def look(rows: Tensor, counts: list[int], stacked: StackedModels) -> None:
            for _, to, given in looked(stacked, grouped, rows, counts, block):
                outputs[to] = head.outputs(given)

        self._each_group(models, grouped, look)
        out[grouped.owner, grouped.column] = outputs[:-1]
        return out

    answers: ClassVar = {
        TrainCall: train,
        SumCall: sums,
        LossCall: loss,
        GradCall: grad,
        GradSumCall: grad_sums,
        AlignCall: align,
        TestCall: test,
        PredictCall: predict,
    }

    def _mixed(self, models: Tensor, weight: Tensor, examples: AllPairs) -> Tensor:
        """The mixtures of all models by the weights [C, K] of the rows, see `Head.nobody`."""
        head, width = head_of(self.pool.task), self.network.shapes[-1][0]
        mixed = head.nobody(len(examples.index), width, models)

        def look(which: Tensor, _: list[int], stacked: StackedModels) -> None:
            own, block = weight[:, which], self._rows.block(len(which))
            for some, _label, given in examples.blocks(stacked, len(which), block):
                head.mix(given, own[examples.owner[some]], mixed, some)

        self._each_model(models, look)
        return mixed

    def _chunks(self, most: int = 0) -> RoomCache[Chunk]:
        """Chunks to train, of which several may keep `most` bytes of parameters."""
        device = self.pool.x.device
        return RoomCache(
            lambda rows, rule, pulls, *frozen: Chunk.of(
                self.network.pulled(pulls), rows, device, rule, *frozen
            ),
            4 * self.network.num_params,
            most,
        )
