"""The engine as an algorithm sees it: client ids in, tensors out, for one seed."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from fedclust.core.calls import (
    AlignCall,
    Alignment,
    Call,
    GradCall,
    GradSumCall,
    LocalResult,
    LossCall,
    MeanResult,
    PredictCall,
    Shards,
    SumCall,
    TestCall,
    TestResult,
    TrainCall,
)
from fedclust.core.front import Gradient, Train, mean_by_rows
from fedclust.core.server import Server
from fedclust.core.types import Evaluation, Predictions, Round, Served, Split
from fedclust.core.verbs import Engine
from fedclust.engines.located import named
from fedclust.engines.recalibrated import recalibrated
from fedclust.helpers.errors import DivergedError
from fedclust.helpers.ops import mean_of
from fedclust.helpers.rng import Stream, permutations
from fedclust.models.params import Layout

R = TypeVar("R")

_OUTPUTS = 1 << 22  # numbers of predictions that are there at once, padded


def shards_of(split: Split, ids: Tensor, rnd: Round, purpose: str) -> Shards:
    """The data of some ids, each with the key of its randomness this round."""
    index, count = split.take(ids)
    return Shards(index=index, count=count, key=rnd.stream(purpose).keys(ids))


def batch_of(ids: Tensor, rnd: Round, batch_size: int) -> Shards:
    """One batch of min(batch_size, count) random training examples a client, new every round."""
    shards = shards_of(rnd.fed.train, ids, rnd, "batch")
    longest = shards.index.shape[1]
    # the real examples come first
    order = permutations(shards.key, shards.count, longest)[:, :batch_size]
    count = shards.count.clamp(max=batch_size)
    inside = torch.arange(order.shape[1], device=count.device) < count.unsqueeze(1)
    return replace(shards, index=shards.index.gather(1, order).masked_fill(~inside, 0), count=count)


@dataclass
class Passes:
    """(model, client) pairs computed so far apart from local training and testing."""

    forward: int = 0
    backward: int = 0


class LastLosses:
    """The mean losses that a seed asked for last, while models and data are the same and unchanged:
    serving the model of least loss asks for those that the next round begins with.
    """

    def __init__(self) -> None:
        # models and the counter of their changes, data, clients, losses
        self._last: tuple[weakref.ref[Tensor], int, Split, Tensor, Tensor] | None = None

    def of(self, models: Tensor, data: Split, ids: Tensor) -> Tensor | None:
        """The losses [C, K], if these were asked for last."""
        if self._last is None:
            return None
        known, version, split, asked, table = self._last
        same = known() is models and models._version == version and split is data
        return table if same and len(ids) == len(asked) and torch.equal(ids, asked) else None

    def keep(self, models: Tensor, data: Split, ids: Tensor, table: Tensor) -> None:
        """Remember losses in place of the last ones."""
        self._last = weakref.ref(models, self._forget), models._version, data, ids, table

    def _forget(self, dead: weakref.ref[Tensor]) -> None:
        if self._last is not None and self._last[0] is dead:
            self._last = None


@dataclass
class LastBatch:
    """The batches drawn last: JGL asks for them per cluster, and drawing sorts all examples."""

    drawn: tuple[Tensor, int, Shards] | None = None

    def of(self, ids: Tensor, rnd: Round, batch_size: int) -> Shards:
        """One batch of each client."""
        if self.drawn is None or self.drawn[0] is not ids or self.drawn[1] != batch_size:
            self.drawn = ids, batch_size, batch_of(ids, rnd, batch_size)
        return self.drawn[2]


@dataclass(frozen=True)
class SeedClients:
    """The clients of one seed in one round, computed by an engine; see `fedclust.verbs.Clients`.

    Attributes:
        engine: what computes; possibly shared with other seeds through `fedclust.engines.lockstep`.
        discrepancy: whether the models of single clients are asked for where their mean is.
        passes: counts what `loss`, `grad` and `align` are asked for.
        losses: what was computed last, handed on from round to round.
        server: see `fedclust.verbs.Clients`.
    """

    engine: Engine
    rnd: Round
    discrepancy: bool = False
    passes: Passes = field(default_factory=Passes)
    losses: LastLosses = field(default_factory=LastLosses, repr=False)
    server: Server = field(default_factory=Server, repr=False)
    _batch: LastBatch = field(default_factory=LastBatch, repr=False)

    @property
    def exact(self) -> bool:
        return self.engine.exact

    @property
    def layout(self) -> Layout:
        return self.engine.layout

    def at(self, rnd: Round) -> SeedClients:
        return replace(self, rnd=rnd, _batch=LastBatch())

    def aside(self) -> SeedClients:
        """Themselves: they keep nothing."""
        return self

    def init(self, stream: Stream, k: int) -> Tensor:
        return torch.stack([self.engine.init(stream.fold(j)) for j in range(k)])

    def train(self, asked: Train) -> LocalResult:
        """Local training; DivergedError names the first client whose loss is not finite."""
        with named("", asked.ids, self.rnd):
            result = self.engine.answer(self._call(asked))
        if result.step_loss is not None:  # as wide as the longest client of all that it met
            most = int(result.steps.max()) if len(asked.ids) else 0
            result = replace(result, step_loss=result.step_loss[:, :most])
        _check_finite(result.loss, "training", asked.ids, self.rnd)
        return result

    def train_mean(self, asked: Train) -> MeanResult:
        """Local training, and the mean of what it makes of every model; errors as `train`."""
        if self.discrepancy:
            return mean_by_rows(self, asked)
        models, label, weight = asked.models, asked.label, asked.weight
        slots, work = asked.work.slots, replace(asked.work, each_step=False)
        with named("", asked.ids, self.rnd):
            sums = self.engine.answer(SumCall(self._call(replace(asked, work=work)), weight))
        _check_finite(sums.loss, "training", asked.ids, self.rnd)
        moved = None
        if sums.slots is not None:
            assert slots is not None
            moved = mean_of(sums.slots, label, weight, empty=slots)
        return MeanResult(
            models=mean_of(sums.params, label, weight, empty=models),
            slots=moved,
            loss=sums.loss,
            first_loss=sums.first_loss,
            steps=sums.steps,
            params=None,
        )

    def _call(self, asked: Train) -> TrainCall:
        """What is asked of the engine."""
        shards = shards_of(self.rnd.fed.train, asked.ids, self.rnd, asked.purpose)
        shards = replace(shards, work=self.rnd.work[asked.ids])
        models, label = _rows(asked.models, asked.label, asked.start)
        return asked.work.on(models, label, shards, asked.solver, asked.solver.rate(self.rnd.t))

    def recalibrated(self, models: Tensor, label: Tensor, ids: Tensor) -> Tensor:
        self.passes.forward += len(ids)
        shards = shards_of(self.rnd.fed.train, ids, self.rnd, "recalibrate")
        with named("statistics", ids, self.rnd):
            return recalibrated(self.engine, models, label, shards)

    def loss(self, models: Tensor, ids: Tensor, batch_size: int | None = None) -> Tensor:
        self.passes.forward += len(models) * len(ids)
        data = self.rnd.fed.train
        kept = None if batch_size is not None else self.losses.of(models, data, ids)
        if kept is not None:
            return kept
        table = self._answered(LossCall(models, self._read(ids, "loss", batch_size)), ids)
        if batch_size is None:
            self.losses.keep(models, data, ids, table)
        return table

    def loss_of_each(self, models: Tensor, ids: Tensor, batch_size: int | None = None) -> Tensor:
        self.passes.forward += len(ids)
        shards = self._read(ids, "loss", batch_size)
        own = torch.arange(len(ids), device=ids.device)
        total = self._answered(TestCall(models, own, shards), ids).loss_sum
        return (total / shards.count.clamp(min=1)).to(models.dtype)

    def example_losses(self, models: Tensor, ids: Tensor, passes: int | None = None) -> Tensor:
        self.passes.forward += (len(models) if passes is None else passes) * len(ids)
        shards = self._read(ids, "loss", None)
        return self._answered(LossCall(models, shards, per_example=True), ids)

    def grad(self, asked: Gradient) -> Tensor:
        return self._answered(self._grad_call(asked), asked.ids)

    def grad_sum(self, asked: Gradient) -> Tensor:
        call = GradSumCall(self._grad_call(asked), asked.weight)
        return self._answered(call, asked.ids).total.to(asked.models.dtype)

    def _grad_call(self, asked: Gradient) -> GradCall:
        """What is asked of the engine."""
        self.passes.backward += len(asked.ids)
        models, label = _rows(asked.models, asked.label, asked.start)
        return GradCall(models, label, self._read(asked.ids, "grad", asked.batch_size))

    def align(
        self,
        models: Tensor,
        directions: Tensor,
        ids: Tensor,
        batch_size: int | None = None,
        margin: Tensor | None = None,
    ) -> Alignment:
        self.passes.forward += len(models) * len(ids)
        # of all clients, as the methods say: that a `margin` leaves some out is our own saving
        self.passes.backward += int(directions.any(1).sum()) * len(ids)
        shards = self._read(ids, "grad", batch_size)
        return self._answered(AlignCall(models, directions, shards, margin), ids)

    def _answered(self, call: Call[R], ids: Tensor) -> R:
        """What an engine answers; where it fails, the error names the clients."""
        with named(call.doing, ids, self.rnd):
            return self.engine.answer(call)

    def _asked(self, served: Served, ids: Tensor) -> tuple[Tensor, Tensor, Shards, Tensor | None]:
        """The parts of a call that tests what the clients `ids` [C] are served."""
        shards = shards_of(self.rnd.fed.test, ids, self.rnd, "evaluate")
        weight = None if served.weight is None else served.weight[ids]
        models, label, own = served.models, served.label[ids], None
        if served.own is not None:
            own = served.own.placed(models[label], ids)
        return *_rows(models, label, own), shards, weight

    def _read(self, ids: Tensor, purpose: str, batch_size: int | None) -> Shards:
        """All training data of the clients, or a batch that does not depend on the purpose."""
        if batch_size is None:
            return shards_of(self.rnd.fed.train, ids, self.rnd, purpose)
        return self._batch.of(ids, self.rnd, batch_size)

    def trial(self, served: Served) -> TestResult:
        tested = self.evaluate(served)
        return TestResult(loss_sum=tested.loss_sum, sums=tested.sums)

    def evaluate(self, served: Served, *, must_be_finite: bool = True) -> Evaluation:
        """Test results of what is served, for every honest client that has a label and test data.

        Raises:
            DivergedError: naming the first client whose loss is not finite, where it must be.
        """
        fed = self.rnd.fed
        ids = ((served.label >= 0) & fed.tested).nonzero().squeeze(1)
        call = TestCall(*self._asked(served, ids))
        result = self._answered(call, ids)
        if must_be_finite:
            _check_finite(result.loss_sum, "test", ids, self.rnd)
        blank = torch.zeros(fed.num_clients, dtype=torch.int64, device=ids.device)
        none = blank.to(torch.float64)
        return Evaluation(
            served=served,
            loss_sum=none.index_copy(0, ids, result.loss_sum),
            sums=none.new_zeros(len(none), result.sums.shape[1]).index_copy(0, ids, result.sums),
            count=blank.index_copy(0, ids, call.shards.count),
        )

    def predict(self, served: Served) -> Predictions:
        """What is said of the test examples of every client that has a label."""
        fed, task = self.rnd.fed, self.rnd.fed.pool.task
        ids = ((served.label >= 0) & fed.tested).nonzero().squeeze(1)
        longest = int(fed.test.count.max()) if len(fed.test.count) else 0
        parts = []
        each = max(1, _OUTPUTS // max(1, longest * fed.pool.width))
        for some in torch.split(ids, each):
            call = PredictCall(*self._asked(served, some))
            shards = call.shards
            outputs = self._answered(call, some)[:, : shards.index.shape[1]]
            position = torch.arange(shards.index.shape[1], device=some.device)
            inside = position < shards.count.unsqueeze(1)
            predictions = task.in_unit(task.predict(outputs[inside].double()))
            parts.append((some.repeat_interleave(shards.count), shards.index[inside], predictions))
        client, row, predictions = (torch.cat(part).cpu() for part in zip(*parts, strict=True))
        targets = task.in_unit(fed.pool.y[row.to(ids.device)]).cpu()
        row = fed.pool.row(row)  # as the table of the partition counts
        return Predictions(
            client=client, row=row, targets=targets, predictions=predictions.double()
        )


def _rows(models: Tensor, label: Tensor, start: Tensor | None) -> tuple[Tensor, Tensor]:
    """The models and the labels of a call in which client i has models[label[i]], or `start[i]`."""
    if start is None:
        return models, label
    return start, torch.arange(len(start), device=label.device)


def _check_finite(loss: Tensor, kind: str, ids: Tensor, rnd: Round) -> None:
    """Refuse losses [C] of which one is not finite."""
    finite = torch.isfinite(loss)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise DivergedError(
            f"seed {rnd.seed}, round {rnd.t}: the {kind} loss of client {int(ids[row])} is "
            f"{float(loss[row])}; a smaller solver.lr may help"
        )
