"""What a method's file says of what its server must see, against what its rounds compute.

Masks are added to what participants have trained. They cancel in the mean of every cluster, as
those of secure aggregation do: a server that reads sums alone does the same with them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from configs import composed
from fronts import Front
from planted import ALGORITHMS, configured, engine_for, federation, rounds_of
from torch import Tensor

from fedclust.config.about import READS, about, server_reads
from fedclust.core.calls import LocalResult, MeanResult
from fedclust.core.front import Gradient, Train
from fedclust.core.types import ClientModels, Round
from fedclust.engines.clients import SeedClients
from fedclust.helpers.ops import cluster_mean
from fedclust.runtime.contract import fields_of

# one beyond the warm-up of methods that cluster after one; of the others two show all they do
ROUNDS, FEW = 6, 2
EARLY = ("clove", "clove_random", "cfl_mgd", "jgl", "jgl_epochs", "oracle", "by_attribute")
# whose means weigh participants by what differs between them, or whose clients go on with what was
# masked, so that masks do not cancel
WEIGHING = ("fedem", "fedrc", "fedsoft", "scaffold")
# whose clients would have to disagree more for the server to act on a comparison, or whose server
# mixes models for every client that stand in the state as the client's
QUIET = ("sattler_cfl", "feroma")


def kind(name: str) -> str:
    """The declared words without what else is sent, of a wrapper those of its base."""
    return server_reads(composed(f"algorithm={name}") | {"choices": choices(name)}).split(",")[0]


def choices(name: str) -> dict[str, str]:
    base = {"finetune": "fedavg", "newcomers": "ifca", "last_local": "lcfl"}
    return {"algorithm": name, "algorithm@algorithm.base": base.get(name, "fedavg")}


class Masked(SeedClients):
    """Participants that send masked models and gradients."""

    size = 5.0

    def _masks(self, like: Tensor, label: Tensor, ids: Tensor) -> Tensor:
        draw = torch.Generator().manual_seed(self.rnd.t)
        masks = torch.randn(12, like.shape[1], generator=draw)[ids]
        return masks - cluster_mean(masks, label, empty=masks)[label]

    def train(self, asked: Train) -> LocalResult:
        made = super().train(asked)
        masks = self._masks(made.params, asked.label, asked.ids)
        return replace(made, params=made.params + self.size * masks)

    def grad(self, asked: Gradient) -> Tensor:
        made = super().grad(asked)
        return made + self.size * self._masks(made, asked.label, asked.ids)


class MaskedFront(Front):
    def at(self, rnd: Round) -> SeedClients:
        return Masked(self.engine, rnd)


@cache
def played(name: str, masked: bool) -> tuple[dict[str, Tensor], Tensor]:
    """What the server has after some rounds, and who is served what."""
    algorithm = configured(name)
    front = engine_for(federation(), getattr(algorithm, "base", algorithm))
    front = MaskedFront(front.engine) if masked else front
    few = name in EARLY or kind(name) == "sums" or "ifca" in name
    rounds = rounds_of(federation(), FEW if few else ROUNDS)
    state, _ = algorithm.init(front.at(rounds[0]), rounds[0])
    for rnd in rounds:
        state, _ = algorithm.round(state, front.at(rnd), rnd)
    served = algorithm.serve(state, front.at(rnd), rnd)
    own = {n: v for n, v in fields_of(state).items() if not isinstance(v, ClientModels)}
    return own, served.label


def alike(name: str) -> bool:
    """Whether masks change nothing but what clients keep for themselves."""
    (plain, label), (masked, other) = (played(name, masked) for masked in (False, True))

    def close(one: Any, two: Any) -> bool:
        if not isinstance(one, Tensor):
            return bool(one == two)
        return one.shape == two.shape and torch.allclose(one, two, atol=1e-3)

    return torch.equal(label, other) and all(close(v, masked[n]) for n, v in plain.items())


@pytest.mark.thinned
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_says_what_its_server_reads(name: str) -> None:
    assert about(name)["reads"].split(", and ")[0] in READS
    assert kind(name) in set(READS) - {"as its base"}


@pytest.mark.thinned
@pytest.mark.parametrize("name", [n for n in ALGORITHMS if n not in (*WEIGHING, *QUIET)])
def test_masks_that_cancel_are_noticed_by_who_reads_single_updates(name: str) -> None:
    assert alike(name) == (kind(name) != "single updates")


@pytest.mark.thinned
@pytest.mark.parametrize(
    "name", [n for n in ALGORITHMS if about(n)["reads"] == "sums" and n not in ("fedem", "fedrc")]
)
def test_a_sum_over_all_is_of_one_model(name: str) -> None:
    """Or every participant trains a model of its own, or all train the same ones."""
    labels: list[tuple[Tensor, int]] = []

    class Watched(SeedClients):
        def train(self, asked: Train) -> LocalResult:
            labels.append((asked.label, len(asked.models)))
            return super().train(asked)

        def train_mean(self, asked: Train) -> MeanResult:
            labels.append((asked.label, len(asked.models)))
            return super().train_mean(asked)

    class WatchedFront(Front):
        def at(self, rnd: Round) -> SeedClients:
            return Watched(self.engine, rnd)

    algorithm = configured(name)
    front = WatchedFront(engine_for(federation(), getattr(algorithm, "base", algorithm)).engine)
    rnd = rounds_of(federation(), 1)[0]
    state, _ = algorithm.init(front.at(rnd), rnd)
    algorithm.round(state, front.at(rnd), rnd)
    assert labels
    for label, models in labels:
        assert models == 1 or len(label.unique()) == len(label)


@pytest.mark.parametrize("name", WEIGHING)
def test_weighted_sums_are_affine_in_what_is_trained(name: str) -> None:
    """Three equal steps of what clients send are three equal steps of the server's models."""
    models = []
    algorithm, rnd = configured(name), rounds_of(federation(), 1)[0]
    for step in (0.0, 1.0, 2.0):

        class Moved(SeedClients):
            size = step

            def train(self, asked: Train) -> LocalResult:
                made = super().train(asked)
                draw = torch.Generator().manual_seed(0)
                move = torch.randn(made.params.shape, generator=draw)
                return replace(made, params=made.params + self.size * move)

        clients = Moved(engine_for(federation()).engine, rnd)
        state, _ = algorithm.init(clients, rnd)
        after = algorithm.round(state, clients, rnd)[0]
        models.append(after.model if name == "scaffold" else after.models)
    assert not torch.allclose(models[0], models[1])
    torch.testing.assert_close(models[2] - models[1], models[1] - models[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("algorithm=ifca",), "sums by cluster"),
        (("algorithm=ifca", "algorithm.start=kmeans++"), "single updates"),
        (("algorithm=ifca", "algorithm.aggregation=first_client"), "single updates"),
        (("algorithm=clove", "aggregation=median"), "single updates, and losses of every model"),
        (("algorithm=lcfl",), "single updates"),
        (("algorithm=lcfl", "cluster_metric=psi"), "sums by cluster, and examples of every class"),
        (
            ("algorithm=lcfl", "cluster_metric=descriptor"),
            "sums by cluster, and descriptions of data",
        ),
        (("algorithm=fedadam",), "sums"),
        (("algorithm=finetune", "aggregation=krum"), "single updates"),
    ],
)
def test_options_and_wrappers(overrides: tuple[str, ...], words: str) -> None:
    name = overrides[0].removeprefix("algorithm=")
    assert server_reads(composed(*overrides) | {"choices": choices(name)}) == words


def test_a_wrapper_around_another_base_reads_its_options() -> None:
    config = dict(composed("algorithm=finetune"))
    config["algorithm"] = config["algorithm"] | {"base": {"start": "kmeans++"}}
    known = {"algorithm": "finetune", "algorithm@algorithm.base": "ifca"}
    assert server_reads(config | {"choices": known}) == "single updates"
    assert server_reads(config | {"choices": {"algorithm": "mine"}}) == ""
