"""`norm`: running statistics that stay with the client, or are computed anew before a test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import composed
from fronts import Front
from planted import ALGORITHMS, configured, federation, rounds_of
from test_with_statistics import GRADIENTS, engine, normed

from fedclust.algorithms.layers.finetune import FineTune
from fedclust.algorithms.layers.last_local import LastLocal
from fedclust.algorithms.layers.newcomers import Newcomers
from fedclust.algorithms.layers.with_norm import columns_of, with_norm
from fedclust.config.build import build
from fedclust.config.data import data_of
from fedclust.config.fits import check_statistics
from fedclust.core.calls import TestCall
from fedclust.core.norms import NORMS
from fedclust.core.own_statistics import OwnStatistics
from fedclust.core.types import Served, Split
from fedclust.engines import recalibrated as module
from fedclust.engines.clients import SeedClients, shards_of
from fedclust.engines.lockstep import Lockstep
from fedclust.engines.loop import LoopEngine
from fedclust.engines.recalibrated import recalibrated
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.errors import ConfigError
from fedclust.models.params import unflatten
from fedclust.runtime.simulation import Simulation
from fedclust.solver import Solver

SOLVER = Solver(lr=0.1, batch_size=12, epochs=1)
# several models of a client in a round, mixtures, or gradients of every model
SEVERAL = ("apfl", "ditto", "fedem", "fedrc", "stocfl", "jgl_epochs")
# each in its own way: heads, momenta, descriptors, pre-training, tuning, clusters by losses
RUNNING = (
    *("cfl_mgd", "fedbcd", "fedper", "feroma", "finetune", "flexcfl", "ifca", "lcfl"),
    *("pfedme", "scaffold"),
)


def run(name: str, norm: Any, rounds: int = 2, participation: float = 1.0) -> tuple[Any, ...]:
    fed, algorithm = federation(), with_norm(configured(name), norm)
    all_rounds = rounds_of(fed, rounds, participation=participation)
    front = Front(engine())
    state, cost = algorithm.init(front.at(all_rounds[0]), all_rounds[0])
    for rnd in all_rounds:
        clients = front.at(rnd)
        state, cost = algorithm.round(state, clients, rnd)
    served = algorithm.serve(state, clients, rnd)
    return algorithm, state, cost, served, clients


@pytest.mark.parametrize("norm", ["local", "fedbn"])
def test_statistics_stay_with_the_client(norm: str) -> None:
    """The common model keeps what it began with; a test looks at each client's own."""
    _, state, cost, served, clients = run("fedavg", norm)
    layout = clients.layout
    columns = columns_of(layout, affine=norm == "fedbn")
    assert int(columns.sum()) == 17 + 16 * (norm == "fedbn")
    began = unflatten(engine().init(rounds_of(federation(), 1)[0].stream("init").fold(0)), layout)
    after = unflatten(state.model[0], layout)
    assert all(torch.equal(after[name], began[name]) for name in layout.buffers)
    assert torch.equal(after["module.1.weight"], began["module.1.weight"]) == (norm == "fedbn")
    assert state.has_statistics.all()
    assert len(state.own_statistics.unique(dim=0)) == 12
    assert (state.own_statistics[:, -1] == 8).all()  # batches met in two rounds of two epochs
    rows = state.model.repeat(12, 1)
    rows[:, columns] = state.own_statistics
    shards = shards_of(clients.rnd.fed.test, torch.arange(12), clients.rnd, "evaluate")
    want = engine().answer(TestCall(rows, torch.arange(12), shards)).loss_sum
    assert torch.equal(clients.evaluate(served).loss_sum, want)
    sent = layout.num_params * (cost.models_up + cost.models_down)
    assert sent + cost.floats_up + cost.floats_down == 24 * int((~columns).sum())


def test_a_client_that_never_trained_computes_its_own() -> None:
    _, state, _, served, clients = run("fedavg", "local", rounds=1, participation=0.5)
    missing = (~state.has_statistics).nonzero().squeeze(1)
    assert len(missing) == 6
    want = clients.recalibrated(served.models, served.label[missing], missing)
    columns = columns_of(clients.layout, affine=False)
    assert torch.equal(served.own.values[missing], want[:, columns])
    assert bool((clients.evaluate(served).count[missing] > 0).all())


