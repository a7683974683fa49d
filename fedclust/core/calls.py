"""What is asked of an engine, as values that hold the tensors of all C rows.

Calls of one `kind` can be merged into one, a call can be reduced to some of its rows, and a result
can be cut again. The symbols of the shape comments are those of `fedclust.types`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.weak import WeakIdKeyDictionary

from fedclust.core.solver import Solver
from fedclust.helpers.ops import cluster_mean

# what indexes of several calls were merged into, by the first of them
_merged: MutableMapping[Tensor, tuple[list[weakref.ref[Tensor]], Tensor]] = WeakIdKeyDictionary()

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# what a field of a call or a result has a row of, where it is not a client
_OF_MODELS = {"of": "models"}  # [K, ...]
_OF_EXAMPLES = {"of": "examples"}  # [C, n]
_OF_CALL = {"of": "call"}  # the same for all rows of all calls of a kind
_LABEL = {"of": "rows, and counts models"}  # [C] int64 in [0, K)


@dataclass(frozen=True, kw_only=True)
class Shards:
    """The data of the rows of one call, and the key of their randomness.

    Attributes:
        index: [C, n] int64 pool rows, 0 past the count.
        count: [C] int64 examples.
        key: [C] int64 randomness of (seed, purpose, round, client).
        work: [C] float32 in (0, 1] fraction of the local steps to take, rounded up; None for all of
            them.
    """

    index: Tensor
    count: Tensor
    key: Tensor
    work: Tensor | None = None

    def __len__(self) -> int:
        """C."""
        return len(self.count)

    @property
    def share(self) -> Tensor:
        """What each example is of its row's mean, [C, n] float32, 0 past the count."""
        inside = torch.arange(self.index.shape[1], device=self.count.device)
        share = 1 / self.count.clamp(min=1).to(torch.float32).unsqueeze(1)
        return share * (inside < self.count.unsqueeze(1))

    def num_steps(self, solver: Solver) -> Tensor:
        """Local steps of every row, [C] int64: ceil(work * all its steps)."""
        return solver.steps_of(self.count, self.work)

    def take(self, rows: Tensor, longest: int | None = None) -> Shards:
        """The data of some rows [R], with `longest` columns of the index; None for all."""
        return Shards(
            index=self.index[rows, :longest],
            count=self.count[rows],
            key=self.key[rows],
            work=None if self.work is None else self.work[rows],
        )

    @classmethod
    def merge(cls, parts: Sequence[Shards]) -> Shards:
        """The rows of several calls, one after the other, padded to the longest."""
        works = [
            torch.ones_like(s.count, dtype=torch.float32) if s.work is None else s.work
            for s in parts
        ]
        return cls(
            index=_wide_index([s.index for s in parts]),
            count=torch.cat([s.count for s in parts]),
            key=torch.cat([s.key for s in parts]),
            work=None if all(s.work is None for s in parts) else torch.cat(works),
        )


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What of a local step may differ from row to row of one call; see `fedclust.solver.Solver`.

    Attributes:
        lr, proximal, weight_decay: [C] float64.
    """

    lr: Tensor
    proximal: Tensor
    weight_decay: Tensor

    @classmethod
    def of(cls, calls: Sequence[TrainCall]) -> Rates | None:
        """Those of the rows of several calls; None where all rows have the same."""
        numbers = {(c.lr, c.solver.proximal, c.solver.weight_decay) for c in calls}
        if len(numbers) == 1 and all(c.rates is None for c in calls):
            return None
        parts = [c.own_rates for c in calls]
        return cls(
            lr=torch.cat([part.lr for part in parts]),
            proximal=torch.cat([part.proximal for part in parts]),
            weight_decay=torch.cat([part.weight_decay for part in parts]),
        )

    def take(self, rows: Tensor | slice) -> Rates:
        """Those of some rows."""
        values = self.lr[rows], self.proximal[rows], self.weight_decay[rows]
        return Rates(lr=values[0], proximal=values[1], weight_decay=values[2])


@dataclass(frozen=True, kw_only=True)
class LocalResult:
    """What local training returns.

    Attributes:
        params: [C, P] parameters after the last local step.
        slots: [C, W] what the solver keeps after the last local step, see `Law.width`; None where
            it keeps nothing.
        loss: [C] mean training loss over the local steps, nats per example, without penalty terms.
        first_loss: [C] mean training loss of the examples of the first local epoch, each before the
            step it is part of; nats.
        steps: [C] int64 local steps taken.
        step_loss: [C, S] mean training loss of the batch of every step, before the step, NaN past a
            row's last one; None where the call did not ask for it.
    """

    params: Tensor
    slots: Tensor | None
    loss: Tensor
    first_loss: Tensor
    steps: Tensor
    step_loss: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Sums:
    """What local training adds up to, model by model.

    Attributes:
        params: [K, P] summed parameters of the rows of every model, times their weights; float64,
            or float32 where the engine adds in the order of the rows.
        slots: [K, W] likewise of what the solver keeps; None where the call gave none to begin
            with.
        loss, first_loss, steps: [C] of every row, see `LocalResult`.
    """

    params: Tensor = field(metadata=_OF_MODELS)
    slots: Tensor | None = field(metadata=_OF_MODELS)
    loss: Tensor
    first_loss: Tensor
    steps: Tensor


@dataclass(frozen=True, kw_only=True)
class MeanResult:
    """Means of what local training makes of every model.

    Attributes:
        models: [K, P] mean parameters of the rows of every model; the model itself without rows.
        slots: [K, W] likewise of what the solver keeps; None where none was given.
        loss, first_loss, steps: [C] of every row, see `LocalResult`.
        params: [C, P] parameters of every row, None where they were not kept.
    """

    models: Tensor
    slots: Tensor | None
    loss: Tensor
    first_loss: Tensor
    steps: Tensor
    params: Tensor | None

    @classmethod
    def of(
        cls,
        local: LocalResult,
        models: Tensor,
        label: Tensor,
        weight: Tensor | None,
        slots: Tensor | None = None,
        *,
        keep: bool,
        exact: bool,
    ) -> MeanResult:
        """The means of what training returned, with the rows themselves if they are to be kept.

        They have the bits of the means that are added up without rows (`engines/sums.py`).

        Args:
            label: [C] int64 in [0, K).
            weight: [C] of the participants in the means, None = equal.
            slots: [K, W] what the solver kept before; None where means of it are not asked for.
        """
        dtype = None if exact else torch.float64
        moved = None
        if slots is not None and local.slots is not None:
            moved = cluster_mean(local.slots, label, weight, empty=slots, dtype=dtype)
        return cls(
            models=cluster_mean(local.params, label, weight, empty=models, dtype=dtype),
            slots=moved,
            loss=local.loss,
            first_loss=local.first_loss,
            steps=local.steps,
            params=local.params if keep else None,
        )


@dataclass(frozen=True, kw_only=True)
class GradSums:
    """What gradients add up to, model by model: `total` [K, P], summed gradients of the rows of
    every model, times their weights.
    """

    total: Tensor = field(metadata=_OF_MODELS)


class TestResult(NamedTuple):
    """Test results of the rows.

    Attributes:
        loss_sum: [C] float64 summed loss, nats.
        sums: [C, S] float64 what the task adds up, see `fedclust.core.task.Task.sums`.
    """

    loss_sum: Tensor
    sums: Tensor


TestResult.__test__ = False  # type: ignore[attr-defined]  # pytest: not a test


class Alignment(NamedTuple):
    """How gradients lie to directions.

    Attributes:
        inner: [C, K] float64 inner product of row i's gradient at model k with direction k; 0 for
            rows whose losses decide, see `AlignCall`.
        square: [C, K] float64 squared norm of that gradient; likewise.
        loss: [C, K] mean loss of every model on every row, which costs nothing here; nats.
    """

    inner: Tensor
    square: Tensor
    loss: Tensor


class Answers(Protocol):
    """What answers calls."""

    def answer(self, call: Call[R], /) -> R:
        """What the call asks for."""
        ...


@dataclass(frozen=True)
class Call(Generic[R_co]):
    """A request. Each tensor says in its field what it has a row of; the calls of one `kind` are
    merged, reduced to some rows and compared by that alone.

    Attributes:
        doing: what answering it is called, for whoever waits.
        models: the models, [K, P].
        shards: the data of its rows.
    """

    doing: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def models(self) -> Tensor: ...
        @property
        def shards(self) -> Shards: ...

    @property
    def kind(self) -> Hashable | None:
        """Calls of equal kind can be merged; None for a call that is always computed by itself, as
        where other seeds' models do not belong on these rows.
        """
        return None

    @property
    def work(self) -> Tensor:
        """Examples that every row meets, [C] int64, to share out the rows evenly."""
        return self.shards.count

    def take(self, rows: Tensor, longest: int | None = None) -> Self:
        """The call of some rows [R], with `longest` columns of the index; None for all."""
        values: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None or one.metadata in (_OF_MODELS, _OF_CALL):
                continue
            if isinstance(value, Call | Shards):
                values[one.name] = value.take(rows, longest)
            elif isinstance(value, Rates):
                values[one.name] = value.take(rows)
            else:
                of_examples = one.metadata == _OF_EXAMPLES
                values[one.name] = value[rows, :longest] if of_examples else value[rows]
        return replace(self, **values)

    @classmethod
    def merge(cls, calls: Sequence[Self]) -> Self:
        """Several calls of one kind as one, row after row."""
        if len(calls) == 1:
            return calls[0]
        values: dict[str, Any] = {}
        for one in fields(cls):
            parts = [getattr(call, one.name) for call in calls]
            if parts[0] is None or one.metadata == _OF_CALL:
                continue  # calls of one kind all have it or none
            elif isinstance(parts[0], Call | Shards):
                values[one.name] = type(parts[0]).merge(parts)
            elif one.metadata == _LABEL:  # counted through the models of all calls
                before = accumulate((len(call.models) for call in calls), initial=0)
                values[one.name] = torch.cat([x + k for x, k in zip(parts, before, strict=False)])
            else:
                values[one.name] = (_wide if one.metadata == _OF_EXAMPLES else torch.cat)(parts)
        return replace(calls[0], **values)


@dataclass(frozen=True, kw_only=True)
class LocalWork:
    """What local training may be given besides models, data and solver; nothing of it by default.

    A step moves the parameters against gradient + linear[i] + the solver's penalty terms.

    Attributes:
        slots: [K, W] what the solver of row i has kept: slots[label[i]]; None for nothing.
        anchor: [C, P] where the solver's proximal term pulls row i to; None for its start.
        linear: [C, P] added to every gradient, as SCAFFOLD's control variates; None for 0.
        example_weight: [C, n] factor of each example's loss, whose sum is then divided by the
            batch's examples; None for 1. The result's loss is weighted likewise.
        frozen: [P] bool, parameters that stay as they are, and what is kept of them; None for none.
        pull: [P] float32 at least 0, factor of the proximal weight of every parameter; None for 1.
            Two pulls, (mu / 2) |w - a|^2 on all and (nu / 2) |w - b|^2 on some, are one of the
            weight mu + nu: there to (mu a + nu b) / (mu + nu), elsewhere to a with the factor
            mu / (mu + nu).
        each_step: whether the loss of every step is asked for, `LocalResult.step_loss`.
    """

    slots: Tensor | None = field(default=None, metadata=_OF_MODELS)
    anchor: Tensor | None = None
    linear: Tensor | None = None
    example_weight: Tensor | None = field(default=None, metadata=_OF_EXAMPLES)
    frozen: Tensor | None = field(default=None, metadata=_OF_CALL)
    pull: Tensor | None = field(default=None, metadata=_OF_CALL)
    each_step: bool = field(default=False, metadata=_OF_CALL)

    def on(
        self, models: Tensor, label: Tensor, shards: Shards, solver: Solver, lr: float
    ) -> TrainCall:
        """The call that asks for this work."""
        given = {one.name: getattr(self, one.name) for one in fields(LocalWork)}
        return TrainCall(models, label, shards, solver, lr, **given)


PLAIN = LocalWork()


@dataclass(frozen=True)
class TrainCall(LocalWork, Call[LocalResult]):
    """Local training of row i from models[label[i]].

    Attributes:
        models: [K, P] where rows start.
        label: [C] int64 in [0, K).
        shards: the rows' data.
        solver: what a local step is.
        lr: learning rate of the call.
        rates: where rows have their own learning rate, proximal weight and weight decay, which
            then count instead of `lr` and those of `solver`; None where all have the same.
    """

    doing: ClassVar[str] = "training"
    models: Tensor = field(metadata=_OF_MODELS)
    label: Tensor = field(metadata=_LABEL)
    shards: Shards
    solver: Solver = field(metadata=_OF_CALL)
    lr: float = field(metadata=_OF_CALL)
    rates: Rates | None = field(default=None, kw_only=True)  # calls of one kind may differ in it

    @property
    def own_rates(self) -> Rates:
        """Learning rate, proximal weight and weight decay of every row."""
        if self.rates is not None:
            return self.rates
        rows = self.label.new_empty(len(self.label), dtype=torch.float64)
        return Rates(
            lr=torch.full_like(rows, self.lr),
            proximal=torch.full_like(rows, self.solver.proximal),
            weight_decay=torch.full_like(rows, self.solver.weight_decay),
        )

    def solver_of(self, row: int) -> tuple[Solver, float]:
        """The solver and the learning rate of one row."""
        if self.rates is None:
            return self.solver, self.lr
        proximal, decay = float(self.rates.proximal[row]), float(self.rates.weight_decay[row])
        own = replace(self.solver, proximal=proximal, weight_decay=decay)
        return own, float(self.rates.lr[row])

    @property
    def most_steps(self) -> int:
        """S of the result: the steps of a row as long as the index of the call."""
        return int(self.solver.all_steps(torch.tensor(self.shards.index.shape[1])))

    @property
    def kind(self) -> Hashable:
        form: list[Hashable] = []  # what is the call's own must be equal, the rest there or not
        for one in fields(LocalWork):
            value = getattr(self, one.name)
            if one.metadata != _OF_CALL:
                value = value is None
            form.append(value.cpu().numpy().tobytes() if isinstance(value, Tensor) else value)
        return "train", self.solver.form, tuple(form)

    @property
    def work(self) -> Tensor:
        count, most = self.shards.count, self.solver.batch_size
        return self.shards.num_steps(self.solver) * (
            count if most is None else count.clamp(max=most)
        )

    @classmethod
    def merge(cls, calls: Sequence[Self]) -> Self:
        """Rows keep their rates."""
        alike = [replace(call, rates=None) for call in calls]
        return replace(super().merge(alike), rates=Rates.of(calls))


@dataclass(frozen=True)
class _SumOf(Call[R_co]):
    """A call of which only the sum over the rows of every model is asked for: what belongs to
    single rows need not be kept, nor sent from rank to rank.
    """

    if TYPE_CHECKING:

        @property
        def each(self) -> Call[Any]: ...

    @property
    def models(self) -> Tensor:
        return self.each.models

    @property
    def shards(self) -> Shards:
        return self.each.shards

    @property
    def work(self) -> Tensor:
        return self.each.work


@dataclass(frozen=True)
class SumCall(_SumOf[Sums]):
    """Local training `train` that is added up; `weight` [C] of each row, None for 1."""

    doing: ClassVar[str] = TrainCall.doing
    train: TrainCall
    weight: Tensor | None = None

    @property
    def each(self) -> TrainCall:
        return self.train

    @property
    def kind(self) -> Hashable:
        return "sum", self.train.kind, self.weight is None


@dataclass(frozen=True)
class LossCall(Call[Tensor]):
    """Losses of every model on every row.

    Attributes:
        models: [K, P].
        shards: the rows' data.
        per_example: whether each example's loss is asked for, [C, n, K] and 0 past the count,
            instead of their mean, [C, K]; nats.
    """

    doing: ClassVar[str] = "loss table"
    models: Tensor = field(metadata=_OF_MODELS)
    shards: Shards
    per_example: bool = field(default=False, metadata=_OF_CALL)


@dataclass(frozen=True)
class GradCall(Call[Tensor]):
    """Full-batch gradient [C, P] of the mean loss of models[label[i]] on row i.

    Attributes:
        label: [C] int64 in [0, K).
    """

    doing: ClassVar[str] = "gradients"
    models: Tensor = field(metadata=_OF_MODELS)
    label: Tensor = field(metadata=_LABEL)
    shards: Shards

    @property
    def kind(self) -> Hashable:
        return "grad"


@dataclass(frozen=True)
class GradSumCall(_SumOf[GradSums]):
    """Gradients `grad` that are added up; `weight` [C] as in `SumCall`."""

    doing: ClassVar[str] = GradCall.doing
    grad: GradCall
    weight: Tensor | None = None

    @property
    def each(self) -> GradCall:
        return self.grad

    @property
    def kind(self) -> Hashable:
        return "grad sum", self.weight is None


@dataclass(frozen=True)
class AlignCall(Call[Alignment]):
    """Full-batch gradients of every model on every row, seen along one direction per model.

    Attributes:
        models: [K, P].
        directions: [K, P].
        shards: the rows' data.
        margin: [C] float32 nats; the losses of a row decide, and its gradients are not asked for,
            where one model's loss is lower than all others' by more than this. None to ask for all.
    """

    doing: ClassVar[str] = "alignment"
    models: Tensor = field(metadata=_OF_MODELS)
    directions: Tensor = field(metadata=_OF_MODELS)
    shards: Shards
    margin: Tensor | None = None

    def undecided(self, loss: Tensor) -> Tensor:
        """[C] bool rows whose gradients are asked for, given all models' losses [C, K]."""
        if self.margin is None or loss.shape[1] == 1:
            return torch.full_like(self.shards.count, self.margin is None, dtype=torch.bool)
        least, second = loss.topk(2, largest=False).values.unbind(1)
        return ~(second - least > self.margin)  # nan decides nothing


