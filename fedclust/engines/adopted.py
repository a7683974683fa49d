"""A model as engines run it, tried on examples of the pool that it is for."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from fedclust.core.pool import Pool
from fedclust.helpers.errors import ConfigError
from fedclust.models.foreign import Foreign, Runnable, adopt
from fedclust.models.sequence import Model

_BLOCK = 4096  # examples whose ids are looked at at once


def adopted(model: nn.Module, pool: Pool) -> Runnable:
    """A model as engines run it, tried on two examples of the pool; ConfigError as `adopt`."""
    two = torch.tensor([0, len(pool.y) - 1], device=pool.x.device)
    examples = pool.inputs(two)
    if pool.vocabulary is not None:
        examples[1] = pool.vocabulary - 1  # which the Embedding must have
    runnable = adopt(model, pool.shape, examples, pool.width).to(pool.x.device)
    if pool.vocabulary is None and not isinstance(model, (Model, Foreign)):
        _check_ids(model, pool)
    return runnable


def _check_ids(model: nn.Module, pool: Pool) -> None:
    """Refuse ids without a vector, of any example, where a module looks up columns of a table."""
    if not any(isinstance(part, nn.Embedding) for part in model.modules()):
        return
    tried = copy.deepcopy(model).eval().to(pool.x.device)
    for name, part in tried.named_modules():
        if isinstance(part, nn.Embedding):
            part.register_forward_pre_hook(_IdCheck(name))
    with torch.no_grad():
        for index in torch.split(torch.arange(len(pool.y), device=pool.x.device), _BLOCK):
            tried(pool.inputs(index))


class _IdCheck:
    """A hook that refuses ids outside the table of an Embedding."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, part: nn.Embedding, given: tuple[Any, ...]) -> None:
        ids: Tensor = given[0]
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < part.num_embeddings:
            odd = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise ConfigError(
                f"model: an example has the id {odd}, and {self.name} (Embedding) has the ids 0 to "
                f"{part.num_embeddings - 1}"
            )
