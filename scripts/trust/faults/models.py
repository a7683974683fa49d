"""Weights of a file that do not fit, and texts and networks that do not go together."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from faults.case import Case
from faults.data import Faults, refusals
from faults.owned import LEAF, user

State = dict[str, Any]
DIGITS = ("dataset=digits", "partition.num_clients=8")


class Code:
    """What does something as soon as it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("job",)


def state() -> State:
    """The weights of model=linear on digits."""
    return {"1.weight": torch.ones(10, 64), "1.bias": torch.zeros(10)}


def saved(content: object) -> bytes:
    """A file of PyTorch."""
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def safetensors(weight: Mapping[str, Any], body: int = 2560) -> bytes:
    """A file of safetensors that says this of 1.weight, with so many bytes behind its head."""
    head = json.dumps({"1.weight": weight}).encode()
    return len(head).to_bytes(8, "little") + head + bytes(body)


GOOD = {"dtype": "F32", "shape": [10, 64], "data_offsets": [0, 2560]}
# what is wrong with a file of weights
WEIGHTS: Mapping[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "text": lambda: b"weights",
    "half of it": lambda: saved(state())[:700],
    "code": lambda: saved(Code()),
    "a number": lambda: saved(3),
    "a list": lambda: saved([torch.ones(3)]),
    "no tensors": lambda: saved({"epoch": 3}),
    "a wider weight": lambda: saved({**state(), "1.weight": torch.ones(10, 65)}),
    "a layer more": lambda: saved({**state(), "2.weight": torch.ones(1)}),
    "other names": lambda: saved({"fc.weight": torch.ones(10, 64), "fc.bias": torch.zeros(10)}),
    "a NaN": lambda: saved({**state(), "1.bias": torch.full((10,), torch.nan)}),
    "complex numbers": lambda: saved({**state(), "1.bias": torch.zeros(10, dtype=torch.complex64)}),
    "whole numbers": lambda: saved({**state(), "1.bias": torch.zeros(10, dtype=torch.int64)}),
}
# what is wrong with a file of safetensors
SAFETENSORS: Mapping[str, Callable[[], bytes]] = {
    "a short body": lambda: safetensors(GOOD, 100),
    "another type": lambda: safetensors({**GOOD, "dtype": "F4"}),
    "another shape": lambda: safetensors({**GOOD, "shape": [10, 63]}),
    "offsets that turn round": lambda: safetensors({**GOOD, "data_offsets": [2560, 0]}),
    "offsets outside": lambda: safetensors({**GOOD, "data_offsets": [-2560, 0]}),
    "no shape": lambda: safetensors({"dtype": "F32", "data_offsets": [0, 2560]}),
    "a head too long": lambda: (1 << 60).to_bytes(8, "little") + b"{}",
}
# texts that cannot be read as asked
TEXTS: Mapping[str, tuple[list[Any], list[Any], str]] = {
    "texts of two lengths": (["ab", "abc"] * 10, ["a", "b"] * 10, "characters"),
    "a label of two characters": (["ab"] * 20, ["a", "bc"] * 10, "characters"),
    "numbers": ([[1.0]] * 20, [0, 1] * 10, "words"),
    "labels of text": (["a cat"] * 20, ["yes", "no"] * 10, "words"),
    "an empty text": ([""] * 20, ["a", "b"] * 10, "characters"),
    "no list": (["ab"] * 20, [0, 1] * 10, "sentences"),
}


def wrong_weights(
    name: str, given: str, content: Callable[[], bytes], folder: Path
) -> Sequence[str]:
    """A file to begin with that has something wrong."""
    (folder / name).write_bytes(content())
    return (*DIGITS, given)


def wrong_texts(fault: tuple[list[Any], list[Any], str], folder: Path) -> Sequence[str]:
    """Texts with something wrong."""
    x, y, kind = fault
    (folder / "leaf" / "train").mkdir(parents=True)
    (folder / "leaf" / "train" / "0.json").write_text(json.dumps(user("a", x, y)))
    return (*LEAF, f"dataset.text={kind}", "model=gru")


def wrong_ids(fault: tuple[Any, tuple[str, ...]], folder: Path) -> Sequence[str]:
    """Token ids with something wrong, or for a model that takes none."""
    x, options = fault
    y = np.arange(len(x)) % 2
    np.savez(folder / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    given = ("dataset=npz", "dataset.path=mine.npz", "partition=iid", "partition.num_clients=2")
    return (*given, *options)


IDS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "an id outside": (np.arange(40).reshape(8, 5), ("dataset.vocabulary=39", "model=gru")),
    "a negative id": (np.arange(40).reshape(8, 5) - 1, ("dataset.vocabulary=40", "model=gru")),
    "fractions": (np.ones((8, 5)) / 2, ("dataset.vocabulary=40", "model=gru")),
    "a model of numbers": (np.arange(40).reshape(8, 5), ("dataset.vocabulary=40", "model=mlp")),
    "numbers, and a model of ids": (np.arange(40).reshape(8, 5), ("model=lstm",)),
    "texts too short": (np.arange(16).reshape(8, 2), ("dataset.vocabulary=40", "model=text_cnn")),
    "scaled ids": (
        np.arange(40).reshape(8, 5),
        ("dataset.vocabulary=40", "dataset.normalise=unit"),
    ),
}
_BACKBONE = "features={model: squeezenet1_1, weights: mine.pth, layer: features.0}"
FAULTS: Faults = {
    "weights: ": (WEIGHTS, partial(wrong_weights, "mine.pth", "weights=mine.pth")),
    "a backbone's weights: ": (WEIGHTS, partial(wrong_weights, "mine.pth", _BACKBONE)),
    "safetensors: ": (
        SAFETENSORS,
        partial(wrong_weights, "mine.safetensors", "weights=mine.safetensors"),
    ),
    "text: ": (TEXTS, wrong_texts),
    "ids: ": (IDS, wrong_ids),
}


def cases(quick: bool) -> Iterator[Case]:
    """What models begin with, and what they read."""
    return refusals("weights and texts", FAULTS, 4 if quick else 1)
