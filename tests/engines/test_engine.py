"""Client ids in, tensors out: the engine as an algorithm sees it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, islice, pairwise
from typing import Any

import pytest
import torch
from engine_toys import shipped, toy_pool
from fronts import Front
from torch import Tensor
from toys import federation_of

from fedclust.core.calls import LocalWork, Shards
from fedclust.core.front import Gradient, Train
from fedclust.core.types import Federation, Round, Served, Split
from fedclust.engines import make_engine
from fedclust.engines.clients import batch_of
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.errors import ConfigError, DivergedError
from fedclust.helpers.rng import Stream
from fedclust.scenarios.static import Static
from fedclust.solver import Solver

SHAPE = (1, 8, 8)
SOLVER = Solver(lr=0.05, batch_size=5, epochs=1)


def federation(counts: tuple[int, ...] = (5, 9, 3, 7)) -> Federation:
    starts = torch.tensor([0, *counts]).cumsum(0)
    train = [torch.arange(a, b) for a, b in pairwise(starts.tolist())]
    test = [torch.arange(40, 40 + n) for n in (4, 0, 2, 6)]
    return federation_of(toy_pool(SHAPE), train, test=test)


def engine_and_rounds(count: int = 2) -> tuple[Front, list[Round]]:
    fed = federation()
    rounds = list(islice(Static().rounds(fed, 5), count))
    return Front(LoopEngine(shipped("linear", SHAPE), fed.pool)), rounds


def trained(clients: Any, models: Tensor, ids: list[int], solver: Any = SOLVER, **more: Any) -> Any:
    """Local training of clients that all begin with the first of some models."""
    one = torch.tensor(ids)
    return clients.train(Train(models, torch.zeros_like(one), one, solver, **more))


def test_initial_models_are_independent_and_repeatable() -> None:
    clients, (rnd, _) = engine_and_rounds()
    models = clients.init(rnd.stream("init"), 3)
    assert models.shape == (3, clients.layout.num_params)
    assert len({tuple(m.tolist()) for m in models}) == 3
    assert torch.equal(clients.init(rnd.stream("init"), 2), models[:2])


def test_a_client_trains_the_same_alone_and_in_company() -> None:
    clients, (rnd, later) = engine_and_rounds()
    models = clients.init(rnd.stream("init"), 2)
    label, everyone = torch.tensor([0, 1, 0, 1]), torch.arange(4)
    together = clients.at(rnd).train(Train(models, label, everyone, SOLVER))
    alone = trained(clients.at(rnd), models[1:], [3])
    assert torch.equal(together.params[3:], alone.params)
    # another round and another purpose have another order of examples
    other = trained(clients.at(later), models[1:], [3])
    again = trained(clients.at(rnd), models[1:], [3], purpose="again")
    assert not torch.equal(other.params, alone.params)
    assert not torch.equal(again.params, alone.params)


def test_the_learning_rate_decays_with_the_round() -> None:
    clients, rounds = engine_and_rounds()
    models = clients.init(rounds[0].stream("init"), 1)
    solver = Solver(lr=0.1, decay=0.5, batch_size=None, epochs=1)
    steps = [trained(clients.at(rnd), models, [1], solver).params - models for rnd in rounds]
    torch.testing.assert_close(steps[0], 2 * steps[1], rtol=1e-4, atol=1e-6)


def test_evaluation_counts_only_clients_with_label_and_test_data() -> None:
    clients, (rnd, _) = engine_and_rounds()
    models = clients.init(rnd.stream("init"), 2)
    served = Served(models=models, label=torch.tensor([0, 1, -1, 1]))
    evaluation = clients.at(rnd).evaluate(served)
    assert evaluation.count.tolist() == [4, 0, 0, 6]
    assert evaluation.sums[1:3].tolist() == [[0], [0]]
    assert evaluation.loss_sum.dtype == torch.float64
    x, y = rnd.fed.pool.inputs(torch.arange(40, 46)), rnd.fed.pool.y[40:46]
    weight, bias = models[1][:640].view(10, 64), models[1][640:]
    scores = x.flatten(1) @ weight.T + bias
    assert int(evaluation.sums[3]) == int((scores.argmax(1) == y).sum())
    expected = torch.nn.functional.cross_entropy(scores, y, reduction="sum")
    assert float(evaluation.loss_sum[3]) == pytest.approx(float(expected), rel=1e-5)


def test_nobody_to_evaluate_is_no_error() -> None:
    clients, (rnd, _) = engine_and_rounds()
    served = Served(models=clients.init(rnd.stream("init"), 1), label=torch.full((4,), -1))
    assert clients.at(rnd).evaluate(served).count.sum() == 0


def test_a_loss_that_is_not_finite_names_seed_round_and_client() -> None:
    clients, (_, rnd) = engine_and_rounds()
    models = clients.init(Stream.of(0, "init"), 2)
    models[1] = float("nan")
    with pytest.raises(
        DivergedError, match="seed 5, round 1: the training loss of client 2 is nan"
    ):
        clients.at(rnd).train(Train(models, torch.tensor([0, 1]), torch.tensor([0, 2]), SOLVER))
    with pytest.raises(DivergedError, match="seed 5, round 1: the test loss of client 3 is nan"):
        clients.at(rnd).evaluate(Served(models=models, label=torch.tensor([0, -1, 0, 1])))


@pytest.mark.parametrize(
    ("name", "chosen"), [("auto", "fused"), ("loop", "loop"), ("vmap", "vmap")]
)
def test_the_engine_is_chosen_by_name(name: str, chosen: str) -> None:
    assert make_engine(name, shipped("linear", SHAPE), federation().pool).name == chosen


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="engine=warp"):
        make_engine("warp", shipped("linear", SHAPE), federation().pool)


def test_a_straggler_takes_part_of_its_steps_and_nobody_else_notices() -> None:
    clients, (rnd, _) = engine_and_rounds()
    models, solver = clients.init(rnd.stream("init"), 1), replace(SOLVER, epochs=4)
    late = clients.at(replace(rnd, work=torch.tensor([1.0, 0.5, 1.0, 0.3])))
    whole = trained(clients.at(rnd), models, [0, 1, 2, 3], solver)
    part = trained(late, models, [0, 1, 2, 3], solver)
    assert whole.steps.tolist() == [4, 8, 4, 8]
    assert part.steps.tolist() == [4, 4, 4, 3]
    assert torch.equal(part.params[[0, 2]], whole.params[[0, 2]])
    half = trained(clients.at(rnd), models, [1], replace(solver, epochs=2))
    assert torch.equal(part.params[1], half.params[0])
    # work is that of the client and not of the row
    assert trained(late, models, [3, 1], solver).steps.tolist() == [3, 4]


def batch_of_client(
    clients: Front, models: torch.Tensor, client: int, rnd: Round, size: int
) -> set[int]:
    """The only set of `size` training examples whose mean loss is that of the client's batch."""
    found = clients.at(rnd).loss(models, torch.tensor([client]), batch_size=size)
    sets = list(combinations(rnd.fed.train.of_client(client).tolist(), size))
    each = Split.of([torch.tensor(some) for some in sets])
    fed = replace(rnd.fed, train=each, test=each, group=torch.zeros(len(sets), dtype=torch.int64))
    table = clients.at(replace(rnd, fed=fed)).loss(models, torch.arange(len(sets)))
    (fitting,) = (
        torch.isclose(table, found, rtol=1e-5, atol=1e-6).all(1).nonzero().squeeze(1).tolist()
    )
    return set(sets[fitting])


