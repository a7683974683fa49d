"""What tested models say of the clients' test rows: each client's own model, and those of others.

If the model of one group is as good on the rows of another as that group's own, the groups may
differ in their inputs, but not in the relation of inputs and label. Where it is worse, either the
relation differs or the shares of the labels do. So of classes the model of another group is also
tried with its probabilities times the ratio of both groups' shares, which is right where inputs
given the label are alike (Saerens, Latinne and Decaestecker 2002). Calibration says how far what a
model is sure of is what happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedclust.core.task import Task
from fedclust.core.types import Federation
from fedclust.report.statistics.paired import Paired, paired
from fedclust.runtime.trained import Trained

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Relation:
    """How a group's test rows fare under its own model and under those of the other groups.

    Attributes:
        group: which.
        metric: the headline of the task.
        own, others: its mean over repetitions.
        corrected: that of the others with their shares of labels corrected; of numbers and flags
            as `others`.
        lead: of its own model over the corrected ones, over repetitions; above 0 where it is
            better.
    """

    group: int
    metric: str
    own: float
    others: float
    corrected: float
    lead: Paired


def relations(
    repetitions: Sequence[tuple[Trained, Federation]], groups: NDArray[np.int64], redrawn: float
) -> list[Relation]:
    """One for every group [M] of clients; none for one group or fewer than two repetitions.

    Args:
        repetitions: the tested job of each, and its federation.
        redrawn: test / training rows.
    """
    if groups.max(initial=0) < 1 or len(repetitions) < 2:
        return []
    number = int(groups.max()) + 1
    scores = np.stack([_own_and_others(*one, groups) for one in repetitions])  # [R, G, 3]
    score = repetitions[0][1].pool.task.score
    sign = 1.0 if score.better == "higher" else -1.0
    return [
        Relation(
            group,
            score.name,
            own=float(scores[:, group, 0].mean()),
            others=float(scores[:, group, 1].mean()),
            corrected=float(scores[:, group, 2].mean()),
            lead=paired(sign * (scores[:, group, 0] - scores[:, group, 2]), redrawn),
        )
        for group in range(number)
        if np.isfinite(scores[:, group]).all()
    ]


def _own_and_others(trained: Trained, fed: Federation, groups: NDArray[np.int64]) -> Floats:
    """[G, 3] headline of every group's test rows: with its own models, with the mean of what is
    added up with the model of every client of another group, and the same corrected.
    """
    task, model = fed.pool.task, trained.models().numpy()
    shares = [_log_shares(fed, np.flatnonzero(groups == one)) for one in range(groups.max() + 1)]
    found = []
    for group in range(int(groups.max()) + 1):
        inside, outside = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        rows = fed.test.count[torch.from_numpy(inside)].double().sum()
        own = sum(_sums(task, *_outputs(trained, fed, one, one)) for one in inside.tolist())
        kinds = np.stack([groups[outside], model[outside]])  # of a group several may use one model
        _, first, times = np.unique(kinds, axis=1, return_index=True, return_counts=True)
        others = corrected = torch.zeros((), dtype=torch.float64)
        for like, weight in zip(outside[first].tolist(), times.tolist(), strict=True):
            share, shift = weight / len(outside), shares[group] - shares[groups[like]]
            for client in inside.tolist():
                outputs, y = _outputs(trained, fed, client, like)
                others = others + share * _sums(task, outputs, y)
                corrected = corrected + share * _sums(task, outputs + shift, y)
        found.append(
            [float(task.headline(torch.as_tensor(s), rows)) for s in (own, others, corrected)]
        )
    return np.array(found)


def _log_shares(fed: Federation, clients: NDArray[np.int64]) -> Tensor:
    """Logarithms of the shares of the classes [Y] among the training rows of some clients, one more
    of each; zeros of what are no classes.
    """
    if fed.pool.task.targets != "classes":
        return torch.zeros(1, dtype=torch.float64)
    rows = torch.cat([fed.train.of_client(client) for client in clients.tolist()])
    count = fed.pool.y[rows].cpu().bincount(minlength=fed.pool.num_classes).double() + 1
    return (count / count.sum()).log()


def _sums(task: Task, outputs: Tensor, y: Tensor) -> Tensor:
    """What a test adds up [S] of outputs [n, Y] for targets."""
    return task.sums(outputs.float(), y).double().sum(0)


def _outputs(trained: Trained, fed: Federation, client: int, like: int) -> tuple[Tensor, Tensor]:
    """Outputs [n, Y] of a client's model for another's test rows, and their targets."""
    rows = fed.test.of_client(client)
    with torch.no_grad():
        outputs = trained.network(like)(fed.pool.inputs(rows).cpu())
    return outputs, fed.pool.y[rows].cpu()


def calibration(repetitions: Sequence[tuple[Trained, Federation]]) -> Floats:
    """[M] over all test rows of all repetitions, for every client under its own model: of classes
    the mean probability of the class that is said, minus the share that is right (above 0: too
    sure); of flags the mean probability minus the share that holds; of numbers the mean of what is
    said minus that of what is true, in the unit of the file. NaN without test rows.
    """
    clients = repetitions[0][1].num_clients
    total, count = np.zeros(clients), np.zeros(clients)
    for trained, fed in repetitions:
        for client in range(clients):
            if not int(fed.test.count[client]):
                continue
            outputs, y = _outputs(trained, fed, client, client)
            total[client] += float(_excess(fed, outputs, y).sum())
            count[client] += len(y)
    with np.errstate(invalid="ignore"):
        return total / count


def _excess(fed: Federation, outputs: Tensor, y: Tensor) -> Tensor:
    """By example [n], see `calibration`."""
    task = fed.pool.task
    said = task.predict(outputs.double())
    if task.targets == "classes":
        sure, which = said.max(1)
        return sure - (which == y).double()
    if task.targets == "numbers":
        return (task.in_unit(said) - task.in_unit(y.double())).mean(1)
    return (said - y.double()).mean(1)
