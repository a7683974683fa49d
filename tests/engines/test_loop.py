"""The reference engine against mathematics: closed forms, fixed points, bit identity."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_toys import (
    NUM_CLASSES,
    SOLVERS,
    labels,
    made,
    ragged_shards,
    reading,
    row_of,
    starts,
    training,
)
from torch import Tensor

from fedclust.core.calls import GradCall, LossCall, Shards, TrainCall
from fedclust.engines.loop import LoopEngine
from fedclust.engines.schedule import schedule
from fedclust.models.params import unflatten
from fedclust.solver import Solver


def softmax_regression(loop: LoopEngine, params: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Mean loss and gradient [P] of a linear model by the textbook formula, in double precision."""
    weight, bias = (value.double() for value in unflatten(params, loop.layout).values())
    x = loop.pool.inputs(index).flatten(1).double()
    hot = torch.eye(NUM_CLASSES, dtype=torch.float64)[loop.pool.y[index]]
    logits = x @ weight.T + bias
    probability = logits.softmax(1)
    loss = -(hot * logits.log_softmax(1)).sum(1).mean()
    error = (probability - hot) / len(index)
    return loss, torch.cat([(error.T @ x).flatten(), error.sum(0)])


def test_loss_and_gradient_of_softmax_regression() -> None:
    loop, shards = made("loop", "linear"), ragged_shards()
    models, label = starts(loop), labels(len(shards))
    table, gradient, tested = (loop.answer(call) for call in reading(models, label, shards))
    for row, count in enumerate(shards.count.tolist()):
        if not count:
            continue
        index = shards.index[row, :count]
        loss, expected = softmax_regression(loop, models[label[row]], index)
        got = table[row, label[row]].double(), gradient[row].double(), tested.loss_sum[row]
        want = loss, expected, loss * count
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
        weight, bias = unflatten(models[label[row]], loop.layout).values()
        guess = (loop.pool.inputs(index).flatten(1) @ weight.T + bias).argmax(1)
        assert int(tested.sums[row]) == int((guess == loop.pool.y[index]).sum())


def test_sgd_steps_follow_the_formula() -> None:
    """Two mini-batch steps, each w - lr·g(batch), and the training loss is their mean."""
    loop, shards = made("loop", "linear"), row_of(ragged_shards(), 1)
    solver = Solver(lr=0.3, batch_size=4, epochs=1)
    plan, models = schedule(shards, solver), starts(loop, 1)
    got = loop.answer(TrainCall(models, torch.tensor([0]), shards, solver, 0.3))
    w, losses = models[0], []
    for step in range(2):
        index = shards.index[0, plan.position[0, step, : int(plan.size[0, step])]]
        loss, gradient = softmax_regression(loop, w, index)
        w, losses = w - 0.3 * gradient.float(), [*losses, loss]
    torch.testing.assert_close(got.params[0], w, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        got.loss[0].double(), torch.stack(losses).mean(), rtol=1e-5, atol=1e-6
    )
    assert got.steps.tolist() == [2]
    assert got.slots is None


def test_learning_rate_is_the_argument() -> None:
    """The call's rate counts, which the round has decayed; not the solver's first one."""
    loop = made("loop", "linear")
    call = training(loop, ragged_shards(), Solver(lr=0.3, batch_size=None, epochs=1), lr=0.01)
    step = loop.answer(call).params - call.models[call.label]
    gradient = loop.answer(GradCall(call.models, call.label, call.shards))
    torch.testing.assert_close(step, -0.01 * gradient, rtol=1e-3, atol=1e-6)


def test_heavy_ball() -> None:
    """u = βu + g, w = w - lr·u for three full-batch steps, from a momentum that is not zero."""
    loop, shards = made("loop", "linear"), row_of(ragged_shards(), 4)
    solver = Solver(lr=0.2, batch_size=None, epochs=3, momentum=0.7)
    models = starts(loop, 2)
    slots = torch.stack(
        [torch.ones(loop.layout.num_params), 0.01 * torch.ones(loop.layout.num_params)]
    )
    got = loop.answer(TrainCall(models, torch.tensor([1]), shards, solver, 0.2, slots=slots))
    w, u = models[1], slots[1]
    for _ in range(3):
        u = 0.7 * u + softmax_regression(loop, w, shards.index[0])[1].float()
        w = w - 0.2 * u
    assert got.slots is not None
    torch.testing.assert_close(got.slots[0], u, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got.params[0], w, rtol=1e-5, atol=1e-6)


def test_momentum_without_slots_starts_at_zero() -> None:
    loop = made("loop", "mlp128")
    call = training(loop, ragged_shards(), SOLVERS["momentum"])
    fresh, given = (
        loop.answer(replace(call, slots=slots)) for slots in (None, torch.zeros_like(call.models))
    )
    assert torch.equal(fresh.params, given.params)
    assert torch.equal(fresh.slots, given.slots)


