"""The local solver: what one client does to its model between two exchanges with the server."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor

from fedclust.helpers.errors import require
from fedclust.helpers.ranges import (
    AtLeastOne,
    AtLeastZero,
    Fraction,
    NonNegative,
    Positive,
    Probability,
    Ranged,
)
from fedclust.helpers.rounding import rounded_up

Schedule = Literal["constant", "exponential", "step", "cosine"]
ScheduleBy = Literal["round", "step"]
Keep = Literal["call", "client"]
F = TypeVar("F", float, Tensor, "float | Tensor")
_NO_SCHEDULE: Mapping[str, Any] = {
    **{"decay": 1.0, "schedule": "exponential", "schedule_by": "round", "every": None},
    **{"length": None, "floor": 0.0, "warmup": 0},
}
_APART = 1e-6  # of torch.nn.utils.clip_grad_norm_, so that a gradient of 0 can be divided by


@dataclass(frozen=True, kw_only=True)
class Law:
    """What one local step makes of a gradient g, number by number; t = 1, 2, … counts the steps.

        m = keep * m + take * g;  d = m, or g + keep * m with `nesterov`
        v = square * v + add * g^2
        w = w - lr / (1 - keep^t) * d / (sqrt(v / (1 - square^t)) + eps)

    The powers are left out unless `unbiased`; the division by the root unless `adaptive`.

    Attributes:
        keep, take: of the mean m, which is not kept where `keep` is 0. A first step takes all of g.
        square, add: of the mean of squares v; None and 0 for none.
        unbiased: whether m and v are divided by what they lack of a whole mean; then a first step
            takes no more of g than others.
        decoupled: whether weight decay is no part of g: w is first multiplied by 1 - lr * decay.
    """

    keep: float = 0.0
    take: float = 1.0
    nesterov: bool = False
    square: float | None = None
    add: float = 0.0
    eps: float = 0.0
    unbiased: bool = False
    decoupled: bool = False

    @property
    def adaptive(self) -> bool:
        """Whether a step is divided by the root of the mean of squares."""
        return self.square is not None

    @property
    def plain(self) -> bool:
        """Whether it is gradient descent, or that with heavy-ball momentum."""
        return not self.adaptive and not self.nesterov and self.take == 1

    @property
    def slots(self) -> int:
        """Numbers that are kept of every parameter."""
        return bool(self.keep) + self.adaptive

    @property
    def counts(self) -> bool:
        """Whether a step looks at t."""
        return self.unbiased or (bool(self.keep) and self.take != 1)

    def width(self, num_params: int) -> int:
        """Numbers that a row keeps: the slots of all parameters one after the other, then t."""
        return self.slots * num_params + self.counts

    def move(
        self,
        value: Tensor,
        gradient: Tensor,
        slots: Sequence[Tensor],
        lr: float | Tensor,
        decay: float | Tensor,
        t: float | Tensor,
    ) -> None:
        """One step of rows, in place: parameters `value` [R, *shape], the `gradient` [R, *shape],
        which is changed, and `slots`, as many of [R, *shape].

        Learning rate, weight decay and the number t of the step are those of all rows, or of every
        row [R].
        """
        if self.decoupled:
            plus(value, value, -lr * decay, out=value)
        else:
            gradient = plus(gradient, value, decay)
        taken = gradient
        if self.keep:
            taken = slots[0].mul_(self.keep)
            plus(taken, gradient, self._taken(t), out=taken)
            if self.nesterov:
                taken = gradient.add(taken, alpha=self.keep)
        if self.square is None:
            plus(value, taken, -lr, out=value)
            return
        squares = slots[-1].mul_(self.square).addcmul_(gradient, gradient, value=self.add)
        root = squares.sqrt()
        if self.unbiased:
            lr = lr / (1 - self.keep**t)
            root = _divided(root, (1 - self.square**t) ** 0.5)
        plus(value, taken / root.add_(self.eps), -lr, out=value)

    def _taken(self, t: float | Tensor) -> float | Tensor:
        """Factor of the gradient in the mean at step t, or at that of every row [R]."""
        if self.unbiased or not self.counts:
            return self.take
        if isinstance(t, Tensor):
            return torch.where(t == 1, 1.0, self.take)
        return 1.0 if t == 1 else self.take


def plus(to: Tensor, values: Tensor, factor: float | Tensor, out: Tensor | None = None) -> Tensor:
    """to + factor * values, [R, *shape], with one factor or that of every row [R]."""
    if isinstance(factor, Tensor):
        return torch.addcmul(to, values, by_row(factor, to), out=out)
    if not factor:
        return to
    return torch.add(to, values, alpha=factor, out=out)


def by_row(numbers: Tensor, like: Tensor) -> Tensor:
    """Numbers [R] in the shape [R, 1, …] and the type of `like`."""
    return numbers.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


def _divided(values: Tensor, by: float | Tensor) -> Tensor:
    return values.div_(by_row(by, values) if isinstance(by, Tensor) else by)


def clip(gradients: Iterable[Tensor], norm: float) -> None:
    """Shorten every row's gradient, parts [R, *shape], in place as torch's clip_grad_norm_ does."""
    parts = list(gradients)
    norms = torch.stack([torch.linalg.vector_norm(part.flatten(1), dim=1) for part in parts])
    factor = (norm / (torch.linalg.vector_norm(norms, dim=0) + _APART)).clamp(max=1.0)
    for part in parts:
        part.mul_(by_row(factor, part))


@dataclass(frozen=True, kw_only=True)
class Solver(Ranged, ABC):
    """Base of the solvers; every engine gives each the same meaning.

    A step goes against
        g = grad f(w) + proximal * (w - a) + the model's own L2 gradient + weight_decay * w
    on the batch loss f; the anchor a is the start of the call, unless the call names another. What
    it makes of g says `law`. With `clip_norm` g, before the weight decay, is shortened to a norm of
    that. What a solver keeps from step to step begins anew in every call, or with `keep: client`
    stays with the client from round to round.

    The learning rate lr_t is lr times a factor of the round t = 0, 1, …, by `schedule`:
        constant      1
        exponential   decay^t
        step          decay^floor(t / every)
        cosine        floor + (1 - floor) * (1 + cos(pi * t / length)) / 2, floor from `length` on
    and times (t + 1) / warmup in the first `warmup` rounds. With `schedule_by: step` t counts the
    local steps of a call instead.

    Attributes:
        lr: learning rate of round 0.
        clip_norm: see above; None for as long as it is.
        batch_size: examples of one step; None takes all of the client's examples, in order.
        epochs: passes over the client's data, each in a fresh order, the last short batch kept; a
            part of a pass is that part of its batches, rounded up.
        drop_last: whether a short last batch of a pass is left out, but for a client's only one.
        steps: number of steps instead of epochs; the data are then cycled, without short batches.
        proximal: mu of FedProx.
        weight_decay: coefficient of w in the gradient.
    """

    lr: Positive
    decay: Fraction = 1.0
    schedule: Schedule = "exponential"
    schedule_by: ScheduleBy = "round"
    every: AtLeastOne | None = None
    length: AtLeastOne | None = None
    floor: Probability = 0.0
    warmup: AtLeastZero = 0
    clip_norm: Positive | None = None
    keep: Keep = "call"
    batch_size: AtLeastOne | None = 10
    epochs: Positive | None = 1
    drop_last: bool = False
    steps: AtLeastOne | None = None
    proximal: NonNegative = 0.0
    weight_decay: NonNegative = 0.0

    config_key: ClassVar[str] = "solver"
    # what torch.optim calls the slots of the law, in its order
    kept_as: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = (self.epochs is None) != (self.steps is None)
        allowed = "give either solver.epochs or solver.steps, the other null"
        require(fits, "solver.epochs", self.epochs, allowed)
        passes = self.epochs is not None and self.batch_size is not None
        fits = passes or not self.drop_last
        require(fits, "solver.drop_last", "true", "false where no batch is short")
        self._check_schedule()
        fits = self.keep == "call" or self.law.slots > 0
        require(fits, "solver.keep", self.keep, "call with a solver that keeps nothing")

    def _check_schedule(self) -> None:
        """Refuse what the schedule does not read, and miss what it needs."""
        kind = self.schedule
        for key, value, default, readers in (
            ("decay", self.decay, 1, ("exponential", "step")),
            ("every", self.every, None, ("step",)),
            ("length", self.length, None, ("cosine",)),
            ("floor", self.floor, 0, ("cosine",)),
        ):
            unread = f"{'null' if default is None else default} with solver.schedule={kind}"
            read = kind in readers
            require(read or value == default, f"solver.{key}", value, unread)
            needed = f"a number of {self.schedule_by}s, at least 1, with solver.schedule={kind}"
            require(not read or value is not None, f"solver.{key}", "null", needed)

    def check_rounds(self, rounds: int) -> None:
        """Raise `ConfigError` if the schedule has not ended, or not begun, within a run."""
        if self.schedule_by == "step":
            return
        for key, most in {"warmup": rounds, "every": rounds - 1, "length": rounds}.items():
            value = getattr(self, key)
            allowed = f"at most {most}, as the run has rounds={rounds}"
            require(value is None or value <= most, f"solver.{key}", value, allowed)
        ended = self.length is not None and self.length < rounds and self.floor == 0
        stands = f"{rounds}, the rounds of the run, or solver.floor above 0: the rate would be 0"
        require(not ended, "solver.length", self.length, stands)

    @property
    @abstractmethod
    def law(self) -> Law:
        """What a step makes of a gradient."""

    @abstractmethod
    def optimizer(
        self, parameters: Iterable[torch.nn.Parameter], lr: float
    ) -> torch.optim.Optimizer:
        """PyTorch's own, by which the law is meant."""

    @property
    def name(self) -> str:
        """As a user chooses it."""
        return type(self).__name__.lower()

    @cached_property
    def form(self) -> Self:
        """What solvers share whose rows are computed together: all but the numbers that a row may
        have by itself, see `fedclust.core.calls.Rates`.
        """
        pulled = float(bool(self.proximal))
        alike = replace(self, lr=1.0, proximal=pulled, weight_decay=0.0)
        return alike if self.schedule_by == "step" else replace(alike, **_NO_SCHEDULE)

    @property
    def plain(self) -> bool:
        """Whether all steps are alike, those of gradient descent or that with momentum."""
        return self.law.plain and self.clip_norm is None and self.schedule_by == "round"

    @property
    def linear(self) -> bool:
        """Whether what moves the parameters is proportional to gradients."""
        return not self.law.adaptive and self.clip_norm is None

    def all_steps(self, count: Tensor) -> Tensor:
        """Local steps of clients with `count` [C] examples that do all their work, [C] int64."""
        if self.epochs is None:
            assert self.steps is not None
            return torch.where(count > 0, self.steps, 0)
        if self.batch_size is None:
            return torch.where(count > 0, math.ceil(self.epochs), 0)
        batches = self.batches(count)
        if self.epochs == int(self.epochs):
            return batches * int(self.epochs)
        return rounded_up(self.epochs, batches)

    def steps_of(self, count: Tensor, work: Tensor | None) -> Tensor:
        """Local steps of clients with `count` [C] examples that do the fraction `work` [C] of it,
        None for all: ceil(work * all its steps), [C] int64.
        """
        steps = self.all_steps(count)
        # in float32 0.2 * 10 rounds to 2; in float64, float32's 0.2 would make it 2.00000003
        return steps if work is None else (work * steps).ceil().to(torch.int64)

    def examples(self, count: Tensor, work: Tensor | None) -> Tensor:
        """Examples in all of these steps, each as often as it is met, [C] int64."""
        steps = self.steps_of(count, work)
        if self.batch_size is None:
            return steps * count
        batch = count.clamp(max=self.batch_size)
        if self.epochs is None:
            return steps * batch
        each = self.batches(count).clamp(min=1)
        # the last batch of a pass may be short
        whole = each * batch if self.drop_last else count
        return steps // each * whole + steps % each * batch

    def batches(self, count: Tensor) -> Tensor:
        """Batches of a pass over `count` [C] examples, [C] int64."""
        assert self.batch_size is not None
        if self.drop_last:
            return (count // self.batch_size).clamp(min=1).where(count > 0, 0)
        return (count + self.batch_size - 1) // self.batch_size

    def rate(self, t: int) -> float:
        """Learning rate of round t; where the schedule counts steps, before it has its factor."""
        return self.lr * self._factor(t) if self.schedule_by == "round" else self.lr

    def step_rate(self, lr: F, step: int) -> F:
        """Learning rate of a local step 0, 1, … of a call whose rate is `lr`."""
        return lr if self.schedule_by == "round" else lr * self._factor(step)

    def _factor(self, t: int) -> float:
        """What the schedule makes of the learning rate in round or step t."""
        warm = min(1.0, (t + 1) / self.warmup) if self.warmup else 1.0
        match self.schedule:
            case "exponential":
                return warm * self.decay**t
            case "step":
                assert self.every is not None
                return warm * self.decay ** (t // self.every)
            case "cosine":
                assert self.length is not None
                part = (1 + math.cos(math.pi * min(1.0, t / self.length))) / 2
                return warm * (self.floor + (1 - self.floor) * part)
        return warm


def solvers_of(part: Any) -> Iterator[Solver]:
    """The solvers of a method and of its parts."""
    if isinstance(part, Solver):
        yield part
    elif is_dataclass(part):
        for one in fields(part):
            yield from solvers_of(getattr(part, one.name))
