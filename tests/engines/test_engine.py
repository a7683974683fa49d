"""Client ids in, tensors out: the engine as an algorithm sees it."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
import torch
from engine_toys import shipped, toy_pool

from fedclust.engines.choose import make_backend
from fedclust.engines.engine import SeedEngine
from fedclust.engines.loop import LoopBackend
from fedclust.errors import ConfigError, DivergedError
from fedclust.rng import Stream
from fedclust.scenarios.static import Static
from fedclust.solver import Solver
from fedclust.types import Federation, Round, Served, Split

SHAPE = (1, 8, 8)
SOLVER = Solver(lr=0.05, batch_size=5, epochs=1)


def federation(counts: tuple[int, ...] = (5, 9, 3, 7)) -> Federation:
    starts = torch.tensor([0, *counts]).cumsum(0)
    train = Split.of([torch.arange(a, b) for a, b in pairwise(starts.tolist())])
    test = Split.of([torch.arange(40, 40 + n) for n in (4, 0, 2, 6)])
    return Federation(pool=toy_pool(SHAPE), train=train, test=test, group=torch.zeros(4, dtype=torch.int64))


def engine_and_rounds(count: int = 2) -> tuple[SeedEngine, list[Round]]:
    fed = federation()
    rounds = list(islice(Static().rounds(fed, 5), count))
    return SeedEngine(LoopBackend(shipped("linear", SHAPE), fed.pool)), rounds


def test_initial_models_are_independent_and_repeatable() -> None:
    engine, (rnd, _) = engine_and_rounds()
    models = engine.init(rnd.stream("init"), 3)
    assert models.shape == (3, engine.num_params)
    assert len({tuple(m.tolist()) for m in models}) == 3
    assert torch.equal(engine.init(rnd.stream("init"), 2), models[:2])


def test_a_client_trains_the_same_alone_and_in_company() -> None:
    engine, (rnd, later) = engine_and_rounds()
    models = engine.init(rnd.stream("init"), 2)
    everyone = torch.arange(4)
    together = engine.train(models, torch.tensor([0, 1, 0, 1]), everyone, SOLVER, rnd)
    alone = engine.train(models[1:], torch.tensor([0]), torch.tensor([3]), SOLVER, rnd)
    assert torch.equal(together.params[3:], alone.params)
    other = engine.train(models[1:], torch.tensor([0]), torch.tensor([3]), SOLVER, later)
    assert not torch.equal(other.params, alone.params), "another round has another order of examples"
    again = engine.train(models[1:], torch.tensor([0]), torch.tensor([3]), SOLVER, rnd, purpose="again")
    assert not torch.equal(again.params, alone.params), "another purpose has another order of examples"


def test_the_learning_rate_decays_with_the_round() -> None:
    engine, (rnd, later) = engine_and_rounds()
    models = engine.init(rnd.stream("init"), 1)
    solver = Solver(lr=0.1, decay=0.5, batch_size=None, epochs=1)
    steps = [
        engine.train(models, torch.tensor([0]), torch.tensor([1]), solver, r).params - models
        for r in (rnd, later)
    ]
    torch.testing.assert_close(steps[0], 2 * steps[1], rtol=1e-4, atol=1e-6)


def test_evaluation_counts_only_clients_with_label_and_test_data() -> None:
    engine, (rnd, _) = engine_and_rounds()
    models = engine.init(rnd.stream("init"), 2)
    served = Served(models=models, label=torch.tensor([0, 1, -1, 1]))
    evaluation = engine.evaluate(served, rnd)
    assert evaluation.count.tolist() == [4, 0, 0, 6]
    assert evaluation.correct[1:3].tolist() == [0, 0]
    assert evaluation.loss_sum.dtype == torch.float64
    x, y = rnd.fed.pool.inputs(torch.arange(40, 46)), rnd.fed.pool.y[40:46]
    weight, bias = models[1][:640].view(10, 64), models[1][640:]
    scores = x.flatten(1) @ weight.T + bias
    assert int(evaluation.correct[3]) == int((scores.argmax(1) == y).sum())
    expected = torch.nn.functional.cross_entropy(scores, y, reduction="sum")
    assert float(evaluation.loss_sum[3]) == pytest.approx(float(expected), rel=1e-5)


def test_nobody_to_evaluate_is_no_error() -> None:
    engine, (rnd, _) = engine_and_rounds()
    served = Served(models=engine.init(rnd.stream("init"), 1), label=torch.full((4,), -1))
    assert engine.evaluate(served, rnd).count.sum() == 0


def test_a_loss_that_is_not_finite_names_seed_round_and_client() -> None:
    engine, (_, rnd) = engine_and_rounds()
    models = engine.init(Stream.of(0, "init"), 2)
    models[1] = float("nan")
    with pytest.raises(DivergedError, match="seed 5, round 1: the training loss of client 2 is nan"):
        engine.train(models, torch.tensor([0, 1]), torch.tensor([0, 2]), SOLVER, rnd)


@pytest.mark.parametrize(("name", "chosen"), [("auto", "fused"), ("loop", "loop"), ("vmap", "vmap")])
def test_the_engine_is_chosen_by_name(name: str, chosen: str) -> None:
    fed = federation()
    assert make_backend(name, shipped("linear", SHAPE), fed.pool).name == chosen


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="engine=warp"):
        make_backend("warp", shipped("linear", SHAPE), federation().pool)