@pytest.mark.parametrize("kind", [LoopEngine, VmapEngine])
def test_statistics_anew_are_those_of_the_examples(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all at once, and as means over parts of 24 examples where no more than 12 fit."""
    fed, rnd = federation(equal=False), rounds_of(federation(equal=False), 1)[0]
    one = kind(normed(), fed.pool)
    clients, ids = SeedClients(one, rnd), torch.tensor([6, 2])
    models = clients.init(rnd.stream("init"), 2)
    models[:, one.layout["module.1.running_mean"]] = 7
    weight, bias = (unflatten(models[1], one.layout)[f"module.0.{n}"] for n in ("weight", "bias"))
    hidden = fed.pool.x[fed.train.of_client(6)] @ weight.T + bias  # 24 examples
    got = unflatten(clients.recalibrated(models, torch.tensor([1, 0]), ids)[0], one.layout)
    torch.testing.assert_close(got["module.1.running_mean"], hidden.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got["module.1.running_var"], hidden.var(0), rtol=1e-4, atol=1e-5)
    assert torch.equal(got["module.0.weight"], weight)
    monkeypatch.setattr(module, "_BATCH", 12)
    shards = shards_of(fed.train, ids, rnd, "recalibrate")
    got = unflatten(recalibrated(one, models, torch.tensor([1, 0]), shards)[0], one.layout)
    var = (hidden[:12].var(0) + hidden[12:].var(0)) / 2
    torch.testing.assert_close(got["module.1.running_var"], var, rtol=1e-4, atol=1e-5)


def test_recalibrated_statistics_are_for_tests_alone() -> None:
    algorithm, state, _, served, clients = run("ifca", "recalibrate")
    plain = configured("ifca")
    front, rounds = Front(engine()), rounds_of(federation(), 2)
    want, _ = plain.init(front.at(rounds[0]), rounds[0])
    for rnd in rounds:
        want, _ = plain.round(want, front.at(rnd), rnd)
    assert torch.equal(state.models, want.models)
    ids = torch.arange(12)
    rows = clients.recalibrated(served.models, served.label, ids)
    shards = shards_of(clients.rnd.fed.test, ids, clients.rnd, "evaluate")
    expected = engine().answer(TestCall(rows, ids, shards)).loss_sum
    torch.testing.assert_close(clients.evaluate(served).loss_sum, expected)
    assert not hasattr(algorithm.base.State, "own_statistics")


@pytest.mark.parametrize("kept", [True, False])
def test_a_test_looks_at_what_a_client_has_or_its_examples_give(kept: bool) -> None:
    """Clients 0 and 2 have examples, 1 and 2 have kept statistics; nobody serves client 3."""
    nobody, columns = torch.zeros(4, dtype=torch.bool), torch.tensor([False, True])
    known = torch.tensor([False, True, True, False])
    values = torch.tensor([[0.0], [10.0], [20.0], [0.0]])
    own = OwnStatistics("local", columns, values, known, kept, nobody)
    served = Served(models=torch.zeros(1, 2), label=torch.tensor([0, 0, 0, -1]))

    def anew(models: torch.Tensor, label: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        assert ids.tolist() == ([0] if kept else [0, 2])
        return torch.stack([ids.float(), 5 + ids.float()], 1)

    found = own.in_test(served.models, served.label, torch.tensor([2, 1, 9, 9]), anew)
    assert found.known.tolist() == [True, True, True, False]
    assert found.values[:, 0].tolist() == ([5, 10, 20, 0] if kept else [5, 0, 7, 0])
    assert not found.stay
    assert own.values is values
    assert values.tolist() == [[0], [10], [20], [0]]


def test_nan_in_a_clients_statistics_stays_with_it() -> None:
    algorithm, state, _, _, clients = run("fedavg", "local")
    rnd = clients.rnd
    state.own_statistics[3] = torch.nan
    after, _ = algorithm.round(state, clients, rnd)
    assert after.model.isfinite().all()
    served = algorithm.serve(after, clients, rnd)
    loss = clients.evaluate(served, must_be_finite=False).loss_sum
    assert loss.isfinite().tolist() == [client != 3 for client in range(12)]


@pytest.mark.thinned
@pytest.mark.parametrize("name", [*SEVERAL, *RUNNING])
def test_methods_run_or_are_refused_beforehand(name: str) -> None:
    """What a method says of itself is what its first round finds."""
    refused = r"^norm=local is not allowed: average"
    if name in SEVERAL:
        with pytest.raises(ConfigError, match=refused) as error:
            check_statistics("local", configured(name), engine().layout)
        assert "\n" not in str(error.value)
        with pytest.raises(ConfigError, match=refused):
            run(name, "local")
        return
    check_statistics("local", configured(name), engine().layout)
    _, _, _, served, clients = run(name, "local")
    assert served.models.isfinite().all()
    assert clients.evaluate(served).loss_sum.isfinite().all()


@pytest.mark.thinned
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_says_beforehand_whether_statistics_can_stay(name: str) -> None:
    """Around a method as of the method; mixtures are refused with `recalibrate` too."""
    for norm, refused in (("fedbn", SEVERAL), ("recalibrate", ("fedem", "fedrc"))):
        message = ""
        try:
            check_statistics(norm, FineTune(base=configured(name), solver=SOLVER), engine().layout)
        except ConfigError as error:
            message = str(error)
        assert message.startswith(f"norm={norm} is not allowed: average") == (name in refused)
        assert message.startswith("model=module.1.running_mean is not") == (name in GRADIENTS)


@pytest.mark.full
@pytest.mark.parametrize(
    "more", [("algorithm=ifca", "algorithm.averaging=gradient"), ("algorithm=jgl",)]
)
def test_a_server_that_steps_against_gradients_refuses_statistics_early(
    more: tuple[str, ...],
) -> None:
    """While the job is built, so before its folder is made."""
    with pytest.raises(ConfigError, match=r"^model=\S+running_mean is not .* which move none$"):
        build(composed("rounds=1", "model=resnet9", "model.norm_layer=batch", *more))


def test_tuned_statistics_are_those_of_the_tuning() -> None:
    """They are tested, and not kept for the next round."""
    _, state, _, served, clients = run("finetune", "local")
    columns = columns_of(clients.layout, affine=False)
    assert (served.own.values[:, -1] == state.own_statistics[:, -1] + 2).all()
    assert bool((served.models[served.label][:, ~columns] != state.model[:, ~columns]).any())


def test_a_model_without_statistics_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^norm=local is not allowed: average, since the model"):
        build(composed("norm=local", "rounds=1"))


@pytest.mark.parametrize(("more", "says"), [((), "of the"), (("solver.drop_last=true",), "")])
def test_a_batch_of_one_example_is_told_before_round_0(
    tmp_path: Path, more: tuple[str, ...], says: str
) -> None:
    (tmp_path / f"normed{len(more)}.py").write_text(
        "from torch import nn\n\n\ndef net(in_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), "
        "nn.Linear(4, num_classes))\n"
    )
    config = composed("rounds=1", "partition=iid", *more)
    size = int(data_of(config)[0].train.count[0])
    config["solver"] |= {"batch_size": size - 1}
    config["model"] = {"_target_": f"normed{len(more)}.net"}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        if not says:
            assert build(config, tmp_path).engine.layout.num_buffers == 3
            return
        with pytest.raises(
            ConfigError, match=f"^solver.batch_size={size - 1} is not allowed: {says}"
        ):
            build(config, tmp_path)


def told_beside(method: Any, norm: Any, rounds: list[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Of every round: the test's results after it, the notes and who has taken part."""
    algorithm = with_norm(method, norm)
    front, seen = Front(engine()), torch.zeros(12, dtype=torch.bool)
    state, _ = algorithm.init(front.at(rounds[0]), rounds[0])
    for rnd in rounds:
        clients = front.at(rnd)
        state, cost = algorithm.round(state, clients, rnd)
        seen[rnd.cohort] = True
        yield clients.evaluate(algorithm.serve(state, clients, rnd)), cost.notes, seen


@pytest.mark.full
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("base", "assign"), [("oracle", "labels"), ("finetune", "method")])
def test_newcomers_are_tested_as_in_the_rounds_own_test(norm: str, base: str, assign: str) -> None:
    plain: Any = configured("newcomers")
    how = {"base": configured(base), "descriptor": plain.descriptor, "assign": assign}
    rounds = [replace(rnd, cohort=torch.arange(5)) for rnd in rounds_of(federation(), 3)]
    for result, notes, seen in told_beside(Newcomers(**how), norm, rounds):
        right, count = (one[~seen].sum() for one in (result.sums[:, 0], result.count))
        assert int(count) == 7 * 8
        assert notes["accuracy_newcomers"] == pytest.approx(float(right / count))


