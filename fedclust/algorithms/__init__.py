"""Methods, one file each; here the steps that several of them share.

Everywhere a client that has not arrived has the label -1: nobody serves it yet.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from fedclust.errors import require
from fedclust.ops import cluster_mean, discrepancy
from fedclust.types import Engine, LocalResult, Report, Round, Served

Aggregation = Literal["uniform", "by_samples"]
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


def zeros(clients: Tensor) -> Tensor:
    """Label 0 for each of `clients`, [C] int64: there is one model."""
    return torch.zeros_like(clients)


def average(
    local: LocalResult, models: Tensor, label: Tensor, clients: Tensor, rnd: Round, aggregation: Aggregation
) -> tuple[Tensor, Report]:
    """Federated averaging inside every cluster: the new models [K, P], and what the round cost.

    w_c = sum over the participants i of cluster c of p_i w_i, where w_i is what i made of w_c and p_i is
    1 / participants of c (`uniform`) or n_i / examples of the participants of c (`by_samples`). A cluster
    without participants keeps its model.

    Args:
        local: what the participants' training returned.
        models: [K, P] models it started from.
        label: [C] int64 in [0, K), cluster of every participant.
        clients: [C] int64 participants.
        rnd: the round.
        aggregation: uniform or by_samples.
    """
    weight = rnd.fed.train.count[clients] if aggregation == "by_samples" else None
    averaged = cluster_mean(local.params, label, weight, empty=models)
    report = Report(
        models_down=len(clients),
        models_up=len(clients),
        gradient_steps=int(local.steps.sum()),
        train_loss=float(local.loss.mean()),
        notes={"discrepancy": discrepancy(local.params, averaged, label)},
    )
    return averaged, report


def serve_cheapest(models: Tensor, engine: Engine, rnd: Round, choose_by: ClusterChoice) -> Served:
    """Every client that is there gets the model of least loss on its own data, ties to the smallest index.

    Args:
        models: [K, P].
        engine: what computes.
        rnd: the round.
        choose_by: `train_loss`, or `test_loss`, which looks at test labels as the IFCA code does.
    """
    label = torch.full_like(rnd.fed.group, -1)
    if choose_by == "train_loss":
        clients = clients_with_data(rnd)
        label[clients] = engine.loss(models, clients, rnd).argmin(1)
        return Served(models=models, label=label)
    clients = (rnd.present & (rnd.fed.test.count > 0)).nonzero().squeeze(1)
    losses = []
    for cluster in range(len(models)):
        label[clients] = cluster
        losses.append(engine.evaluate(Served(models=models, label=label), rnd).loss_sum[clients])
    chosen = torch.full_like(label, -1)
    chosen[clients] = torch.stack(losses, 1).argmin(1)
    return Served(models=models, label=chosen)
