"""The examples that clients own, and what a model sees of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedclust.core.dataset import View
from fedclust.core.task import Classification, Task

Gather = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None]
"""Writes x[index] * scale + shift to the last of (x, index, scale, shift, out)."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """All examples any client may own, stored once and shared by all seeds.

    Attributes:
        x: [images, *shape] uint8 or float32, or token ids as integers; N of them unless `image`
            says otherwise.
        y: [N] int64, or what the targets of its task are: [N, T].
        scale, shift: float32, broadcastable to `shape`.
        num_classes: number of classes, or T.
        view: what a model sees of an image besides; None for all of it as it is.
        gather: takes the place of PyTorch's operations in `inputs_into`; None for these.
        image: [N] int64 place in `x` of every row's image, so that rows can share one; None where
            row r has image r.
        concepts: forms G in which every example occurs, such as its rotations: row r G + g is
            example r under concept g.
        in_order: whether the rows are the dataset's examples, those for training first, each under
            every concept in turn, and no table names them: then a seed may draw test examples of
            its own, see `fedclust.core.federation.build`.
        vocabulary: number of token ids, which are inputs as they are; None where they are numbers.
        task: what is predicted.
        sources: digests of what decides results besides, by what it is: of further files, and of
            the examples before anything of one seed went into them.
        copies: so many times all examples occur, one copy behind the other, each as the training
            rows of another seed scale them.
    """

    x: Tensor
    y: Tensor
    scale: Tensor
    shift: Tensor
    num_classes: int
    view: View | None = None
    gather: Gather | None = None
    image: Tensor | None = None
    concepts: int = 1
    in_order: bool = False
    vocabulary: int | None = None
    task: Task = field(default_factory=Classification)
    copies: int = 1
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Y, the numbers that a model gives for an example."""
        return self.task.width(self.num_classes)

    @property
    def num_sums(self) -> int:
        """S, the sums of a test."""
        return len(self.task.sum_names(self.num_classes))

    @property
    def strata(self) -> Tensor:
        """[N] int64 by what a part of the examples is drawn evenly: the class, or one for all."""
        classes = self.task.targets == "classes"
        return self.y if classes else self.y.new_zeros(len(self.y), dtype=torch.int64)

    def row(self, index: Tensor) -> Tensor:
        """The rows `index` as a table names them, without the copy they are in."""
        return index % (len(self.y) // self.copies)

    @property
    def num_strata(self) -> int:
        """How many of these there are."""
        return self.num_classes if self.task.targets == "classes" else 1

    @cached_property
    def digest(self) -> str:
        """BLAKE2 of all examples and of how a model sees them, as hexadecimal digits, equal on
        every device; of rotated MNIST, 220 MB, 0.15 to 0.4 s, once for all jobs that share the
        pool.
        """
        blake = hashlib.blake2b(digest_size=16)
        shared = () if self.image is None else (self.image,)
        for part in (self.x, self.y, self.scale, self.shift, *shared):
            array = part.cpu().contiguous().numpy()
            blake.update(f"{array.dtype.str}{array.shape}".encode())
            blake.update(array.reshape(-1).view(np.uint8).data)
        blake.update(f"{self.num_classes}{self.view}".encode())
        return blake.hexdigest()

    def images(self, index: Tensor) -> Tensor:
        """Place in `x` of the images of the rows `index` [...] int64."""
        return index if self.image is None else self.image[index]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what a model sees of one example."""
        stored = tuple(self.x.shape[1:])
        return stored if self.view is None else self.view.shape(stored)

    def inputs(self, index: Tensor) -> Tensor:
        """What a model sees of the examples `index` [...]: [..., *shape] float32, or ids int64."""
        if self.vocabulary is not None:
            return self.x[self.images(index)].long()
        if self.view is not None:
            place = self.images(index.reshape(-1))
            cut = self.view.middle(self.x, place).mul_(self.scale).add_(self.shift)
            return self.view.finish(cut).view(*index.shape, *self.shape)
        out = torch.empty(*index.shape, *self.shape, device=self.x.device)
        return self.inputs_into(index, out)

    def inputs_into(self, index: Tensor, out: Tensor) -> Tensor:
        """As `inputs`, written to `out`; not for a pool with a view."""
        index = self.images(index)
        if self.gather is not None:
            self.gather(self.x, index, self.scale, self.shift, out)
            return out
        rows = self.x.index_select(0, index.reshape(-1)).view(out.shape)
        if rows.is_cuda:  # one kernel, where a CPU does three passes in less time than this one
            return torch.addcmul(self.shift, rows, self.scale, out=out)
        return out.copy_(rows).mul_(self.scale).add_(self.shift)

    def training_inputs(self, index: Tensor, key: Tensor, step: int) -> Tensor:
        """What models see of the rows `index` [R, B] in the 0-based local `step`, [R, B, *shape];
        `key` [R] int64 is the randomness of every row of the call.
        """
        if self.view is None or not self.view.changes:
            return self.inputs(index)
        cut, contrast = self.view.drawn(self.x, self.images(index), key, step)
        x = self.view.finish(cut.mul_(self.scale).add_(self.shift), contrast)
        return x.view(*index.shape, *self.shape)

    def to(self, device: torch.device) -> Pool:
        """The pool on another device."""
        return replace(
            self,
            x=self.x.to(device),
            y=self.y.to(device),
            scale=self.scale.to(device),
            shift=self.shift.to(device),
            image=None if self.image is None else self.image.to(device),
            task=self.task.to(device),
        )
