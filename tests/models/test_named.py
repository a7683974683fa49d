"""Networks by name: one round is that of the plain module, weights fit to the digit, refusals."""

from __future__ import annotations

import copy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from configs import composed
from refusals import refused
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision import models

import fedclust
from fedclust.config.build import build
from fedclust.config.data import data_of
from fedclust.helpers.errors import ConfigError, RunFolderError
from fedclust.models import named
from fedclust.models.named import file_of, fitted, timm, torchvision
from fedclust.models.reading import UnreadableError, read

SMALL = "shufflenet_v2_x0_5"
JOB = ("algorithm=fedavg", "partition=iid", "partition.num_clients=2", "model=torchvision")
QUICK = ("rounds=1", "solver.batch_size=null", "solver.lr=0.05", "progress=false", "seeds=[0]")


def pictures(folder: Path, *shape: int) -> str:
    """Twelve random pictures of three classes to train on, six to test on."""
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (18, *shape), dtype=np.uint8), np.arange(18) % 3
    np.savez(folder / "x.npz", x_train=x[:12], y_train=y[:12], x_test=x[12:], y_test=y[12:])
    return f"dataset.path={folder / 'x.npz'}"


def drawn(name: str = SMALL, classes: int = 1000, **options: Any) -> Any:
    torch.manual_seed(0)
    return models.get_model(name, weights=None, num_classes=classes, **options)


def saved(folder: Path, module: nn.Module) -> str:
    torch.save(module.state_dict(), folder / "made.pth")
    return str(folder / "made.pth")


@pytest.mark.full
def test_a_round_is_that_of_the_plain_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_figures: None
) -> None:
    """Two clients, two full-batch steps each, and the mean; statistics of the batches as well."""
    monkeypatch.chdir(tmp_path)
    given = (*JOB, *QUICK, "dataset=npz", pictures(tmp_path, 32, 32, 3), f"model.name={SMALL}")
    begin = drawn(classes=3)
    given = (*given, f"model.weights={saved(tmp_path, begin)}", "solver.epochs=2", "engine=loop")
    result = fedclust.run(*given)
    fed = data_of(composed(*given))[0]
    index, count = fed.train.take(torch.arange(2))
    assert count.tolist() == [6, 6]
    trained = []
    for rows in index:
        network, x, y = copy.deepcopy(begin), fed.pool.inputs(rows), fed.pool.y[rows]
        solver = torch.optim.SGD(network.parameters(), lr=0.05)
        for _ in range(2):
            solver.zero_grad()
            F.cross_entropy(network.train()(x), y).backward()
            solver.step()
        trained.append(network.state_dict())
    served = result.model(0).state_dict()
    assert list(served) == list(trained[0])
    for name, value in served.items():
        expected = (trained[0][name].double() + trained[1][name].double()) / 2
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
    moved = begin.state_dict()["conv1.0.weight"] - served["conv1.0.weight"]
    assert float(moved.abs().max()) > 1e-3


