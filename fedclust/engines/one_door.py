"""Engines in front of an engine: they treat all calls alike and know none of their fields."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor

from fedclust.calls import (
    AlignCall,
    Alignment,
    Call,
    GradCall,
    GradSumCall,
    GradSums,
    LocalResult,
    LossCall,
    SumCall,
    Sums,
    TestCall,
    TestResult,
    TrainCall,
)
from fedclust.helpers.rng import Stream
from fedclust.models.params import Layout
from fedclust.verbs import Engine

R = TypeVar("R")


class OneDoor:
    """An `Engine` whose seven verbs lead to `answer`; all else is that of the engine behind it.

    Args:
        engine: what computes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def name(self) -> str:
        """The engine's name."""
        return self._engine.name

    @property
    def exact(self) -> bool:
        """Whether a row has the same bits in any company."""
        return self._engine.exact

    @property
    def layout(self) -> Layout:
        """Names and shapes of the parameters."""
        return self._engine.layout

    def init(self, stream: Stream) -> Tensor:
        """Freshly initialised parameters, [P]."""
        return self._engine.init(stream)

    def answer(self, call: Call[R]) -> R:
        """What the call asks for."""
        raise NotImplementedError

    def train(self, call: TrainCall) -> LocalResult:
        """See `fedclust.calls.Verbs`."""
        return self.answer(call)

    def sums(self, call: SumCall) -> Sums:
        """See `fedclust.calls.Verbs`."""
        return self.answer(call)

    def loss(self, call: LossCall) -> Tensor:
        """See `fedclust.calls.Verbs`."""
        return self.answer(call)

    def grad(self, call: GradCall) -> Tensor:
        """See `fedclust.calls.Verbs`."""
        return self.answer(call)

    def grad_sums(self, call: GradSumCall) -> GradSums:
        """See `fedclust.calls.Verbs`."""
        return self.answer(call)

    def align(self, call: AlignCall) -> Alignment:
        """See `fedclust.calls.Verbs`."""
        return self.answer(call)

    def test(self, call: TestCall) -> TestResult:
        """See `fedclust.calls.Verbs`."""
        return self.answer(call)
