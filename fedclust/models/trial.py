"""What a few passes of a user's module on two examples say of it, before anything depends on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedclust.helpers.errors import ConfigError
from fedclust.models.exchanged import seeded

_SAME = 1e-3  # relative; passes of one and of two examples round differently


@dataclass(frozen=True)
class Found:
    """What a module is like."""

    # of what every submodule returns for one example, the module's own last
    shapes: tuple[tuple[int, ...], ...]
    # names of the buffers that a pass in training changes, and of those beside them
    changing: tuple[str, ...]
    draws: bool  # whether it draws from the global generator in training
    lone: bool  # whether a batch of one example can be trained on


def examine(module: nn.Module, x: Tensor, width: int | None = None) -> Found:
    """Try a module whose dropout layers are exchanged, on two examples x [2, *shape].

    Args:
        x: the examples.
        width: numbers that it must return for an example; None for any.

    Raises:
        ConfigError: if it cannot take such examples, does not return one row of `width` numbers for
            each, looks at other examples of a batch, draws random numbers in evaluation, or keeps
            something between passes.
    """
    name = type(module).__name__
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        raise ConfigError(
            f"model={name} is not allowed: its lazy layers have no parameters yet; pass it an "
            "example once where it is made"
        )
    together, shapes = _watched(copy.deepcopy(module).eval(), x, name)
    out = _output(together[-1][1], width, name)
    if not _finite([out]) and _finite(module.parameters()):  # others are drawn later
        raise ConfigError(
            f"model={name} is not allowed: it returns numbers that are not finite for two examples "
            "before any training"
        )
    _check_alone(module, x, together, name)
    training = copy.deepcopy(module).train()
    before = {key: value.clone() for key, value in training.named_buffers()}
    plain = _plain(training)
    state = torch.get_rng_state()
    first = seeded(0, lambda: (_passed(training, x, name), torch.get_rng_state()))
    draws = not torch.equal(first[1], seeded(0, torch.get_rng_state))
    torch.set_rng_state(state)
    _check_kept(training, plain, name)
    changed = {k for k, v in training.named_buffers() if not _equal(v, before[k])}
    for key, value in training.named_buffers():
        value.data = before[key]
    again = seeded(0, lambda: _passed(training, x, name))
    if not _close(again, first[0]):
        raise ConfigError(
            f"model={name} is not allowed: two passes of the same examples differ, so it keeps "
            "something between passes, or draws from another generator than PyTorch's"
        )
    owners = {key.rpartition(".")[0] for key in changed} | _counting(module)
    return Found(
        shapes=tuple(shapes),
        changing=tuple(k for k, _ in module.named_buffers() if k.rpartition(".")[0] in owners),
        draws=draws,
        lone=_takes(copy.deepcopy(module).train(), x[:1]),
    )


def _counting(module: nn.Module) -> set[str]:
    """Names of the normalisations of PyTorch that keep statistics and are in training."""
    kept = nn.modules.batchnorm._NormBase
    return {
        key
        for key, part in module.named_modules()
        if isinstance(part, kept) and part.training and part.running_mean is not None
    }


def _watched(
    module: nn.Module, x: Tensor, name: str
) -> tuple[list[tuple[str, object]], list[tuple[int, ...]]]:
    """What every submodule returns, by its name and kind, in the order of the calls, the module's
    own last; and the shapes of the tensors for one example.
    """
    outputs: list[tuple[str, object]] = []

    def note(key: str) -> Callable[[nn.Module, object, object], None]:
        def hook(part: nn.Module, _: object, out: object) -> None:
            kind = type(part).__name__
            outputs.append((f"{key} ({kind})" if key else kind, out))

        return hook

    hooks = [part.register_forward_hook(note(key)) for key, part in module.named_modules()]
    state = torch.get_rng_state()
    outputs_before = len(outputs)
    out = _passed(module, x, name)
    if not torch.equal(torch.get_rng_state(), state):
        torch.set_rng_state(state)
        raise ConfigError(
            f"model={name} is not allowed: it draws random numbers in evaluation; a dropout that "
            "is a function needs training=self.training"
        )
    for one in hooks:
        one.remove()
    if len(outputs) == outputs_before:
        outputs.append((name, out))
    shapes = [tuple(o.shape[1:]) for _, o in outputs if isinstance(o, Tensor)]
    return outputs, shapes


@torch.no_grad()
def _passed(module: nn.Module, x: Tensor, name: str) -> Tensor:
    """What the module says of x."""
    try:
        out: Tensor = module(x.clone())
    except ConfigError:
        raise
    except Exception as error:  # a user's code can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"model={name} cannot take examples of shape {tuple(x.shape[1:])}: {reason}"
        ) from error
    return out


def _takes(module: nn.Module, x: Tensor) -> bool:
    """Whether a pass in training takes x."""
    try:
        _passed(module, x, "")
    except ConfigError:
        return False
    return True


def _output(out: object, width: int | None, name: str) -> Tensor:
    """What a module returns, a row of numbers for each of two examples, or ConfigError."""
    if not (isinstance(out, Tensor) and out.ndim == 2 and len(out) == 2 and out.numel()):
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ConfigError(
            f"model={name} returns {got} for two examples: logits [2, classes] are expected"
        )
    if width is not None and out.shape[1] != width:
        raise ConfigError(
            f"model={name} returns {out.shape[1]} numbers for an example, and these data need "
            f"{width}: its last layer must have num_classes outputs"
        )
    return out


def _check_alone(
    module: nn.Module, x: Tensor, together: list[tuple[str, object]], name: str
) -> None:
    """Refuse a module that says something else of an example when another one is beside it."""
    where = together[-1][0]
    try:
        alone, _ = _watched(copy.deepcopy(module).eval(), x[:1], name)
    except ConfigError as error:
        raise ConfigError(f"{error}, where it takes two of them together") from error
    for (key, both), (_, one) in zip(together, alone, strict=False):
        comparable = isinstance(both, Tensor) and isinstance(one, Tensor)
        if comparable and len(both) == 2 and len(one) == 1 and not _close(one, both[:1]):  # type: ignore[arg-type, index]
            where = key
            break
    final = together[-1][1], alone[-1][1]
    assert isinstance(final[0], Tensor)
    assert isinstance(final[1], Tensor)
    if not _close(final[1], final[0][:1]):
        raise ConfigError(
            f"model={name} is not allowed: what it says of an example depends on the other "
            f"examples of the batch, first in {where}; a normalisation must keep statistics, and a "
            "softmax go over classes"
        )


def _plain(module: nn.Module) -> dict[str, object]:
    """The numbers that submodules keep as attributes."""
    return {
        f"{key}.{name}" if key else name: value
        for key, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, int | float)
    }


def _check_kept(module: nn.Module, before: dict[str, object], name: str) -> None:
    """Refuse a module one of whose numbers a pass changes: no engine would know of it."""
    for key, value in _plain(module).items():
        if before.get(key) != value:
            raise ConfigError(
                f"model={name} is not allowed: a pass changes its attribute {key}, which is no "
                "part of what is sent and saved; make it a buffer by register_buffer"
            )


def _finite(some: Iterable[Tensor]) -> bool:
    return all(bool(x.isfinite().all()) for x in some)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a != a) & (b != b)).all())


def _close(a: Tensor, b: Tensor) -> bool:
    """Whether tensors are the same to rounding."""
    if a.shape != b.shape:
        return False
    a, b = a.double(), b.double()
    scale = b[b.isfinite()].abs().max().item() if bool(b.isfinite().any()) else 1.0
    return torch.allclose(a, b, rtol=_SAME, atol=_SAME * (scale or 1.0), equal_nan=True)