def test_momentum_continues_where_it_stopped() -> None:
    """Two calls of one full-batch step with handed-over slots are one call of two steps."""
    loop, shards = made("loop", "mlp128"), row_of(ragged_shards(), 4)
    models, first = starts(loop, 1), torch.tensor([0])
    once, twice = (Solver(lr=0.1, batch_size=None, epochs=e, momentum=0.9) for e in (1, 2))
    half = loop.answer(TrainCall(models, first, shards, once, 0.1))
    assert half.slots is not None
    full = loop.answer(TrainCall(half.params, first, shards, once, 0.1, slots=half.slots))
    assert torch.equal(
        full.params, loop.answer(TrainCall(models, first, shards, twice, 0.1)).params
    )


def test_proximal_fixed_point() -> None:
    """FedProx converges to the w with grad f(w) + mu (w - w0) = 0, away from w0."""
    loop, shards = made("loop", "linear"), row_of(ragged_shards(), 4)
    models, first = starts(loop, 1), torch.tensor([0])
    solver = Solver(lr=0.05, batch_size=None, epochs=300, proximal=2.0)
    w = loop.answer(TrainCall(models, first, shards, solver, 0.05)).params
    pull = 2.0 * (w - models)
    assert pull.norm() > 0.1
    assert (loop.answer(GradCall(w, first, shards)) + pull).norm() < 1e-4 * pull.norm()


def test_weight_decay_and_the_models_own_penalty() -> None:
    """Weight decay pulls all parameters, the model's 2cW the kernels only; no loss shows them."""
    plain, penalised, shards = (
        made("loop", "linear"),
        made("loop", "mclr"),
        row_of(ragged_shards(), 4),
    )
    models, first = starts(plain, 1) + 0.5, torch.tensor([0])
    solver = Solver(lr=1.0, batch_size=None, epochs=1)
    decayed = Solver(lr=1.0, batch_size=None, epochs=1, weight_decay=0.1)
    base = plain.answer(TrainCall(models, first, shards, solver, 1.0))
    with_decay = plain.answer(TrainCall(models, first, shards, decayed, 1.0))
    torch.testing.assert_close(base.params - with_decay.params, 0.1 * models, rtol=1e-3, atol=1e-5)
    with_l2 = penalised.answer(TrainCall(models, first, shards, solver, 1.0))
    pull = unflatten(base.params - with_l2.params, plain.layout)
    weight = unflatten(models, plain.layout)["1.weight"]
    torch.testing.assert_close(pull["1.weight"], 0.002 * weight, rtol=1e-3, atol=1e-5)
    assert not pull["1.bias"].any()
    assert torch.equal(with_l2.loss, base.loss)
    assert torch.equal(
        penalised.answer(LossCall(models, shards)), plain.answer(LossCall(models, shards))
    )
    assert torch.equal(
        penalised.answer(GradCall(models, first, shards)),
        plain.answer(GradCall(models, first, shards)),
    )


@pytest.mark.thinned
@pytest.mark.parametrize("name", ["linear", "mlp128", "cnn_femnist_tiny", "flex_mnist_cnn"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_row_alone_is_bit_identical_to_the_row_in_company(name: str, solver: str) -> None:
    loop = made("loop", name)
    call = training(loop, ragged_shards(), SOLVERS[solver])
    together = loop.answer(call)
    for row in range(len(call.shards)):
        alone = loop.answer(call.take(torch.tensor([row])))
        assert torch.equal(alone.params[0], together.params[row])
        assert torch.equal(alone.loss[0], together.loss[row])


def test_dropout_acts_in_training_only_and_differs_by_key() -> None:
    loop, shards = made("loop", "flex_mnist_cnn"), ragged_shards((6, 6))
    same = Shards(index=shards.index[:1].repeat(2, 1), count=shards.count, key=shards.key)
    models, label = starts(loop, 1), torch.tensor([0, 0])
    solver = Solver(lr=0.1, batch_size=None, epochs=1)
    trained = loop.answer(TrainCall(models, label, same, solver, 0.1)).params
    assert not torch.equal(trained[0], trained[1])
    gradient = loop.answer(GradCall(models, label, same))
    assert torch.equal(gradient[0], gradient[1])
    assert not torch.equal(trained[0], models[0] - 0.1 * gradient[0])
    assert loop.answer(LossCall(models, same)).unique().numel() == 1


def test_results_do_not_depend_on_the_global_generator() -> None:
    loop, results = made("loop", "flex_mnist_cnn"), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        results.append(loop.answer(training(loop, ragged_shards(), SOLVERS["sgd"])).params)
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(results[0], results[1])
