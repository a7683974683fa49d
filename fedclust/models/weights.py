"""State dicts in files, and models that begin with one or of which a part is frozen."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from fedclust.helpers.errors import ConfigError, require
from fedclust.models.foreign import made_by
from fedclust.models.lora import Lora
from fedclust.models.naming import few, meets
from fedclust.models.params import trained
from fedclust.models.sequence import Model

State = Mapping[str, Tensor]
_INSIDE = ("state_dict", "model_state_dict", "model")  # where checkpoints keep a state dict
_BEFORE = ("module.", "_orig_mod.")  # in front of all names, by DataParallel and torch.compile
_LIGHTNING = "model."  # likewise, where the module has no such part itself
_KINDS = {  # of a safetensors file
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}
_HEADER = 8  # bytes that say how long a safetensors header is
# as PyTorch's hub names files by their digest, resnet18-f37072fd.pth; behind other names a date or
# a commit looks the same
_HUB = (
    "alexnet|convnext|deeplab|densenet|efficientnet|fcn|googlenet|inception|maxvit|mnasnet|mobilenet"
    "|regnet|resnet|resnext|shufflenet|squeezenet|swin|vgg|vit|wide_resnet"
)
_NAMED = re.compile(f"(?:^|/)(?:{_HUB})" + r"[^/]*-(?!\d{8}\.)([0-9a-f]{8})\.\w+$")
_SHOWN = 3  # names in a message


class _OtherError(Exception):
    """A file that is whole and holds something else, in words."""


def file_digest(key: str, file: str) -> str:
    """SHA-256 of a file, hexadecimal digits. Raises `ConfigError` if there is none, or its name has
    another digest, as in resnet18-f37072fd.pth.
    """
    allowed = "a file with a state dict, PyTorch's or safetensors', and there is none"
    require(Path(file).is_file(), key, file, allowed)
    with Path(file).open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    named = _NAMED.search(file)
    fits = named is None or digest.startswith(named[1])
    require(fits, key, file, f"a file with the digest of its name, and this has {digest[:8]}")
    return digest


def read_state(key: str, file: str) -> State:
    """The tensors of a state dict in a file, on the CPU: PyTorch's, or safetensors'.

    Nothing in the file is run. A checkpoint that keeps its state dict as `state_dict`,
    `model_state_dict` or `model` is looked into, and `module.` or `_orig_mod.` in front of all
    names is left out.

    Raises:
        ConfigError: there is no such file, or it holds something else.
    """
    file_digest(key, file)
    path = Path(file)
    try:
        read = _safetensors if path.suffix == ".safetensors" else _pickled
        state = read(path)
    except Exception as error:  # a damaged file raises whatever its reader happens to meet first
        why = str(error) if isinstance(error, _OtherError) else "it is not a whole file of weights"
        raise ConfigError(f"{key}={file} is not allowed: {why}") from error
    inside = next((one for one in _INSIDE if isinstance(state.get(one), Mapping)), None)
    state = state if inside is None else state[inside]
    odd = [n for n, value in state.items() if not (isinstance(value, Tensor) and type(n) is str)]
    allowed = f"a state dict, names and tensors, and it has {odd[0] if odd else 'none'}"
    require(bool(state) and not odd, key, file, allowed)
    for before in _BEFORE:
        if all(name.startswith(before) for name in state):
            state = {name.removeprefix(before): value for name, value in state.items()}
    return state


def _pickled(path: Path) -> dict[str, Any]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, KeyError) as error:  # KeyError: a text, read as pickled
        raise _OtherError("it is no file of PyTorch's, or holds more than tensors") from error
    return dict(found) if isinstance(found, Mapping) else {}


def _safetensors(path: Path) -> dict[str, Any]:
    raw = bytearray(path.read_bytes())
    start = _HEADER + int.from_bytes(raw[:_HEADER], "little")
    header = json.loads(raw[_HEADER:start])
    header.pop("__metadata__", None)
    state = {}
    for name, one in header.items():
        first, end = one["data_offsets"]
        part, kind = raw[start + first : start + end], _KINDS.get(one["dtype"])
        if kind is None:
            raise _OtherError(f"it has values of type {one['dtype']}: one of {', '.join(_KINDS)}")
        flat = torch.frombuffer(part, dtype=kind) if part else torch.empty(0, dtype=kind)
        state[name] = flat.view(one["shape"])
    return state


def fill(key: str, file: str, module: nn.Module, state: State) -> None:
    """Give a module the values of a state dict; what the file lacks of the last layer, stays.
    Raises `ConfigError` if names or shapes differ.
    """
    own, name = module.state_dict(), type(module).__name__
    if all(one.startswith(_LIGHTNING) and one not in own for one in state):
        state = {one.removeprefix(_LIGHTNING): value for one, value in state.items()}
    for one, value in state.items():
        require(one in own, key, file, f"weights of {name}, which has no {one}{few(own)}")
        shape = tuple(own[one].shape)
        allowed = f"weights of {name}, whose {one} has shape {shape}, not {tuple(value.shape)}"
        require(shape == tuple(value.shape), key, file, allowed)
        alike = value.is_floating_point() == own[one].is_floating_point() and not value.is_complex()
        allowed = f"weights of {name}, whose {one} is {own[one].dtype}, not {value.dtype}"
        require(alike, key, file, allowed)
        whole = bool(value.isfinite().all())
        require(whole, key, file, f"weights that are numbers, and {one} has some that are not")
    names = [one for one, _ in module.named_parameters()]
    head = names[-1].rpartition(".")[0]
    lacking = [one for one in own if one not in state and one.rpartition(".")[0] != head]
    lacking = [one for one in lacking if not one.endswith("num_batches_tracked")]
    allowed = f"weights of {name}, and it lacks {', '.join(lacking[:_SHOWN])}"
    require(not lacking, key, file, allowed)
    given = OrderedDict(state)
    # names and shapes are those of this version of its layers, whatever the file says of its own
    given._metadata = own._metadata  # type: ignore[attr-defined]
    module.load_state_dict(given, strict=False)


def beginning(
    make: Callable[[], nn.Module],
    file: str | None = None,
    frozen: Sequence[str] = (),
    lora: Lora | None = None,
) -> nn.Module:
    """The module that `make` builds, beginning with the weights of a file, a part of it frozen.

    Args:
        file: state dict that it begins with; None for what its constructor draws.
        frozen: names of parameters, of what holds them, or patterns such as `layer[12].*`: they are
            neither trained nor part of a model's row. A normalisation all of whose parameters are
            frozen keeps its statistics.
        lora: adapters, which with the last layer are all that is trained.

    Raises:
        ConfigError: the file does not fit, a pattern meets nothing, or the model has a penalty.
    """
    if file is None and not frozen and lora is None:
        return made_by(make)
    state = None if file is None else read_state("weights", file)

    def anew() -> nn.Module:
        module = make()
        if isinstance(module, Model) and module.l2:
            raise ConfigError(
                "model: weights, frozen and lora need a model without an L2 penalty of its own, "
                f"and this one has it on {next(iter(module.l2))}"
            )
        module = opened(module)
        if state is not None:
            fill("weights", str(file), module, state)
        if lora is not None:
            lora.adapt(module)
        freeze(module, frozen)
        return module

    return made_by(anew)


def freeze(module: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze the parameters that patterns meet; see `beginning`."""
    names = [name for name, _ in module.named_parameters()]
    for pattern in patterns:
        allowed = f"names or patterns of parameters{few(names)}"
        require(any(meets(pattern, name) for name in names), "frozen", pattern, allowed)
    for name, value in module.named_parameters():
        if any(meets(pattern, name) for pattern in patterns):
            value.requires_grad = False
    left = bool(trained(module))
    require(left, "frozen", list(patterns), "patterns that leave something to train")
    for part in module.modules():
        own = list(part.parameters())
        still = bool(own) and not any(value.requires_grad for value in own)
        if still and isinstance(part, nn.modules.batchnorm._NormBase):
            part.eval()
            part.train = MethodType(_stays, part)  # type: ignore[method-assign]


def _stays(part: nn.Module, mode: bool = True) -> nn.Module:  # noqa: ARG001
    """A normalisation in evaluation for good."""
    return part


def opened(module: nn.Module) -> nn.Module:
    """One of our sequences of layers as a plain module with parameters of its own, drawn."""
    if not isinstance(module, Model):
        return module
    seed = int(torch.randint(2**62, ()))
    drawn = module.draw(torch.Generator().manual_seed(seed))
    plain = nn.Sequential(*map(copy.deepcopy, module))
    sizes = [value.numel() for value in plain.parameters()]
    names = [name for name, _ in plain.named_parameters()]
    for name, part in zip(names, torch.split(drawn, sizes), strict=True):
        owner, _, last = name.rpartition(".")
        layer = plain.get_submodule(owner)
        shape = getattr(layer, last).shape
        setattr(layer, last, nn.Parameter(part.view(shape).clone()))
    return plain
