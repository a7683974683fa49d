"""What a guess without inputs reaches: of every client the mean of its own training targets, which
a method has to beat. It is tested on the clients that methods are tested on, and on no others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.core.types import Federation, Predictions, Split

_AT_ONCE = 1 << 16  # examples that are looked at together


def trivial(fed: Federation, arrived: Tensor | None = None) -> dict[str, float]:
    """The scores of the task over all test examples, and the mean over clients of the headline, if
    every client that has `arrived` [M] bool (None: all) guesses what its training targets say: the
    class that most have, the labels that most have, the mean. Empty where nobody can be tested.
    """
    pool, count = fed.pool, fed.test.count
    task, outputs = pool.task, guesses(fed)
    sums = torch.zeros(len(count), pool.num_sums, dtype=torch.float64, device=count.device)
    for owner, rows in _blocks(fed.test):
        sums.index_add_(0, owner, task.sums(outputs[owner], pool.y[rows]).double())
    known = _guessing(fed, arrived)
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
    """Mean test loss of one guess for all honest clients, the mean of their training targets."""
    task, own, tested = fed.pool.task, fed.train.count.double(), fed.tested
    if fed.hostile is not None:
        own = own.masked_fill(fed.hostile, 0)
    said = ((own / own.sum()) @ _said(fed)).unsqueeze(0)
    outputs, total = task.outputs_of(said).float(), 0.0
    for owner, block in _blocks(fed.test):
        rows = block[tested[owner]]
        total += float(task.loss(outputs.expand(len(rows), -1), fed.pool.y[rows], "sum"))
    return total / int(fed.test.count[tested].sum())


def predicted(fed: Federation, arrived: Tensor | None = None) -> Predictions:
    """What the guess of `trivial` says of the test examples of clients with training examples."""
    task, said = fed.pool.task, _said(fed)
    client, _ = fed.test.owner_and_place()
    known = _guessing(fed, arrived)[client]
    client, row = client[known], fed.test.index[known].long()
    targets = task.in_unit(fed.pool.y[row])
    parts = client, fed.pool.row(row), targets, task.in_unit(said)[client]
    client, row, targets, predictions = (part.cpu() for part in parts)
    return Predictions(client=client, row=row, targets=targets, predictions=predictions)


def _guessing(fed: Federation, arrived: Tensor | None) -> Tensor:
    """[M] bool, of the clients that methods are tested on those that have training examples."""
    known = fed.tested & (fed.train.count > 0)
    return known if arrived is None else known & arrived


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
