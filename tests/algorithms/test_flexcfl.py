"""FlexCFL: cold starts, migration, inter-group aggregation and costs by hand; limit FedAvg."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import CLIENTS, configured, engine_for, federation, partition_of, rounds_of, simulate
from torch import Tensor
from toy_engine import SOLVER, ToyEngine, total_cost, toy_federation, toy_round

from fedclust.algorithms.cold_start import ColdStart, ShiftTest
from fedclust.algorithms.flexcfl import FlexCFL, InterGroup, nearest
from fedclust.cluster_methods.agglomerative import Agglomerative
from fedclust.cluster_methods.kmeans import KMeans
from fedclust.cluster_metrics.edc import EDC
from fedclust.cluster_metrics.madc import MADC
from fedclust.core.front import Train
from fedclust.core.server import Server, median
from fedclust.updates.aggregations import Median

ANGLES = torch.tensor([0.0, 2.0, 4.0])


def flexcfl(k: int = 3, **options: Any) -> FlexCFL:
    cold = {"scale": 2, "metric": EDC(num_components=2), "method": KMeans(num_clusters=k)}
    cold |= {
        name: options.pop(name)
        for name in ("scale", "grouping", "metric", "method")
        if name in options
    }
    settings = {"shift": ShiftTest(), "inter_group": InterGroup(), **options}
    return FlexCFL(
        solver=SOLVER, num_clusters=k, cold_start=ColdStart(solver=SOLVER, **cold), **settings
    )


def toy(ids: int = 12, classes: int = 3) -> tuple[Any, ToyEngine]:
    """Client i moves along direction i % 3 in the plane and owns two examples of class i % 3."""
    angle = ANGLES[torch.arange(ids) % 3]
    length = 1 + 0.1 * torch.arange(ids)
    pull = torch.stack([angle.cos(), angle.sin()], 1) * length.unsqueeze(1)
    fed = toy_federation([[i % 3, i % 3] for i in range(ids)], classes)
    return fed, ToyEngine(pull=pull, start=torch.tensor([[5.0, -3.0]]))


def begun(ids: int = 12, **options: Any) -> tuple[Any, ToyEngine, FlexCFL, Any]:
    """So many clients as above, a method and its state before round 0."""
    (fed, clients), algorithm = toy(ids), flexcfl(**options)
    state, _ = algorithm.init(clients, toy_round(fed, [0]))
    return fed, clients, algorithm, state


def moved_data(fed: Any, client: int, label: int) -> Any:
    """The federation in which all examples of a client have another class."""
    y = fed.pool.y.clone()
    y[fed.train.of_client(client)] = label
    return replace(fed, pool=replace(fed.pool, y=y))


def test_with_one_group_it_is_fedavg_by_samples_from_the_mean_of_the_pretrained() -> None:
    fed = federation(equal=False)
    rounds = rounds_of(fed, 3, participation=0.5)
    algorithm: Any = configured("flexcfl", "num_clusters=1")
    states, _ = simulate(algorithm, rounds)
    start, clients = algorithm.init(engine_for(fed).at(rounds[0]), rounds[0])[0], engine_for(fed)
    everybody, zero = torch.arange(CLIENTS), torch.zeros(CLIENTS, dtype=torch.int64)
    pretrained = clients.at(rounds[0]).train(
        Train(start.base, zero, everybody, algorithm.cold_start.solver, purpose="pretrain")
    )
    torch.testing.assert_close(start.models, pretrained.params.mean(0, keepdim=True))
    assert pretrained.steps.tolist() == [50] * CLIENTS
    fedavg: Any = configured("fedavg", "algorithm.aggregation=by_samples")
    expected, _ = simulate(fedavg, rounds, fedavg.State(model=start.models))
    assert all(torch.equal(a.models, b.model) for a, b in zip(states, expected, strict=True))


@pytest.mark.parametrize("madc", [False, True])
def test_group_cold_start_by_hand(madc: bool) -> None:
    fed, clients = toy()
    metric: Any = MADC() if madc else EDC(num_components=2)
    method: Any = (
        Agglomerative(num_clusters=3, linkage="complete") if madc else KMeans(num_clusters=3)
    )
    algorithm = flexcfl(scale=3, metric=metric, method=method)
    state, report = algorithm.init(clients, toy_round(fed, [0]))
    members = (state.label >= 0).nonzero().squeeze(1)
    assert len(members) == 9
    assert partition_of(state.label[members]) == partition_of(members % 3)
    for k in range(3):
        mine = state.label == k
        torch.testing.assert_close(state.direction[k], clients.pull[mine].mean(0))
        torch.testing.assert_close(state.models[k], clients.start[0] + clients.pull[mine].mean(0))
    assert (report.models_down, report.models_up) == (9 + 9 * 3, 9)
    assert report.gradient_steps == 9
    assert report.notes["num_clusters_found"] == 3
    assert report.arrays["distance"].shape == (9, 9)
    common, _ = flexcfl(scale=3, group_init="common").init(clients, toy_round(fed, [0]))
    assert torch.equal(common.models, clients.start.repeat(3, 1))
    torch.testing.assert_close(
        common.direction, clients.pull.new_tensor(_directions(clients, common.label))
    )
    assert common.reference is not None
    owned = 2 * torch.eye(3, dtype=torch.int64)[members % 3]
    assert torch.equal(common.reference[members, :3], owned)


def test_groups_begin_at_a_robust_mean_of_the_pretrained() -> None:
    fed, clients = toy()
    clients.server = Server(aggregation=Median())  # type: ignore[misc]
    clients.pull[0] *= 1e6
    state, _ = flexcfl(k=1, scale=12).init(clients, toy_round(fed, [0]))
    wanted = median(clients.pull.double()).unsqueeze(0).float()
    torch.testing.assert_close(state.direction, wanted)
    torch.testing.assert_close(state.models, clients.start[:1] + wanted)


def _directions(clients: ToyEngine, label: Tensor) -> list[list[float]]:
    return [clients.pull[label == k].mean(0).tolist() for k in range(3)]


def test_newcomers_join_the_group_their_update_points_to() -> None:
    """Eq. (8): the least (1 - cos) / 2, at the first selection and not before."""
    fed, clients, algorithm, state = begun(scale=1)
    new = (state.label < 0).nonzero().squeeze(1)
    assert len(new) == 9
    after, report = algorithm.round(state, clients, toy_round(fed, new[:4].tolist()))
    cosine = torch.nn.functional.cosine_similarity(
        clients.pull[new[:4]].unsqueeze(1), state.direction, dim=2
    )
    assert torch.equal(after.label[new[:4]], ((1 - cosine) / 2).argmin(1))
    assert (after.label[new[4:]] == -1).all()
    assert torch.equal(after.direction, state.direction)
    assert report.notes["joined"] == 4
    assert report.notes["migrated"] == 0
    assert (report.models_down, report.models_up) == (4 + 4 * 3, 4)
    assert report.gradient_steps == 8, "pre-training and training"
    served = algorithm.serve(after, clients, toy_round(fed, [0]))
    assert torch.equal(served.label, after.label)


def test_newcomers_join_by_the_angle_not_by_the_distance() -> None:
    """Directions (1, 0) and (8, 8): the update (1.2, 1.0) is near the first, but points along the
    second. The model it began with, (9, -4), plays no part.
    """
    clients = ToyEngine(pull=torch.tensor([[1.2, 1.0]]), start=torch.tensor([[9.0, -4.0]]))
    fed, direction = toy_federation([[0]]), torch.tensor([[1.0, 0.0], [8.0, 8.0]])
    ids = torch.tensor([0])
    found, steps = nearest(clients.at(toy_round(fed, [0])), clients.start, direction, ids, SOLVER)
    assert found.tolist() == [1]
    assert steps == 1


def test_joining_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fed, clients, algorithm, state = begun(scale=1)
    rnd = toy_round(fed, list(range(12)))
    whole, report = algorithm.round(state, clients.at(rnd), rnd)
    # two clients of two parameters
    monkeypatch.setattr("fedclust.algorithms.flexcfl._CPU_BLOCK", 4)
    blocks, again = algorithm.round(state, clients.at(rnd), rnd)
    assert torch.equal(whole.label, blocks.label)
    assert report.gradient_steps == again.gradient_steps


def test_a_shifted_client_moves_and_the_reference_follows() -> None:
    fed, clients = toy()
    algorithm, cohort = flexcfl(scale=4), [1, 2]
    state, _ = algorithm.init(clients, toy_round(fed, cohort))
    assert (state.label >= 0).all()
    after_shift = moved_data(fed, 3, 1)  # from class 0 to class 1
    clients.pull[3] = clients.pull[4]
    rnd = toy_round(after_shift, cohort, t=1, shifted=[3])
    after, report = algorithm.round(state, clients.at(rnd), rnd)
    assert state.label[3] == state.label[0]
    assert after.label[3] == state.label[1]
    assert torch.equal(after.label[torch.arange(12) != 3], state.label[torch.arange(12) != 3])
    assert after.reference is not None
    assert after.reference[3].tolist() == [0, 2, 0, 2]
    assert report.notes["migrated"] == 1
    assert report.notes["joined"] == 0
    assert report.models_down == 2, "directions are kept, moving sends nothing"
    assert report.gradient_steps == 3
    again, report = algorithm.round(after, clients, replace(rnd, t=2))
    assert torch.equal(again.label, after.label)
    assert report.gradient_steps == 2
    stuck, _ = flexcfl(scale=4, migration=False).round(
        replace(state, reference=None), clients.at(rnd), rnd
    )
    assert torch.equal(stuck.label, state.label)
    silent = replace(rnd, shifted=~rnd.present)
    untold, _ = algorithm.round(state, clients.at(silent), silent)
    assert torch.equal(untold.label, after.label), "the simulator's knowledge plays no part"
    released = flexcfl(scale=4, shift=ShiftTest(distance="released"))
    before = toy_round(fed, cohort)
    state, _ = released.init(clients.at(before), before)
    assert torch.equal(released.round(state, clients.at(rnd), rnd)[0].label, state.label)


def test_absent_and_unknown_clients_do_not_move() -> None:
    fed, clients, algorithm, state = begun(scale=1)
    member, stranger = (int((state.label >= 0).nonzero()[0]), int((state.label < 0).nonzero()[0]))
    shifted = moved_data(moved_data(fed, member, (member + 1) % 3), stranger, (stranger + 1) % 3)
    rnd = toy_round(
        shifted, [m for m in range(12) if m not in (member, stranger)], shifted=[member]
    )
    present = rnd.present.clone()
    present[member] = False
    after, _ = algorithm.round(state, clients, replace(rnd, present=present))
    assert after.label[member] == state.label[member]
    assert after.reference is not None
    assert state.reference is not None
    assert torch.equal(after.reference[member], state.reference[member])
    assert after.label[stranger] == -1
    assert algorithm.serve(after, clients, replace(rnd, present=present)).label[member] == -1


def norms(models: Tensor) -> Tensor:
    return models.norm(dim=1)


def test_inter_group_aggregation_by_hand() -> None:
    models = torch.tensor([[3.0, 4.0], [0.0, 2.0], [-1.0, 0.0]])
    sum_of_others = torch.tensor([[0 - 1.0, 1 + 0.0], [0.6 - 1.0, 0.8], [0.6, 0.8 + 1.0]])
    literal = InterGroup(rate=0.5, normalize=False)(models)
    torch.testing.assert_close(literal, models + 0.5 * sum_of_others)
    weight = 0.5 * torch.tensor([1 / 2 + 1 / 1, 1 / 5 + 1 / 1, 1 / 5 + 1 / 2])
    normalised = InterGroup(rate=0.5)(models)
    torch.testing.assert_close(normalised, literal / (1 + weight).unsqueeze(1))
    assert InterGroup()(models) is models
    assert torch.isfinite(InterGroup(rate=5.0)(torch.zeros(3, 4))).all()


def test_the_exchange_follows_the_groups_averages() -> None:
    fed, clients = toy()
    apart, mixed = flexcfl(scale=4), flexcfl(scale=4, inter_group=InterGroup(rate=2.0))
    state, _ = apart.init(clients, toy_round(fed, [0]))
    rnd = toy_round(fed, [0, 1, 2, 7])
    alone, report = apart.round(state, clients.at(rnd), rnd)
    together, dearer = mixed.round(state, clients.at(rnd), rnd)
    assert torch.equal(together.models, InterGroup(rate=2.0)(alone.models))
    assert dearer.models_up == report.models_up + 3
    gap = clients.pull[rnd.cohort] + state.models[state.label[rnd.cohort]]
    after = together.models[state.label[rnd.cohort]]
    assert dearer.notes["discrepancy"] == pytest.approx(float(norms(gap - after).mean()))
    assert dearer.notes["discrepancy"] > report.notes["discrepancy"]


def test_random_centres_are_groups_of_one() -> None:
    fed, clients = toy()
    algorithm = flexcfl(grouping="random_centres")
    centres = set()
    for seed in range(5):
        rnd = replace(toy_round(fed, [0]), seed=seed)
        state, report = algorithm.init(clients.at(rnd), rnd)
        members = (state.label >= 0).nonzero().squeeze(1)
        assert state.label[members].tolist() == [0, 1, 2]
        torch.testing.assert_close(state.direction, clients.pull[members])
        assert (report.models_down, report.models_up) == (3 + 3 * 3, 3)
        centres.add(tuple(members.tolist()))
    assert len(centres) > 1


def test_random_joining_keeps_the_clustered_and_spreads_the_rest() -> None:
    ids = 600
    fed, clients, algorithm, state = begun(ids, scale=10, joining="random")
    members = state.label >= 0
    assert int(members.sum()) == 30
    after, report = algorithm.round(state, clients, toy_round(fed, list(range(ids))))
    assert torch.equal(after.label[members], state.label[members])
    assert partition_of(state.label[members]) == partition_of(torch.arange(ids)[members] % 3)
    size = after.label[~members].bincount(minlength=3)
    assert int((size - 190).abs().max()) < 45, "four standard deviations"
    assert report.models_down == ids
    assert report.gradient_steps == ids
    half, _ = algorithm.round(state, clients, toy_round(fed, list(range(0, ids, 2))))
    assert torch.equal(half.label[::2], after.label[::2]), "nobody's draw depends on the company"


def test_with_random_joining_a_shifted_client_still_looks_for_its_direction() -> None:
    fed, clients, algorithm, state = begun(60, scale=20, joining="random")
    moved = fed
    for client in range(0, 30, 3):  # from class 0 to class 1
        moved = moved_data(moved, client, 1)
        clients.pull[client] = clients.pull[1]
    rnd = toy_round(moved, [1], t=1)
    after, report = algorithm.round(state, clients.at(rnd), rnd)
    assert after.label[:30:3].tolist() == [int(state.label[1])] * 10
    assert report.notes["migrated"] == 10
    assert report.scalars_up == 10
    assert report.models_down == 1 + 10 * 3, "they were never sent the directions"


def test_migration_costs_no_communication_and_finds_planted_groups_again() -> None:
    """Data of two clients are exchanged; both change places, everybody else stays."""
    fed = federation(equal=True)
    rounds = rounds_of(fed, 4)
    algorithm: Any = configured("flexcfl", "algorithm.shift.fraction=0.0")
    states, _ = simulate(algorithm, rounds[:2])
    order = torch.arange(CLIENTS)
    order[0], order[1] = 1, 0
    rows = [fed.train.of_client(int(i)) for i in order]
    swapped = replace(fed, train=type(fed.train).of(rows))
    later = [replace(rnd, fed=swapped) for rnd in rounds[2:]]
    moved, reports = simulate(algorithm, later, states[-1])
    assert partition_of(states[-1].label) == partition_of(fed.group)
    assert partition_of(moved[-1].label) == partition_of(fed.group[order])
    assert [r.notes["migrated"] for r in reports] == [2, 0]
    assert [r.models_down for r in reports] == [CLIENTS, CLIENTS]


@pytest.mark.full
def test_another_metric_and_method_can_be_chosen() -> None:
    algorithm: Any = configured(
        "fedgroup",
        "cluster_metric@algorithm.cold_start.metric=madc",
        "cluster_method@algorithm.cold_start.method=agglomerative",
        "algorithm.cold_start.method.linkage=complete",
    )
    assert isinstance(algorithm.cold_start.metric, MADC)
    assert algorithm.migration is False
    fed = federation()
    states, _ = simulate(algorithm, rounds_of(fed, 2))
    assert partition_of(states[-1].label) == partition_of(fed.group)


@pytest.mark.full
def test_communication_is_that_of_the_paper() -> None:
    """2 K T + N C + 2 alpha C models, 1.26 of FedAvg; with the exchange C T, or 11.4 %, more."""
    for ids, k, ratio in ((1000, 3, 1.26), (200, 5, 1.1)):
        fed, clients = toy(ids)
        rounds = 300
        cohorts = [[(20 * t + i) % ids for i in range(20)] for t in range(rounds)]
        flex = flexcfl(k, scale=20, migration=False)
        sent = total_cost(flex, clients, fed, cohorts)
        assert sent == 2 * 20 * rounds + ids * k + 2 * 20 * k
        assert sent / (2 * 20 * rounds) == pytest.approx(ratio)
        if k == 5:
            exchanging = flexcfl(k, scale=20, migration=False, inter_group=InterGroup(rate=0.1))
            dearer = total_cost(exchanging, clients, fed, cohorts)
            assert dearer - sent == k * rounds
            assert (dearer - sent) / sent == pytest.approx(0.114, abs=5e-4)
