"""Methods, one file each; here the steps that several of them share.

Everywhere a client that has not arrived has the label -1: nobody serves it yet.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from fedclust.calls import LocalResult
from fedclust.errors import require
from fedclust.ops import cluster_mean, discrepancy, on_host
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients

Aggregation = Literal["uniform", "by_samples"]
FlexAggregation = Literal["uniform", "by_samples", "first_client"]
ClusterChoice = Literal["train_loss", "test_loss"]


def check_choice(key: str, got: str, choices: object) -> None:
    """Raise `ConfigError` unless `got` is one of the values of the `Literal` type `choices`."""
    require(got in get_args(choices), key, got, "one of " + ", ".join(get_args(choices)))


def clients_with_data(rnd: Round) -> Tensor:
    """Clients that are there and own training examples, [A] int64 sorted."""
    return (rnd.present & (rnd.fed.train.count > 0)).nonzero().squeeze(1)


def arrived(label: Tensor, rnd: Round) -> Tensor:
    """The labels [M], with -1 for clients that have not arrived."""
    return label.where(rnd.present, -1)


def with_rows(values: Tensor, ids: Tensor, rows: Tensor) -> Tensor:
    """The values [M, P] in which the clients `ids` [C], sorted, have `rows` [C, P].

    With all clients it is `rows` itself: a copy of all their models can be gigabytes.
    """
    return rows if len(ids) == len(values) else values.index_copy(0, ids, rows)


def zeros(ids: Tensor) -> Tensor:
    """Label 0 for each of `ids`, [C] int64: there is one model."""
    return torch.zeros_like(ids)


def weights(ids: Tensor, rnd: Round, aggregation: Aggregation) -> Tensor | None:
    """What `ids` [C] weigh in a mean: None for `uniform`, their training examples for
    `by_samples`.
    """
    return rnd.fed.train.count[ids] if aggregation == "by_samples" else None


def first_of_cluster(label: Tensor, ids: Tensor, rnd: Round) -> Tensor:
    """1 for one random participant of every cluster, 0 for the others, [C] int64.

    Args:
        label: [C] int64, cluster of every participant.
        ids: [C] int64 participants.
        rnd: the round.
    """
    place = rnd.stream("first client").keys(ids).argsort(stable=True).argsort()
    before = (label.unsqueeze(1) == label) & (place.unsqueeze(1) > place)  # [C, C]
    return (~before.any(1)).long()


def average(
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
        local: what the participants' training returned.
        models: [K, P] models it started from.
        label: [C] int64 in [0, K), cluster of every participant.
        ids: [C] int64 participants.
        rnd: the round.
        aggregation: uniform, by_samples or first_client.
    """
    if aggregation == "first_client":
        weight: Tensor | None = first_of_cluster(label, ids, rnd)
    else:
        weight = weights(ids, rnd, aggregation)
    averaged = cluster_mean(local.params, label, weight, empty=models)
    size = rnd.fed.train.count[ids].double()
    steps, loss, first, apart = on_host(
        local.steps.sum(),
        local.loss.mean(),
        (local.first_loss * size).sum() / size.sum(),
        discrepancy(local.params, averaged, label),
    )
    cost = Cost(
        models_down=len(ids),
        models_up=len(ids),
        gradient_steps=int(steps),
        train_loss=float(loss),
        notes={"discrepancy": float(apart), "train_loss_first_epoch": float(first)},
    )
    return averaged, cost


def join_cheapest(
    models: Tensor, label: Tensor, ids: Tensor, clients: Clients
) -> tuple[Tensor, int]:
    """Labels [M] in which those of `ids` without one have that of least training loss, and models
    sent.

    Args:
        models: [K, P].
        label: [M] int64 in [0, K), -1 without a cluster.
        ids: [A] int64, with training data.
        clients: what computes, see `fedclust.verbs.Clients`.
    """
    new = ids[label[ids] < 0]
    if not len(new):
        return label, 0
    if len(models) == 1:  # nothing to choose, so nothing to send
        return label.index_fill(0, new, 0), 0
    return label.index_copy(0, new, clients.loss(models, new).argmin(1)), len(new) * len(models)


def serve_cheapest(
    models: Tensor, clients: Clients, rnd: Round, choose_by: ClusterChoice
) -> Served:
    """Every client that is there gets the model of least loss on its own data, ties to the smallest
    index.

    Args:
        models: [K, P].
        clients: what computes, see `fedclust.verbs.Clients`.
        rnd: the round.
        choose_by: `train_loss`, or `test_loss`, which looks at test labels as the IFCA code does.
    """
    label = torch.full_like(rnd.fed.group, -1)
    if choose_by == "train_loss":
        ids = clients_with_data(rnd)
        label[ids] = clients.loss(models, ids).argmin(1)
        return Served(models=models, label=label)
    ids = (rnd.present & (rnd.fed.test.count > 0)).nonzero().squeeze(1)
    losses = []
    for cluster in range(len(models)):
        label[ids] = cluster
        losses.append(clients.evaluate(Served(models=models, label=label)).loss_sum[ids])
    chosen = torch.full_like(label, -1)
    chosen[ids] = torch.stack(losses, 1).argmin(1)
    return Served(models=models, label=chosen)
