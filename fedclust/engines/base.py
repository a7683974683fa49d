"""What engines share: answers to each kind of call, or standing in front of another engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from fedclust.core.calls import (
    AlignCall,
    Call,
    GradCall,
    GradSumCall,
    LossCall,
    SumCall,
    TestCall,
    TrainCall,
)
from fedclust.core.pool import Pool
from fedclust.core.verbs import Engine
from fedclust.engines.aligned import by_gradients
from fedclust.engines.sums import by_blocks, gradients_by_blocks
from fedclust.helpers.rng import Stream
from fedclust.helpers.unfinished import Table, unfinished
from fedclust.models.foreign import Runnable
from fedclust.models.params import layout

R = TypeVar("R")
ModelT = TypeVar("ModelT", bound=Runnable)
Answer = Callable[[Any, Any], Any]  # of an engine to a call


def by_rows(
    train: Answer, loss: Answer, grad: Answer, test: Answer
) -> dict[type[Call[Any]], Answer]:
    """What answers each kind of call: sums and alignments are made of these."""
    return {
        TrainCall: train,
        SumCall: by_blocks,
        LossCall: loss,
        GradCall: grad,
        GradSumCall: gradients_by_blocks,
        AlignCall: by_gradients,
        TestCall: test,
    }


class Computing(Generic[ModelT]):
    """An `Engine` that computes.

    Attributes:
        answers: by the kind of a call what answers it, given the engine and the call.
        tf32: whether an NVIDIA GPU may round factors to TF32 in its answers.
        remark: why a faster engine does not compute the model, in words; empty where there is none.
    """

    tf32 = False
    name: ClassVar[str]
    remark = ""
    answers: ClassVar[Mapping[type[Call[Any]], Answer]]

    def __init__(self, model: ModelT, pool: Pool) -> None:
        self.model, self.pool = model, pool
        self.layout = layout(cast(nn.Module, model))

    def init(self, stream: Stream) -> Tensor:
        """Freshly initialised parameters, [P]."""
        return self.model.draw(stream.torch()).to(self.pool.x.device)

    def answer(self, call: Call[R]) -> R:
        """What the call asks for."""
        with _rounding(tf32=self.tf32):
            return cast(R, self.answers[type(call)](self, call))


@contextmanager
def _rounding(*, tf32: bool) -> Iterator[None]:
    """The process's settings of float32 products on NVIDIA GPUs, put back afterwards.

    They are read by their names of today: `allow_tf32` raises where somebody has set those.
    """
    cudnn: Any = torch.backends.cudnn
    products = (cudnn.conv, cudnn.rnn, torch.backends.cuda.matmul)
    before = [product.fp32_precision for product in products]
    for product in products:
        product.fp32_precision = "tf32" if tf32 else "ieee"
    try:
        yield
    finally:
        for product, precision in zip(products, before, strict=True):
            product.fp32_precision = precision


def kept_losses(engine: Computing[Any], call: LossCall, values: Tensor) -> Table:
    """The losses `values` [N, ...] of a call, those of an earlier process filled in; the losses of
    every example are not kept.
    """
    if call.per_example:
        return Table(values)

    def asked() -> tuple[Tensor | str, ...]:
        shards = call.shards
        return engine.name, engine.pool.digest, call.models, shards.index, shards.count

    return unfinished.table(values, asked)


class InFront:
    """An `Engine` that leads to the one behind it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name, self.exact, self.remark = engine.name, engine.exact, engine.remark
        self.layout = engine.layout

    def init(self, stream: Stream) -> Tensor:
        """Freshly initialised parameters, [P]."""
        return self._engine.init(stream)

    def answer(self, call: Call[R]) -> R:
        """What the call asks for."""
        return self._engine.answer(call)
