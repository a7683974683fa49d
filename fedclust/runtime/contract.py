"""What the three functions of a method must return, and what they must leave alone.

Each breach is a `ConfigError` that names the function and the seed: a wrong number that nobody
notices costs a user more than a run that ends.
"""

from __future__ import annotations

import dataclasses
import pickle
import random
import threading
import types
import typing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Algorithm
from fedclust.helpers.errors import ConfigError, counted, require
from fedclust.metrics import METRICS, may_note

_SUMS = 1e-3  # of a mixture's shares may differ from 1 by so much
_COUNTS = (
    *("models_down", "models_up", "scalars_up"),
    *("gradient_steps", "forward_passes", "backward_passes"),
)
_NUMBERS = ("floats_down", "floats_up", "bits_up")  # below 0 where less than whole models is sent
_DATA = "all methods, seeds and jobs meet the same"
_STATE = "a state never changes, so that a round can begin with it again"


@dataclass(frozen=True)
class Verb:
    """One of `init`, `round` and `serve` of a method, in one seed."""

    algorithm: Algorithm
    name: str
    seed: int

    def __call__(self, state: Any, clients: Any, rnd: Round) -> Any:
        """What it returns; ConfigError where it changes data or a state, or uses a global generator
        of random numbers. Generators are looked at in rounds 0, 1, 3, 7, 15, …, for 0.1 ms each.
        """
        known = _tensors(rnd, state)
        versions = [tensor._version for tensor, _ in known.values()]
        watched = rnd.t & (rnd.t + 1) == 0
        before = _generators() if watched else {}
        given = (clients, rnd) if self.name == "init" else (state, clients, rnd)
        returned = getattr(self.algorithm, self.name)(*given)
        for (name, (tensor, why)), version in zip(known.items(), versions, strict=True):
            if tensor._version != version:
                raise ConfigError(
                    f"{self} changes {name} in place in seed {self.seed}, round {rnd.t}: {why}; "
                    f"change a copy, {name.rpartition('.')[2]}.clone()"
                )
        for name, content in (_generators() if watched else {}).items():
            if content != before.get(name, content):
                raise ConfigError(
                    f"{self} uses the global random numbers of {name} in seed {self.seed}, round "
                    f"{rnd.t}, with which no run could be repeated: draw from rnd.stream('a "
                    "purpose').numpy() or .torch(), and give libraries a seed drawn from it"
                )
        return returned

    def __str__(self) -> str:
        return f"{self._kind}.{self.name}"

    @property
    def _kind(self) -> str:
        return type(self.algorithm).__qualname__

    def state_and_cost(self, returned: Any) -> tuple[Any, Cost]:
        """What `init` or `round` returned; ConfigError unless a checkpoint can hold the state, and
        costs and numbers are what everybody takes them for.
        """
        pair = isinstance(returned, tuple) and len(returned) == 2
        if not (pair and dataclasses.is_dataclass(returned[0]) and isinstance(returned[1], Cost)):
            raise ConfigError(
                f"{self} returned {_described(returned)} in seed {self.seed}: expected a State and "
                "a Cost"
            )
        state, cost = returned
        self._check_state(state)
        self._check_cost(cost)
        return state, cost

    def _check_state(self, state: Any) -> None:
        of_clients = fields_of_clients(self.algorithm.State)
        for name, value in fields_of(state).items():
            where = f"{self._kind}.State.{name}"
            if isinstance(value, ClientModels):
                if name not in of_clients:
                    raise ConfigError(
                        f"{where} holds ClientModels in seed {self.seed} and is not "
                        f"annotated so: write {name}: ClientModels, by which a checkpoint knows it"
                    )
            elif name in of_clients and value is not None:
                raise ConfigError(
                    f"{where} is annotated ClientModels and holds a "
                    f"{type(value).__name__} in seed {self.seed}: write ClientModels.of(rows) or "
                    "ClientModels.alike(row, num_clients)"
                )
            elif value is not None and not isinstance(value, Tensor | int | float | str):
                raise ConfigError(
                    f"{where} is a {type(value).__name__} in seed {self.seed}: a State "
                    "holds tensors and numbers only, since a checkpoint can hold nothing else"
                )

    def _check_cost(self, cost: Cost) -> None:
        for name in (*_COUNTS, *_NUMBERS):
            value, least = getattr(cost, name), " of at least 0" if name in _COUNTS else ""
            if value != int(value) or (least and value < 0):
                raise ConfigError(
                    f"{self} returned {name}={value} in its Cost in seed {self.seed}: expected a "
                    f"whole number{least}"
                )
        for name in cost.notes:
            if name not in METRICS:
                raise ConfigError(
                    f"{self} records {name}, and nobody says what it is: call "
                    f'fedclust.metrics.document("{name}", …) in the file of {self._kind}'
                )
            if not may_note(name):
                raise ConfigError(
                    f"{self} records {name} in the notes of its Cost, which every run records "
                    "itself: take another name, or the field of Cost that is called so"
                )

    def served(self, served: Any, rnd: Round, params: int) -> Served:
        """What `serve` returned; ConfigError unless models [K, P] float32, labels [M] int64 and the
        shares of mixtures [M, K] float32 are what they are said to be.
        """
        if not isinstance(served, Served):
            raise ConfigError(f"{self} returned {_described(served)}: expected a Served")
        clients = rnd.fed.num_clients
        models = len(served.models) if isinstance(served.models, Tensor) else 0
        wanted = {
            "models": ((models, params), torch.float32),
            "label": ((clients,), torch.int64),
            "weight": ((clients, models), torch.float32),
        }
        for name, (shape, dtype) in wanted.items():
            value = getattr(served, name)
            if name == "weight" and value is None:
                continue
            found = f"a {type(value).__name__}"
            if isinstance(value, Tensor):
                found = f"{list(value.shape)} of {value.dtype}"
                if (tuple(value.shape), value.dtype) == (shape, dtype):
                    continue
            raise ConfigError(
                f"{self} returned {name} {found} in seed {self.seed}: expected {list(shape)} of "
                f"{dtype}"
            )
        self._check_labels(served.label, models, rnd.present)
        if served.weight is not None:
            self._check_shares(served.weight, served.label)
        return served

    def _check_labels(self, label: Tensor, models: int, present: Tensor) -> None:
        early = ~present & (label >= 0)
        wrong = ((label < -1) | (label >= models) | early).nonzero()
        if not len(wrong):
            return
        client = int(wrong[0])
        told = f"{self} returned label {int(label[client])} for client {client} in seed {self.seed}"
        if bool(early[client]):
            raise ConfigError(
                f"{told}, which has not arrived: expected -1 where rnd.present is False, "
                "or it is scored on other clients than other methods; "
                "fedclust.algorithms.steps.arrived(label, rnd) does it"
            )
        raise ConfigError(
            f"{told}, and {counted(models, 'model')}: expected 0 to {models - 1}, or -1 "
            "where nobody serves the client yet"
        )

    def _check_shares(self, weight: Tensor, label: Tensor) -> None:
        """Those of clients that are served: none below 0, 1 together, `label` the largest."""
        some = (label >= 0).nonzero().squeeze(1)
        share = weight[some]
        largest = share.gather(1, label[some].unsqueeze(1)).squeeze(1) >= share.amax(1) - _SUMS
        whole = (share >= 0).all(1) & ((share.sum(1) - 1).abs() <= _SUMS)
        wrong = (~(whole & largest)).nonzero()
        if not len(wrong):
            return
        place = int(wrong[0])
        told = f"client {int(some[place])} in seed {self.seed}"
        if bool(whole[place]):
            raise ConfigError(
                f"{self} returned label {int(label[some[place]])} for {told}, whose largest share "
                f"is that of model {int(share[place].argmax())}: expected the latter"
            )
        raise ConfigError(
            f"{self} returned shares for {told} whose sum is {float(share[place].sum()):.4g} and "
            f"whose least is {float(share[place].amin()):.4g}: expected shares of at least 0 that "
            "sum to 1"
        )


