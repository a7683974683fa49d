"""Frozen features: what a pretrained network makes of every example, computed once and kept."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedclust.core.pool import Pool
from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.files import Sealed, opened_json, replacing, sealed_file, sealed_json
from fedclust.helpers.ranges import Ranged, Side
from fedclust.models.named import fitted, made
from fedclust.models.weights import file_digest, fill, opened, read_state

Build = Callable[..., nn.Module]
_BLOCK = 64  # examples of one pass
_SECONDS = 10  # between two lines that say how far it is
_CLASSES = 1000  # of a network whose file has no last layer
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels in [0, 1]


@dataclass(frozen=True, kw_only=True)
class Features(Ranged):
    """A network that is run over all examples, and what of it models see."""

    # name of a network of torchvision, or of timm as in timm:vit_small_patch16_224; a mapping with
    # `_target_` is one of a user's own
    model: str | Mapping[str, Any]
    weights: str  # file with its state dict
    # name of the submodule whose outputs are taken; None for what enters the last linear layer
    layer: str | None = None
    size: Side | None = None  # side that pictures are resized to; None as they are
    # dataset, as the data set scales them, or imagenet, by the statistics that networks of
    # torchvision are trained with
    pixels: Literal["dataset", "imagenet"] = "dataset"

    def of(self, pool: Pool, folder: Path, own: Build | None) -> Pool:
        """The pool with features [images, F] in place of its examples.

        They are kept in a file of the folder, named by all that they follow from, and mapped into
        memory the next time.

        Args:
            folder: where features are kept; none where nobody may write there.
            own: makes the user's own network, from `in_shape` and `num_classes`.

        Raises:
            ConfigError: the file, the layer or the examples do not fit the network.
        """
        fixed = pool.view is None or not pool.view.changes
        require(fixed, "dataset.augment", "drawn", "none with features, which are computed once")
        if self.pixels == "imagenet":
            plain = pool.x.dtype == torch.uint8 and pool.x.dim() == 4 and pool.view is None
            allowed = "dataset, unless examples are 8-bit pictures, seen whole"
            require(plain and pool.vocabulary is None, "features.pixels", self.pixels, allowed)
        file = folder / f"{self._name(pool)}.npy"
        features = _kept(file)
        if features is None:
            features = _keep(file, self.computed(pool, own))
        one = torch.ones(1)
        seen = replace(pool, x=features, scale=one, shift=one * 0, view=None, vocabulary=None)
        return seen.to(pool.x.device)

    def _name(self, pool: Pool) -> str:
        """Digest of all that the features follow from."""
        examples = replace(pool, y=pool.y[:0], image=None).digest
        parts = [examples, str(pool.vocabulary), file_digest("features.weights", self.weights)]
        parts.append(str(sorted({**asdict(self), "weights": ""}.items())))
        if isinstance(self.model, Mapping):  # its code decides, too
            module = sys.modules[str(self.model["_target_"]).rpartition(".")[0]]
            parts.append(hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    def computed(self, pool: Pool, own: Build | None) -> Tensor:
        """The features [images, F] float32, on the CPU."""
        whole = replace(pool, image=None)
        if self.pixels == "imagenet":
            one = torch.ones(1, device=pool.x.device)
            whole = replace(whole, scale=one / 255, shift=one * 0)
        network = self._network(self._seen(whole, slice(0, 1)), own).to(pool.x.device)
        out, since = list[Tensor](), time.monotonic()
        for first in range(0, len(pool.x), _BLOCK):
            x = self._seen(whole, slice(first, first + _BLOCK))
            out.append(self._outputs(network, x).flatten(1).float().cpu())
            if time.monotonic() - since > _SECONDS:
                since = time.monotonic()
                done = min(first + _BLOCK, len(pool.x))
                print(f"features: {done:,} of {len(pool.x):,} examples", file=sys.stderr)
        return torch.cat(out)

    def _seen(self, pool: Pool, part: slice) -> Tensor:
        """What the network sees of some images."""
        places = torch.arange(len(pool.x), device=pool.x.device)[part]
        x = pool.inputs(places)
        if x.dim() == 4 and x.shape[1] == 1:
            x = x.expand(-1, 3, -1, -1)
        if self.pixels == "imagenet":
            mean, std = (x.new_tensor(one).view(3, 1, 1) for one in (_MEAN, _STD))
            x = (x - mean) / std
        if self.size is not None:
            allowed = "null, since examples are no pictures"
            require(x.dim() == 4, "features.size", self.size, allowed)
            size = (self.size, self.size)
            x = nn.functional.interpolate(x, size, mode="bilinear", antialias=True)
        return x

    def _network(self, x: Tensor, own: Build | None) -> nn.Module:
        """The network with its weights, in evaluation, tried on an example."""
        state = read_state("features.weights", self.weights)
        rows = [len(value) for value in state.values() if value.dim() == 2]
        classes = rows[-1] if rows else _CLASSES
        if own is not None:
            network = opened(own(in_shape=tuple(x.shape[1:]), num_classes=classes))
        else:
            library, _, name = str(self.model).rpartition(":")
            network = made(library or "torchvision", name, classes, "features.model")
            state = fitted(network, state)
        fill("features.weights", self.weights, network, state)
        names = [name for name, _ in network.named_modules() if name]
        few = ", ".join([*names[:3], *(["…"] if names[6:] else []), *names[-3:]])
        allowed = f"a part of {type(network).__name__}: {few}"
        require(self.layer in (None, *names), "features.layer", self.layer, allowed)
        network.eval()
        try:
            self._outputs(network, x.cpu())
        except ConfigError:
            raise
        except Exception as error:  # whatever the network makes of examples of another shape
            words = " ".join(str(error).split())[:150]
            raise ConfigError(
                f"features: {type(network).__name__} cannot take examples of shape "
                f"{tuple(x.shape[1:])}: {words}"
            ) from error
        return network

    @torch.no_grad()
    def _outputs(self, network: nn.Module, x: Tensor) -> Tensor:
        """What the layer says of x [n, …], or what enters the last linear layer."""

        def take(_: nn.Module, inputs: tuple[Any, ...], *outputs: Any) -> None:
            raise _Taken(outputs[0] if outputs else inputs[0])  # what follows is not computed

        if self.layer is not None:
            hook = network.get_submodule(self.layer).register_forward_hook(take)
        else:
            linear = [part for part in network.modules() if isinstance(part, nn.Linear)]
            allowed = "the name of a layer, since the network has no linear one"
            require(bool(linear), "features.layer", None, allowed)
            hook = linear[-1].register_forward_pre_hook(take)
        values: Any = None
        try:
            network(x)
        except _Taken as taken:
            values = taken.args[0]
        finally:
            hook.remove()
        fits = isinstance(values, Tensor) and len(values) == len(x)
        allowed = "a layer that returns numbers for every example"
        require(fits, "features.layer", self.layer, allowed)
        assert isinstance(values, Tensor)
        return values


class _Taken(Exception):
    """Ends a pass."""


def _kept(file: Path) -> Tensor | None:
    """The features of a file, mapped into memory; None where it is not there or damaged."""
    with suppress(OSError):
        seal = opened_json(file.with_suffix(".json").read_bytes(), "size", "digest")
        if seal is not None and Sealed(seal["size"], seal["digest"]).fits(file):
            return torch.from_numpy(np.load(file, mmap_mode="c"))
    return None


def _keep(file: Path, features: Tensor) -> Tensor:
    """The features, kept in a file where one can be written."""
    try:
        with replacing(file) as half, half.open("wb") as opened:
            np.save(opened, features.numpy())
        if (seal := sealed_file(file)) is not None:
            with replacing(file.with_suffix(".json")) as half:
                half.write_text(sealed_json(seal._asdict()), encoding="utf-8")
    except OSError as error:
        print(f"features: not kept, since {error.filename} cannot be written", file=sys.stderr)
    return features
