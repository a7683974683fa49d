"""Numbers: one or more for each example, standardised by the training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fedclust.core.task import Formula, Reduction, Score, Task, as_targets, check_targets, reduced
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import DataError
from fedclust.helpers.ranges import Positive

if TYPE_CHECKING:
    from typing import Self

    from fedclust.core.types import Dataset

_MOST = 1e15  # standard deviations; the square of an error must fit into float32
_PARTS = ("absolute_error", "squared_error", "target", "squared_target")
_MAE = "mean absolute error over all test examples, in the target's unit"
_R2 = "R², 1 - squared error / that of the mean of the test targets"


@dataclass(frozen=True, kw_only=True)
class Regression(Task):
    """Numbers, by the mean absolute error in the unit of the file.

    Models give standardised numbers: every target minus its mean over the training rows, over its
    standard deviation there. Losses are of these, scores in the unit of the file. With several
    targets a score is the mean over them.

    Attributes:
        loss_by: mse, the squared error; mae, the absolute one; huber, the squared one halved up to
            `delta` and the absolute one beyond.
        delta: where huber changes, in standard deviations.
    """

    loss_by: Literal["mse", "mae", "huber"] = "mse"
    delta: Annotated[Positive, OnlyWith("loss_by", "huber")] = 1.0

    targets: ClassVar = "numbers"
    score: ClassVar[Score] = Score("mae", _MAE, "Mean absolute error", "lower", "")
    beside: ClassVar[tuple[Score, ...]] = (Score("r2", _R2, "R²", "higher", ""),)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.__dict__.update(_scale=torch.ones(1), _mean=torch.zeros(1))  # [T] float64, fitted

    def fit(self, dataset: Dataset) -> tuple[Self, Dataset]:
        """Mean and standard deviation of every target; DataError if none is fit to learn."""
        check_targets(dataset, self.targets)
        train, test = (
            y.double().view(len(y), prod(y.shape[1:])) for y in (dataset.y_train, dataset.y_test)
        )  # a partition may cut all test rows, so there may be none here
        if not bool(torch.isfinite(train).all()) or not bool(torch.isfinite(test).all()):
            raise DataError(f"{dataset.name}: targets are not finite: replace them in the file")
        mean, scale = train.mean(0), train.std(0, correction=0)
        same = (train == train[0]).all(0)
        if bool(same.all()):
            raise DataError(
                f"{dataset.name}: all training targets are {float(train[0, 0])}, so there is "
                "nothing to learn: give others"
            )
        if bool(same.any()):  # such as the sun at midnight
            scale = torch.where(same, torch.ones_like(scale), scale)
            places = ", ".join(map(str, same.nonzero().flatten().tolist()))
            remark = (
                f"{dataset.name}: targets {places} of 0 to {len(scale) - 1} are the same in all "
                "training rows"
            )
            dataset = replace(dataset, remarks=(*dataset.remarks, remark))
        first, second = (((y - mean) / scale).float() for y in (train, test))
        for y, standard in ((train, first), (test, second)):
            if len(y) and not bool((standard.abs() < _MOST).all() & scale.isfinite().all()):
                reach = float(y.abs().max())
                raise DataError(
                    f"{dataset.name}: targets reach {reach:.3g}, which float32 cannot hold beside "
                    "the others: replace what stands for a gap, or give another unit"
                )
        return self._with(_mean=mean, _scale=scale), as_targets(dataset, first, second)

    @property
    def formula(self) -> Formula | None:
        if not self.keeps_loss_of(Regression):
            return None
        return {
            "mse": Formula("error", scale=2.0),
            "mae": Formula("error", within=0.0, slope=1.0),
            "huber": Formula("error", within=self.delta, slope=self.delta),
        }[self.loss_by]

    def loss(self, outputs: Tensor, y: Tensor, reduction: Reduction = "none") -> Tensor:
        """Mean over the targets of the standardised error's loss."""
        y = y.to(outputs.dtype)
        if self.loss_by == "mse":
            each = F.mse_loss(outputs, y, reduction="none")
        elif self.loss_by == "mae":
            each = F.l1_loss(outputs, y, reduction="none")
        else:
            each = F.huber_loss(outputs, y, reduction="none", delta=self.delta)
        return reduced(each.mean(-1), reduction)

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """In closed form, which takes a fraction of the time."""
        error = outputs - y
        if self.loss_by == "mse":
            return error.mul_(2 / y.shape[-1])
        most = 0.0 if self.loss_by == "mae" else self.delta
        return (error.sign() if not most else error.clamp(-most, most)).div_(y.shape[-1])

    def predict(self, outputs: Tensor) -> Tensor:
        """The numbers themselves."""
        return outputs

    def outputs_of(self, predictions: Tensor) -> Tensor:
        """The numbers themselves."""
        return predictions

    def in_unit(self, predictions: Tensor) -> Tensor:
        """In float64."""
        scale, mean = vars(self)["_scale"], vars(self)["_mean"]
        found: Tensor = predictions.double() * scale + mean
        return found

    def sums(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Absolute and squared errors, targets and their squares, [B, 4 T] float64; targets
        without their mean over the training rows, so that nothing is lost in the squares.
        """
        scale = vars(self)["_scale"]
        target, error = y.double() * scale, (outputs.double() - y.double()) * scale
        return torch.cat([error.abs(), error.square(), target, target.square()], -1)

    def sum_names(self, targets: int) -> Sequence[str]:
        """A number behind the name where there are several targets."""
        own = [""] if targets == 1 else [f"_{t}" for t in range(targets)]
        return [f"{part}{t}" for part in _PARTS for t in own]

    def scores(self, sums: Tensor, count: Tensor) -> dict[str, Tensor]:
        """Mean absolute error, and R² where the targets differ."""
        absolute, squared, target, square = sums.chunk(4, -1)
        n = count.unsqueeze(-1)
        spread = square - target.square() / n
        r2 = torch.where(spread > 1e-12 * square, 1 - squared / spread, torch.nan)
        return {"mae": (absolute / n).mean(-1), "r2": r2.mean(-1)}

    def merit(self, sums: Tensor, count: Tensor) -> Tensor:
        """In standard deviations of the targets, so that what a method compares it with
        means the same in every unit.
        """
        scale = vars(self)["_scale"]
        absolute, squared, target, square = sums.chunk(4, -1)
        parts = [absolute / scale, squared / scale**2, target / scale, square / scale**2]
        return super().merit(torch.cat(parts, -1), count)
