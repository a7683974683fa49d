"""What a guess without inputs reaches: of every client the mean of its own training targets, which
a method has to beat.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.core.types import Federation, Predictions, Split

_AT_ONCE = 1 << 16  # examples that are looked at together


def trivial(fed: Federation) -> dict[str, float]:
    """The scores of the task over all test examples, and the mean over clients of the headline, if
    every client guesses what its training targets say: the class that most have, the labels that
    most have, the mean. Empty where nobody can be tested.
    """
    pool, count = fed.pool, fed.test.count
    task, outputs = pool.task, guesses(fed)
    sums = torch.zeros(len(count), pool.num_sums, dtype=torch.float64, device=count.device)
    for owner, rows in _blocks(fed.test):
        sums.index_add_(0, owner, task.sums(outputs[owner], pool.y[rows]).double())
    known = (count > 0) & (fed.train.count > 0)
    if not bool(known.any()):
        return {}
    sums, count = sums[known], count[known]
    own = task.headline(sums, count)
    found = {name: float(x) for name, x in task.scores(sums.sum(0), count.sum()).items()}
    found[f"{task.score.name}_client_mean"] = float(own[~own.isnan()].mean())
    return {name: value for name, value in found.items() if value == value}


def guesses(fed: Federation) -> Tensor:
    """Outputs [M, Y] by which a model would guess so."""
    return fed.pool.task.outputs_of(_said(fed)).float()


def loss_of_all(fed: Federation) -> float:
    """Mean test loss of one guess without inputs for all clients, the mean of all training
    targets.
    """
    task, own = fed.pool.task, fed.train.count.double()
    said = ((own / own.sum()) @ _said(fed)).unsqueeze(0)
    outputs, total = task.outputs_of(said).float(), 0.0
    for _, rows in _blocks(fed.test):
        total += float(task.loss(outputs.expand(len(rows), -1), fed.pool.y[rows], "sum"))
    return total / len(fed.test.index)


def predicted(fed: Federation) -> Predictions:
    """What the guess says of the test examples of every client that has training examples."""
    task, said = fed.pool.task, _said(fed)
    client, _ = fed.test.owner_and_place()
    known = (fed.train.count > 0)[client]
    client, row = client[known], fed.test.index[known].long()
    targets = task.in_unit(fed.pool.y[row])
    parts = client, fed.pool.row(row), targets, task.in_unit(said)[client]
    client, row, targets, predictions = (part.cpu() for part in parts)
    return Predictions(client=client, row=row, targets=targets, predictions=predictions)


def _said(fed: Federation) -> Tensor:
    """[M, Y] float64 the mean of every client's training targets; equal means are equal numbers."""
    pool, count = fed.pool, fed.train.count
    total = torch.zeros(0)
    for owner, rows in _blocks(fed.train):
        part = pool.task.encoded(pool.y[rows], pool.num_classes)
        if not len(total):
            total = part.new_zeros(len(count), part.shape[1])
        total.index_add_(0, owner, part)
    return total / count.clamp(min=1).unsqueeze(1)


def _blocks(split: Split) -> list[tuple[Tensor, Tensor]]:
    """The client and the pool row of every example of a split, some at a time."""
    owner, _ = split.owner_and_place()
    both = owner, split.index.long()
    return list(zip(*(torch.split(one, _AT_ONCE) for one in both), strict=True))
