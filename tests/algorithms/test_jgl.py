"""JGL: IFCA on mini-batches without gradients, scores and steps by hand, empty clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import (
    CLIENTS,
    GROUPS,
    LR,
    configured,
    engine_for,
    federation,
    rounds_of,
    simulate,
    started,
)
from torch import Tensor
from torch.nn import functional as F

from fedclust.algorithms.jgl import occupied
from fedclust.core.front import Gradient
from fedclust.helpers.ops import cluster_mean

BATCH = 12
REST = "algorithm.empty_cluster=none"


def test_without_gradients_it_is_ifca_on_mini_batches() -> None:
    fed = federation(equal=False)
    clients, rounds = engine_for(fed), rounds_of(fed, 5, participation=0.75)
    states, reports = simulate(configured("jgl", "algorithm.gradient_weight=0", REST), rounds)
    models = clients.init(rounds[0].stream("init"), GROUPS)
    for rnd, state, report in zip(rounds, states, reports[1:], strict=True):
        loss = clients.at(rnd).loss(models, rnd.cohort, batch_size=BATCH)
        label = loss.argmin(1)
        gradient = clients.at(rnd).grad(Gradient(models, label, rnd.cohort, batch_size=BATCH))
        models = models - LR * cluster_mean(gradient, label, empty=torch.zeros_like(models))
        torch.testing.assert_close(state.models, models, rtol=1e-6, atol=1e-7)
        assert torch.equal(state.label[rnd.cohort], label)
        assert report.train_loss == pytest.approx(float(loss.amin(1).mean()), rel=1e-6)
        assert (report.models_down, report.models_up, report.gradient_steps) == (9 * GROUPS, 9, 9)
    assert len(label.unique()) > 1


def test_without_gradients_and_with_a_local_solver_it_is_ifca() -> None:
    rounds = rounds_of(federation(), 4, participation=0.5)
    whole = ("solver.batch_size=null", "solver.epochs=3")
    ifca, ifca_reports = simulate(configured("ifca", *whole), rounds)
    settings = (*whole, "algorithm.gradient_weight=0", "algorithm.local=solver", REST)
    states, reports = simulate(configured("jgl", *settings), rounds)
    assert all(torch.equal(a.models, b.models) for a, b in zip(ifca, states, strict=True))
    for ours, theirs in zip(reports[1:], ifca_reports[1:], strict=True):
        assert (ours.models_down, ours.models_up) == (theirs.models_down, theirs.models_up)
        assert (ours.gradient_steps, ours.train_loss) == (theirs.gradient_steps, theirs.train_loss)
        loss = "train_loss_first_epoch"
        assert ours.notes[loss] == theirs.notes[loss]


@pytest.mark.thinned
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("sign", ["consistent", "literal"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weight", [0.2, 0.7, 1.0])
def test_scores_by_hand(similarity: str, sign: str, reduction: str, weight: float) -> None:
    given = {"similarity": similarity, "sign": sign, "loss_reduction": reduction}
    options = [f"algorithm.{key}={value}" for key, value in given.items()]
    options += [REST, f"algorithm.gradient_weight={weight}"]
    algorithm, state, clients = started("jgl", federation(), *options)
    rnd = clients.rnd
    models, previous = (clients.init(rnd.stream(name), GROUPS) for name in ("init", "before"))
    pace = torch.full((GROUPS,), LR)
    state = replace(state, models=models, previous=previous, pace=pace)
    after, _ = algorithm.round(state, clients, rnd)
    size = BATCH if reduction == "sum" else 1
    labels = torch.arange(GROUPS).repeat_interleave(CLIENTS).view(GROUPS, CLIENTS)
    asked = [Gradient(models, label, rnd.cohort, BATCH) for label in labels]
    gradient = size * torch.stack([clients.grad(one) for one in asked], 1)  # [C, K, P]
    step = models - previous
    if similarity == "cosine":
        value = F.cosine_similarity(gradient, step, dim=2) * (-1 if sign == "consistent" else 1)
    else:
        value = -(gradient - (-step / LR if sign == "consistent" else step)).norm(dim=2)
    loss = size * clients.loss(models, rnd.cohort, batch_size=BATCH)
    score = weight * value + (1 - weight) * -loss
    best = score.topk(2).values
    assert float((best[:, 0] - best[:, 1]).min()) > 1e-4, "a tie: the case proves nothing"
    label = score.argmax(1)
    assert torch.equal(after.label, label)
    own = gradient[torch.arange(CLIENTS), label]
    expected = models - LR * cluster_mean(own, label, empty=torch.zeros_like(models))
    torch.testing.assert_close(after.models, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(after.previous, models)


@pytest.mark.thinned
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weight", [0.05, 0.5, 1.0])
def test_losses_choose_alone_only_where_no_gradient_could_change_it(
    similarity: str, reduction: str, weight: float
) -> None:
    fed = federation()
    clients, rnd = engine_for(fed), rounds_of(fed, 1)[0]
    algorithm: Any = configured(
        "jgl",
        f"algorithm.similarity={similarity}",
        f"algorithm.loss_reduction={reduction}",
        f"algorithm.gradient_weight={weight}",
    )
    models = clients.init(rnd.stream("init"), GROUPS)
    group = torch.arange(CLIENTS) % GROUPS
    for _ in range(30):  # so that some losses are far apart
        gradient = clients.at(rnd).grad(Gradient(models, group, rnd.cohort))
        models = models - LR * cluster_mean(gradient, group, empty=torch.zeros_like(models))
    previous = models + LR * torch.randn(models.shape, generator=torch.Generator().manual_seed(3))
    asked: list[Tensor | None] = []

    class All:
        """Clients that compare every gradient, whatever the margin."""

        layout = clients.layout

        def align(self, *args: Any) -> Any:
            *others, margin = args
            asked.append(margin)
            return clients.at(rnd).align(*others, None)

    pace = torch.full((GROUPS,), LR)
    state = algorithm.State(models=models, previous=previous, pace=pace, label=group)
    score, loss = algorithm.scores(state, clients.at(rnd), rnd)
    full, _ = algorithm.scores(state, All(), rnd)
    assert torch.equal(score.argmax(1), full.argmax(1))
    (margin,) = asked
    if similarity == "euclidean":
        assert margin is None
        return
    size = BATCH if reduction == "sum" else 1
    assert margin is not None
    # the least gap at which likenesses of 1 and -1 would still be outweighed by the losses
    gap = 2 * weight / (1 - weight) / size if weight < 1 else torch.inf
    torch.testing.assert_close(margin, torch.full((CLIENTS,), gap))
    least, second = loss.topk(2, largest=False).values.unbind(1)
    spared = second - least > margin
    assert bool(spared.any()) or (weight > 0.05 and reduction == "mean") or weight == 1
    torch.testing.assert_close(score[~spared], full[~spared])


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_without_a_last_step_the_loss_decides(similarity: str) -> None:
    settings = (f"algorithm.similarity={similarity}", "algorithm.gradient_weight=0.9")
    algorithm, state, clients = started("jgl", federation(), *settings)
    after, _ = algorithm.round(state, clients, clients.rnd)
    loss = clients.loss(state.models, clients.rnd.cohort, BATCH)
    assert torch.equal(after.label, loss.argmin(1))


@pytest.mark.parametrize("empty", ["refill", "anchor_all", "none"])
def test_an_empty_cluster(empty: str) -> None:
    """Cluster 1 fits nobody: who works in it, what is counted, and what is served."""
    option = f"algorithm.empty_cluster={empty}"
    algorithm, state, clients = started("jgl", federation(), option)
    hopeless = state.models.clone()
    hopeless[1] *= 50
    state = replace(state, models=hopeless, previous=hopeless)
    after, report = algorithm.round(state, clients, clients.rnd)
    assert 1 not in after.label, "the record is what the devices chose"
    assert torch.equal(algorithm.serve(after, clients, clients.rnd).label, after.label)
    assert torch.equal(after.models[1], hopeless[1]) == (empty == "none")
    moved = {"refill": {1}, "anchor_all": {1, 2, 3}, "none": {0}}[empty]
    assert report.notes["moved"] in moved
    if empty == "refill":
        label, ids = torch.ones(CLIENTS, dtype=torch.int64), torch.arange(CLIENTS)
        one = hopeless[1] - LR * clients.grad(Gradient(hopeless, label, ids, BATCH))
        gap = (one - after.models[1]).abs().amax(1)
        assert int((gap < 1e-5).sum()) == 1, "exactly one device trains it"


def test_refilling_moves_random_devices_of_clusters_that_can_spare_them() -> None:
    fed = federation()
    chosen = torch.tensor([0] * 10 + [2, 2])
    taken = set()
    for rnd in rounds_of(fed, 120):
        label = occupied(chosen, 3, "refill", rnd)
        moved = (label != chosen).nonzero().squeeze(1).tolist()
        assert len(moved) == 1
        assert label[moved[0]] == 1
        assert sorted(label.bincount().tolist()) in ([1, 2, 9], [1, 1, 10])
        taken |= set(moved)
    assert taken == set(range(CLIENTS))
    rnd = rounds_of(fed, 1)[0]
    assert torch.equal(occupied(torch.arange(12) % 3, 3, "refill", rnd), torch.arange(12) % 3)
    two = occupied(torch.tensor([2, 2]), 3, "refill", rnd)
    assert two.bincount(minlength=3).tolist() == [1, 0, 1]


def test_anchors_put_one_device_into_every_cluster() -> None:
    for rnd in rounds_of(federation(), 20):
        label = occupied(torch.zeros(12, dtype=torch.int64), 3, "anchor_all", rnd)
        assert label.bincount(minlength=3).tolist() == [10, 1, 1]


@pytest.mark.parametrize(
    ("batch", "sizes"),
    [
        (12, [12] * 12),
        (20, [12, 14, 16, 18] + [20] * 8),
        (None, range(12, 35, 2)),  # the first client has 12 examples, the last one 34
    ],
)
def test_the_sum_makes_the_step_as_much_larger_as_the_batch(batch: Any, sizes: Any) -> None:
    size = f"solver.batch_size={batch or 'null'}"
    settings = ("num_clusters=1", "algorithm.loss_reduction=sum", size)
    algorithm, state, clients = started("jgl", federation(equal=False), *settings)
    ids = clients.rnd.cohort
    after, _ = algorithm.round(state, clients, clients.rnd)
    gradient = clients.grad(Gradient(state.models, torch.zeros_like(ids), ids, batch))
    expected = state.models - LR * (torch.tensor(list(sizes)).unsqueeze(1) * gradient).mean(0)
    torch.testing.assert_close(after.models, expected, rtol=1e-5, atol=1e-5)


def test_the_pace_is_rate_times_steps() -> None:
    rounds = rounds_of(federation(equal=False), 2)
    settings = ("num_clusters=1", "solver.decay=0.5", "solver.epochs=2")
    step, _ = simulate(configured("jgl", *settings), rounds)
    solver, reports = simulate(configured("jgl", *settings, "algorithm.local=solver"), rounds)
    assert [float(state.pace) for state in step] == [LR, LR / 2]
    mean_steps = reports[1].gradient_steps / CLIENTS
    assert mean_steps > 4
    assert [float(state.pace) for state in solver] == pytest.approx(
        [LR * mean_steps, LR / 2 * mean_steps]
    )


def test_clients_keep_the_cluster_they_were_in() -> None:
    fed = federation()
    clients, rounds = engine_for(fed), rounds_of(fed, 4, participation=0.25, absent=(0,))
    algorithm: Any = configured("jgl")
    states, _ = simulate(algorithm, rounds)
    seen = torch.cat([rnd.cohort for rnd in rounds]).unique()
    never = torch.tensor([i for i in range(1, CLIENTS) if i not in seen])
    assert len(never), "everybody took part: the case is too easy"
    label = algorithm.serve(states[-1], clients.at(rounds[-1]), rounds[-1]).label
    assert torch.equal(label[seen], states[-1].label[seen])
    assert torch.equal(
        label[never], clients.at(rounds[-1]).loss(states[-1].models, never).argmin(1)
    )
    assert label[0] == -1
    before, after = states[2].label, states[3].label
    resting = [i for i in range(CLIENTS) if i not in rounds[3].cohort]
    assert torch.equal(before[resting], after[resting])