NETWORKS = {
    **{"resnet18": (8, 8, 3), "mobilenet_v3_small": (28, 28), SMALL: (28, 28)},
    **{"densenet121": (32, 32, 3), "efficientnet_b0": (28, 28), "vit_b_16": (32, 32)},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_round_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_figures: None
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ("dataset=npz", pictures(tmp_path, *NETWORKS[name]))
    rounds = fedclust.run(*JOB, *QUICK, *data, f"model.name={name}", "engine=loop").rounds
    assert np.isfinite(rounds["test_loss"].to_numpy()).all()


@pytest.mark.full
@pytest.mark.parametrize("norm", ["local", "fedbn", "recalibrate"])
def test_statistics_are_treated_as_norm_says(
    norm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_figures: None
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ("dataset=npz", pictures(tmp_path, 28, 28), f"model.name={SMALL}", "engine=loop")
    sent = fedclust.run(*JOB, *QUICK, *data, f"norm={norm}").rounds["bytes"].iloc[-1]
    network = torchvision((1, 28, 28), 3, name=SMALL)
    norms = [part for part in network.modules() if isinstance(part, nn.BatchNorm2d)]
    affine = sum(value.numel() for part in norms for value in part.parameters())
    kept = sum(value.numel() for part in norms for value in part.buffers())
    whole = sum(value.numel() for value in network.parameters())
    numbers = {"local": whole, "fedbn": whole - affine, "recalibrate": whole + kept}
    assert sent == 2 * 2 * 4 * numbers[norm]


@pytest.mark.full
def test_the_fused_engine_reads_a_resnet() -> None:
    given = (*JOB, "model.name=resnet18")
    assert build(composed(*given, "solver.drop_last=true")).engine.name == "fused"


@pytest.mark.full
def test_weights_are_loaded_to_the_digit(tmp_path: Path) -> None:
    begin = drawn()
    file = saved(tmp_path, begin)
    x = torch.randn(2, 3, 32, 32)
    whole = torchvision((3, 32, 32), 1000, name=SMALL, weights=file).eval()
    begin.eval()
    assert torch.equal(whole(x), begin(x))
    other = torchvision((3, 32, 32), 7, name=SMALL, weights=file).eval()
    assert other(x).shape == (2, 7)
    other.fc = begin.fc  # only the head has been drawn
    assert torch.equal(other(x), begin(x))


@pytest.mark.full
def test_kernels_are_fitted_to_the_channels(tmp_path: Path) -> None:
    """Grey pictures are seen as in three equal channels; six channels as three of half each."""
    begin = drawn().eval()
    file, grey = saved(tmp_path, begin), torch.randn(2, 1, 32, 32)
    for channels, x in ((1, grey), (6, grey.expand(-1, 6, -1, -1))):
        network: Any = torchvision((channels, 32, 32), 1000, name=SMALL, weights=file)
        expected = begin.conv1[0](grey.expand(-1, 3, -1, -1))
        torch.testing.assert_close(network.conv1[0](x), expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(network.fc.weight, begin.fc.weight)
    kernel = begin.conv1[0].weight
    six = torchvision((6, 32, 32), 1000, name=SMALL, weights=file).conv1[0].weight  # type: ignore[index, union-attr]
    torch.testing.assert_close(six[:, 3:], kernel / 2)
    fresh: Any = torchvision((2, 32, 32), 5, name=SMALL)
    assert (fresh.conv1[0].weight.shape[1], fresh.conv1[0].stride) == (2, (2, 2))


@pytest.mark.full
def test_published_files_have_other_names(tmp_path: Path) -> None:
    """Old names of layers, heads beside the last one, and no versions of layers."""
    network = nn.Module()
    network.denselayer1 = nn.ModuleDict({"norm1": nn.BatchNorm2d(3), "conv1": nn.Conv2d(3, 2, 1)})
    network.mlp = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.Dropout(0.0), nn.Linear(2, 2))
    state = {
        **{"denselayer1.norm.1.weight": torch.ones(3), "denselayer1.conv.1.bias": torch.ones(2)},
        **{"mlp.linear_1.weight": torch.ones(2, 2), "mlp.linear_2.bias": torch.ones(2)},
        **{"aux1.conv.conv.weight": torch.ones(1), "AuxLogits.fc.bias": torch.ones(1)},
    }
    assert list(fitted(network, state)) == [
        *("denselayer1.norm1.weight", "denselayer1.conv1.bias"),
        *("mlp.0.weight", "mlp.3.bias"),
    ]
    begin = drawn("mnasnet0_5", 3).eval()  # refuses a file that does not say its version
    loaded = torchvision((3, 32, 32), 3, name="mnasnet0_5", weights=saved(tmp_path, begin)).eval()
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(loaded(x), begin(x))


@pytest.mark.full
def test_heads_that_only_help_training_are_left_out(tmp_path: Path) -> None:
    begin = drawn("googlenet", 1000, init_weights=False, aux_logits=True, transform_input=True)
    file, x = saved(tmp_path, begin.eval()), torch.randn(1, 3, 64, 64)
    network = torchvision((3, 64, 64), 1000, name="googlenet", weights=file)
    assert torch.equal(network.eval()(x), begin(x))
    assert isinstance(network.train()(torch.randn(2, 3, 64, 64)), Tensor)


def test_published_weights_name_their_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    name, node = "mobilenet_v3_small", {"_target_": "fedclust.models.named.torchvision"}
    node |= {"name": name, "weights": "DEFAULT"}
    file = tmp_path / "checkpoints" / f"{name}-047dcff4.pth"
    with refused(ConfigError, r"^model\.weights=DEFAULT is not allowed: .* is not there") as error:
        file_of(node)
    command = shlex.split(str(error.value).partition("to download it: ")[2])
    assert command[:2] == [sys.executable, "-c"]
    asked: list[str] = []
    weights = type(models.get_weight("MobileNet_V3_Small_Weights.DEFAULT"))
    monkeypatch.setattr(weights, "get_state_dict", lambda own: asked.append(own.url))
    exec(command[2], {})
    assert asked[0].endswith(f"/{file.name}")
    file.parent.mkdir()
    torch.save(drawn(name).state_dict(), file)
    assert file_of(node) == str(file)
    with refused(ConfigError, r"^model\.weights=.* with the digest of its name, and this has"):
        torchvision((3, 32, 32), 3, name=name, weights="DEFAULT")
    assert file_of({**node, "weights": None}) is None
    assert file_of({"_target_": "mine.net", "weights": "x.pth"}) is None


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("shape", "given", "words"),
    [
        (
            (3, 32, 32),
            {"name": "resnet19"},
            r"^model\.name=resnet19 .* did you mean resnet1?\d+\?$",
        ),
        (
            (3, 32, 32),
            {"name": "fasterrcnn_resnet50_fpn"},
            "that classifies pictures, which this does not; did you mean resnet50",
        ),
        ((1, 28, 28), {"name": "densenet121"}, "images of 28 x 28: .* of at least 29 x 29; resize"),
        ((3, 4, 4), {"name": "squeezenet1_1"}, "images of 4 x 4: .* of at least 17 x 17; resize"),
        ((1, 28, 28), {"name": "vit_b_16"}, "images of 28 x 28: .*patch size"),
        ((5,), {"name": SMALL}, "^model: torchvision's .* needs images"),
        ((3, 32, 32), {"name": SMALL, "weights": "no.pth"}, "a file .*: IMAGENET1K_V1, DEFAULT$"),
    ],
)
def test_what_does_not_fit_is_one_line(
    shape: tuple[int, ...], given: dict[str, Any], words: str
) -> None:
    with refused(ConfigError, words):
        torchvision(shape, 3, **given)


@pytest.mark.full
def test_weights_of_another_network_are_one_line(tmp_path: Path) -> None:
    file = saved(tmp_path, drawn())
    with refused(ConfigError, r"^model\.weights=.* weights of ResNet, which has no conv1\.0"):
        torchvision((3, 32, 32), 3, name="resnet18", weights=file)


@pytest.mark.full
def test_a_job_notices_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_figures: None
) -> None:
    monkeypatch.chdir(tmp_path)
    file, data = saved(tmp_path, drawn(classes=3)), pictures(tmp_path, 16, 16, 3)
    given = (*JOB, *QUICK, "dataset=npz", data, f"model.name={SMALL}", f"model.weights={file}")
    fedclust.run(*given)
    with refused(ConfigError, "^weights=.* null beside model.weights"):
        build(composed(*given, f"weights={file}"))
    torch.manual_seed(1)
    torch.save(models.shufflenet_v2_x0_5(weights=None, num_classes=3).state_dict(), file)
    with pytest.raises(RunFolderError, match="the weights that models begin with"):
        fedclust.run(*given)


