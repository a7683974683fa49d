"""Networks of torchvision and timm by their names: how one is made, and how weights fit into it.

Models that are trained (`torchvision`, `timm`) and frozen features are made here alike.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedclust.helpers.errors import ConfigError, did_you_mean, require
from fedclust.helpers.extras import install, of_torchvision
from fedclust.models.sequence import Shape, of_images
from fedclust.models.weights import State, fill, read_state

_COLOURS = 3  # channels that weights in files are for
# tried for a message, the small ones one by one
_SIDES = (*range(2, 81), 96, 112, 128, 160, 192, 224, 256, 299, 384, 448, 512)
# heads beside the last one, which train a network in other ways than ours
_BESIDE = re.compile(r"(aux[12]|AuxLogits)\.")
# what layers are called in the published files of DenseNet and ViT, and are called now
_RENAMED = (
    (re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\."), r"\1\2."),
    (re.compile(r"\bmlp\.linear_1\."), "mlp.0."),
    (re.compile(r"\bmlp\.linear_2\."), "mlp.3."),
)


def torchvision(
    in_shape: Sequence[int], num_classes: int, *, name: str, weights: str | None = None
) -> nn.Module:
    """A classification network of torchvision.

    Args:
        in_shape: (channels, height, width).
        name: as `torchvision.models.list_models` gives it.
        weights: file with a state dict, or a name of torchvision's weights whose file is on this
            machine; None: drawn.

    Raises:
        ConfigError: there is no such network, it takes no such images, or weights do not fit.
    """
    return _trained("torchvision", in_shape, num_classes, name, weights)


def timm(
    in_shape: Sequence[int], num_classes: int, *, name: str, weights: str | None = None
) -> nn.Module:
    """A network of timm, where that is installed; arguments and errors as of `torchvision`."""
    return _trained("timm", in_shape, num_classes, name, weights)


def made(library: str, name: str, classes: int, key: str, shape: Shape | None = None) -> nn.Module:
    """A network with so many outputs and without heads beside the last, its weights drawn.

    Args:
        library: torchvision or timm.
        key: of the name, for messages.
        shape: (channels, height, width) of examples; None for three channels of any size.

    Raises:
        ConfigError: the library is not installed, or has no such network for such examples.
    """
    return _LIBRARIES[library](key, name).make(classes, shape)


def fitted(network: nn.Module, state: State) -> State:
    """The weights of a file, as far as a network has them, under the names that it has.

    Heads beside the last one are left out. Where the first convolution is for one channel and the
    file's for three, its kernels are added up, which is to see a grey picture in all three; for
    another number they are repeated and scaled by 3 / number. The last layer is left out where it
    has another number of outputs.
    """
    own, fit = network.state_dict(), dict[str, Tensor]()
    for name, value in state.items():
        if name in own:
            fit[name] = value
        elif not _BESIDE.match(name):
            for old, new in _RENAMED:
                name = old.sub(new, name)
            fit[name] = value
    first = f"{_first_convolution(network)[0]}.weight"
    if first in fit and first in own:
        fit[first] = _of_channels(fit[first], own[first].shape)
    last = [name for name, _ in network.named_parameters()][-1].rpartition(".")[0]
    head = [name for name in fit if name.rpartition(".")[0] == last and name in own]
    if any(fit[name].shape[:1] != own[name].shape[:1] for name in head):
        fit = {name: value for name, value in fit.items() if name not in head}
    return fit


def file_of(node: Any) -> str | None:
    """The file of weights that the node of a network by name reads; None where it reads none.
    Raises ConfigError if it is not on this machine.
    """
    if not isinstance(node, Mapping):
        return None
    module, _, library = str(node.get("_target_")).rpartition(".")
    given = node.get("weights")
    if module != __name__ or library not in _LIBRARIES or given is None:
        return None
    return _weights_file(_LIBRARIES[library]("model.name", str(node.get("name"))), str(given))


def _trained(
    library: str, in_shape: Sequence[int], num_classes: int, name: str, weights: str | None
) -> nn.Module:
    """See `torchvision`."""

    def build(shape: Shape) -> nn.Module:
        network = made(library, name, num_classes, "model.name", shape)
        _check_size(network, name, shape)
        if weights is not None:
            file = _weights_file(_LIBRARIES[library]("model.name", name), weights)
            fill("model.weights", file, network, fitted(network, read_state("model.weights", file)))
            if shape[0] == _COLOURS and hasattr(network, "transform_input"):
                # as torchvision makes a pretrained one
                network.transform_input = True  # type: ignore[assignment]
        return network

    return of_images(f"{library}'s {name}", tuple(int(size) for size in in_shape), build)


@dataclass(frozen=True)
class _Network:
    """A network of a library; `key` is what its name is called in messages."""

    key: str
    name: str

    def make(self, classes: int, shape: Shape | None) -> nn.Module:
        """See `made`."""
        raise NotImplementedError

    def files(self) -> Mapping[str, tuple[Path, str]]:
        """By name of its published weights where their file is, and code that downloads it."""
        raise NotImplementedError


class _OfTorchvision(_Network):
    def make(self, classes: int, shape: Shape | None) -> nn.Module:
        models = self._models()
        made: Callable[..., nn.Module] = models.get_model_builder(self.name)
        options: dict[str, Any] = {}
        if self.name in ("googlenet", "inception_v3"):
            options = {"aux_logits": False, "init_weights": True}
        if self.name.startswith("vit_") and shape is not None:
            options = {"image_size": max(shape[1:])}
        network = _built(self, lambda: made(weights=None, num_classes=classes, **options), shape)
        if shape is not None and shape[0] != _COLOURS:
            _take_channels(network, shape[0])
        return network

    def files(self) -> Mapping[str, tuple[Path, str]]:
        found = {}
        for name, one in self._models().get_model_weights(self.name).__members__.items():
            code = f'from torchvision import models; models.get_weight("{one}").get_state_dict()'
            found[name] = (_downloaded(one.url.rpartition("/")[2]), code)
        return found

    def _models(self) -> Any:
        """The library, which takes a second to import and has the network."""
        models = of_torchvision("models")
        known, others = models.list_models(module=models), models.list_models()
        allowed = "a network of torchvision such as resnet18"
        if self.name in others:
            allowed = "a network of torchvision that classifies pictures, which this does not"
        require(self.name in known, self.key, self.name, allowed + _near(self.name, known))
        return models


class _OfTimm(_Network):
    def make(self, classes: int, shape: Shape | None) -> nn.Module:
        timm = self._timm()
        options: dict[str, Any] = {"num_classes": classes}
        if shape is not None:
            options["in_chans"] = shape[0]
            config = timm.get_pretrained_cfg(self.name)
            if config is not None and config.fixed_input_size:
                options["img_size"] = shape[1:]
        return _built(
            self, lambda: timm.create_model(self.name, pretrained=False, **options), shape
        )

    def files(self) -> Mapping[str, tuple[Path, str]]:
        found = {}
        for whole in self._timm().list_pretrained(f"{self.name}.*"):
            file = _downloaded(f"{whole}.pth")
            folder, path = json.dumps(str(file.parent)), json.dumps(str(file))
            code = (
                f"import os, timm, torch; os.makedirs({folder}, exist_ok=True); torch.save("
                f'timm.create_model("{whole}", pretrained=True).state_dict(), {path})'
            )
            found[whole.partition(".")[2]] = (file, code)
        return found

    def _timm(self) -> Any:
        """The library, which has the network."""
        try:
            timm = import_module("timm")
        except ImportError as error:
            needs = f"{self.key}={self.name} needs timm: {install('timm')}"
            raise ConfigError(needs) from error
        known = timm.list_models()
        require(
            self.name in known,
            self.key,
            self.name,
            "one of timm's networks, such as resnet18" + _near(self.name, known),
        )
        return timm


_LIBRARIES: Mapping[str, type[_Network]] = {"torchvision": _OfTorchvision, "timm": _OfTimm}


def _near(name: str, known: Iterable[str]) -> str:
    """A question for the network whose name is part of the one given, or is most like it."""
    known = list(known)
    inside = [one for one in known if one in name]
    meant = f"did you mean {max(inside, key=len)}?" if inside else did_you_mean(name, known)
    return f"; {meant}" if meant else ""


def _downloaded(name: str) -> Path:
    """Where PyTorch keeps a file of weights that it has downloaded."""
    return Path(torch.hub.get_dir(), "checkpoints", name)


def _weights_file(network: _Network, given: str) -> str:
    """The file that `model.weights` means. Raises ConfigError if it is not on this machine."""
    if Path(given).is_file():
        return given
    files = network.files()
    names = f", or a name of published weights: {', '.join(files)}" if files else ""
    require(given in files, "model.weights", given, f"a file with a state dict{names}")
    file, code = files[given]
    get = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    require(file.is_file(), "model.weights", given, f"{file} is not there; to download it: {get}")
    return str(file)


def _built(network: _Network, make: Callable[[], nn.Module], shape: Shape | None) -> nn.Module:
    """What a library makes; ConfigError where it makes nothing for such examples."""
    try:
        return make()
    except Exception as error:  # each network has refusals of its own
        images = "" if shape is None else f" for images of {shape[1]} x {shape[2]}"
        words = " ".join(str(error).split())[:150]
        raise ConfigError(
            f"{network.key}={network.name} is not allowed{images}: {words or type(error).__name__}"
        ) from error


def _first_convolution(network: nn.Module) -> tuple[str, nn.Conv2d]:
    """The layer that sees the picture, and its name."""
    parts = network.named_modules()
    return next((name, part) for name, part in parts if isinstance(part, nn.Conv2d))


def _take_channels(network: nn.Module, channels: int) -> None:
    """Exchange the first convolution for one of so many channels, drawn as PyTorch does."""
    name, old = _first_convolution(network)
    like = {
        key: getattr(old, key)
        for key in ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")
    }
    new = nn.Conv2d(channels, old.out_channels, bias=old.bias is not None, **like)
    owner, _, last = name.rpartition(".")
    setattr(network.get_submodule(owner), last, new)


def _of_channels(kernel: Tensor, shape: Sequence[int]) -> Tensor:
    """Kernels [O, 3, h, w] for the channels of `shape` [O, C, h, w]; any others as they are."""
    if kernel.dim() != len(shape) or kernel.shape[1] != _COLOURS or shape[1] == _COLOURS:
        return kernel
    if shape[1] == 1:
        return kernel.sum(1, keepdim=True)
    repeated = kernel[:, torch.arange(shape[1]) % _COLOURS]
    return repeated * (_COLOURS / shape[1])


def _check_size(network: nn.Module, name: str, shape: Shape) -> None:
    """Refuse images that a network does not take, with the smallest that it does."""
    why = _obstacle(network, shape)
    if why is None:
        return
    sizeless = copy.deepcopy(network).to("meta")  # shapes without numbers
    sides = [side for side in _SIDES if side > min(shape[1:])]
    fits = (side for side in sides if _obstacle(sizeless, (shape[0], side, side)) is None)
    side = next(fits, None)
    allowed = f"{name} needs images of at least {side} x {side}" if side else why
    raise ConfigError(
        f"model.name={name} is not allowed for images of {shape[1]} x {shape[2]}: {allowed}; "
        "resize them (dataset.size, where the data set has it), or choose another network"
    )


@torch.no_grad()
def _obstacle(network: nn.Module, shape: Shape) -> str | None:
    """Why a network, put into evaluation for it, takes no image of a shape; None where it does."""
    training, device = network.training, next(network.parameters()).device
    try:
        network.eval()(torch.zeros(1, *shape, device=device))
    except Exception as error:  # whatever a layer makes of it
        return " ".join(str(error).split())[:150] or type(error).__name__
    finally:
        network.train(training)
    return None
