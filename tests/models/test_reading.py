"""A plain module is read as a sequence of layers, or what prevents it is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pasted import VGG9, FedAvgCNN, LeafCNN, LeNet5, ResNet
from torch import Tensor, nn
from torch.nn import functional as F

from fedclust.models.foreign import adopt
from fedclust.models.reading import UnreadableError, read

SHAPE = (1, 8, 8)


class Small(nn.Module):
    """Two layers, of which the last stands first."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(12, 5)
        self.first = nn.Linear(64, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.first(x.reshape(len(x), -1))))


class Three(Small):
    """With a layer between that has as many outputs as inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.enter = nn.Linear(12, 12), nn.Linear(64, 12)


def doing(forward: Callable[..., Tensor], base: type[nn.Module] = Small) -> nn.Module:
    """A network with these layers whose forward pass is another."""
    module: nn.Module = type("Doing", (base,), {"forward": forward})()
    return module


def by_mode(self: Any, x: Tensor) -> Tensor:
    hidden = self.first(x.flatten(1))
    return self.last(F.relu(hidden) if self.training else hidden)


def stopped(self: Any, x: Tensor) -> Tensor:
    """A graph does not show where gradients end."""
    with torch.no_grad():
        x = F.relu(self.first(x.flatten(1)))
    return self.last(x)


def in_place(self: Any, x: Tensor) -> Tensor:
    x = self.first(x.flatten(1))
    x[:, 0] = 0
    return self.last(x)


class Tied(Three):
    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(12, 12)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(F.relu(self.second(self.enter(x.flatten(1))))))


class Skipping(Three):
    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x.flatten(1))
        return self.last(x + self.first(x))


def gated(self: Any, x: Tensor) -> Tensor:
    x = self.enter(x.flatten(1))
    return self.last(x * self.first(x))


def doubled(self: Any, x: Tensor) -> Tensor:
    x = self.first(x.flatten(1))
    return self.last(x + x)


def broad(self: Any, x: Tensor) -> Tensor:
    x = self.enter(x.flatten(1))
    return self.last(self.first(x) + x[:, :1])


def filled(self: Any, x: Tensor) -> Tensor:
    """Examples one behind the other."""
    x = self.enter(x.flatten(1))
    return self.last(torch.cat([x, self.first(x)], 0)[: len(x)])


class Own(Small):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.factor


class Table(nn.Module):
    """Two columns of ids, one as it is, and the other columns."""

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.place = nn.Embedding(3, 2), nn.Embedding(5, 3)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        kind = self.kind(x[:, 0].long().clamp(0, 2))
        place = self.place(torch.clamp(x[:, 1], max=4).to(torch.int64))
        return self.last(torch.cat((x[:, 2:], kind, place), dim=-1))


class Logs(Small):
    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(super().forward(x), dim=1)


def frozen() -> nn.Module:
    module = Small()
    module.first.bias.requires_grad_(requires_grad=False)
    return module


def hooked() -> nn.Module:
    module = Small()
    module.first.register_forward_hook(lambda _module, _given, out: 2 * out)
    return module


def test_a_plain_module_is_read_with_its_own_names_and_order() -> None:
    reading = read(Small(), SHAPE)
    assert [type(layer) for layer in reading.layers] == [
        *(nn.Flatten, nn.Linear, nn.ReLU, nn.Linear)
    ]
    assert reading.owners == ("", "first", "", "last")
    assert reading.shapes == (SHAPE, (64,), (12,), (12,), (5,))


def test_branches_stand_one_behind_the_other() -> None:
    names = [type(layer).__name__ for layer in read(Skipping(), SHAPE).layers]
    assert names == ["Flatten", "Linear", "Fork", "Linear", "Add", "Linear"]
    reading = adopt(ResNet([1, 1], [2, 4]), (3, 8, 8)).reading()
    names = [type(layer).__name__ for layer in reading.layers]
    branching = [name for name in names if name in ("Fork", "Swap", "Add")]
    assert branching == ["Fork", "Add", "Fork", "Swap", "Add"]
    at = names.index("Swap")
    assert reading.shapes[at : at + 2] == ((4, 4, 4), (2, 8, 8))


def test_signals_are_images_of_one_line() -> None:
    module = nn.Sequential(
        nn.Conv1d(3, 4, 3, padding="same"),
        nn.BatchNorm1d(4),
        nn.Tanh(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(16, 5),
    )
    reading = read(module, (3, 8))
    names = [type(layer).__name__ for layer in reading.layers]
    # the maximum stands before what grows, which then has fewer numbers to do
    assert names == [*("Shaped", "Conv2d", "BatchNorm2d", "MaxPool2d", "Tanh", "Flatten", "Linear")]
    assert reading.shapes[:5] == ((3, 8), (3, 1, 8), (4, 1, 8), (4, 1, 8), (4, 1, 4))
    assert (reading.owners[1], reading.layers[1].padding) == ("0", (0, 1))


def test_a_table_is_read_as_parts() -> None:
    rows = torch.tensor([[2.7, 4.0, 0.1, 0.2, 0.3], [0.0, 1.0, -1.0, 0.5, 2.0]])
    reading = read(Table(), (5,), rows)
    names = [type(layer).__name__ for layer in reading.layers]
    assert names == [
        *("Split", "Columns", "Next", "Columns", "Whole", "Clamp", "Embedding"),
        *("Next", "Columns", "Clamp", "Whole", "Embedding", "Join", "Linear"),
    ]
    assert reading.shapes[-2:] == ((8,), (5,))
    wrong = rows.clone()
    wrong[0, 1] = -1.0  # below the first id
    with pytest.raises(UnreadableError, match="cannot follow: index out of range"):
        read(Table(), (5,), wrong)


@pytest.mark.parametrize("module", [Logs(), nn.Sequential(Small(), nn.LogSoftmax(-1))])
def test_a_log_softmax_at_the_end_is_part_of_the_loss(module: nn.Module) -> None:
    reading = read(module, SHAPE)
    assert (len(reading.layers), reading.logs, reading.shapes[-1]) == (4, True, (5,))


@pytest.mark.full
@pytest.mark.parametrize(
    ("module", "shape", "layers"),
    [
        (FedAvgCNN(), (1, 28, 28), "CRPCRPFLRL"),
        (LeafCNN(), (1, 28, 28), "CRPCRPFLRL"),
        (LeNet5(), (3, 32, 32), "CRPCRPFLRLRL"),  # the second pooling stands before its ReLU
        (VGG9(width=2), (3, 32, 32), "CRCRPCRCRPCRCRPFLRLRL"),
        (nn.Sequential(nn.Identity(), nn.Flatten(1, 3), nn.Linear(64, 5)), SHAPE, "FL"),
    ],
)
def test_networks_of_the_field_are_read(
    module: nn.Module, shape: tuple[int, ...], layers: str
) -> None:
    kinds = {nn.Conv2d: "C", nn.ReLU: "R", nn.MaxPool2d: "P", nn.Flatten: "F", nn.Linear: "L"}
    state, numbers = torch.get_rng_state(), [value.clone() for value in module.parameters()]
    reading = adopt(module, shape).reading()
    assert "".join(kinds[type(layer)] for layer in reading.layers) == layers
    x = torch.zeros(1, *shape)
    for layer, before, after in zip(
        reading.layers, reading.shapes[:-1], reading.shapes[1:], strict=True
    ):
        assert x.shape[1:] == before
        x = layer(x)
        assert x.shape[1:] == after
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, module.parameters(), numbers))


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("module", "says"),
    [
        (doing(lambda self, x: Small.forward(self, -x if x.sum() > 0 else x)), "control flow"),
        (doing(lambda self, x: Small.forward(self, -x if len(x) > 40 else x)), "control flow"),
        (doing(by_mode), "between training and test"),
        (doing(stopped), "does more than its layers"),
        (doing(lambda self, x: self.last(F.relu(self.first(x.flatten(1))).detach())), "detach"),
        (
            doing(
                lambda self, x: self.last(self.first(self.first(self.enter(x.flatten(1))))), Three
            ),
            r"first\.weight, which is used twice",
        ),
        (Tied(), r"weight, which is used twice"),
        (
            doing(lambda self, x: self.last(self.enter(x.flatten(1))), Three),
            r"first\.bias, which no layer has",
        ),
        (doing(gated, Three), "mul, which looks at more than one layer"),
        (doing(doubled), "add"),
        (doing(broad, Three), "getitem"),
        (doing(in_place), "cannot follow|setitem"),
        (Own(), "^Own$"),
        (doing(lambda self, x: self.last(self.first(x.flatten(1)).view(-1, 24)[:, :12])), "view"),
        (frozen(), r"first\.bias, which is frozen"),
        (hooked(), r"hooks of first \(Linear\)"),
        (nn.Sequential(Small(), nn.LogSoftmax(0)), r"1 \(LogSoftmax\)"),
        (nn.Sequential(Small(), nn.Softmax(1)), r"1 \(Softmax\)"),
        (nn.Sequential(Small(), nn.LogSoftmax(1), nn.Linear(5, 5)), "before the last layer"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Unflatten(1, (2, 3)), nn.Flatten()), "2"),
        (nn.Sequential(nn.Flatten(), nn.RMSNorm(64), nn.Linear(64, 5)), r"1 \(RMSNorm\)"),
        (doing(filled, Three), "cat, along other than the first dimension"),
    ],
)
def test_what_prevents_it_is_named(module: nn.Module, says: str) -> None:
    with pytest.raises(UnreadableError, match=says) as error:
        read(module, SHAPE)
    assert "\n" not in str(error.value)
