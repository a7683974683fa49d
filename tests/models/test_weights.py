"""State dicts from files, and models of which a part is frozen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import composed
from torch import Tensor, nn

import fedclust
from fedclust.config.build import build
from fedclust.helpers.errors import ConfigError, RunFolderError
from fedclust.helpers.rng import Stream
from fedclust.models.cnn import tf_cifar
from fedclust.models.foreign import adopt
from fedclust.models.mlp import mlp
from fedclust.models.params import layout
from fedclust.models.sequence import Model
from fedclust.models.weights import beginning, fill, read_state


def network() -> Model:
    return mlp((4,), 3, hidden=[5])


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU())
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x))
        return out


def saved(folder: Path, module: nn.Module) -> tuple[str, dict[str, Tensor]]:
    own = module.state_dict().items()
    state = {key: torch.rand(value.shape).to(value.dtype) for key, value in own}
    torch.save(state, folder / "weights.pth")
    return str(folder / "weights.pth"), state


def test_ours_begin_with_a_file(tmp_path: Path) -> None:
    file, state = saved(tmp_path, network())
    model = adopt(beginning(network, file), (4,))
    row = model.draw(torch.Generator().manual_seed(3))
    assert torch.equal(row, torch.cat([value.flatten() for value in state.values()]))
    x = torch.randn(2, 4)
    hidden = torch.relu(x @ state["0.weight"].T + state["0.bias"])
    expected = hidden @ state["2.weight"].T + state["2.bias"]
    torch.testing.assert_close(model.module(x), expected)  # type: ignore[operator]


def test_what_is_frozen_is_no_part_of_a_row(tmp_path: Path) -> None:
    file, state = saved(tmp_path, Normed())
    state["body.1.running_var"].abs_()
    torch.save(state, file)
    model = adopt(beginning(Normed, file, ["body"]), (4,))
    where = layout(model)
    assert where.names == ("module.head.weight", "module.head.bias")
    part = adopt(beginning(Normed, file, ["*.bias", "body.0"]), (4,))
    assert layout(part).names == (
        *("module.body.1.weight", "module.head.weight"),
        *("module.body.1.running_mean", "module.body.1.running_var"),
        "module.body.1.num_batches_tracked",
    )
    for _ in range(2):  # its statistics stay, in training too
        model(10 + torch.randn(8, 4), {})
    kept = model.state_dict()
    assert torch.equal(kept["module.body.1.running_mean"], state["body.1.running_mean"])
    drawn = adopt(beginning(network, None, ["0.*"]), (4,))
    first, other = (drawn.draw(torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert first.shape == (18,)
    assert not torch.equal(first, other)


def test_the_head_is_drawn_where_the_file_lacks_it(tmp_path: Path) -> None:
    file, state = saved(tmp_path, Normed())
    torch.save({key: v for key, v in state.items() if not key.startswith("head")}, file)
    model = adopt(beginning(Normed, file), (4,))
    one, two = (model.draw(torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert torch.equal(one[:20], state["body.0.weight"].flatten())
    assert torch.equal(one[:30], two[:30])
    assert not torch.equal(one[30:48], two[30:48])


def test_files_of_other_forms(tmp_path: Path) -> None:
    state = {"a.weight": torch.arange(6.0).view(2, 3), "b": torch.tensor([1, 2])}
    inside = {f"module.{key}": value for key, value in state.items()}
    torch.save({"epoch": 3, "state_dict": inside}, tmp_path / "x.pth")
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "b": {"dtype": "I64", "shape": [2], "data_offsets": [24, 40]},
        }
    ).encode()
    raw = b"".join(value.numpy().tobytes() for value in state.values())
    file = tmp_path / "x.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + raw)
    for name in ("x.pth", "x.safetensors"):
        found = read_state("weights", str(tmp_path / name))
        assert list(found) == ["a.weight", "b"]
        assert all(torch.equal(found[key], state[key]) for key in state)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    names = [(f"resnet18-{digest[:8]}", True), ("resnet18-20261128", True), ("run-deadbeef", True)]
    for named, fits in (*names, ("resnet18-fedcba98", False), ("vit_b_16-fedcba98", False)):
        copy = file.rename(tmp_path / f"{named}.safetensors")
        if fits:
            assert list(read_state("weights", str(copy))) == ["a.weight", "b"]
        else:
            with pytest.raises(ConfigError, match=f"its name, and this has {digest[:8]}"):
                read_state("weights", str(copy))
        file = copy


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    file, state = saved(tmp_path, network())

    def refused(words: str, given: object, frozen: tuple[str, ...] = ()) -> None:
        torch.save(given, file)
        with pytest.raises(ConfigError, match=words) as caught:
            beginning(network, file, frozen)
        assert "\n" not in str(caught.value)

    refused(r"0\.weight has shape \(5, 4\), not \(5, 3\)", state | {"0.weight": torch.ones(5, 3)})
    more = state | {"9.weight": torch.ones(1)}
    refused(r"has no 9\.weight: there are 0\.weight, 0\.bias, 2\.weight, …", more)
    refused(r"it lacks 0\.bias", {k: v for k, v in state.items() if k != "0.bias"})
    refused(r"0\.bias has some that are not", state | {"0.bias": torch.full((5,), torch.inf)})
    refused(r"0\.bias is torch\.float32, not", state | {"0.bias": torch.ones(5, dtype=torch.int64)})
    refused("names and tensors, and it has none", [state])
    refused("a state dict, names and tensors, and it has epoch", {"epoch": 3})
    refused(
        r"frozen=1\.\* is not allowed: names or patterns of parameters: there are", state, ("1.*",)
    )
    refused(r"frozen=2\.w is not allowed", state, ("2.w",))
    refused("leave something to train", state, ("*",))
    torch.save(state, file)
    whole, safe = Path(file).read_bytes(), tmp_path / "x.safetensors"
    for part in (b"", whole[: len(whole) // 2]):
        Path(file).write_bytes(part)
        safe.write_bytes(part)
        for one in (file, str(safe)):
            with pytest.raises(ConfigError) as caught:
                beginning(network, one)
            allowed = "it is not a whole file of weights"
            assert str(caught.value) == f"weights={one} is not allowed: {allowed}"
    Path(file).write_bytes(b"PK nothing")
    with pytest.raises(ConfigError, match="not allowed: it is no file of PyTorch's, or holds more"):
        beginning(network, file)
    header = b'{"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}'
    safe.write_bytes(len(header).to_bytes(8, "little") + header + b"0")
    with pytest.raises(ConfigError, match="it has values of type F8_E4M3: one of F64, F32"):
        beginning(network, str(safe))
    Path(file).write_text("hello")
    with pytest.raises(ConfigError, match="it is no file of PyTorch's, or holds more than tensors"):
        beginning(network, file)
    with pytest.raises(
        ConfigError, match=r"weights=no\.pt is not allowed: a file with a state dict, PyTorch's or"
    ):
        beginning(network, "no.pt")
    with pytest.raises(ConfigError, match="without an L2 penalty"):
        beginning(lambda: tf_cifar((3, 24, 24), 3, channels=[], hidden=[4], l2=0.1), None, ["1"])


@pytest.mark.full
def test_frozen_in_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent and trained is the head; what is frozen stays as the file has it."""
    whole = build(composed("algorithm=fedavg", "model=mlp", "model.hidden=[8]"))
    assert whole.engine.layout.num_params == 64 * 8 + 8 + 8 * 10 + 10
    file, state = saved(tmp_path, mlp((1, 8, 8), 10, hidden=[8]))
    given = ("model=mlp", "model.hidden=[8]", f"weights={file}", "frozen=[1]", "engine=loop")
    job = build(composed("algorithm=fedavg", *given))
    assert job.engine.layout.num_params == 8 * 10 + 10
    start = job.engine.init(Stream.of(0, "init"))
    assert torch.equal(start[:80], state["3.weight"].flatten())
    monkeypatch.chdir(tmp_path)
    small = {"rounds": 2, "progress": False, "partition.num_clients": 4}
    rounds = fedclust.run(*given[:-1], small, algorithm="fedavg").rounds
    assert rounds["bytes"].iloc[0] == 2 * 4 * 4 * (8 * 10 + 10)
    torch.save(state | {"1.bias": state["1.bias"] + 1}, file)
    with pytest.raises(RunFolderError, match="the weights that models begin with"):
        fedclust.run(*given[:-1], small, algorithm="fedavg")


