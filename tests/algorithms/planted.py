"""A federation of 12 clients in three planted groups, and what tests of algorithms do with it."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from configs import composed
from fronts import Front
from states import dense
from toys import federation_of, pool_of

from fedclust.algorithms.fedper import FedPer
from fedclust.config.objects import Objects
from fedclust.config.tree import CONF
from fedclust.core.types import ClientModels, Cost, Federation, Pool, Round
from fedclust.core.verbs import Algorithm, Engine
from fedclust.engines.fused import FusedEngine
from fedclust.models.mlp import mlp
from fedclust.models.sequence import Model
from fedclust.runtime.contract import fields_of
from fedclust.runtime.simulation import restored
from fedclust.scenarios.static import Static

ALGORITHMS = sorted(file.stem for file in (CONF / "algorithm").glob("*.yaml"))
CLIENTS, GROUPS, CLASSES, FEATURES = 12, 3, 3, 6
LR, STEPS = 0.5, 4  # 24 examples in batches of 12, two epochs
ROUNDS = 7  # two beyond the warm-up of the one-shot methods
# what a method reads differently from the others
# its pull makes longer steps overshoot
SETTINGS = {
    "pfedme": ["algorithm.solver.lr=0.05", "algorithm.local_rounds=4"],
    "hcct": ["algorithm.alpha=30"],
    "ocfl": ["algorithm.method.min_cluster_size=2"],
    # for there is a single layer
    "hcfl": ["algorithm.layers=all"],
    "lcfed": ["algorithm.layers=all", "algorithm.mu=0.2", "algorithm.lam=0.1"],
}


def federation(seed: int = 0, *, equal: bool = True) -> Federation:
    """Client i is in group i % 3; groups name the same three regions differently.

    Every client has 24 training and 8 test examples, or 12 + 2 i training examples if not equal.
    """
    draw = torch.Generator().manual_seed(seed)
    teacher = torch.randn(FEATURES, CLASSES, generator=draw)
    xs, ys, train, test, begin = [], [], [], [], 0
    for client in range(CLIENTS):
        count = 24 if equal else 12 + 2 * client
        x = torch.randn(count + 8, FEATURES, generator=draw)
        xs.append(x)
        ys.append(((x @ teacher).argmax(1) + client % GROUPS) % CLASSES)
        train.append(torch.arange(begin, begin + count))
        test.append(torch.arange(begin + count, begin + count + 8))
        begin += count + 8
    pool = pool_of(torch.cat(xs), torch.cat(ys), CLASSES)
    return federation_of(pool, train, test, torch.arange(CLIENTS) % GROUPS)


def engine_for(
    fed: Federation, algorithm: object = None, kind: Callable[[Model, Pool], Engine] = FusedEngine
) -> Front:
    """An engine with softmax regression, over a body where the algorithm needs one.

    The engine that a run would take is three times as fast here as the reference, LoopEngine, which
    is for identities to the bit between methods that call the engine in different ways.
    """
    hidden = [8] if isinstance(algorithm, FedPer) else []
    return Front(kind(mlp((FEATURES,), CLASSES, hidden=hidden), fed.pool))


def softmax_gradient(
    model: torch.Tensor, fed: Federation, client: int
) -> tuple[float, torch.Tensor]:
    """Mean cross-entropy of softmax regression on a client's data, and its gradient, by hand."""
    rows = fed.train.of_client(client)
    x, y = fed.pool.x[rows].double(), fed.pool.y[rows]
    weight, bias = model[:18].double().view(3, 6), model[18:].double()
    probability = torch.softmax(x @ weight.T + bias, 1)
    loss = -probability[torch.arange(len(y)), y].log().mean()
    error = (probability - torch.eye(3)[y]) / len(y)  # [n, Y]
    return float(loss), torch.cat([(error.T @ x).flatten(), error.sum(0)])


def rounds_of(
    fed: Federation,
    count: int = ROUNDS,
    *,
    seed: int = 0,
    participation: float = 1.0,
    absent: Sequence[int] = (),
    until: int | None = None,
) -> list[Round]:
    """The first rounds; the clients `absent` arrive in round `until`, or never."""
    rounds = []
    for rnd in islice(Static(participation=participation).rounds(fed, seed), count):
        present = torch.ones(CLIENTS, dtype=torch.bool)
        present[list(absent)] = until is not None and rnd.t >= until
        rounds.append(replace(rnd, present=present, cohort=rnd.cohort[present[rnd.cohort]]))
    return rounds


@functools.cache
def configured(name: str, *overrides: str) -> Algorithm:
    """The algorithm as its YAML describes it, with settings that suit 12 clients."""
    settings = [
        f"algorithm={name}",
        "num_clusters=3",
        "solver.lr=0.5",
        "solver.batch_size=12",
        "solver.epochs=2",
        *SETTINGS.get(name, []),
    ]
    config = composed(*settings, *overrides)
    algorithm: Algorithm = Objects().make(config["algorithm"], "algorithm")
    return algorithm


def simulate(
    algorithm: Algorithm,
    rounds: Sequence[Round],
    state: Any = None,
    kind: Callable[[Model, Pool], Engine] = FusedEngine,
    **front: Any,
) -> tuple[list[Any], list[Cost]]:
    """States after every round, from `state` on if given, and all reports, first that of `init`.

    `front` says how the server adds updates up, or who forges them.
    """
    clients = engine_for(rounds[0].fed, getattr(algorithm, "base", algorithm), kind)
    clients = replace(clients, **front)
    states, reports = list[Any](), list[Cost]()
    for rnd in rounds:
        if state is None:
            state, report = algorithm.init(clients.at(rnd), rnd)
            reports.append(report)
        state, report = algorithm.round(state, clients.at(rnd), rnd)
        states.append(state)
        reports.append(report)
    return states, reports


def started(name: str, fed: Federation, *overrides: str) -> tuple[Any, Any, Any]:
    """A method, its state before round 0 and the clients of that round."""
    algorithm: Any = configured(name, *overrides)
    rnd = rounds_of(fed, 1)[0]
    clients = engine_for(fed, algorithm).at(rnd)
    return algorithm, algorithm.init(clients, rnd)[0], clients


def same(a: Any, b: Any) -> bool:
    """Whether two states are equal bit by bit."""
    left, right = dense(fields_of(a)), dense(fields_of(b))
    return left.keys() == right.keys() and all(_equal(left[name], right[name]) for name in left)


def _equal(a: Any, b: Any) -> bool:
    return (
        torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b
    )


def copied(state: Any) -> Any:
    """The state through a file and back."""
    file = io.BytesIO()
    values = fields_of(state).items()
    torch.save({n: v.saved() if isinstance(v, ClientModels) else v for n, v in values}, file)
    file.seek(0)
    return restored(type(state), torch.load(file, weights_only=True))


def partition_of(label: torch.Tensor) -> set[frozenset[int]]:
    """The clients that share a label, as sets."""
    return {frozenset((label == k).nonzero().squeeze(1).tolist()) for k in label.unique()}