def library(make: Callable[..., nn.Module], *, fixed: bool = False) -> ModuleType:
    """What is asked of timm, with one network."""
    made: Any = ModuleType("timm")
    made.list_models = lambda: ["tiny"]
    made.list_pretrained = lambda pattern: [pattern.replace("*", "a1")]
    made.create_model = lambda name, pretrained, **options: make(**options)
    made.get_pretrained_cfg = lambda name: type("Config", (), {"fixed_input_size": fixed})
    return made  # type: ignore[no-any-return]


def test_timm_makes_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def tiny(num_classes: int, in_chans: int, **more: Any) -> nn.Module:
        asked.append({"in_chans": in_chans, **more})
        pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        return nn.Sequential(nn.Conv2d(in_chans, 4, 3), *pooled, nn.Linear(4, num_classes))

    monkeypatch.setitem(sys.modules, "timm", library(tiny, fixed=True))
    begin = tiny(5, 3)
    network = timm((1, 8, 8), 2, name="tiny", weights=saved(tmp_path, begin))
    assert asked[1:] == [{"in_chans": 1, "img_size": (8, 8)}]
    assert torch.equal(network[0].weight, begin[0].weight.sum(1, keepdim=True))  # type: ignore[index]
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "o'hub"))
    with refused(ConfigError, r"^model\.weights=a1 .* is not there; to download it: ") as error:
        timm((1, 8, 8), 2, name="tiny", weights="a1")
    code = shlex.split(str(error.value).partition("to download it: ")[2])[2]
    monkeypatch.setitem(sys.modules, "timm", library(lambda **_: tiny(5, 3)))
    exec(code, {})
    file = named._downloaded("tiny.a1.pth")
    assert set(torch.load(file, weights_only=True)) == set(begin.state_dict())
    with refused(ConfigError, r"^model\.name=tinny .* timm's networks.*; did you mean tiny\?"):
        timm((1, 8, 8), 2, name="tinny")


def test_without_timm_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with refused(ConfigError, r"^model\.name=resnet18 needs timm: .*timm"):
        timm((3, 32, 32), 2, name="resnet18")


def test_branches_that_share_layers_are_not_read() -> None:
    """Each sum would double what is read: those of DenseNet-121 fill the memory."""

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv2d(2 + 2 * i, 2, 1) for i in range(3))
            self.head = nn.Linear(8 * 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            found = [x]
            for layer in self.layers:
                found.append(layer(torch.cat(found, 1)))
            out: Tensor = self.head(torch.cat(found, 1).flatten(1))
            return out

    with pytest.raises(UnreadableError, match="branches that share a layer"):
        read(Dense(), (2, 2, 2))
