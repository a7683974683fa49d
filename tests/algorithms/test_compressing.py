"""What clients send of their updates: by hand, on average, and around every method."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import composed, names
from digits_jobs import config_of, engine_of, play
from planted import (
    ALGORITHMS,
    configured,
    copied,
    engine_for,
    federation,
    rounds_of,
    same,
    simulate,
)
from run_folders import assert_pieces_make_the_whole

from fedclust.algorithms.layers.compressing import _Compressed, _Compressing, compressing
from fedclust.config.build import build
from fedclust.config.objects import Objects
from fedclust.core.front import Train
from fedclust.core.kept import Kept
from fedclust.core.types import Cost
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.runtime.contract import fields_of
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run
from fedclust.updates.compressions import QSGD, Half, NoCompression, RandomK, Sign, TopK

pytestmark = pytest.mark.full

NAMES = sorted({*names("compression")} - {"none"})
# what sends gradients, or nothing, or what must arrive whole
REFUSE = {
    "fedbcd": "has clients go on from the model that they send",
    "fedsoft": "has clients go on from the model that they send",
    "jgl": "sends gradients with algorithm.local=step",
    "local": "sends nothing that training has made",
    "pfedme": "sends the model that many proximal points have moved, no update of one training",
    "scaffold": "reads a client's gradient off its movement",
}
_QUICK = ("ditto", "fedavg", "fedem", "fedrep", "fesem", "flexcfl", "ifca", "lcfl", "ocfl")
SENDING = [name for name in ALGORITHMS if name not in REFUSE]
EACH = [pytest.param(name, marks=() if name in _QUICK else pytest.mark.full) for name in SENDING]
V = torch.tensor([[3.0, -4.0, 0.0, 1.0, -2.0]])


def keys_of(count: int, seed: int = 0) -> torch.Tensor:
    return Stream.of(seed, "draw").keys(torch.arange(count))


def made(name: str) -> Any:
    """The compression as its file describes it."""
    return Objects().make(composed(f"compression={name}")["compression"], "compression")


def test_five_numbers_by_hand() -> None:
    key = keys_of(1)
    assert TopK(share=0.4)(V, key).tolist() == [[3, -4, 0, 0, 0]]
    assert TopK(share=0.01)(V, key).tolist() == [[0, -4, 0, 0, 0]]
    assert Sign()(V, key).tolist() == [[2, -2, 2, 2, -2]]
    third = torch.tensor([[1 / 3, 1e9, -1e9]])
    assert Half()(third, key).tolist() == [[0.333251953125, 65504, -65504]]
    assert Half(format="bfloat16")(third[:, :1], key).tolist() == [[0.333984375]]
    sent = RandomK(share=0.6)(V, key)
    assert int((sent == V).sum() - (V == 0).sum() * (sent == V)[0, 2]) in (2, 3)
    assert torch.equal(sent.where(sent == 0, V), sent)
    # two buckets, of the norms 5 and sqrt(5), with s = 1: every number is 0 or its bucket's norm
    found = QSGD(bits=2, bucket=3)(V.expand(50, -1), keys_of(50)).abs()
    for column, norm in enumerate([5, 5, 5, math.sqrt(5), math.sqrt(5)]):
        assert all(one == 0 or one == pytest.approx(norm) for one in found[:, column].tolist())
    assert bool((found[:, 2] == 0).all())


def test_bits_by_hand() -> None:
    # an index of 5 takes 3 bits; a bit for every number is shorter from two on
    assert [TopK(share=share).sent_bits(5) for share in (0.2, 0.4, 1.0)] == [35, 69, 165]
    assert TopK(share=0.01).sent_bits(1000) == 10 * (32 + 10)
    assert TopK(share=0.01).sent_bits(1) == 32
    assert RandomK(share=0.4).sent_bits(5) == 64
    assert QSGD(bits=4, bucket=2).sent_bits(5) == 4 * 5 + 32 * 3
    assert Sign().sent_bits(5) == 37
    assert Half().sent_bits(5) == 80
    assert NoCompression().sent_bits(5) == 160


@pytest.mark.parametrize("name", NAMES)
def test_a_row_depends_on_itself_and_its_key(name: str) -> None:
    rule = made(name)
    updates = torch.randn(6, 600, generator=torch.Generator().manual_seed(0))
    before, key = updates.clone(), keys_of(6)
    together = rule(updates, key)
    assert together.shape == updates.shape
    assert together.dtype == updates.dtype
    assert torch.equal(updates, before)
    assert torch.equal(
        torch.cat([rule(updates[i : i + 1], key[i : i + 1]) for i in range(6)]), together
    )
    assert torch.equal(rule(torch.zeros_like(updates), key), torch.zeros_like(updates))
    assert 0 < rule.sent_bits(600) < 32 * 600


@pytest.mark.parametrize(
    "rule",
    [
        RandomK(share=0.4, feedback=False),
        QSGD(bits=2),
        QSGD(bits=4, bucket=2),
    ],
    ids=str,
)
def test_ten_thousand_draws_are_right_on_average(rule: Any) -> None:
    draws = rule(V.expand(10_000, -1), keys_of(10_000)).double()
    error = (draws.mean(0) - V[0]).abs()
    assert bool((error <= 4.5 * draws.std(0) / 100).all())
    # the paper's bound of the second moment, with s levels and d numbers of one bucket
    if isinstance(rule, QSGD):
        s, size = 2 ** (rule.bits - 1) - 1, min(5, rule.bucket)
        bound = 1 + min(size / s**2, math.sqrt(size) / s)
        assert float(draws.square().sum(1).mean()) <= bound * float(V.square().sum())


def test_a_random_half_is_any_half() -> None:
    sent = RandomK(share=0.4)(torch.ones(10_000, 5), keys_of(10_000))
    assert sent.sum(1).tolist() == [2.0] * 10_000
    assert bool(((sent.mean(0) - 0.4).abs() < 0.02).all())


def _front(fed: Any) -> Any:
    return engine_for(fed).at(rounds_of(fed, 1)[0])


@pytest.mark.parametrize("name", [name for name in NAMES if made(name).feedback])
def test_what_arrives_and_what_is_kept_are_the_update_and_what_was_kept(name: str) -> None:
    """Of several rounds, of two models of each client."""
    fed = federation()
    clients = _front(fed)
    models = clients.init(Stream.of(0, "init"), 2)
    lost = Kept.nothing(12, models.shape[1], torch.device("cpu"))
    ids = torch.tensor([4, 7, 4])
    asked = Train(models, torch.tensor([0, 0, 1]), ids, configured("fedavg").solver)
    before = torch.zeros(3, models.shape[1])
    for rnd in rounds_of(fed, 3):
        clients = clients.at(rnd)
        whole = clients.train(asked).params - asked.begun
        lost = Kept(lost.rows, lost.places)
        layer = _Compressed(clients, made(name), lost, [])
        arrived = layer.train(asked).params - asked.begun
        kept = lost.rows[Kept(lost.rows, lost.places).of("train", ids)]
        torch.testing.assert_close(arrived + kept, whole + before, atol=1e-6, rtol=0)
        assert not torch.allclose(kept, before)
        assert layer.saved == [3 * (32 * models.shape[1] - made(name).sent_bits(models.shape[1]))]
        before = kept


def test_half_precision_is_the_update_rounded_and_the_rest_stays() -> None:
    fed = federation()
    clients = _front(fed)
    models = clients.init(Stream.of(0, "init"), 1)
    ids, size = torch.arange(12), models.shape[1]
    asked = Train(models, 0 * ids, ids, configured("fedavg").solver)
    made_of = clients.train(asked).params
    layer = _Compressed(clients, Half(), None, [])
    want = models + (made_of - models).half().float()
    assert torch.equal(layer.train(asked).params, want)
    stays = torch.arange(size) < 5
    got = layer.train(Train(models, 0 * ids, ids, asked.solver, stays=stays)).params
    assert torch.equal(got, made_of.where(stays, want))
    assert layer.saved == [12 * 16 * size, 12 * 16 * (size - 5)]
    # what a method trains besides is not compressed, nor what it serves
    other = Train(models, 0 * ids, ids, asked.solver, purpose="cover")
    assert torch.equal(layer.train(other).params, clients.train(other).params)
    assert len(layer.saved) == 2
    assert layer.aside() is clients.aside()


def _up(cost: Cost, size: int) -> int:
    """The bits that clients send."""
    return 32 * (size * cost.models_up + cost.floats_up) + cost.bits_up


@pytest.mark.thinned
@pytest.mark.parametrize("name", SENDING)
def test_all_numbers_are_the_method_itself(name: str) -> None:
    """With k = d every bit is that of no compression, but for those of the places."""
    rounds = rounds_of(federation(), participation=0.5)
    plain, costs = simulate(configured(name), rounds, kind=LoopEngine)
    method = compressing(configured(name), TopK(share=1.0))
    whole, others = simulate(method, rounds, kind=LoopEngine)
    for one, other in zip(plain, whole, strict=True):
        mine = fields_of(one)
        assert same(one, type(one)(**{key: getattr(other, key) for key in mine}))
        assert float(other.lost.all().abs().max()) == 0
    for one, other in zip(costs, others, strict=True):
        assert other.bits_up >= one.bits_up == 0
        assert (one.models_up, one.floats_up) == (other.models_up, other.floats_up)


@pytest.mark.parametrize("name", EACH)
def test_every_method_sends_fewer_bits_of_what_it_sends_and_continues(name: str) -> None:
    rounds = rounds_of(federation(), participation=0.5)
    size = 0
    _, costs = simulate(configured(name), rounds)
    half, fewer = simulate(compressing(configured(name), Half()), rounds)
    method = compressing(configured(name), Sign())
    whole, _ = simulate(method, rounds)
    size = whole[0].lost.all().shape[1]
    trained = 0
    for one, other in zip(costs[1:], fewer[1:], strict=True):
        # no more is saved than half of what the method counts as sent
        assert 2 * _up(other, size) >= _up(one, size)
        trained += -other.bits_up
        assert other.gradient_steps > 0
    assert trained > 0
    assert not hasattr(half[0], "lost")
    # it continues from a file to the same bits
    rest, _ = simulate(method, rounds[-1:], copied(whole[-2]))
    assert same(rest[-1], whole[-1])


def test_methods_that_send_models_alone_send_half() -> None:
    rounds = rounds_of(federation(), participation=0.5)
    for name in ("fedavg", "ifca", "ditto", "fesem", "fedem", "lcfl", "fedper", "fedrep", "apfl"):
        _, costs = simulate(configured(name), rounds)
        states, fewer = simulate(compressing(configured(name), Half()), rounds)
        size = next(v for v in fields_of(states[0]).values() if getattr(v, "ndim", 0) == 2).shape[1]
        last = [_up(one, size) for one in (costs[-1], fewer[-1])]
        assert last[0] == 2 * last[1] > 0, name


@pytest.mark.full
@pytest.mark.parametrize("norm", ["average", "local", "fedbn"])
def test_statistics_stay_or_are_sent_whole(norm: str) -> None:
    network = ("model=resnet9", "model.channels=[4,4,4,4]", "model.norm_layer=batch")
    small = ("rounds=1", "seeds=1", "solver.lr=0.01", "model.groups=1", f"norm={norm}")
    up = []
    for name in ("none", "half"):
        job = build(config_of("fedavg", *network, *small, f"compression={name}"))
        layout = job.engine.layout
        played = play(job, job.engine)
        up.append(_up(played[0].reports[-1], layout.num_params))
    sent = 4 * (layout.num_params - layout.num_trained) if norm == "average" else 0
    assert 0 < up[1] < up[0]
    assert up[0] - 32 * sent == 2 * (up[1] - 32 * sent)


def test_what_stays_with_a_client_is_not_touched() -> None:
    """A personal model, or a head, is that of the client's own training from what it got."""
    rounds = rounds_of(federation())[:1]
    plain, _ = simulate(configured("ditto"), rounds)
    short, _ = simulate(compressing(configured("ditto"), TopK(share=0.1)), rounds)
    assert torch.equal(plain[-1].personal.all(), short[-1].personal.all())
    assert not torch.equal(plain[-1].model, short[-1].model)
    for name in ("fedper", "fedrep"):
        plain, _ = simulate(configured(name), rounds)
        short, _ = simulate(compressing(configured(name), TopK(share=0.1)), rounds)
        assert torch.equal(plain[-1].heads, short[-1].heads)
        assert not torch.equal(plain[-1].model, short[-1].model)


