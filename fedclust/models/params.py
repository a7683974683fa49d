"""Flat parameters [..., P] and named tensors as views of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where each trained parameter of a model lies in its flat vector, in the order of
    `model.parameters()`, and behind them its statistics: buffers that training changes.
    """

    names: tuple[str, ...]  # of parameters, then of buffers
    shapes: tuple[tuple[int, ...], ...]  # their shapes
    num_buffers: int = 0  # how many of the names are those of buffers
    counts: tuple[str, ...] = ()  # names of the buffers that hold whole numbers

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the buffers."""
        return self.names[len(self.names) - self.num_buffers :]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the trained parameters."""
        return self.names[: len(self.names) - self.num_buffers]

    @property
    def num_trained(self) -> int:
        """Numbers of a row that are trained: its first ones."""
        return sum(self.sizes[: len(self.parameters)])

    @property
    def trained(self) -> Tensor | None:
        """Which numbers of a row are trained, [P] bool; None where all are."""
        return self.mask(self.parameters) if self.num_buffers else None

    def of_trained(self, rows: Tensor) -> Tensor:
        """The trained part of rows [..., P], by which models and updates are compared."""
        return rows[..., : self.num_trained] if self.num_buffers else rows

    def joined(self, trained: Tensor, buffers: Tensor) -> Tensor:
        """Rows [..., P] with the trained part of some rows and the buffers of others: what is
        added to parameters, or goes beyond a mean, would make no statistics.
        """
        if not self.num_buffers:
            return trained
        return torch.cat([self.of_trained(trained), buffers[..., self.num_trained :]], dim=-1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of elements of every parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)

    def __getitem__(self, name: str) -> slice:
        """Columns of the parameter `name` in a row [P]; `KeyError` without such a name."""
        if name not in self.names:
            raise KeyError(f"no parameter {name}; there are {', '.join(self.names)}")
        at = self.names.index(name)
        first = sum(self.sizes[:at])
        return slice(first, first + self.sizes[at])

    @property
    def num_layers(self) -> int:
        """Number of layers that have parameters."""
        return len({name.rpartition(".")[0] for name in self.parameters})

    def last_layers(self, count: int = 1) -> tuple[str, ...]:
        """Names of the parameters of the last `count` layers that have any: the model's head."""
        owners = list(dict.fromkeys(name.rpartition(".")[0] for name in self.parameters))
        return tuple(name for name in self.parameters if name.rpartition(".")[0] in owners[-count:])

    def mask(self, names: Sequence[str]) -> Tensor:
        """Which numbers of a row belong to the parameters `names`, [P] bool."""
        inside = torch.zeros(self.num_params, dtype=torch.bool)
        for name in names:
            inside[self[name]] = True
        return inside

    @property
    def num_params(self) -> int:
        """P, with buffers."""
        return sum(self.sizes)


def trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that are trained, by name: those that ask for a gradient."""
    return [(name, value) for name, value in model.named_parameters() if value.requires_grad]


def layout(model: nn.Module) -> Layout:
    """The layout of a model's trained parameters and statistics, without what is frozen."""
    buffers = statistics(model)
    named = [*trained(model), *buffers]
    return Layout(
        names=tuple(name for name, _ in named),
        shapes=tuple(tuple(value.shape) for _, value in named),
        num_buffers=len(buffers),
        counts=tuple(name for name, value in buffers if not value.is_floating_point()),
    )


def statistics(model: nn.Module) -> list[tuple[str, Tensor]]:
    """The buffers that training changes, by name, which a model names itself."""
    named = getattr(model, "statistics", ())
    return [(name, value) for name, value in model.named_buffers() if name in named]


def set_statistics(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give a model's buffers their values in a row, means of counts as whole numbers."""
    for name, buffer in statistics(model):
        value = values[name]
        buffer.data = (value.clone() if buffer.is_floating_point() else value.round()).to(
            buffer.dtype
        )


def unflatten(flat: Tensor, where: Layout) -> dict[str, Tensor]:
    """Every parameter and buffer by name as a view of `flat` [..., P]: [..., *shape], in the
    layout's order. Raises `ValueError` if the last dimension is not P.
    """
    if flat.shape[-1] != where.num_params:
        raise ValueError(f"got {flat.shape[-1]} parameters, the model has {where.num_params}")
    parts = torch.split(flat, list(where.sizes), dim=-1)
    return {
        name: part.view((*flat.shape[:-1], *shape))
        for name, part, shape in zip(where.names, parts, where.shapes, strict=True)
    }


def flatten(named: dict[str, Tensor], where: Layout, batch_dims: int = 0) -> Tensor:
    """The inverse of `unflatten`, as a copy: [..., P] from tensors with `batch_dims` leading
    dimensions; of those names that are there.
    """
    there = [named[name] for name in where.names if name in named]
    return torch.cat([value.flatten(batch_dims) for value in there], dim=-1)
