"""The losses of every task in compiled code, against the loop engine and closed forms."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from engine_toys import labels, ragged_shards
from test_regression import drawn_job
from test_span import assert_same, everywhere, nowhere
from torch import Tensor
from toys import pool_of

from fedclust.core.calls import Shards, TestCall, TrainCall
from fedclust.core.pool import Pool
from fedclust.core.task import Classification, Reduction, Task, reduced
from fedclust.engines import make_engine
from fedclust.engines.fused.native import perceptron, softmax
from fedclust.helpers.rng import Stream
from fedclust.models.mlp import mlp
from fedclust.solver import Solver
from fedclust.tasks.multilabel import Multilabel
from fedclust.tasks.regression import Regression

LOSSES: dict[str, Task] = {
    "weighted": Classification(class_weight="balanced"),
    "smoothed": Classification(label_smoothing=0.2),
    "both": Classification(class_weight="balanced", label_smoothing=0.1),
    "labels": Multilabel(),
    "weighted labels": Multilabel(pos_weight="balanced"),
    "mse": Regression(),
    "mae": Regression(loss_by="mae"),
    "huber": Regression(loss_by="huber", delta=0.3),
}


def judged(pool: Pool, task: Task, width: int, like: torch.Generator) -> Pool:
    """The pool with random targets of a task, fitted by hand."""
    weight = 0.5 + torch.rand(width, generator=like)
    if task.targets == "classes":
        weighted = getattr(task, "class_weight", None) is not None
        return replace(pool, task=task._with(_weight=weight if weighted else None))
    if task.targets == "flags":
        y = torch.randint(0, 2, (len(pool.y), width), generator=like, dtype=torch.uint8)
        weighted = getattr(task, "pos_weight", None) is not None
        fitted = task._with(_weight=weight if weighted else None)
        return replace(pool, y=y, num_classes=width, task=fitted)
    y = torch.randn(len(pool.y), width, generator=like)
    fitted = task._with(_mean=torch.zeros(width).double(), _scale=torch.ones(width).double())
    return replace(pool, y=y, num_classes=width, task=fitted)


def counting(patch: pytest.MonkeyPatch) -> list[int]:
    """Calls of compiled training, one number each."""
    calls: list[int] = []

    def counted(usual: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*arguments: Any) -> Tensor:
            calls.append(1)
            return usual(*arguments)

        return call

    patch.setattr(softmax, "train_softmax", counted(softmax.train_softmax))
    patch.setattr(perceptron, "train_perceptron", counted(perceptron.train_perceptron))
    return calls


@pytest.mark.thinned
@pytest.mark.parametrize("job", range(48))
def test_jobs_drawn_at_random_are_those_of_the_loop(
    monkeypatch: pytest.MonkeyPatch, job: int
) -> None:
    monkeypatch.setattr("fedclust.engines.fused.plan.pays", [everywhere, nowhere][job // 8 % 2])
    model, pool, call = drawn_job(job, ([], [], [17], [20, 9]))
    draw, like = random.Random(job), torch.Generator().manual_seed(job)
    width = model.shapes[-1][0]
    pool = judged(pool, LOSSES[draw.choice(sorted(LOSSES))], width, like)
    calls = counting(monkeypatch)
    fast = make_engine("fused", model, pool).answer(call)
    assert bool(calls) == (softmax.compiled() is not None and not call.each_step)
    assert_same(fast, make_engine("loop", model, pool).answer(call))


def one_example(task: Task, y: Tensor, start: Tensor) -> tuple[float, Tensor]:
    """Loss of the first step of a dense layer [3, 2] on x = (1, 2), and its change at rate 1."""
    pool = pool_of(torch.tensor([[1.0, 2.0]]), y, 3, task=task)
    shards = Shards(
        index=torch.zeros(1, 1, dtype=torch.int64),
        count=torch.ones(1, dtype=torch.int64),
        key=Stream.of(0, "train").keys(torch.arange(1)),
    )
    engine = make_engine("fused", mlp((2,), 3, hidden=[]), pool)
    solver = Solver(lr=1.0, batch_size=1, epochs=1)
    models = torch.cat([start.flatten(), torch.zeros(3)]).unsqueeze(0)
    found = engine.answer(TrainCall(models, labels(1, 1), shards, solver, 1.0))
    return float(found.loss[0]), (found.params[0] - models[0])[:6].view(3, 2)


X = torch.tensor([1.0, 2.0])
START = torch.tensor([[0.5, 0.0], [-1.0, 1.0], [0.0, 1.0]])  # outputs 0.5, 1 and 2


def test_one_step_of_errors_in_closed_form() -> None:
    y = torch.tensor([[0.0, 1.0, -1.0]])  # errors 0.5, 0 and 3
    expected = {
        "mse": ((0.25 + 9) / 3, [1.0, 0.0, 6.0]),
        "mae": (3.5 / 3, [1.0, 0.0, 1.0]),
        "huber": ((0.125 + 2 * (3 - 1)) / 3, [0.5, 0.0, 2.0]),
    }
    for loss_by, (loss, slope) in expected.items():
        task = Regression(loss_by=loss_by, delta=2.0)  # type: ignore[arg-type]
        got, change = one_example(task, y, START)
        assert got == pytest.approx(loss, rel=1e-6)
        torch.testing.assert_close(change, -torch.outer(torch.tensor(slope) / 3, X))


def test_one_step_of_labels_and_of_smoothed_classes_in_closed_form() -> None:
    z = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    held = torch.tensor([1, 0, 1], dtype=torch.uint8)
    weight = torch.tensor([3.0, 1.0, 0.5])
    p, y, w = z.sigmoid(), held.double(), weight.double()
    loss, change = one_example(Multilabel()._with(_weight=weight), held.unsqueeze(0), START)
    exact = -(w * y * p.log() + (1 - y) * (1 - p).log()).mean()
    assert loss == pytest.approx(float(exact), rel=1e-6)
    slope = (p * (1 - y) - w * y * (1 - p)) / 3
    torch.testing.assert_close(change, -torch.outer(slope, X.double()).float())

    # a class of weight 2, of which a tenth belongs to each of three classes
    task = Classification(label_smoothing=0.3)._with(_weight=torch.tensor([1.0, 2.0, 1.0]))
    loss, change = one_example(task, torch.tensor([1]), START)
    share, p = torch.tensor([0.1, 0.8, 0.1], dtype=torch.float64), z.softmax(0)
    assert loss == pytest.approx(float(-2 * (share * p.log()).sum()), rel=1e-6)
    torch.testing.assert_close(change, -torch.outer(2 * (p - share), X.double()).float())


def test_losses_of_labels_that_are_nearly_certain_are_exact() -> None:
    start = torch.tensor([[12.0, 0.0], [-20.0, 0.0], [40.0, 30.0]])  # outputs 12, -20 and 100
    right, wrong = (torch.tensor([y], dtype=torch.uint8) for y in ([1, 0, 1], [0, 1, 0]))
    small, _ = one_example(Multilabel(), right, start)
    exact = math.log1p(math.exp(-12)) + math.log1p(math.exp(-20)) + math.exp(-100)
    assert small == pytest.approx(exact / 3, rel=1e-5)
    large, _ = one_example(Multilabel(), wrong, start)
    assert large == pytest.approx((exact + 132) / 3, rel=1e-6)


@dataclass(frozen=True, kw_only=True)
class Fourth(Regression):
    """Fourth powers of errors, which no engine has code for."""

    def loss(self, outputs: Tensor, y: Tensor, reduction: Reduction = "none") -> Tensor:
        return reduced((outputs - y).pow(4).mean(-1), reduction)

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        return Task.slope(self, outputs, y)


@dataclass(frozen=True, kw_only=True)
class Doubled(Classification):
    """Twice the cross entropy, with the options of the usual one."""

    def loss(self, outputs: Tensor, y: Tensor, reduction: Reduction = "none") -> Tensor:
        return 2 * super().loss(outputs, y, reduction)


@pytest.mark.parametrize("hidden", [[], [5]])
@pytest.mark.parametrize("task", [Fourth(), Doubled()])
def test_a_loss_of_ones_own_is_the_one_that_is_trained(
    monkeypatch: pytest.MonkeyPatch, task: Task, hidden: list[int]
) -> None:
    _, pool, _ = drawn_job(0)
    assert pool.x.dim() == 2
    like = torch.Generator().manual_seed(0)
    pool, model = judged(pool, task, 10, like), mlp(pool.shape, 10, hidden=hidden)
    calls, shards = counting(monkeypatch), ragged_shards()
    solver = Solver(lr=0.01, batch_size=4, epochs=2)
    fast, loop = (make_engine(name, model, pool) for name in ("fused", "loop"))
    models = torch.stack([loop.init(Stream.of(0, "init", j)) for j in range(3)])
    call = TrainCall(models, labels(len(shards)), shards, solver, solver.lr)
    assert_same(fast.answer(call), loop.answer(call))
    assert not calls
    test = TestCall(models, labels(len(shards)), shards)
    got, want = fast.answer(test), loop.answer(test)
    torch.testing.assert_close(got.loss_sum, want.loss_sum, rtol=1e-5, atol=1e-6)
