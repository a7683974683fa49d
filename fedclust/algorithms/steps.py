"""Steps that most methods share: who takes part, and federated averaging inside clusters.

Everywhere a client that has not arrived has the label -1: nobody serves it yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, Protocol

import torch
from torch import Tensor

from fedclust.core.calls import LocalResult, LocalWork, MeanResult
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round
from fedclust.helpers.effects import IfNotOverruled
from fedclust.helpers.ops import discrepancy, on_host
from fedclust.models.params import Layout

_SHARES = IfNotOverruled("aggregation", "counts_alike", unless="first_client")
# Weights of a mean: all the same, or the participants' numbers of training examples. `Shares` is of
# methods that weigh more than a cluster's mean.
Shares = Literal["uniform", "by_samples"]
Aggregation = Annotated[Shares, _SHARES]
FlexAggregation = Annotated[Literal["uniform", "by_samples", "first_client"], _SHARES]


def clients_with_data(rnd: Round) -> Tensor:
    """Clients that are there and own training examples, [A] int64 sorted."""
    return (rnd.present & (rnd.fed.train.count > 0)).nonzero().squeeze(1)


def arrived(label: Tensor, rnd: Round) -> Tensor:
    """The labels [M], with -1 for clients that have not arrived."""
    return label.where(rnd.present, -1)


def zeros(ids: Tensor) -> Tensor:
    """Label 0 for each of `ids`, [C] int64: there is one model."""
    return torch.zeros_like(ids)


def each(ids: Tensor) -> Tensor:
    """Label i for the i-th of `ids`, [C] int64: everybody has a model of its own."""
    return torch.arange(len(ids), device=ids.device)


def weights(
    ids: Tensor, rnd: Round, aggregation: FlexAggregation, label: Tensor | None = None
) -> Tensor | None:
    """Weights of `ids` [C] in a mean: None for `uniform`, or their numbers of examples; with
    `first_client` see `first_of_cluster`, by the clusters `label` [C].
    """
    if aggregation == "first_client":
        assert label is not None
        return first_of_cluster(label, ids, rnd)
    return rnd.fed.train.count[ids] if aggregation == "by_samples" else None


def first_of_cluster(label: Tensor, ids: Tensor, rnd: Round) -> Tensor:
    """1 for one random participant of every cluster, 0 for the others, [C] int64; by the clusters
    `label` [C] of the participants `ids` [C].
    """
    place = rnd.stream("first client").keys(ids).argsort(stable=True).argsort()
    before = (label.unsqueeze(1) == label) & (place.unsqueeze(1) > place)  # [C, C]
    return (~before.any(1)).long()


def random_groups(ids: Tensor, num_groups: int, rnd: Round) -> Tensor:
    """Random groups of the clients `ids` [C] whose sizes differ by at most 1, [C] int64."""
    shuffled = (rnd.stream("random groups").keys(ids) >> 1).argsort(stable=True)
    place = torch.empty_like(ids)
    place[shuffled] = each(ids)
    return place % num_groups


def average(
    clients: Clients,
    local: LocalResult,
    models: Tensor,
    label: Tensor,
    ids: Tensor,
    rnd: Round,
    aggregation: FlexAggregation,
) -> tuple[Tensor, Cost]:
    """Federated averaging inside every cluster: the new models [K, P], and what the round cost.

    w_c = sum over the participants i of cluster c of p_i w_i, where w_i is what i made of w_c and
    p_i is 1 / participants of c (`uniform`) or n_i / examples of the participants of c
    (`by_samples`). A cluster without participants keeps its model. With `first_client` the model of
    one random participant becomes w_c: so ends a mean over a list of weights with one entry, in the
    code of FlexCFL's IFCA and FeSEM.

    Args:
        models: [K, P] models it started from.
        label: [C] int64 in [0, K), cluster of every participant.
        ids: [C] int64 participants.
    """
    weight = weights(ids, rnd, aggregation, label)
    result = MeanResult.of(
        local, models, label, weight, keep=clients.discrepancy, exact=clients.exact
    )
    after = clients.server.replaced(models, local.params, result.models, label, weight)
    return after, cost_of(result, label, ids, rnd, clients.layout)


def train_and_average(
    clients: Clients,
    models: Tensor,
    label: Tensor,
    ids: Tensor,
    solver: Solver,
    aggregation: FlexAggregation,
    rnd: Round,
    *,
    slots: Tensor | None = None,
) -> tuple[Tensor, MeanResult, Cost]:
    """One round of federated averaging inside every cluster, without the models of single clients:
    a method that needs them calls `clients.train` and `average`, see there for the arguments.

    Participants start with the momenta `slots` [K, P], None for 0. Returns the new models [K, P],
    the means with what is known of every participant, and what the round cost.
    """
    label = clients.server.assigned(label, len(models), ids, rnd)
    weight = weights(ids, rnd, aggregation, label)
    work = LocalWork(slots=slots)
    if not clients.server.needs_updates:
        result = clients.train_mean(Train(models, label, ids, solver, work, weight=weight))
        after = clients.server.stepped(models, result.models, label)
        return after, result, cost_of(result, label, ids, rnd, clients.layout)
    local = clients.train(Train(models, label, ids, solver, work))
    result = MeanResult.of(
        local, models, label, weight, slots, keep=clients.discrepancy, exact=clients.exact
    )
    if local.slots is not None and result.slots is not None:  # a robust mean of what is sent, too
        rest = torch.zeros_like(result.slots)
        kept = clients.server.combined(rest, local.slots, result.slots, label, weight)
        result = replace(result, slots=kept)
    after = clients.server.replaced(models, local.params, result.models, label, weight)
    return after, result, cost_of(result, label, ids, rnd, clients.layout)


class Averages(Protocol):
    """A method that averages what its participants make of models."""

    @property
    def solver(self) -> Solver:
        """Local work."""
        ...

    @property
    def aggregation(self) -> FlexAggregation:
        """How participants are weighted."""
        ...


def federated_averaging(
    method: Averages, clients: Clients, models: Tensor, label: Tensor, rnd: Round
) -> tuple[Tensor, Cost]:
    """One round of FedAvg inside every cluster, by a method's `solver` and `aggregation`, of the
    cohort's clusters `label` [C]: the new models [K, P], and what it cost.
    """
    how = method.solver, method.aggregation, rnd
    models, _, cost = train_and_average(clients, models, label, rnd.cohort, *how)
    return models, cost


def cost_of(result: MeanResult, label: Tensor, ids: Tensor, rnd: Round, layout: Layout) -> Cost:
    """The cost of a round of federated averaging, with training losses, and the discrepancy where
    the participants' models were kept.
    """
    size = rnd.fed.train.count[ids].double()
    first = (result.first_loss * size).sum() / size.sum()
    asked = {"train_loss_first_epoch": first}
    if result.params is not None:
        trained = layout.of_trained
        gap = discrepancy(trained(result.params), trained(result.models), label)
        asked["discrepancy"] = gap
    steps, loss, *values = on_host(result.steps.sum(), result.loss.mean(), *asked.values())
    return Cost(
        models_down=len(ids),
        models_up=len(ids),
        gradient_steps=int(steps),
        train_loss=float(loss),
        notes={name: float(value) for name, value in zip(asked, values, strict=True)},
    )
