"""Arrays as a file holds them, before anybody owns a part of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from torch import Tensor

from fedclust.helpers.errors import parts_by_name, printable


class View(Protocol):
    """What a model sees of a stored image: a part of it, standardised, changed at random."""

    @property
    def changes(self) -> bool:
        """Whether training draws anew in every step what it sees."""
        ...

    def shape(self, stored: tuple[int, ...], /) -> tuple[int, ...]:
        """Shape of an input, from that of a stored image."""
        ...

    def middle(self, x: Tensor, index: Tensor, /) -> Tensor:
        """What is seen of the images `index` [n] of x outside training, [n, C, h, w] float32."""
        ...

    def fixed(self, x: Tensor, /) -> Tensor | None:
        """The part of images [N, C, H, W] that every step sees, [N, C, h, w]; None if not fixed."""
        ...

    def drawn(self, x: Tensor, index: Tensor, key: Tensor, step: int, /) -> tuple[Tensor, Tensor]:
        """What is seen of the images `index` [R, B] in a local step, [R * B, C, h, w] float32, and
        the contrast of each, [R * B, 1, 1, 1].
        """
        ...

    def finish(self, x: Tensor, contrast: Tensor | None = None, /) -> Tensor:
        """Inputs from scaled images x [n, C, h, w], which are changed in place."""
        ...


@dataclass(frozen=True)
class Names:
    """What the data call their parts, each in the order of its numbers; empty without names."""

    # features, classes: of the inputs and of the labels
    features: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    # clients, groups: of a dataset its natural clients, of a federation its clients
    clients: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()  # of the numbers or flags that another task predicts

    def __post_init__(self) -> None:
        """Names are shown and written as text, so what is none in them is replaced."""
        for one in fields(self):
            object.__setattr__(self, one.name, tuple(map(printable, getattr(self, one.name))))

    def told(self, most: int = 12) -> list[str]:
        """What there is, in words: "2 classes (no, yes)"; so many names of each at most."""
        return parts_by_name(vars(self), most)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Arrays as a file holds them; knows nothing of clients.

    Attributes:
        name: what reports call it.
        x_train, x_test: [N, *shape] uint8 (images, channels first) or float32 (features); integers
            where they are token ids.
        y_train, y_test: [N] int64 in [0, num_classes); of other tasks [N, T] uint8 flags or
            float32 numbers.
        num_classes: number of classes, or T.
        scale, shift: float32, broadcastable to `shape`; a model sees `x * scale + shift`.
        owner: [N_train] int64 natural client of every training example, in [0, M); None where there
            are no natural clients.
        test_owner: [N_test] int64 natural client of every test example; None where nobody owns
            them.
        group: [M] int64 true group of every natural client; None where there are no groups.
        view: what a model sees of an image besides; None for all of it as it is.
        test_share: where every seed draws test examples of its own, their share of each natural
            client's, or of all examples; None where they are the same for all seeds.
        cut_seed: where clients have no test examples, the seed by which the partition cuts some for
            all seeds; None where each seed cuts its own.
        names: of features, classes, natural clients and groups.
        unit: [N_train + N_test] int64 of whom every example is, those for training first; all of
            one unit are on one side of every split. None where each is by itself.
        remarks: what a reader of the results must know of the data, one line each.
        vocabulary: number of token ids, which the inputs are; None where these are numbers.
        fit: the federations of all seeds with what follows from their training rows, such as the
            scale of features; None where nothing does.
        raw: how the values of the file became x, see `fedclust.datasets.raw`.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    num_classes: int
    scale: Tensor
    shift: Tensor
    owner: Tensor | None = None
    test_owner: Tensor | None = None
    group: Tensor | None = None
    view: View | None = None
    test_share: float | None = None
    cut_seed: int | None = None
    names: Names = Names()
    unit: Tensor | None = None
    remarks: tuple[str, ...] = ()
    vocabulary: int | None = None
    fit: Callable[[Dataset, Mapping[int, Any]], dict[int, Any]] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one stored example."""
        return tuple(self.x_train.shape[1:])
