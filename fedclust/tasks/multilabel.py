"""Several labels for each example, every one of which holds or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fedclust.core.task import Formula, Reduction, Score, Task, check_targets, reduced
from fedclust.helpers.errors import DataError, require
from fedclust.helpers.ranges import Range

if TYPE_CHECKING:
    from typing import Self

    from fedclust.core.types import Dataset


@dataclass(frozen=True, kw_only=True)
class Multilabel(Task):
    """Labels that hold or not, by the mean over labels of the F1 score.

    A label is predicted where its probability is above 1/2. The F1 score of a label that no example
    has and none is predicted to have is not defined, and left out of the mean.

    Attributes:
        pos_weight: what the loss of an example that has a label is multiplied by, a number for
            every label; balanced takes the examples without it over those with it, among the
            training rows (1 for a label that none or all of them have); None for 1.
    """

    pos_weight: Literal["balanced"] | list[Annotated[float, Range(0)]] | None = None

    targets: ClassVar = "flags"
    counts: ClassVar[bool] = True
    score: ClassVar[Score] = Score(
        "macro_f1", "mean over labels of the F1 score on all test examples", "Macro F1", "higher"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.__dict__["_weight"] = None  # [T], fitted

    def fit(self, dataset: Dataset) -> tuple[Self, Dataset]:
        """The weights of the labels; DataError if targets are no flags."""
        check_targets(dataset, self.targets)
        labels = dataset.y_train.shape[1]
        for y in (dataset.y_train, dataset.y_test):
            if len(y) and (int(y.min()) < 0 or int(y.max()) > 1):
                raise DataError(
                    f"{dataset.name}: its targets span {int(y.min())} to {int(y.max())}, and "
                    "task=multilabel needs 0 or 1 for every label"
                )
        given = self.pos_weight
        if given is None:
            return self, dataset
        if given == "balanced":
            held = dataset.y_train.double().sum(0)
            without = len(dataset.y_train) - held
            weight = torch.where(held * without > 0, without / held, 1.0)  # none to weigh against
        else:
            allowed = f"null, balanced, or {labels} numbers, one for each label"
            require(len(given) == labels, "task.pos_weight", given, allowed)
            weight = torch.tensor(given, dtype=torch.float64)
        return self._with(_weight=weight.float()), dataset

    @property
    def formula(self) -> Formula | None:
        return Formula("sigmoid") if self.keeps_loss_of(Multilabel) else None

    def loss(self, outputs: Tensor, y: Tensor, reduction: Reduction = "none") -> Tensor:
        """Mean over the labels of the binary cross entropy, nats."""
        weight = self.weights
        weight = None if weight is None else weight.to(outputs.dtype)
        each = F.binary_cross_entropy_with_logits(
            outputs, y.to(outputs.dtype), reduction="none", pos_weight=weight
        )
        return reduced(each.mean(-1), reduction)

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """In closed form."""
        y, weight = y.to(outputs.dtype), self.weights
        slope = outputs.sigmoid()
        if weight is None:
            slope -= y
        else:
            slope = slope * (1 + (weight - 1) * y) - weight * y
        return slope.div_(y.shape[-1])

    def predict(self, outputs: Tensor) -> Tensor:
        """Probabilities of the labels."""
        return outputs.double().sigmoid()

    def outputs_of(self, predictions: Tensor) -> Tensor:
        """Their logits; those of 0 and 1 are taken at the nearest numbers of float64."""
        return predictions.logit(eps=1e-16)

    def sums(self, outputs: Tensor, y: Tensor) -> Tensor:
        """True positives, false positives and false negatives of every label, [B, 3 T] bool."""
        said, held = outputs > 0, y > 0
        return torch.cat([said & held, said & ~held, ~said & held], -1)

    def sum_names(self, targets: int) -> Sequence[str]:
        """The label's number behind the name."""
        return [f"{part}_{t}" for part in ("tp", "fp", "fn") for t in range(targets)]

    def scores(self, sums: Tensor, count: Tensor) -> dict[str, Tensor]:
        """The mean F1 score of the labels that somebody has or is predicted to have."""
        tp, fp, fn = sums.chunk(3, -1)
        return {"macro_f1": (2 * tp / (2 * tp + fp + fn)).nanmean(-1)}
