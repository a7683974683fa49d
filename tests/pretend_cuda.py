"""A GPU that is not there: tensors that say they are on one, computed on the CPU.

What runs here takes the paths that are meant for a GPU, fails where tensors of both devices meet in
one operation, and is asked how often the host waited for the device. It says nothing about speed or
rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fedclust.engines.fused import gpu

CUDA = torch.device("cuda:0")
# the host learns numbers, or how many there are
_WAITS = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "equal",
)


class Pretended(Tensor):
    """A tensor on the device; `held` is the one on the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Pretended:
        like = {
            "strides": held.stride(),
            "storage_offset": held.storage_offset(),
            "dtype": held.dtype,
        }
        made: Pretended = Tensor._make_wrapper_subclass(cls, held.shape, **like, device="meta")
        made.held = held
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretended({self.held})"

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} outside of pretend_cuda()")


def _is_cuda(value: object) -> bool:
    if isinstance(value, str):
        return value.startswith("cuda")
    return isinstance(value, torch.device) and value.type == "cuda"


def _like(args: Any, number: float) -> torch.dtype:
    """The type of a number beside tensors."""
    types = [x.dtype for x in args if isinstance(x, Tensor) and x.dtype != torch.bool]
    if isinstance(number, float) and not (types and types[0].is_floating_point):
        return torch.float32
    return types[0] if types else torch.int64


class _Factories(TorchFunctionMode):
    """Makes new tensors of the device, before PyTorch looks for one.

    What comes from the host's memory is waited for, unless it is copied with non_blocking.
    """

    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self._waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.where, Tensor.where) and len(args) == 3:
            # PyTorch would put a number where the device really is, which is nowhere
            args = [
                x if isinstance(x, Tensor) else torch.scalar_tensor(x, dtype=_like(args, x))
                for x in args
            ]
        on_it = _is_cuda(kwargs.get("device"))
        moved = getattr(func, "__name__", "") == "to" and any(_is_cuda(a) for a in args[1:])
        if not on_it and not moved:
            return func(*args, **kwargs)
        if on_it:
            kwargs["device"] = (
                CUDA if args and isinstance(args[0], Pretended) else torch.device("cpu")
            )
        tensor = args[0] if args and isinstance(args[0], Tensor) else None
        if isinstance(tensor, Pretended):
            rest = [a for a in args[1:] if not _is_cuda(a)]
            kwargs.pop("device", None)
            return func(tensor, *rest, **kwargs) if rest or kwargs else tensor
        arrives = tensor is not None and getattr(func, "__name__", "") == "to"
        if (arrives and not kwargs.get("non_blocking")) or func in (torch.tensor, torch.as_tensor):
            self._waits["to"] += 1
        if tensor is not None and arrives:
            return Pretended(tensor.clone())
        return Pretended(func(*args, **kwargs))


