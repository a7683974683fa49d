"""Flat parameters [..., P] and named tensors as views of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where each trained parameter of a model lies in its flat vector, in the order of
    `model.parameters()`.

    Attributes:
        names: parameter names.
        shapes: their shapes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of elements of every parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)

    def __getitem__(self, name: str) -> slice:
        """Columns of the parameter `name` in a row [P].

        Raises:
            KeyError: if there is none of that name.
        """
        if name not in self.names:
            raise KeyError(f"no parameter {name}; there are {', '.join(self.names)}")
        at = self.names.index(name)
        first = sum(self.sizes[:at])
        return slice(first, first + self.sizes[at])

    @property
    def num_layers(self) -> int:
        """Number of layers that have parameters."""
        return len({name.rpartition(".")[0] for name in self.names})

    def last_layers(self, count: int = 1) -> tuple[str, ...]:
        """Names of the parameters of the last `count` layers that have any: the model's head."""
        owners = list(dict.fromkeys(name.rpartition(".")[0] for name in self.names))
        return tuple(name for name in self.names if name.rpartition(".")[0] in owners[-count:])

    def mask(self, names: Sequence[str]) -> Tensor:
        """Which numbers of a row belong to the parameters `names`, [P] bool."""
        inside = torch.zeros(self.num_params, dtype=torch.bool)
        for name in names:
            inside[self[name]] = True
        return inside

    @property
    def num_params(self) -> int:
        """P."""
        return sum(self.sizes)


def trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that are trained, by name: those that ask for a gradient."""
    return [(name, value) for name, value in model.named_parameters() if value.requires_grad]


def layout(model: nn.Module) -> Layout:
    """The layout of a model's trained parameters; what is frozen is the same for everybody."""
    named = trained(model)
    return Layout(names=tuple(n for n, _ in named), shapes=tuple(tuple(p.shape) for _, p in named))


def unflatten(flat: Tensor, where: Layout) -> dict[str, Tensor]:
    """Every parameter by name as a view of `flat` [..., P]: [..., *shape], in the layout's order.

    Raises:
        ValueError: if the last dimension is not P.
    """
    if flat.shape[-1] != where.num_params:
        raise ValueError(f"got {flat.shape[-1]} parameters, the model has {where.num_params}")
    parts = torch.split(flat, list(where.sizes), dim=-1)
    return {
        name: part.view(*flat.shape[:-1], *shape)
        for name, part, shape in zip(where.names, parts, where.shapes, strict=True)
    }


def flatten(named: dict[str, Tensor], where: Layout, batch_dims: int = 0) -> Tensor:
    """The inverse of `unflatten`, as a copy: [..., P] from tensors with `batch_dims` leading
    dimensions.
    """
    return torch.cat([named[name].flatten(batch_dims) for name in where.names], dim=-1)