@dataclass(frozen=True)
class _Looking(Call[R_co]):
    """What models[label[i]], or a mixture of all models, makes of the examples of row i.

    Attributes:
        models: [K, P].
        label: [C] int64 in [0, K); not read with `weight`.
        shards: the rows' data.
        weight: [C, K] float32 shares of the models, whose class probabilities are averaged with
            them; None for one model per row.
    """

    models: Tensor = field(metadata=_OF_MODELS)
    label: Tensor = field(metadata=_LABEL)
    shards: Shards
    weight: Tensor | None = None

    @property
    def kind(self) -> Hashable | None:
        """Mixtures are of one seed's models."""
        return self.doing if self.weight is None else None


@dataclass(frozen=True)
class TestCall(_Looking[TestResult]):
    """Test of the rows; see `_Looking` for the fields."""

    doing: ClassVar[str] = "testing"

    __test__ = False  # pytest: not a test


@dataclass(frozen=True)
class PredictCall(_Looking[Tensor]):
    """Outputs for each example, [C, n, Y] float32, 0 past the count: those of the model, or such by
    which one model would say what a mixture says. Of classes they may be log-probabilities, which
    say the same.
    """

    doing: ClassVar[str] = "predicting"


def on_rows(
    function: Callable[[Tensor], Tensor],
    result: R,
    on_models: Callable[[Tensor], Tensor] | None = None,
) -> R:
    """A result with `function` applied to each of its tensors [C, ...], and `on_models` to those
    [K, ...] of one row per model, where it has any.
    """
    if isinstance(result, Tensor):
        return cast(R, function(result))
    if isinstance(result, tuple):
        return cast(R, type(result)(*map(function, result)))
    assert is_dataclass(result)
    assert not isinstance(result, type)
    values: dict[str, Tensor | None] = {}
    for one in fields(result):
        change = on_models if one.metadata == _OF_MODELS else function
        value = getattr(result, one.name)
        assert change is not None
        values[one.name] = None if value is None else change(value)
    return replace(result, **values)


