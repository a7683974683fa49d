"""How well the served models do on the clients' test data, and on their validation data."""

from __future__ import annotations

import math

from torch import Tensor

from fedclust.core.task import Task
from fedclust.core.types import Evaluation, Round


def accuracy(evaluation: Evaluation, rnd: Round) -> dict[str, float]:
    """The scores of the task over all test examples, the mean over clients of the headline, pooled
    test loss, and the share of clients that are served.

    Of classification accuracy = sum_i correct_i / sum_i |T_i|, and accuracy_client_mean = mean_i
    correct_i / |T_i| over the clients that were tested. All but the last are absent where nobody
    was tested; a score that is not defined is absent too, and so is a client without one in a mean.
    """
    count, sums = evaluation.count.cpu(), evaluation.sums.cpu()
    task, tested = rnd.fed.pool.task, count > 0
    values = share_served(evaluation)
    if not bool(tested.any()):
        return values
    total = count[tested].sum()
    own = task.headline(sums[tested], count[tested])
    return (
        values
        | _pooled(task, sums[tested], total)
        | _known({f"{task.score.name}_client_mean": float(own[~own.isnan()].mean())})
        | {"test_loss": float(evaluation.loss_sum.cpu().double()[tested].sum()) / float(total)}
    )


def share_served(evaluation: Evaluation) -> dict[str, float]:
    """The share of the clients that some model serves."""
    return {"served": float((evaluation.served.label.cpu() >= 0).double().mean())}


def validation_accuracy(validation: Evaluation, task: Task) -> dict[str, float]:
    """The scores of the task and the loss on the validation examples, and the share of clients that
    are served; the share alone where nobody is.

    Of classification validation_accuracy = sum_i correct_i / sum_i |V_i|; validation_loss likewise,
    nats per example.
    """
    total = validation.count.sum()
    if not total:
        return share_served(validation)
    values = _pooled(task, validation.sums, total)
    return {f"validation_{name}": value for name, value in values.items()} | {
        "validation_loss": float(validation.loss_sum.sum()) / int(total),
        **share_served(validation),
    }


def _pooled(task: Task, sums: Tensor, total: Tensor) -> dict[str, float]:
    """The scores of some clients [M, S] together, by name."""
    return _known({name: float(x) for name, x in task.scores(sums.sum(0), total).items()})


def _known(values: dict[str, float]) -> dict[str, float]:
    """Those that are defined."""
    return {name: value for name, value in values.items() if not math.isnan(value)}