@pytest.mark.full
def test_a_batch_is_a_random_set_of_examples_the_same_for_every_model() -> None:
    clients, rounds = engine_and_rounds(12)
    models = clients.init(rounds[0].stream("init"), 3)
    batches = [batch_of_client(clients, models, 1, rnd, 3) for rnd in rounds]
    assert len({frozenset(b) for b in batches}) > 6, "another one in every round"
    assert len(set().union(*batches)) >= 8, "of 9 examples"
    assert batch_of_client(clients, models[1:], 1, rounds[0], 3) == batches[0]
    whole = clients.at(rounds[0]).loss(models, torch.arange(4))
    assert torch.allclose(clients.at(rounds[0]).loss(models, torch.arange(4), batch_size=9), whole)


def test_loss_and_gradient_see_the_same_batch() -> None:
    clients, (rnd, _) = engine_and_rounds()
    models = clients.init(rnd.stream("init"), 1)
    ids, zeros = torch.arange(4), torch.zeros(4, dtype=torch.int64)
    gradient = clients.at(rnd).grad(Gradient(models, zeros, ids, batch_size=2))
    assert not torch.allclose(
        gradient, clients.at(rnd).grad(Gradient(models, zeros, ids)), atol=1e-3
    )
    step = 1e-2 * gradient / gradient.norm(dim=1, keepdim=True)
    ahead = clients.at(rnd).loss(models + step, ids, batch_size=2).diagonal()
    behind = clients.at(rnd).loss(models - step, ids, batch_size=2).diagonal()
    torch.testing.assert_close((ahead - behind) / 2e-2, gradient.norm(dim=1), rtol=1e-2, atol=1e-3)


