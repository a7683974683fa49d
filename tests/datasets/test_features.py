"""Frozen features: computed once, kept by content, refused where something does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from configs import composed
from refusals import refused
from torch import nn
from torchvision import models
from toys import pool_of

from fedclust.config.build import build
from fedclust.core.pool import Pool
from fedclust.datasets.features import Features
from fedclust.helpers.errors import ConfigError
from fedclust.models.mlp import mlp


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Those of a network of torchvision, drawn."""
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "shufflenet.pth"
    torch.save(models.shufflenet_v2_x0_5(weights=None, num_classes=7).state_dict(), file)
    return str(file)


def pictures(num: int = 70) -> Pool:
    """More than a block of grey pictures; the last is the first one."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (num, 1, 32, 32), generator=draw, dtype=torch.uint8)
    x[-1] = x[0]
    return pool_of(x, torch.arange(num) % 3, 3, 1 / 255, -0.5)


@pytest.mark.full
def test_features_are_what_enters_the_last_layer(tmp_path: Path, weights: str) -> None:
    pool = pictures()
    seen = Features(model="shufflenet_v2_x0_5", weights=weights).of(pool, tmp_path, None)
    assert (seen.shape, seen.x.dtype, float(seen.scale), float(seen.shift)) == (
        (1024,),
        torch.float32,
        1,
        0,
    )
    network = models.shufflenet_v2_x0_5(weights=None, num_classes=7)
    network.load_state_dict(torch.load(weights, weights_only=True))
    network.fc = nn.Identity()
    with torch.no_grad():
        expected = network.eval()((pool.x[64:] / 255 - 0.5).expand(-1, 3, -1, -1))
    torch.testing.assert_close(seen.x[64:], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(seen.x[-1], seen.x[0], rtol=1e-4, atol=1e-5)
    assert torch.equal(seen.inputs(torch.tensor([3])), seen.x[3:4])
    assert torch.equal(seen.y, pool.y)


@pytest.mark.full
def test_they_are_computed_once_and_damage_is_found(
    tmp_path: Path, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Features(
        model="shufflenet_v2_x0_5", weights=weights, layer="maxpool", pixels="imagenet"
    )
    first = asked.of(pictures(3), tmp_path, None)
    assert first.shape == (24 * 8 * 8,)
    calls = []
    computed = Features.computed
    monkeypatch.setattr(Features, "computed", lambda *given: calls.append(1) or computed(*given))
    again = asked.of(pictures(3), tmp_path, None)
    assert (torch.equal(again.x, first.x), calls) == (True, [])
    assert again.digest == first.digest
    (file,) = tmp_path.glob("*.npy")
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    assert torch.equal(asked.of(pictures(3), tmp_path, None).x, first.x)
    assert calls == [1]
    other = pictures(3)
    other.x[0, 0, 0, 0] ^= 1
    assert not torch.equal(asked.of(other, tmp_path, None).x[0], first.x[0])
    assert len(list(tmp_path.glob("*.npy"))) == 2
    blocked = tmp_path / "file"
    blocked.touch()
    assert torch.equal(asked.of(pictures(3), blocked / "in", None).x, first.x)


def test_pixels_and_size(tmp_path: Path, weights: str) -> None:
    asked = Features(model="shufflenet_v2_x0_5", weights=weights, size=16, pixels="imagenet")
    white = torch.full((1, 1, 32, 32), 255, dtype=torch.uint8)
    seen = asked._seen(
        pool_of(white, torch.zeros(1, dtype=torch.int64), scale=1 / 255), slice(0, 1)
    )
    assert seen.shape == (1, 3, 16, 16)
    expected = torch.tensor([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225])
    torch.testing.assert_close(seen.mean((0, 2, 3)), expected)


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "resnet"}, r"features\.model=resnet .* resnet18"),
        ({"model": "timm:vit"}, "needs timm|one of its networks"),
        (
            {"model": "resnet18"},
            r"features\.weights=.* weights of ResNet, which has no conv1",
        ),
        ({"layer": "nowhere"}, r"features\.layer=nowhere .* a part of ShuffleNetV2: conv1, "),
        ({"weights": "no.pth"}, r"features\.weights=no\.pth .* a file with a state dict"),
        ({"size": 4096 * 2}, r"Features\.size"),
        ({"pixels": "raw"}, r"Features\.pixels=raw .* dataset, imagenet"),
    ],
)
def test_what_does_not_fit_is_one_line(
    tmp_path: Path, weights: str, given: dict[str, Any], words: str
) -> None:
    whole = {"model": "shufflenet_v2_x0_5", "weights": weights, **given}
    with refused(ConfigError, words):
        Features(**whole).of(pictures(3), tmp_path, None)
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_a_job_trains_what_stands_behind(
    tmp_path: Path, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path))
    node = f"features={{model: shufflenet_v2_x0_5, weights: {weights}, layer: conv1, size: 16}}"
    job = build(composed("algorithm=fedavg", "model=linear", node))
    assert (job.engine.name, job.engine.layout.num_params) == ("fused", 10 * (24 * 64 + 1))
    for wrong, words in (
        ("features={model: resnet18}", r"features\.weights is missing"),
        ("features={model: resnet18, file: x}", r"features\.file=x .* keys model, weights"),
        (f"features={{model: resnet18, weights: {weights}, size: a}}", r"features\.size=a"),
        ("features=resnet18", "features=resnet18 is not allowed: null, or a mapping"),
    ):
        with pytest.raises(ConfigError, match=words):
            build(composed("algorithm=fedavg", "model=linear", wrong))


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(32 * 32 * 3, 5), nn.ReLU(), nn.Linear(5, 2))
    torch.save(network.state_dict(), tmp_path / "own.pth")
    node = {"_target_": "fedclust.models.mlp.mlp", "hidden": [5]}
    asked = Features(model=node, weights=str(tmp_path / "own.pth"))
    made: list[dict[str, Any]] = []

    def ours(**given: Any) -> nn.Module:
        made.append(given)
        return mlp(**given, hidden=[5], l2=0.1)  # a sequence of ours has placeholders

    seen = asked.of(pictures(4), tmp_path, ours)
    assert made == [{"in_shape": (3, 32, 32), "num_classes": 2}]
    x = (pictures(4).x / 255 - 0.5).expand(-1, 3, -1, -1)
    torch.testing.assert_close(seen.x, network[:3](x).detach(), rtol=1e-5, atol=1e-6)