class Device(TorchDispatchMode):
    """Computes, and counts in `waits` how often the host waited, by operation.

    While `graph` is given, operations are only noted in it, as a capture does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.kernels = 0
        self.graph: Graph | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        here = [x for x in tensors if isinstance(x, Pretended)]
        if not here:
            return func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        moves = self._moves(name, args, kwargs)
        if moves or name in _WAITS or (name == "index" and any(_is_mask(x) for x in args[1])):
            self.waits[name] += 1
            assert self.graph is None, f"the host waits for {name} in a graph"
        elsewhere = [x for x in tensors if not isinstance(x, Pretended) and x.dim()]
        assert moves or not elsewhere, (
            f"{name} mixes devices: {[tuple(x.shape) for x in elsewhere]}"
        )
        if self.graph is not None:
            self.graph.keep(here)
        self.kernels += 1
        result = _computed(func, args, kwargs)
        if moves == "leaves":
            return result
        known = {id(x.held): x for x in here}
        result = pytree.tree_map(
            lambda x: _pretended(x, known) if isinstance(x, Tensor) else x, result
        )
        if self.graph is not None:
            self.graph.calls.append((func, args, kwargs, result))
        return result

    @staticmethod
    def _moves(name: str, args: Any, kwargs: Any) -> str:
        """Whether something leaves the device or arrives on it."""
        if (
            name == "_to_copy"
            and kwargs.get("device") is not None
            and not _is_cuda(kwargs["device"])
        ):
            return "leaves"
        if name == "copy_" and isinstance(args[0], Pretended) != isinstance(args[1], Pretended):
            return "arrives" if isinstance(args[0], Pretended) else "leaves"
        return ""


def _is_mask(x: Tensor | None) -> bool:
    return x is not None and x.dtype == torch.bool


def _pretended(x: Tensor, known: dict[int, Pretended]) -> Pretended:
    return known[id(x)] if id(x) in known else Pretended(x)


def _computed(func: Any, args: Any, kwargs: Any) -> Any:
    """The call on the CPU."""
    args, kwargs = pytree.tree_map(
        lambda x: x.held if isinstance(x, Pretended) else x, (args, dict(kwargs))
    )
    if kwargs.get("device") is not None:
        kwargs["device"] = torch.device("cpu")
    if func is torch.ops.aten.bmm.dtype:  # of bfloat16 with a float32 result: not on a CPU
        return torch.bmm(args[0].float(), args[1].float())
    return func(*args, **kwargs)


class Graph:
    """A graph as CUDA's: a capture computes nothing, a replay writes to the memory of the
    capture.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self._before: dict[int, tuple[Tensor, Tensor]] = {}

    def keep(self, tensors: list[Pretended]) -> None:
        """Note what the memory of some tensors holds, where that is not noted yet."""
        for x in tensors:
            storage = x.held.untyped_storage()
            if storage.data_ptr() not in self._before:
                whole = torch.empty(0, dtype=torch.uint8).set_(storage)
                self._before[storage.data_ptr()] = whole, whole.clone()

    def end(self) -> None:
        """The memory is as it was before the capture."""
        for whole, before in self._before.values():
            whole.copy_(before)

    def replay(self) -> None:
        for func, args, kwargs, result in self.calls:
            inputs = [
                x.held for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Pretended)
            ]
            mine = {x.untyped_storage().data_ptr() for x in inputs}
            found = pytree.tree_leaves(_computed(func, args, kwargs))
            for old, new in zip(pytree.tree_leaves(result), found, strict=True):
                if isinstance(old, Pretended) and old.held.untyped_storage().data_ptr() not in mine:
                    old.held.copy_(new)


def _load(load: Any, file: Any, map_location: Any = None, **options: Any) -> Any:
    """torch.load, also to the device."""
    found = load(file, map_location="cpu", **options)
    return pytree.tree_map(lambda x: x.to(map_location) if isinstance(x, Tensor) else x, found)


@contextmanager
def _capturing(device: Device, graph: Graph) -> Iterator[None]:
    device.graph = graph
    try:
        yield
    finally:
        device.graph = None
        graph.end()


@contextmanager
def pretend_cuda(free: int = 8 << 30) -> Iterator[Device]:
    """A device with `free` bytes for what happens inside."""
    with pytest.MonkeyPatch.context() as patch, Device() as device, _Factories(device.waits):
        patch.setattr(gpu, "runs_on", lambda _: False)  # what is launched needs a device
        patch.setenv("FEDCLUST_KERNELS", "graphs")
        patch.setattr(torch, "load", partial(_load, torch.load))
        patch.setattr(torch.cuda, "CUDAGraph", Graph)
        patch.setattr(torch.cuda, "graph", partial(_capturing, device))
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(torch.cuda, "get_device_name", lambda *_: "a pretended GPU")
        patch.setattr(torch.cuda, "mem_get_info", lambda *_: (free, free))
        patch.setattr(torch.cuda, "memory_reserved", lambda *_: 0)
        patch.setattr(torch.cuda, "memory_allocated", lambda *_: 0)
        patch.setattr(torch.cuda, "max_memory_allocated", lambda *_: 3 << 20)
        for nothing in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
            patch.setattr(torch.cuda, nothing, lambda *_: None)
        properties = SimpleNamespace(L2_cache_size=1 << 20)
        patch.setattr(torch.cuda, "get_device_properties", lambda *_: properties)
        yield device
