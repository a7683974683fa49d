"""Steps of methods whose clients are mixtures of clusters."""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.core.front import Clients
from fedclust.core.types import Round
from fedclust.helpers.ops import one_hot


def real_examples(ids: Tensor, rnd: Round, width: int) -> Tensor:
    """Which of `width` places hold an example of the clients `ids` [C], [C, width] bool."""
    return torch.arange(width, device=ids.device) < rnd.fed.train.count[ids].unsqueeze(1)


def shares(belongs: Tensor, ids: Tensor, rnd: Round) -> Tensor:
    """Mean over the examples of the clients `ids` [C] of how far each `belongs` [C, n, K], 0 past
    the count, to every cluster: [C, K] float32.
    """
    return belongs.sum(1) / rnd.fed.train.count[ids].clamp(min=1).unsqueeze(1)


def fitting_shares(models: Tensor, ids: Tensor, clients: Clients, rnd: Round) -> Tensor:
    """Share of a client's examples that each model [K, P] fits best, the first of equals, [A,
    K].
    """
    if not len(ids):
        return models.new_zeros(0, len(models))
    loss = clients.example_losses(models, ids)  # [A, n, K]
    real = real_examples(ids, rnd, loss.shape[1]).unsqueeze(2)
    return shares(one_hot(loss.argmin(2), len(models)) * real, ids, rnd)


def mixture_notes(share: Tensor) -> dict[str, float]:
    """Notes on the participants' shares [C, K]: their entropy, and the least one's mean."""
    entropy = torch.special.entr(share).sum(1).mean()
    return {"mixture_entropy": float(entropy), "least_share": float(share.mean(0).min())}


def drawn(probability: Tensor, size: int, rnd: Round) -> Tensor:
    """Weights of clients in the plain mean of `size` of them, drawn for every cluster by itself
    without replacement by the `probability` [A, K], whose columns sum to 1: [A, K] float32, 1 /
    size for who is drawn and 0 for the others; all A where there are fewer.
    """
    columns = probability.double().cpu()
    weight, size = torch.zeros_like(columns), min(size, len(columns))
    for k, column in enumerate((columns / columns.sum(0)).T.numpy()):
        generator = rnd.stream("drawn for a cluster", k).numpy()
        weight[generator.choice(len(columns), size, replace=False, p=column), k] = 1 / size
    return weight.to(probability.device, torch.float32)