def _tensors(rnd: Round, state: Any) -> dict[str, tuple[Tensor, str]]:
    """What a verb may not change, by name, and why it may not."""
    fed = rnd.fed
    nodes: dict[str, Any] = {"rnd": rnd, "rnd.fed": fed, "rnd.fed.pool": fed.pool}
    nodes |= {f"rnd.fed.{name}": split for name, split in fed.splits.items()}
    found = {
        f"{where}.{name}": (value, _DATA)
        for where, node in nodes.items()
        for name, value in vars(node).items()
        if isinstance(value, Tensor)
    }
    for name, value in fields_of(state).items() if state is not None else ():
        if isinstance(value, Tensor):
            found[f"State.{name}"] = value, _STATE
    return {name: one for name, one in found.items() if not one[0].is_inference()}


def _generators() -> dict[str, bytes]:
    """The global generators of random numbers, by whose they are; Python's only while no thread of
    a library runs, such as a tracker's, which may draw from it when it tries to connect again.
    """
    alone = not any(type(thread) is threading.Thread for thread in threading.enumerate())
    python = {"Python": pickle.dumps(random.getstate())} if alone else {}
    return python | {
        "PyTorch": torch.get_rng_state().numpy().tobytes(),
        "NumPy": pickle.dumps(np.random.get_state(legacy=False)),
    }


def check_state(algorithm: Algorithm) -> None:
    """Refuse an algorithm whose State declares what no checkpoint can hold; names the field."""
    state = algorithm.State
    for name, hint in _hints(state).items():
        held = (ClientModels, Tensor, int, float, bool, str, type(None))
        fits = all(kind in held for kind in _options(hint) or (hint,))
        where = f"{type(algorithm).__qualname__}.State.{name}"
        require(fits, where, hint, "a State holds tensors and numbers, since checkpoints do")


def fields_of_clients(state: Any) -> frozenset[str]:
    """The fields of a State that are annotated `ClientModels`, or that or None."""
    hints = _hints(state).items()
    return frozenset(name for name, hint in hints if ClientModels in (_options(hint) or (hint,)))


def fields_of(state: Any) -> dict[str, Any]:
    """The fields of a state dataclass; nothing is copied."""
    return {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}


def _options(hint: Any) -> tuple[Any, ...]:
    """What a union allows; nothing for any other annotation."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else ()


def _hints(state: Any) -> dict[str, Any]:
    """The annotations of a State; none where a user's file names what is not there to run."""
    try:
        return typing.get_type_hints(state)
    except NameError:
        return {}


def _described(value: Any) -> str:
    """A value's type in words, of a tuple those of its entries."""
    if isinstance(value, tuple):
        return f"({', '.join(type(entry).__name__ for entry in value)})"
    return type(value).__name__