def split(result: R, calls: Sequence[Call[R]]) -> list[R]:
    """What of the result of merged calls belongs to each, as views."""
    pieces, row, model = [], 0, 0
    for call in calls:
        rows = slice(row, row + len(call.shards))
        models = slice(model, model + len(call.models))
        pieces.append(on_rows(itemgetter(rows), result, itemgetter(models)))
        row, model = rows.stop, models.stop
    return pieces


def tensors_of(call: object) -> list[Tensor | None]:
    """All tensors of a call in the order of its fields, those of its parts included."""
    found: list[Tensor | None] = []
    assert is_dataclass(call)
    for one in fields(call):
        value = getattr(call, one.name)
        if isinstance(value, Shards | Rates | Call):
            found += tensors_of(value)
        elif value is None or isinstance(value, Tensor):
            found.append(value)
    return found


def _wide(parts: Sequence[Tensor]) -> Tensor:
    """Rows [C_j, n_j] one after the other, padded with 0 to the longest."""
    longest = max(part.shape[1] for part in parts)
    return torch.cat([pad(part, (0, longest - part.shape[1])) for part in parts])


def _wide_index(parts: Sequence[Tensor]) -> Tensor:
    """As `_wide`; the same parts, as the tests of all seeds have in every round, give the same
    tensor, which is kept as long as the first of them.
    """
    refs, whole = _merged.get(parts[0], ([], parts[0]))
    if len(refs) != len(parts) or any(r() is not p for r, p in zip(refs, parts, strict=True)):
        whole = _wide(parts)
        _merged[parts[0]] = [weakref.ref(part) for part in parts], whole
    return whole
