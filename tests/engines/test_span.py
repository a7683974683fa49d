"""The first dense layer, trained in the span of its clients' examples, against the layer itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from engine_toys import SOLVERS, labels, ragged_shards, row_of, shipped, starts, terms, toy_pool
from torch import Tensor, nn

from fedclust.core.calls import LocalResult, Shards, TrainCall
from fedclust.engines.fused import FusedEngine
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Descent, HeavyBall
from fedclust.engines.fused.span import no_gradient, pays
from fedclust.models.sequence import Model
from fedclust.solver import Solver


def everywhere(count: Tensor, *_: object) -> Tensor:
    return torch.ones_like(count, dtype=torch.bool)


def nowhere(count: Tensor, *_: object) -> Tensor:
    return torch.zeros_like(count, dtype=torch.bool)


def trained(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    where: Callable[..., Tensor],
    shards: Shards,
    solver: Solver,
    *,
    own: bool = False,
    given: tuple[str, ...] = (),
) -> LocalResult:
    """Local training with momenta, with anchors of each row where `own`, and with `given` terms."""
    monkeypatch.setattr("fedclust.engines.fused.plan.pays", where)
    engine = FusedEngine(shipped(name), toy_pool((1, 8, 8)))
    slots = starts(engine, 5) * 0.1 if solver.momentum else None
    anchor = starts(engine, 9)[: len(shards)] * 0.5 if own and solver.proximal else None
    more = terms(engine, shards)
    return engine.answer(
        TrainCall(
            starts(engine),
            labels(len(shards)),
            shards,
            solver,
            solver.lr,
            slots=slots,
            anchor=anchor,
            **{name: more[name] for name in given},
        )
    )


def assert_same(a: LocalResult, b: LocalResult) -> None:
    torch.testing.assert_close(a.params, b.params, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(a.loss, b.loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(a.first_loss, b.first_loss, rtol=1e-5, atol=1e-5)
    assert torch.equal(a.steps, b.steps)
    assert (a.slots is None) == (b.slots is None)
    if a.slots is not None and b.slots is not None:
        torch.testing.assert_close(a.slots, b.slots, rtol=1e-4, atol=1e-5)


@pytest.mark.thinned
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["linear", "mlp", "mlp128", "mclr"])
def test_every_solver_moves_the_weights_alike(
    monkeypatch: pytest.MonkeyPatch, name: str, solver: str, own: bool
) -> None:
    shards = ragged_shards()
    assert_same(
        trained(monkeypatch, name, everywhere, shards, SOLVERS[solver], own=own),
        trained(monkeypatch, name, nowhere, shards, SOLVERS[solver], own=own),
    )


TERMS = [("linear",), ("example_weight",), ("linear", "example_weight")]


@pytest.mark.thinned
@pytest.mark.parametrize("given", TERMS)
@pytest.mark.parametrize("solver", ["sgd", "momentum", "proximal", "full_batch", "everything"])
@pytest.mark.parametrize("name", ["linear", "mlp128", "mclr"])
def test_terms_of_a_call_move_the_weights_alike(
    monkeypatch: pytest.MonkeyPatch, name: str, solver: str, given: tuple[str, ...]
) -> None:
    shards, how, own = ragged_shards(), SOLVERS[solver], solver == "everything"
    spanned, usual = (
        trained(monkeypatch, name, where, shards, how, own=own, given=given)
        for where in (everywhere, nowhere)
    )
    assert_same(spanned, usual)
    without = trained(monkeypatch, name, nowhere, shards, how, own=own)
    assert (without.params - usual.params).abs().max() > 1e-3


def test_rows_that_stop_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stragglers, whose decay and momentum end with their own last step."""
    shards = ragged_shards((12, 12, 12, 12, 12))
    shards = replace(shards, work=torch.tensor([1.0, 0.2, 0.5, 0.9, 0.0], dtype=torch.float64))
    for solver in (SOLVERS["everything"], SOLVERS["weight_decay"]):
        assert_same(
            trained(monkeypatch, "mlp", everywhere, shards, solver),
            trained(monkeypatch, "mlp", nowhere, shards, solver),
        )


def test_a_row_does_not_depend_on_its_company(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedclust.engines.fused.plan.pays", everywhere)
    engine, shards, solver = (
        FusedEngine(shipped("mlp128"), toy_pool((1, 8, 8))),
        ragged_shards(),
        SOLVERS["sgd"],
    )
    models, label = starts(engine), labels(len(shards))
    together = engine.answer(TrainCall(models, label, shards, solver, 0.05)).params
    for row in range(len(shards)):
        alone = engine.answer(
            TrainCall(models, label[row : row + 1], row_of(shards, row), solver, 0.05)
        ).params
        torch.testing.assert_close(alone[0], together[row], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "steps", "batch", "expected"),
    [
        (100, 10, None, True),  # full batches met ten times
        (100, 1, None, False),  # met once, the products alone cost more
        (200, 100, 20, True),
        (2000, 1000, 20, False),  # more examples than features
        (0, 0, 20, False),
    ],
)
def test_where_it_pays(count: int, steps: int, batch: int | None, expected: bool) -> None:
    """784-200-10: n (n i + 2 i o) + m n o against 2 m i o multiplications for m examples met."""
    several = torch.tensor([count, 7, 300]), torch.tensor([steps, 3, 0])
    assert bool(pays(*several, batch, 784, 200)[0]) is expected


def test_layers_that_do_not_see_the_inputs_are_left_alone() -> None:
    def network(*layers: nn.Module, shapes: list[tuple[int, ...]]) -> Network:
        return Network.of(Model(layers, shapes, [], {}))

    dense = network(nn.Flatten(), nn.Linear(4, 2), shapes=[(1, 2, 2), (4,), (2,)])
    assert dense.first_dense == 1
    dropped = network(
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 2), shapes=[(1, 2, 2), (4,), (4,), (2,)]
    )
    assert dropped.first_dense is None
    assert Network.of(shipped("flex_mnist_cnn", (1, 28, 28))).first_dense is None


def test_without_gradients_weights_decay_to_the_anchor() -> None:
    """w - a shrinks by 1 - lr (c + mu) a step when c pulls to 0 and mu to a."""
    rule = Descent(lr=0.1, proximal=0.5, weight_decay=0.0, pull=0.5, products=Products())
    factor = 0.95 ** torch.arange(4, dtype=torch.float64)
    expected = torch.stack([factor, 1 - factor, 0 * factor], 1)
    torch.testing.assert_close(
        no_gradient(rule, 0.5, anchored=True, slotted=False, steps=3).value, expected
    )


def test_without_gradients_momentum_coasts() -> None:
    """w_t = w_0 - lr (b + ... + b^t) u_0."""
    terms = {"proximal": 0.0, "weight_decay": 0.0, "pull": 0.0}
    rule = HeavyBall(lr=0.1, momentum=0.5, products=Products(), **terms)
    found = no_gradient(rule, 0.0, anchored=False, slotted=True, steps=2)
    expected = torch.tensor([[1, 0, 0], [1, 0, -0.05], [1, 0, -0.075]], dtype=torch.float64)
    torch.testing.assert_close(found.value, expected)
    assert found.slot is not None
    torch.testing.assert_close(found.slot[:, 2], torch.tensor([1, 0.5, 0.25], dtype=torch.float64))