def test_a_batch_is_drawn_once_for_all_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def noted(ids: torch.Tensor, rnd: Round, batch_size: int) -> Shards:
        sizes.append(batch_size)
        return batch_of(ids, rnd, batch_size)

    monkeypatch.setattr("fedclust.engines.clients.batch_of", noted)
    front, (rnd, later) = engine_and_rounds()
    clients, ids = front.at(rnd), torch.arange(3)
    models = clients.init(rnd.stream("init"), 2)
    first = clients.loss(models, ids, batch_size=2)
    assert torch.equal(clients.loss(models, ids, batch_size=2), first)
    clients.grad(Gradient(models, torch.zeros(3, dtype=torch.int64), ids, batch_size=2))
    assert sizes == [2]
    clients.loss(models, ids, batch_size=3)
    clients.loss(models, ids.flip(0), batch_size=3)
    clients.at(later).loss(models, ids, batch_size=3)
    assert sizes == [2, 3, 3, 3]


def test_a_batch_does_not_depend_on_the_company() -> None:
    front, (rnd, _) = engine_and_rounds()
    clients = front.at(rnd)
    models = front.init(rnd.stream("init"), 2)
    together = clients.loss(models, torch.tensor([0, 1, 3]), batch_size=4)
    assert torch.equal(together[2:], clients.loss(models, torch.tensor([3]), batch_size=4))
    label, ids = torch.tensor([1, 0]), torch.tensor([3, 1])
    gradient = clients.grad(Gradient(models, label, ids, batch_size=4))
    alone = clients.grad(Gradient(models, label[:1], ids[:1], batch_size=4))
    assert torch.equal(gradient[:1], alone)


@pytest.mark.parametrize("name", ["vmap", "fused"])
def test_batches_are_the_same_on_every_engine(name: str) -> None:
    loop, (rnd, _) = engine_and_rounds()
    fast = Front(make_engine(name, shipped("linear", SHAPE), rnd.fed.pool))
    models, ids = loop.init(rnd.stream("init"), 2), torch.arange(4)
    want, got = (e.at(rnd).loss(models, ids, batch_size=3) for e in (loop, fast))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    label = torch.tensor([0, 1, 1, 0])
    want, got = (e.at(rnd).grad(Gradient(models, label, ids, batch_size=3)) for e in (loop, fast))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["loop", "fused"])
@pytest.mark.parametrize("discrepancy", [False, True])
def test_a_mean_is_that_of_the_same_work(name: str, discrepancy: bool) -> None:
    """Whatever `train` is given, `train_mean` is given too."""
    fed = federation()
    rnd = next(Static().rounds(fed, 5))
    engine = make_engine(name, shipped("linear", SHAPE), fed.pool)
    clients = Front(engine, discrepancy).at(rnd)
    models, everyone = clients.init(Stream.of(5, "init"), 2), torch.arange(4)
    label = torch.tensor([0, 1, 0, 1])
    draw = torch.Generator().manual_seed(1)
    work = LocalWork(
        slots=torch.randn(models.shape, generator=draw),
        anchor=torch.randn(4, models.shape[1], generator=draw),
        linear=torch.randn(4, models.shape[1], generator=draw),
        example_weight=torch.rand(4, 9, generator=draw),
        frozen=torch.arange(models.shape[1]) % 2 == 0 if name == "loop" else None,
        each_step=True,
    )
    solver = replace(SOLVER, momentum=0.5, proximal=0.3)
    each = clients.train(Train(models, label, everyone, solver, work))
    mean = clients.train_mean(Train(models, label, everyone, solver, work))
    assert each.slots is not None
    assert mean.slots is not None
    for k in range(2):
        torch.testing.assert_close(mean.models[k], each.params[label == k].mean(0))
        torch.testing.assert_close(mean.slots[k], each.slots[label == k].mean(0))
    plain = clients.train_mean(Train(models, label, everyone, solver))
    assert (plain.models - mean.models).abs().max() > 0.01