@pytest.mark.parametrize("before", ["module.", "_orig_mod.", "model."])
@pytest.mark.parametrize("inside", ["", "model_state_dict"])
def test_what_others_put_around_a_state_dict_is_taken_off(
    before: str, inside: str, tmp_path: Path
) -> None:
    own = nn.Linear(3, 2)
    state: Any = {f"{before}{name}": value for name, value in own.state_dict().items()}
    torch.save({inside: state, "epoch": 3} if inside else state, tmp_path / "x.pth")
    there = nn.Linear(3, 2)
    fill("weights", "x.pth", there, read_state("weights", str(tmp_path / "x.pth")))
    assert torch.equal(there.weight, own.weight)
    holder = nn.ModuleDict({"model": nn.Linear(3, 2)})  # a part of its own called model
    fill("weights", "x.pth", holder, {f"model.{n}": v for n, v in own.state_dict().items()})
    assert torch.equal(holder["model"].weight, own.weight)


def test_names_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    torch.save({1: torch.zeros(3)}, tmp_path / "x.pth")
    with pytest.raises(ConfigError, match=r"a state dict, names and tensors, and it has 1$"):
        read_state("weights", str(tmp_path / "x.pth"))


def test_a_weight_that_is_computed_from_others_is_one_line() -> None:
    with pytest.warns(FutureWarning):
        old = nn.utils.weight_norm(nn.Linear(3, 2))
    old(torch.ones(1, 3))
    with pytest.raises(ConfigError, match=r"model=Sequential .*parametrizations.weight_norm takes"):
        adopt(nn.Sequential(old), (3,))
