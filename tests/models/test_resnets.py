"""Residual networks: sizes, what they compute, and what they refuse."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torchvision
from test_models import load
from torch import Tensor, nn
from torch.nn import functional as F

from fedclust.helpers.errors import ConfigError
from fedclust.models.params import layout


def test_parameter_counts() -> None:
    """Those of the networks with batch normalisation, which has as many parameters."""
    assert layout(load("resnet18", (3, 32, 32))).num_params == 11_173_962
    convolutions = 9 * (3 * 64 + 64 * 128 + 2 * 128**2 + 128 * 256 + 256 * 512 + 2 * 512**2)
    norms = 2 * (64 + 3 * 128 + 256 + 3 * 512)
    expected = convolutions + norms + 513 * 10
    assert layout(load("resnet9", (3, 32, 32))).num_params == expected == 6_573_130


@pytest.mark.full
def test_resnet18_computes_what_torchvisions_does() -> None:
    widths = [64, 128, 256, 512]
    model = load("resnet18", (3, 16, 16), 7, channels=widths)
    reference = torchvision.models.resnet18(num_classes=7, norm_layer=partial(nn.GroupNorm, 2))
    reference.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)  # made for 224 x 224 pixels
    reference.maxpool = nn.Identity()
    theirs = dict(reference.named_parameters())
    renamed = {
        name.replace("bn1", "norm1").replace("bn2", "norm2"): value
        for name, value in theirs.items()
    }
    with torch.no_grad():
        for name, value in model.named_parameters():
            first, _, rest = name.partition(".")
            if first == "blocks":
                number, _, inner = rest.partition(".")
                name = f"layer{int(number) // 2 + 1}.{int(number) % 2}.{inner}"
            name = name.replace("shortcut", "downsample").replace("head.", "fc.")
            name = name.replace("conv.", "conv1.") if first == "conv" else name
            name = name.replace("norm.", "norm1.") if first == "norm" else name
            value.copy_(renamed.pop(name))
    assert not renamed
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(x), reference(x), rtol=1e-4, atol=1e-5)


def test_resnet9_by_hand() -> None:
    model = load("resnet9", (1, 9, 8), 3, channels=[2, 4, 6, 8])
    flat = [value.detach() for value in model.parameters()]
    convolutions = [(flat[i], flat[i + 1], flat[i + 2]) for i in range(0, 24, 3)]

    def unit(x: Tensor, number: int) -> Tensor:
        kernel, weight, bias = convolutions[number]
        return F.group_norm(F.conv2d(x, kernel, padding=1), 2, weight, bias).relu()

    x = torch.randn(2, 1, 9, 8, generator=torch.Generator().manual_seed(0))
    second = F.max_pool2d(unit(unit(x, 0), 1), 2)
    second = second + unit(unit(second, 2), 3)
    fourth = F.max_pool2d(unit(F.max_pool2d(unit(second, 4), 2), 5), 2)
    fourth = fourth + unit(unit(fourth, 6), 7)
    expected = fourth.amax((2, 3)) @ flat[24].T + flat[25]
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("name", ["resnet9", "resnet18"])
def test_what_they_refuse_is_one_line(name: str) -> None:
    shape = (3, 8, 8)
    for changes, says in (
        ({"channels": [64, 128, 256]}, r"model.channels=\[64, 128, 256\] is not allowed: 4 widths"),
        ({"channels": [0, 1, 1, 1]}, r"model.channels=\[0, 1, 1, 1\] is not allowed"),
        ({"groups": 3}, r"model.groups=3 is not allowed: a divisor of all of model.channels="),
    ):
        with pytest.raises(ConfigError, match=says) as error:
            load(name, shape, **changes)
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=rf"model: {name} needs images"):
        load(name, (60,))
    if name == "resnet9":
        with pytest.raises(ConfigError, match=r"at least \(3, 8, 8\), the dataset has \(3, 7, 9\)"):
            load(name, (3, 7, 9))
