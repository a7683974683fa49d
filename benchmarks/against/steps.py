"""Local steps in plain PyTorch, as every loop takes them; needs torch only."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer


def fit(model: nn.Module, optimizer: Optimizer, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    """A step of the optimizer on the mean cross-entropy of every batch (inputs, labels)."""
    for x, y in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
