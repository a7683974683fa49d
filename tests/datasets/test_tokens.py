"""Token ids: of a file, of characters, of words; what models read them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configs import composed
from torch import Tensor, nn
from toys import pool_of

import fedclust
from fedclust.config.build import build
from fedclust.config.objects import Objects
from fedclust.core.calls import LossCall, Shards, TestCall, TrainCall
from fedclust.core.types import Pool
from fedclust.datasets.leaf import Leaf
from fedclust.datasets.npz import Npz
from fedclust.datasets.tokens import LETTERS, Characters, Words, as_ids
from fedclust.engines import make_engine
from fedclust.engines.loop import LoopEngine
from fedclust.engines.schedule import schedule
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.helpers.rng import Stream
from fedclust.metrics.scores import MEASURES, taken
from fedclust.models.mlp import mlp
from fedclust.models.params import unflatten
from fedclust.models.text import recurrent, text_cnn, transformer
from fedclust.solver import Solver

VOCABULARY, LENGTH, CLASSES = 7, 5, 3
MODELS: dict[str, nn.Module] = {
    "transformer": transformer((LENGTH,), CLASSES, VOCABULARY, width=4, heads=2, layers=1),
    "text_cnn": text_cnn((LENGTH,), CLASSES, VOCABULARY, embedding=3, kernels=[2, 5], channels=2),
}


def tokens(num: int = 12) -> Pool:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, VOCABULARY, (num, LENGTH), generator=draw).to(torch.uint8)
    y = torch.randint(0, CLASSES, (num,), generator=draw)
    # scale and shift have no effect on ids
    return pool_of(x, y, CLASSES, 9.0, 9.0, vocabulary=VOCABULARY)


def shards(*count: int) -> Shards:
    index = torch.arange(12).view(2, 6)
    key = Stream.of(0, "train").keys(torch.arange(2))
    return Shards(index=index, count=torch.tensor(count), key=key)


def cells(cell: Any) -> nn.Module:
    return recurrent((LENGTH,), CLASSES, VOCABULARY, cell=cell, embedding=3, hidden=4, layers=2)


def lstm() -> nn.Module:
    return cells("lstm")


class Plain(nn.Module):
    """The network of `lstm`, written down once more."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, 3)
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)
        self.out = nn.Linear(4, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        _, (last, _) = self.lstm(self.table(ids))
        logits: Tensor = self.out(last[1])
        return logits


@pytest.mark.full
@pytest.mark.parametrize("name", ["loop", "threads", "vmap"])
def test_an_lstm_is_trained_as_a_plain_loop_trains_it(name: str) -> None:
    pool, solver = tokens(), Solver(lr=0.5, batch_size=4, epochs=2, momentum=0.5)
    engine = make_engine(name, lstm(), pool)
    assert engine.name == name
    start, shard = engine.init(Stream.of(0, "init")), shards(6, 5)
    call = TrainCall(start.unsqueeze(0), torch.zeros(2, dtype=torch.int64), shard, solver, 0.5)
    got, plan = engine.answer(call), schedule(shard, solver)
    plain = Plain()
    values = unflatten(start, engine.layout).values()
    for parameter, value in zip(plain.parameters(), values, strict=True):
        parameter.data = value.clone()
    sgd = torch.optim.SGD(plain.parameters(), lr=0.5, momentum=0.5)
    for step in range(int(plan.steps[1])):
        rows = shard.index[1, plan.position[1, step, : int(plan.size[1, step])]]
        sgd.zero_grad()
        nn.functional.cross_entropy(plain(pool.x[rows].long()), pool.y[rows]).backward()
        sgd.step()
    expected = torch.cat([one.detach().flatten() for one in plain.parameters()])
    # all clients at once, step by step in time, differ by rounding
    assert torch.allclose(got.params[1], expected, rtol=0, atol=1e-6 if name == "vmap" else 0)
    assert not torch.equal(got.params[1], start)


@pytest.mark.full
@pytest.mark.parametrize("name", [*MODELS, "lstm", "gru"])
def test_vmap_is_the_loop(name: str) -> None:
    pool, model = tokens(), MODELS[name] if name in MODELS else cells(name)
    loop, fast = LoopEngine(model, pool), VmapEngine(model, pool)
    models = torch.stack([loop.init(Stream.of(0, "init", j)) for j in range(2)])
    label, shard = torch.tensor([1, 0]), shards(6, 5)
    for call in (
        TrainCall(models, label, shard, Solver(lr=0.3, batch_size=4), 0.3),
        LossCall(models, shard),
        TestCall(models, label, shard),
    ):
        torch.testing.assert_close(fast.answer(call), loop.answer(call), rtol=1e-5, atol=1e-6)


def test_a_text_is_read_by_all_of_its_tokens() -> None:
    """Whichever token changes, the logits do."""
    pool, draw = tokens(), torch.Generator().manual_seed(0)
    wide = text_cnn((LENGTH,), CLASSES, VOCABULARY, embedding=3, kernels=[2, 5], channels=20)
    for model in (MODELS["transformer"], wide, lstm()):
        for parameter in model.parameters():
            parameter.data = torch.randn(parameter.shape, generator=draw)
        base = model(pool.x[:1].long())
        for place in range(LENGTH):
            other = pool.x[:1].long()
            other[0, place] = (other[0, place] + 1) % VOCABULARY
            assert not torch.allclose(model(other), base, atol=1e-7), (type(model), place)


def test_equal_probabilities_have_the_perplexity_of_their_number() -> None:
    said, client = np.full((5, 80), 1 / 80), np.zeros(5, np.int64)
    perplexity = MEASURES["perplexity"]
    assert taken(perplexity, np.arange(5), said, client) == pytest.approx(80)
    said[:, 0] = 0.5
    assert taken(perplexity, np.zeros(5, np.int64), said, client) == pytest.approx(2)


def test_engines_that_cannot_are_refused_in_one_line() -> None:
    pool = tokens()
    with pytest.raises(ConfigError, match=r"takes numbers, and an example .* is token ids"):
        make_engine("auto", mlp((LENGTH,), CLASSES, hidden=[3]), pool)
    with pytest.raises(ConfigError, match=r"reads token ids, .* numbers of shape"):
        text_cnn((LENGTH,), CLASSES, None, embedding=3, kernels=[2], channels=2)
    with pytest.raises(ConfigError, match=r"model.kernels=\[2, 6\] .* the 5 tokens"):
        text_cnn((LENGTH,), CLASSES, 7, embedding=3, kernels=[2, 6], channels=2)
    small = nn.Sequential(nn.Embedding(6, 2), nn.Flatten(), nn.Linear(10, CLASSES))
    with pytest.raises(ConfigError, match=r"cannot take examples of shape .*: index out of range"):
        make_engine("auto", small, pool)


def test_ids_of_a_file_stay_as_they_are(tmp_path: Path) -> None:
    file, x = tmp_path / "ids.npz", np.arange(12, dtype=np.int64).reshape(4, 3) * 25
    np.savez(file, x_train=x, y_train=[0, 1, 0, 1], x_test=x[:2], y_test=[0, 1])
    data = Npz(path=str(file), vocabulary=300).load()
    assert (data.x_train.dtype, data.x_train.tolist()) == (torch.int16, x.tolist())
    assert (data.vocabulary, data.remarks) == (300, ())
    with pytest.raises(DataError, match=r"x_train with token id 275, but dataset\.vocabulary=275"):
        Npz(path=str(file), vocabulary=275).load()
    with pytest.raises(ConfigError, match=r"dataset\.normalise=unit .* token ids have no scale"):
        Npz(path=str(file), vocabulary=300, normalise="unit")
    for wrong, words in ((x - 1, "token id -1"), (x / 2, "token ids are integers")):
        with pytest.raises(DataError, match=words):
            as_ids("it", wrong, 300)


def write(folder: Path, x: list[Any], y: list[Any]) -> None:
    folder.mkdir(parents=True)
    half = len(y) // 2
    users = {"a": {"x": x[:half], "y": y[:half]}, "b": {"x": x[half:], "y": y[half:]}}
    sizes = [half, len(y) - half]
    whole = {"users": list(users), "num_samples": sizes, "user_data": users}
    (folder / "all_data.json").write_text(json.dumps(whole))


def test_characters_are_leafs_letters_or_those_that_occur(tmp_path: Path) -> None:
    assert len(LETTERS) == 80
    write(tmp_path / "train", ["\n !", "abc"], ["}", "b"])
    write(tmp_path / "test", ["zzz", "ABC"], ["Z", "z"])
    data = Leaf(path=str(tmp_path), text="characters").load()
    assert data.x_train.tolist() == [[0, 1, 2], [53, 54, 55]]
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([79, 54], [50, 78])
    assert (data.num_classes, data.vocabulary) == (80, 80)
    assert Characters.of(["bä", "a"]).letters == "abä"
    with pytest.raises(DataError, match="texts of 1 to 2 characters"):
        Characters.of(["ab", "c"]).ids("it", ["ab", "c"])
    with pytest.raises(DataError, match=r"label bc: .* all must be one of them"):
        Characters.of(["abc"]).classes("it", ["a", "bc"])
    with pytest.raises(DataError, match=r"dataset\.text=characters or words"):
        Leaf(path=str(tmp_path)).load()


def test_words_by_frequency_with_padding_in_front(tmp_path: Path) -> None:
    fields = ["1", "Mon", "q", "user"]  # of Sent140, in front of the text
    write(tmp_path / "train", [[*fields, "Good day, good"], [*fields, "day good bad"]], [1, 0])
    write(tmp_path / "test", [[*fields, "bad new day"], [*fields, ""]], [0, 1])
    data = Leaf(path=str(tmp_path), text="words", length=5).load()
    # good 3, day 2, "," and bad once
    assert data.x_train.tolist() == [[0, 2, 3, 4, 2], [0, 0, 3, 2, 5]]
    assert data.x_test.tolist() == [[0, 0, 5, 1, 3], [0, 0, 0, 0, 0]]
    assert data.vocabulary == 6
    few = Leaf(path=str(tmp_path), text="words", length=2, vocabulary=3).load()
    assert (few.x_train.tolist(), few.vocabulary) == ([[2, 1], [1, 2]], 3)
    assert Words.of(["a"], None, 25).size == 3
    with pytest.raises(ConfigError, match=r"dataset\.length=3 .* null without dataset\.text=words"):
        Leaf(path=str(tmp_path), text="characters", length=3)


@pytest.mark.full
def test_a_job_reads_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "train", ["abc", "bca", "cab", "abc"], ["a", "b", "c", "a"])
    data = ["dataset=leaf", f"dataset.path={tmp_path}", "dataset.text=characters"]
    given = [*data, "partition.train_fraction=0.5", "model=gru", "model.hidden=3"]
    job = build(composed("algorithm=fedavg", *given))
    pool = next(iter(job.federations.values())).pool
    assert (pool.vocabulary, pool.width) == (80, 80)
    assert job.engine.name in ("loop", "threads", "vmap"), "whichever is fastest here"
    zero = torch.zeros(1, job.engine.layout.num_params)
    one = Shards(index=torch.tensor([[0, 1]]), count=torch.tensor([2]), key=torch.tensor([0]))
    assert float(job.engine.answer(LossCall(zero, one))) == pytest.approx(math.log(80))
    small = {"partition.train_fraction": 0.5, "rounds": 1, "progress": False}
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"algorithm=pacfl .* token ids have no directions"):
        fedclust.run(*data, small, algorithm="pacfl", model="gru", num_clusters=2)


def test_a_network_that_needs_a_vocabulary_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from torch import nn\n\n\ndef net(in_shape, num_classes, vocabulary):\n"
    (tmp_path / "wordy.py").write_text(f"{code}    return nn.Embedding(vocabulary, 4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    made_for = {"in_shape": (5,), "num_classes": 2, "vocabulary": None}
    with pytest.raises(ConfigError, match=r"token ids, so set dataset.vocabulary$"):
        Objects(tmp_path).make({"_target_": "wordy.net"}, "model", **made_for)