@pytest.mark.full
@pytest.mark.parametrize("norm", NORMS)
def test_last_local_models_are_tested_as_they_were(norm: str) -> None:
    """Of clients who train alone and are served their own model: those of the round before."""
    rounds, before = rounds_of(federation(), 4), None
    for result, notes, _ in told_beside(LastLocal(base=configured("local")), norm, rounds):
        if before is not None:
            assert notes["accuracy_last_local"] == pytest.approx(before)
        before = float(result.sums[:, 0].sum() / result.count.sum())


@pytest.mark.full
@pytest.mark.parametrize("norm", NORMS)
def test_before_a_change_is_tested_as_after_the_round(norm: str) -> None:
    """A test before a round in which nothing has changed is that after the last one."""
    method = configured("fedavg")
    algorithm = with_norm(method, norm)
    first, *later = rounds_of(federation(), 3, participation=0.5)
    rounds = [first, *(replace(rnd, is_change=True) for rnd in later)]
    simulation = Simulation(0, algorithm, Lockstep(engine()), iter(rounds))
    step = simulation.step(evaluated=True)
    for _ in rounds[1:]:
        before, step = step.evaluation, simulation.step(evaluated=True)
        assert before is not None
        assert step.untrained is not None
        torch.testing.assert_close(step.untrained.loss_sum, before.loss_sum)


@pytest.mark.parametrize("norm", ["local", "recalibrate"])
def test_one_example_gives_no_statistics(norm: Any) -> None:
    """Such a client is tested with those of the model: a variance needs two examples."""
    fed, algorithm = federation(), with_norm(configured("fedavg"), norm)
    rows = [fed.train.of_client(i)[: 1 if i == 5 else None] for i in range(12)]
    first = rounds_of(replace(fed, train=Split.of(rows)), 1)[0]
    rnd = replace(first, cohort=torch.arange(5))
    clients = Front(engine()).at(rnd)
    state, _ = algorithm.init(clients, rnd)
    served = algorithm.serve(state, clients, rnd)
    shards = shards_of(fed.test, torch.tensor([5]), rnd, "evaluate")
    want = engine().answer(TestCall(served.models, torch.tensor([0]), shards)).loss_sum
    torch.testing.assert_close(clients.evaluate(served).loss_sum[5:6], want)
