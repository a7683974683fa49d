"""What is predicted, and by what it is judged; classification, which every pool has by default.

A task alone knows the loss, the scores and the headline; engines, recorder and report ask it.
Shapes: B examples, Y outputs of a model, T numbers of a target, S sums that a test adds up.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fedclust.helpers.errors import DataError, require
from fedclust.helpers.ranges import BelowOne, Range, Ranged

if TYPE_CHECKING:
    from typing import Self

    from fedclust.core.dataset import Dataset

Targets = Literal["classes", "flags", "numbers"]
Reduction = Literal["none", "mean", "sum"]
_WORDS = {
    "classes": "classes 0, 1, …, one for each example",
    "flags": "zeros and ones, one for each example and label",
    "numbers": "numbers, one or more for each example",
}
_MANY, _FEW = 100, 50  # classes, and examples of each: few enough to be numbers
_SUITS = {"classes": "classification", "flags": "multilabel", "numbers": "regression"}


@dataclass(frozen=True)
class Score:
    """A number that says how good a model is.

    Attributes:
        name: as it stands in `rounds.csv`.
        text: what it is, one line.
        title: what figures and tables call it.
        better: which direction is good.
        unit: fraction, which reports show in percent, or "" for the target's own.
    """

    name: str
    text: str
    title: str
    better: Literal["higher", "lower"]
    unit: str = "fraction"


@dataclass(frozen=True)
class Formula:
    """A loss that engines have code of their own for, of outputs z for the targets y.

    softmax: the cross entropy of classes, times the weight of the class.
    sigmoid: the mean over labels of the binary cross entropy, with the weight of labels that hold.
    error: the mean over targets of scale * (a^2 / 2 where a <= within, slope * (a - within / 2)
        beyond), with a = |z - y|.

    Attributes:
        kind: which of these.
        smoothing: part of an example that belongs to all classes of a softmax alike.
    """

    kind: Literal["softmax", "sigmoid", "error"]
    smoothing: float = 0.0
    scale: float = 1.0
    within: float = math.inf
    slope: float = 0.0


class Task(Ranged):
    """Base of every task; a dataclass of its options. Losses, sums and scores are its own.

    Attributes:
        targets: what the targets are.
        score: the headline.
        beside: further scores.
        counts: whether the sums are numbers of examples.
        softmax: whether the loss is the plain cross entropy of a softmax, which engines have faster
            code for.
    """

    targets: ClassVar[Targets] = "numbers"
    score: ClassVar[Score]
    beside: ClassVar[tuple[Score, ...]] = ()
    counts: ClassVar[bool] = False

    @property
    def softmax(self) -> bool:
        """See the class."""
        return False

    @property
    def formula(self) -> Formula | None:
        """The loss, where engines have code of their own for it; None for `loss` and `slope`."""
        return None

    def keeps_loss_of(self, task: type[Task]) -> bool:
        """Whether a class derived from a task has left its loss as it is."""
        own = type(self)
        return own.loss is task.loss and own.slope is task.slope

    @property
    def weights(self) -> Tensor | None:
        """Those of the classes or labels, where there are any, once they are fitted."""
        return vars(self).get("_weight")

    def fit(self, dataset: Dataset) -> tuple[Self, Dataset]:
        """The task with what it takes from the training rows, and the dataset with targets as the
        pool keeps them. Raises `DataError` if the targets are not those of this task.
        """
        check_targets(dataset, self.targets)
        return self, dataset

    def width(self, targets: int) -> int:
        """Numbers that a model gives for an example with so many classes, or target numbers."""
        return targets

    def to(self, device: torch.device) -> Self:
        """The task with its tensors on another device."""
        return self._with(
            **{name: x.to(device) for name, x in vars(self).items() if isinstance(x, Tensor)}
        )

    def _with(self, **fitted: Any) -> Self:
        """A copy with what was fitted, which is no option."""
        own = copy.copy(self)
        own.__dict__.update(fitted)
        return own

    def loss(self, outputs: Tensor, y: Tensor, reduction: Reduction = "none") -> Tensor:
        """Loss of outputs [B, Y] for targets [B] or [B, T]: of every example [B], mean or sum."""
        raise NotImplementedError

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Gradient of the loss of every example by its outputs, [B, Y]."""
        with torch.enable_grad():
            at = outputs.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.loss(at, y, "sum"), at)
        return found

    def predict(self, outputs: Tensor) -> Tensor:
        """What outputs [..., Y] say: probabilities, or numbers as the pool keeps them. A mixture of
        models says the weighted mean of what they say.
        """
        raise NotImplementedError

    def outputs_of(self, predictions: Tensor) -> Tensor:
        """Outputs [..., Y] by which a model would say these predictions."""
        raise NotImplementedError

    def in_unit(self, predictions: Tensor) -> Tensor:
        """Predictions, or targets, in the unit they have in the file."""
        return predictions

    def mix(self, mixed: Tensor | None, outputs: Tensor, share: Tensor) -> Tensor:
        """A mixture [..., Y] that one more model, of these outputs, has this share in."""
        part = share * self.predict(outputs).double()
        return part if mixed is None else mixed + part

    def settle(self, mixed: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [B, Y] by which one model would say what a mixture says, and its losses [B]."""
        outputs = self.outputs_of(mixed)
        return outputs, self.loss(outputs, y.to(outputs.dtype) if y.is_floating_point() else y)

    def sums(self, outputs: Tensor, y: Tensor) -> Tensor:
        """What a test adds up of outputs [B, Y], [B, S]."""
        raise NotImplementedError

    def sum_names(self, targets: int) -> Sequence[str]:
        """What the S sums are called in `clients.parquet`."""
        raise NotImplementedError

    def scores(self, sums: Tensor, count: Tensor) -> dict[str, Tensor]:
        """The headline and the scores beside it, by name, from sums [..., S] float64 over `count`
        [...] examples; NaN where one is undefined.
        """
        raise NotImplementedError

    def headline(self, sums: Tensor, count: Tensor) -> Tensor:
        """The headline [...] of sums [..., S] over `count` [...] examples."""
        return self.scores(sums, count)[self.score.name]

    def merit(self, sums: Tensor, count: Tensor) -> Tensor:
        """The headline with the sign that makes higher better, in no unit, to compare it."""
        found = self.headline(sums, count)
        return found if self.score.better == "higher" else -found

    def encoded(self, y: Tensor, targets: int) -> Tensor:  # noqa: ARG002
        """Targets as predictions that would be right, [B, Y] float64; their mean over a client's
        training rows is the best guess that knows no inputs.
        """
        return y.double()


Weights = Literal["balanced"] | list[Annotated[float, Range(0)]] | None


@dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """One class of several, by the cross entropy of a softmax.

    Attributes:
        class_weight: what the loss of an example of each class is multiplied by; balanced takes
            N / (Y N_y), which has mean 1 over the training rows; None for 1. The mean over a batch
            divides by its examples, so the weights decide the size of a step too.
        label_smoothing: part of every example that belongs to all classes alike.
    """

    class_weight: Weights = None
    label_smoothing: BelowOne = 0.0

    targets: ClassVar[Targets] = "classes"
    counts: ClassVar[bool] = True
    score: ClassVar[Score] = Score(
        "accuracy", "correct test examples of all clients / their number", "Test accuracy", "higher"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.__dict__["_weight"] = None  # [Y], fitted

    @property
    def softmax(self) -> bool:
        """Whether nothing is weighted or smoothed."""
        plain = self.class_weight is None and not self.label_smoothing
        return plain and self.keeps_loss_of(Classification)

    @property
    def formula(self) -> Formula | None:
        known = self.keeps_loss_of(Classification)
        return Formula("softmax", smoothing=self.label_smoothing) if known else None

    def fit(self, dataset: Dataset) -> tuple[Self, Dataset]:
        """The weights of the classes."""
        check_targets(dataset, self.targets)
        classes, given = dataset.num_classes, self.class_weight
        if classes >= _MANY and len(dataset.y_train) < _FEW * classes:
            remark = (
                f"{dataset.name} has {classes} classes with {len(dataset.y_train)} training "
                "examples: where the label is a number, task=regression predicts it"
            )
            dataset = replace(dataset, remarks=(*dataset.remarks, remark))
        if given is None:
            return self, dataset
        if given == "balanced":
            count = torch.bincount(dataset.y_train, minlength=classes).double()
            weight = count.sum() / (classes * count.clamp(min=1))
        else:
            allowed = f"null, balanced, or {classes} numbers, one for each class"
            require(len(given) == classes, "task.class_weight", given, allowed)
            weight = torch.tensor(given, dtype=torch.float64)
        return self._with(_weight=weight.float()), dataset

    def loss(self, outputs: Tensor, y: Tensor, reduction: Reduction = "none") -> Tensor:
        """Cross entropy, nats."""
        weight = self.weights
        if weight is None:
            return F.cross_entropy(
                outputs, y, reduction=reduction, label_smoothing=self.label_smoothing
            )
        each = F.cross_entropy(outputs, y, reduction="none", label_smoothing=self.label_smoothing)
        return reduced(each * weight[y], reduction)

    def predict(self, outputs: Tensor) -> Tensor:
        """Probabilities of the classes."""
        return outputs.softmax(-1)

    def outputs_of(self, predictions: Tensor) -> Tensor:
        """Their logarithms."""
        return predictions.log()

    def mix(self, mixed: Tensor | None, outputs: Tensor, share: Tensor) -> Tensor:
        """In logs: a probability below 1e-38 would be 0, and its loss infinite."""
        part = share.log() + outputs.log_softmax(-1)
        return part if mixed is None else mixed.logaddexp(part)

    def settle(self, mixed: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """A mixture is log-probabilities as it is."""
        losses = F.nll_loss(mixed, y, reduction="none") if self.softmax else self.loss(mixed, y)
        return mixed, losses

    def sums(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Whether the largest output is that of the class, [B, 1] bool."""
        return (outputs.argmax(-1) == y).unsqueeze(-1)

    def sum_names(self, targets: int) -> Sequence[str]:  # noqa: ARG002
        """Correct examples."""
        return ("correct",)

    def scores(self, sums: Tensor, count: Tensor) -> dict[str, Tensor]:
        """Accuracy."""
        return {"accuracy": sums[..., 0] / count}

    def encoded(self, y: Tensor, targets: int) -> Tensor:
        """One for the class; a guess is the class that most have."""
        zeros = y.new_zeros((*y.shape, targets), dtype=torch.float64)
        return zeros.scatter_(-1, y.unsqueeze(-1), 1.0)


def reduced(each: Tensor, reduction: Reduction) -> Tensor:
    """Values [B] as they are, their mean or their sum."""
    return each if reduction == "none" else each.mean() if reduction == "mean" else each.sum()


def check_targets(dataset: Dataset, wanted: Targets) -> None:
    """Refuse targets of another kind. Raises `DataError` naming the task that suits them."""
    y = dataset.y_train
    found: Targets = "numbers" if y.is_floating_point() else "flags" if y.dim() > 1 else "classes"
    if found != wanted:
        raise DataError(
            f"{dataset.name}: its targets are {_WORDS[found]}, and the task needs "
            f"{_WORDS[wanted]}: task={_SUITS[found]} suits them"
        )
    train, test = (tuple(part.shape[1:]) for part in (y, dataset.y_test))
    if train != test:
        raise DataError(
            f"{dataset.name}: targets of training examples have shape {train} but those of tests "
            f"{test}: both must be equal"
        )


def as_targets(dataset: Dataset, y_train: Tensor, y_test: Tensor) -> Dataset:
    """The dataset with other targets [N, T], T of them."""
    return replace(dataset, y_train=y_train, y_test=y_test, num_classes=y_train.shape[1])
