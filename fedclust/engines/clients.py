"""The engine as an algorithm sees it: client ids in, tensors out, for one seed."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedclust.core.attack import Attack, any_hostile, forged
from fedclust.core.calls import (
    AlignCall,
    Alignment,
    GradCall,
    GradSumCall,
    LocalResult,
    LossCall,
    MeanResult,
    PredictCall,
    Shards,
    SumCall,
    TestCall,
)
from fedclust.core.front import Train
from fedclust.core.kept import Kept
from fedclust.core.own_statistics import OwnStatistics
from fedclust.core.server import Server
from fedclust.core.solver import Solver
from fedclust.core.types import Evaluation, Predictions, Round, Served, Split
from fedclust.core.verbs import Engine
from fedclust.engines.recalibrated import recalibrated
from fedclust.helpers.errors import DivergedError, require
from fedclust.helpers.ops import cluster_sum, mean_of
from fedclust.helpers.rng import Stream, permutations
from fedclust.models.params import Layout

_OUTPUTS = 1 << 22  # numbers of predictions that are there at once, padded


def shards_of(split: Split, ids: Tensor, rnd: Round, purpose: str) -> Shards:
    """The data of some ids, each with the key of its randomness this round."""
    index, count = split.take(ids)
    return Shards(index=index, count=count, key=rnd.stream(purpose).keys(ids))


def batch_of(ids: Tensor, rnd: Round, batch_size: int) -> Shards:
    """One batch of min(batch_size, count) random training examples of each client, its own every
    round.
    """
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
    """The mean losses that a seed asked for last: serving the model of least loss asks for those
    that the next round begins with.

    Models and data are compared by identity, and by the counter PyTorch keeps of changes in place.
    The losses are forgotten with the models.
    """

    def __init__(self) -> None:
        self._models: weakref.ref[Tensor] | None = None
        self._asked: tuple[int, Split, Tensor] | None = None
        self._table: Tensor | None = None

    def of(self, models: Tensor, data: Split, ids: Tensor) -> Tensor | None:
        """The losses [C, K], if these were asked for last."""
        if self._models is None or self._models() is not models or self._asked is None:
            return None
        version, split, asked = self._asked
        same = split is data and models._version == version and len(ids) == len(asked)
        return self._table if same and torch.equal(ids, asked) else None

    def keep(self, models: Tensor, data: Split, ids: Tensor, table: Tensor) -> None:
        """Remember losses in place of the last ones."""
        self._models = weakref.ref(models, self._forget)
        self._asked, self._table = (models._version, data, ids), table

    def _forget(self, dead: weakref.ref[Tensor]) -> None:
        if dead is self._models:
            self._models = self._asked = self._table = None


@dataclass
class SeedClients:
    """The clients of one seed in one round, computed by an engine; see `fedclust.verbs.Clients`.

    Attributes:
        engine: what computes; possibly shared with other seeds through `fedclust.engines.lockstep`.
        rnd: the round.
        discrepancy: whether the models of single clients are asked for where their mean is.
        passes: counts what `loss`, `grad` and `align` are asked for.
        losses: what was computed last, handed on from round to round.
        server, kept: see `fedclust.core.verbs.Clients`.
        attack: what hostile clients do; None where there are none.
        own: what clients have in place of parts of each model; None for nothing.
        tested: what they have of their own in a test of the round; None for no other than `own`.
    """

    engine: Engine
    rnd: Round
    discrepancy: bool = False
    passes: Passes = field(default_factory=Passes)
    losses: LastLosses = field(default_factory=LastLosses, repr=False)
    server: Server = field(default_factory=Server, repr=False)
    kept: Kept | None = field(default=None, repr=False)
    attack: Attack | None = None
    own: OwnStatistics | None = field(default=None, repr=False)
    tested: OwnStatistics | None = field(default=None, repr=False)
    _batch: tuple[Tensor, int, Shards] | None = field(default=None, repr=False)

    @property
    def exact(self) -> bool:
        """Whether a row has the same bits in any company."""
        return self.engine.exact

    @property
    def layout(self) -> Layout:
        """Where each parameter lies in a model's row [P]."""
        return self.engine.layout

    def at(self, rnd: Round) -> SeedClients:
        """The same clients as they are in `rnd`."""
        return replace(self, rnd=rnd, _batch=None)

    def aside(self) -> SeedClients:
        """The same clients as they are now, to serve and to test within a round."""
        if self.tested is None:
            return replace(self, kept=None, _batch=None)
        own = self.tested.aside()
        how = own if own.kept else None
        return replace(self, kept=None, own=how, tested=own, _batch=None)

    def init(self, stream: Stream, k: int) -> Tensor:
        """k independent initial models, [k, P]."""
        return torch.stack([self.engine.init(stream.fold(j)) for j in range(k)])

    def train(self, asked: Train) -> LocalResult:
        """Local training of the clients, each as far as it gets this round.

        Raises:
            DivergedError: naming the first client whose loss is not finite.
        """
        models, label, ids, solver, work = (
            *(asked.models, asked.label, asked.ids),
            *(asked.solver, asked.work),
        )
        purpose = asked.purpose
        shards, kept, own = self._training(ids, purpose), self._kept_by(solver), None
        group, begun = label, None
        if self.own is not None:
            begun = models[label]
            models, label = self.own.placed(begun, ids), torch.arange(len(ids), device=ids.device)
            if work.slots is not None:
                work = replace(work, slots=work.slots[group])
        if kept is not None:
            own = kept.of(purpose, ids)
            width = solver.law.width(self.layout.num_params)
            work = replace(work, slots=kept.rows[own][:, :width])
            # what is kept is found by the model that a row starts from
            models, label = models[label], torch.arange(len(ids), device=ids.device)
        call = work.on(models, label, shards, solver, solver.rate(self.rnd.t))
        result = self.engine.answer(call)
        if kept is not None and own is not None and result.slots is not None:
            kept.keep(own, result.slots)
            result = replace(result, slots=None)
        if result.step_loss is not None:  # as wide as the longest client of all that it met
            most = int(result.steps.max()) if len(ids) else 0
            result = replace(result, step_loss=result.step_loss[:, :most])
        _check_finite(result.loss, "training", ids, self.rnd)
        # what is adapted by its client before use is sent to nobody
        if purpose != "finetune" and any_hostile(self.attack, ids, self.rnd):
            start, moves = models[label], result.params - models[label]
            sent = self._sent(moves, group, ids)
            params = result.params.where(sent == moves, start + sent)  # to the bit where honest
            result = replace(result, params=params)
        if begun is not None:
            result = replace(result, params=self._shared(result.params, begun, ids, purpose))
        return result

    def _sent(self, moves: Tensor, label: Tensor, ids: Tensor) -> Tensor:
        """The updates [C, P] that the clients send."""
        return forged(self.attack, moves, label, ids, self.rnd, self.layout.num_trained)

    def _shared(self, params: Tensor, start: Tensor, ids: Tensor, purpose: str) -> Tensor:
        """What is sent of what clients made, params [C, P]; they keep the rest where they train for
        the method, not to get to know each other.
        """
        assert self.own is not None
        if self.own.kept and (self.own.tuned or purpose == "train"):
            return self.own.keep(params, start, ids)
        return torch.where(self.own.columns, start, params)

    def _of_each(self, models: Tensor, label: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The models and the labels of a call in which client i has models[label[i]], with what is
        its own.
        """
        if self.own is None:
            return models, label
        own = torch.arange(len(ids), device=ids.device)
        return self.own.placed(models[label], ids), own

    def recalibrated(self, models: Tensor, label: Tensor, ids: Tensor) -> Tensor:
        """models[label[i]] with the statistics of the training examples of client i, of which it
        has two at least, [C, P].
        """
        self.passes.forward += len(ids)
        shards = shards_of(self.rnd.fed.train, ids, self.rnd, "recalibrate")
        return recalibrated(self.engine, models, label, shards)

    def train_mean(self, asked: Train) -> MeanResult:
        """Local training of the clients, and the mean of what it makes of every model.

        Raises:
            DivergedError: naming the first client whose loss is not finite.
        """
        models, label, ids = asked.models, asked.label, asked.ids
        solver, weight = asked.solver, asked.weight
        slots, work = asked.work.slots, replace(asked.work, each_step=False)
        alone = self.discrepancy or self.own is not None or self._kept_by(solver) is not None
        if alone or any_hostile(self.attack, ids, self.rnd):
            local = self.train(replace(asked, work=work))
            how = {"keep": self.discrepancy, "exact": self.exact}
            return MeanResult.of(local, models, label, weight, slots, **how)
        shards, rate = self._training(ids, "train"), solver.rate(self.rnd.t)
        call = work.on(models, label, shards, solver, rate)
        sums = self.engine.answer(SumCall(call, weight))
        _check_finite(sums.loss, "training", ids, self.rnd)
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

    def _kept_by(self, solver: Solver) -> Kept | None:
        """What a solver's clients have kept of earlier rounds, if they keep it."""
        return self.kept if solver.keep == "client" else None

    def _training(self, ids: Tensor, purpose: str) -> Shards:
        """The training data of the clients, each as far as it gets this round."""
        shards = shards_of(self.rnd.fed.train, ids, self.rnd, purpose)
        return replace(shards, work=self.rnd.work[ids])

    def loss(self, models: Tensor, ids: Tensor, batch_size: int | None = None) -> Tensor:
        """Mean training loss of every model for every client, [C, K] nats per example."""
        self.passes.forward += len(models) * len(ids)
        data = self.rnd.fed.train
        kept = None if batch_size is not None else self.losses.of(models, data, ids)
        if kept is not None:
            return kept
        if self.own is not None:
            return self._own_losses(models, ids, batch_size)
        table = self.engine.answer(LossCall(models, self._read(ids, "loss", batch_size)))
        if batch_size is None:
            self.losses.keep(models, data, ids, table)
        return table

    def _own_losses(self, models: Tensor, ids: Tensor, batch_size: int | None) -> Tensor:
        """As `loss`, where each client has every model with what is its own."""
        shards = self._read(ids, "loss", batch_size)
        out = torch.zeros(len(ids), len(models), device=models.device)
        for k in range(len(models)):
            label = torch.full_like(ids, k)
            rows, own = self._of_each(models, label, ids)
            total = self.engine.answer(TestCall(rows, own, shards)).loss_sum
            out[:, k] = (total / shards.count.clamp(min=1)).to(out.dtype)
        return out

    def example_losses(self, models: Tensor, ids: Tensor, passes: int | None = None) -> Tensor:
        """Loss of every model on every training example, [C, n, K] nats, 0 past the count."""
        self.passes.forward += (len(models) if passes is None else passes) * len(ids)
        shards = self._read(ids, "loss", None)
        if self.own is None or not len(ids):
            return self.engine.answer(LossCall(models, shards, per_example=True))
        tables = []
        for row in range(len(ids)):
            alone = torch.tensor([row], device=ids.device)
            rows = self.own.placed(models, ids[alone].expand(len(models)))
            tables.append(self.engine.answer(LossCall(rows, shards.take(alone), per_example=True)))
        return torch.cat(tables)

    def grad(
        self, models: Tensor, label: Tensor, ids: Tensor, batch_size: int | None = None
    ) -> Tensor:
        """Gradient of the mean training loss of models[label[i]] for client i, [C, P]."""
        self.passes.backward += len(ids)
        group = label
        models, label = self._of_each(models, label, ids)
        found = self.engine.answer(GradCall(models, label, self._read(ids, "grad", batch_size)))
        # an update is a step against the gradient
        hostile = any_hostile(self.attack, ids, self.rnd)
        return -self._sent(-found, group, ids) if hostile else found

    def grad_sum(
        self,
        models: Tensor,
        label: Tensor,
        ids: Tensor,
        batch_size: int | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Sum of the gradients of every model's clients, [K, P]."""
        if self.own is not None or any_hostile(self.attack, ids, self.rnd):
            found = self.grad(models, label, ids, batch_size)
            return cluster_sum(found, label, len(models), weight)
        self.passes.backward += len(ids)
        call = GradCall(models, label, self._read(ids, "grad", batch_size))
        return self.engine.answer(GradSumCall(call, weight)).total.to(models.dtype)

    def align(
        self,
        models: Tensor,
        directions: Tensor,
        ids: Tensor,
        batch_size: int | None = None,
        margin: Tensor | None = None,
    ) -> Alignment:
        """How the gradients of every model for every client lie to the model's direction."""
        allowed = "average or recalibrate, where gradients of every model are compared"
        require(self.own is None, "norm", self.own and self.own.norm, allowed)
        self.passes.forward += len(models) * len(ids)
        # of all clients, as the methods say: that a `margin` leaves some out is our own saving
        self.passes.backward += int(directions.any(1).sum()) * len(ids)
        shards = self._read(ids, "grad", batch_size)
        return self.engine.answer(AlignCall(models, directions, shards, margin))

    def _read(self, ids: Tensor, purpose: str, batch_size: int | None) -> Shards:
        """All training data of the clients, or a batch that does not depend on the purpose.

        The batches drawn last are kept: JGL asks for its own once per cluster, and drawing sorts
        all examples.
        """
        if batch_size is None:
            return shards_of(self.rnd.fed.train, ids, self.rnd, purpose)
        if self._batch is None or self._batch[0] is not ids or self._batch[1] != batch_size:
            self._batch = ids, batch_size, batch_of(ids, self.rnd, batch_size)
        return self._batch[2]

    def evaluate(self, served: Served, *, must_be_finite: bool = True) -> Evaluation:
        """Test results of what is served, for every honest client that has a label and test data.

        Raises:
            DivergedError: naming the first client whose loss is not finite, where it must be.
        """
        fed = self.rnd.fed
        ids = ((served.label >= 0) & fed.tested).nonzero().squeeze(1)
        shards = shards_of(fed.test, ids, self.rnd, "evaluate")
        weight = None if served.weight is None else served.weight[ids]
        models, label = self._of_each(served.models, served.label[ids], ids)
        result = self.engine.answer(TestCall(models, label, shards, weight))
        if must_be_finite:
            _check_finite(result.loss_sum, "test", ids, self.rnd)
        blank = torch.zeros(fed.num_clients, dtype=torch.int64, device=ids.device)
        none = blank.to(torch.float64)
        return Evaluation(
            served=served,
            loss_sum=none.index_copy(0, ids, result.loss_sum),
            sums=none.new_zeros(len(none), result.sums.shape[1]).index_copy(0, ids, result.sums),
            count=blank.index_copy(0, ids, shards.count),
        )

    def test(self, served: Served) -> Evaluation:
        """As `evaluate`, with the statistics of the round's own test."""
        if self.tested is None:
            return self.evaluate(served)
        own = self.tested.in_test(served, self.rnd.fed.train.count, self.recalibrated)
        return replace(self, own=own).evaluate(served)

    def predict(self, served: Served) -> Predictions:
        """What is said of the test examples of every client that has a label."""
        fed, task = self.rnd.fed, self.rnd.fed.pool.task
        ids = ((served.label >= 0) & fed.tested).nonzero().squeeze(1)
        longest = int(fed.test.count.max()) if len(fed.test.count) else 0
        parts = []
        each = max(1, _OUTPUTS // max(1, longest * fed.pool.width))
        for some in torch.split(ids, each):
            shards = shards_of(fed.test, some, self.rnd, "evaluate")
            weight = None if served.weight is None else served.weight[some]
            models, label = self._of_each(served.models, served.label[some], some)
            call = PredictCall(models, label, shards, weight)
            outputs = self.engine.answer(call)[:, : shards.index.shape[1]]
            position = torch.arange(shards.index.shape[1], device=some.device)
            inside = position < shards.count.unsqueeze(1)
            said = task.in_unit(task.predict(outputs[inside].double()))
            parts.append((some.repeat_interleave(shards.count), shards.index[inside], said))
        client, row, said = (torch.cat(part).cpu() for part in zip(*parts, strict=True))
        targets = task.in_unit(fed.pool.y[row.to(ids.device)]).cpu()
        row = fed.pool.row(row)  # as the table of the partition counts
        return Predictions(client=client, row=row, targets=targets, predictions=said.double())


def _check_finite(loss: Tensor, kind: str, ids: Tensor, rnd: Round) -> None:
    """Refuse losses [C] of which one is not finite."""
    finite = torch.isfinite(loss)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise DivergedError(
            f"seed {rnd.seed}, round {rnd.t}: the {kind} loss of client {int(ids[row])} is "
            f"{float(loss[row])}; a smaller solver.lr may help"
        )