@pytest.mark.thinned
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("algorithm", ["fedavg", "ifca"])
def test_engines_agree(name: str, algorithm: str) -> None:
    """But for the places where rounding tips a choice, which error feedback makes good."""
    overrides = (f"compression={name}", "seeds=1", "rounds=3")
    if name in ("top_k", "random_k"):
        overrides = (*overrides, "compression.share=0.1")
    job = build(config_of(algorithm, *overrides))
    loop, *others = (
        play(job, engine_of(engine, algorithm))[-1].state.models
        if algorithm == "ifca"
        else play(job, engine_of(engine, algorithm))[-1].state.model
        for engine in ("loop", "vmap", "fused")
    )
    for other in others:
        apart = (loop - other).abs()
        assert float((apart > 1e-4).float().mean()) < 0.01
        assert float(apart.norm() / loop.norm()) < 0.02


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("algorithm", ["fedavg", "lcfl", "fedem"])
def test_an_interrupted_run_ends_with_the_same_bits(
    name: str, algorithm: str, tmp_path: Path
) -> None:
    config = config_of(algorithm, f"compression={name}")
    assert_pieces_make_the_whole(config, tmp_path)


def test_bytes_are_counted_to_the_bit(tmp_path: Path) -> None:
    sent = {}
    for name in ("none", "top_k"):
        config = config_of("fedavg", f"compression={name}", "seeds=1", "rounds=2")
        run(build(config), RunFolder(tmp_path / name, config), Silent())
        found = defaultdict[str, float](float)
        with (tmp_path / name / "rounds.csv").open() as file:
            for row in csv.DictReader(file):
                found[row["metric"]] += float(row["value"])
        sent[name] = found
    size, up = 650, 8  # ten classes of 64 pixels; four clients in each of two rounds
    assert sent["none"]["bytes"] == 4 * size * (up + sent["none"]["models_down"])
    # 6 numbers with indices of 10 bits
    bits = up * 6 * (32 + 10)
    assert sent["top_k"]["bytes"] == 4 * size * sent["none"]["models_down"] + bits / 8
    assert sent["top_k"]["models_up"] == up


