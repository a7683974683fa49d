"""How well the served models do on the clients' test data, and on their validation data."""

from __future__ import annotations

from fedclust.core.types import Evaluation, Round


def accuracy(evaluation: Evaluation, rnd: Round) -> dict[str, float]:  # noqa: ARG001 - a Metric
    """Pooled accuracy, client-mean accuracy, pooled test loss, and the share of clients that are
    served.

    accuracy = sum_i correct_i / sum_i |T_i|; accuracy_client_mean = mean_i correct_i / |T_i| over
    the clients that were tested. The first three are absent where nobody was tested.
    """
    count = evaluation.count.cpu()
    correct = evaluation.correct.cpu().double()
    tested = count > 0
    served = evaluation.served.label.cpu() >= 0
    values = {"served": float(served.double().mean())}
    if not bool(tested.any()):
        return values
    total = float(count[tested].sum())
    return values | {
        "accuracy": float(correct[tested].sum()) / total,
        "accuracy_client_mean": float((correct[tested] / count[tested]).mean()),
        "test_loss": float(evaluation.loss_sum.cpu().double()[tested].sum()) / total,
    }


def validation_accuracy(validation: Evaluation) -> dict[str, float]:
    """Pooled accuracy and loss on the validation examples; nothing where nobody is served.

    validation_accuracy = sum_i correct_i / sum_i |V_i|; validation_loss likewise, nats per example.

    Args:
        validation: of what is served, on the validation examples.
    """
    total = int(validation.count.sum())
    if not total:
        return {}
    return {
        "validation_accuracy": int(validation.correct.sum()) / total,
        "validation_loss": float(validation.loss_sum.sum()) / total,
    }
