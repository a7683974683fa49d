"""Modules of a user's own that no engine can train as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from faults.case import Case
from faults.data import refusals

_FILE = """import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, outputs=10):
        super().__init__()
        self.first = nn.Linear(64, 8)
        self.last = nn.Linear(8, outputs)
        self.calls = 0

    def body(self, x):
        return F.relu(self.first(x.flatten(1)))

    def forward(self, x):
        return self.last(self.body(x))


def net(in_shape, num_classes):
    {made}
"""
_OWN = "class Own(Net):\n        def forward(self, x):\n            {}\n    return Own()"
_BEHIND = "return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), {})"
# how the module is made, and what else is asked for
MODULES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "nothing to train": ("return Net().requires_grad_(False)", ()),
    "nine outputs": ("return Net(9)", ()),
    "thirteen outputs": ("return Net(13)", ()),
    "no module": ("return 3", ()),
    "another input": ("return nn.Linear(63, 10)", ()),
    "it raises": (_OWN.format("raise KeyError('x')"), ()),
    "a tuple": (_OWN.format("return super().forward(x), x"), ()),
    "one row for all": (_OWN.format("return super().forward(x).mean(0)"), ()),
    "a softmax over the batch": (_OWN.format("return super().forward(x).softmax(0)"), ()),
    "a softmax layer over the batch": (_BEHIND.format("nn.Softmax(0)"), ()),
    "statistics of the batch alone": (
        _BEHIND.format("nn.BatchNorm1d(10, track_running_stats=False)"),
        (),
    ),
    "dropout in evaluation": (_OWN.format("return F.dropout(super().forward(x))"), ()),
    "a counter": (
        _OWN.format("self.calls += 1; return super().forward(x) * (self.calls % 2)"),
        (),
    ),
    "what was seen before": (
        _OWN.format(
            "y = super().forward(x); z = y + getattr(self, 'seen', 0 * y).mean(); "
            "self.seen = y.detach(); return z"
        ),
        (),
    ),
    "batches of one example": (_BEHIND.format("nn.BatchNorm1d(10)"), ("solver.batch_size=1",)),
    "statistics that are none": ("return Net()", ("norm=local",)),
    "draws in vmap": (
        _OWN.format("return F.dropout(super().forward(x), 0.1, self.training)"),
        ("engine=vmap",),
    ),
    "another norm": (_BEHIND.format("nn.BatchNorm1d(10)"), ("norm=group",)),
}


def wrong_module(fault: tuple[str, tuple[str, ...]], folder: Path) -> Sequence[str]:
    """A module that cannot be trained."""
    made, options = fault
    (folder / "mine" / "model").mkdir(parents=True)
    (folder / "mine" / "own_net.py").write_text(_FILE.replace("{made}", made))
    (folder / "mine" / "model" / "net.yaml").write_text("_target_: own_net.net\n")
    return ("--config-dir", "mine", "model=net", "partition.num_clients=8", *options)


def cases(quick: bool) -> Iterator[Case]:
    """Modules that no engine can train."""
    return refusals("modules", {"module: ": (MODULES, wrong_module)}, 5 if quick else 1)