@pytest.mark.parametrize("name", REFUSE)
def test_what_must_arrive_whole_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build(config_of(name, "compression=sign"))
    assert str(refused.value).startswith("compression=Sign is not allowed: none, since ")
    assert str(refused.value).endswith(f" {REFUSE[name]}")
    assert "\n" not in str(refused.value)


def test_a_layer_is_refused_for_what_is_inside() -> None:
    given = ("algorithm@algorithm.base=scaffold", "compression=half")
    with pytest.raises(ConfigError, match=r"since Scaffold reads a client's gradient"):
        build(config_of("finetune", *given))


def test_numbers_out_of_range_are_refused() -> None:
    options = {"top_k": ("share=0.0", "share=1.5"), "qsgd": ("bits=1", "bits=17", "bucket=0")}
    for name, wrong in options.items():
        for one in wrong:
            with pytest.raises(ConfigError, match=rf"compression\.{one} is not allowed"):
                build(config_of("fedavg", f"compression={name}", f"compression.{one}"))


def test_the_key_makes_the_clients_of_any_method_compress() -> None:
    job = build(config_of("ifca", "compression=top_k", "compression.share=0.5"))
    assert isinstance(job.algorithm, _Compressing)
    assert job.algorithm.compression == TopK(share=0.5)
    assert not isinstance(build(config_of("ifca")).algorithm, _Compressing)
