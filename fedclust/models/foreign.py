"""A user's own `nn.Module` as a model the general engines can run."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from fedclust.helpers.errors import ConfigError, require
from fedclust.models.dropout import keep
from fedclust.models.exchanged import exchange, seeded
from fedclust.models.params import layout, trained
from fedclust.models.reading import UnreadableError, read
from fedclust.models.sequence import Model, Reading
from fedclust.models.trial import examine

_GLOBAL_GENERATOR = threading.Lock()
_ANEW = "made_anew_by"


def made_by(make: Callable[[], nn.Module]) -> nn.Module:
    """What a constructor makes, with the constructor beside it: the module's parameters are drawn
    by calling it again. What it makes of a frozen layer is the same in every run.
    """
    with _GLOBAL_GENERATOR:
        module: nn.Module = seeded(0, make)
    require(isinstance(module, nn.Module), "model", type(module).__name__, "a torch.nn.Module")
    object.__setattr__(module, _ANEW, lambda: make())  # a function is copied with the module as is
    return module


class Foreign(nn.Module):
    """What engines ask of a `Model`, from any module.

    Its initial parameters are those that its constructor draws or sets: a weight that is read from
    a file, or begins at 0, begins so in every run. Parameters without gradient stay as they are,
    and are no part of a model's row.

    Args:
        module: the module, see `made_by`.
        in_shape: shape of an example.
        examples: two of them, [2, *in_shape]; None for random numbers.
        width: numbers that it must return for an example; None for any.

    Attributes:
        shapes: shape of the input and of what every submodule returns, without the batch dimension.
        l2: empty; a penalty of the module's own would be unknown to the engines.
        dropout: rate by the number of the dropout layer's call in a pass.
        statistics: names of the buffers that training changes, which are part of a row.
        draws: whether a pass in training draws from the global generator.
        lone: whether a batch of one example can be trained on.

    Raises:
        ConfigError: see `fedclust.models.trial.examine`; or nothing in it can be trained.
    """

    def __init__(
        self,
        module: nn.Module,
        in_shape: tuple[int, ...],
        examples: Tensor | None = None,
        width: int | None = None,
    ):
        super().__init__()
        name = type(module).__name__
        if not trained(module):
            raise ConfigError(f"model={name} is not allowed: no parameter of it is to be trained")
        self._anew = getattr(module, _ANEW, None)
        self.module = module
        self._tape = exchange(module)
        if examples is None:
            examples = torch.randn(2, *in_shape, generator=torch.Generator().manual_seed(0))
        found = examine(module, examples.to(next(module.parameters()).device), width)
        self.statistics = tuple(f"module.{key}" for key in found.changing)
        self.shapes = (in_shape, *found.shapes)
        self.draws, self.lone = found.draws, found.lone
        self.l2: dict[str, float] = {}
        self._places, self._examples = self._find_places(examples), examples
        self.dropout = {i: rate for i, (_, rate) in enumerate(self._places)}
        self._reading: Reading | UnreadableError | None = None  # until it is asked for

    def reading(self) -> Reading:
        """The module as a sequence of layers. Raises `UnreadableError` where it is none."""
        if self._reading is None:
            try:
                self._reading = read(self.module, self.shapes[0], self._examples).named("module")
            except UnreadableError as error:
                self._reading = error
        if isinstance(self._reading, UnreadableError):
            raise self._reading
        return self._reading

    def draw(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters from a CPU generator, [P]: those that the module's constructor makes;
        without one, what every submodule's `reset_parameters` draws, and the rest as it was.
        """
        seed = int(torch.randint(2**62, (), generator=generator))
        # constructors take no generator: the global one is borrowed and put back as it was
        with _GLOBAL_GENERATOR:
            fresh = seeded(seed, self._fresh)
        buffers = dict(fresh.named_buffers(prefix="module"))
        values = [value for _, value in trained(fresh)] + [buffers[k] for k in self.statistics]
        return torch.cat([value.detach().cpu().float().flatten() for value in values])

    def _fresh(self) -> nn.Module:
        """The module with parameters drawn from the global generator."""
        if self._anew is not None:
            made: nn.Module = self._anew()
            if layout(made).shapes != layout(self.module).shapes:
                raise ConfigError(
                    f"model={type(made).__name__} is not allowed: its constructor makes other "
                    "parameters from time to time"
                )
            return made
        fresh = copy.deepcopy(self.module).cpu()
        for part in fresh.modules():
            if callable(reset := getattr(part, "reset_parameters", None)):
                reset()
        return fresh

    def masks(self, key: Tensor, step: int, batch: int) -> dict[int, Tensor]:
        """Dropout masks by number of the call, each [C, batch, *features], of `dropout.keep`."""
        return {
            i: keep(key, step, i, batch, shape, rate)
            for i, (shape, rate) in enumerate(self._places)
        }

    def forward(
        self,
        x: Tensor,
        masks: Mapping[int, Tensor] | None = None,
        real: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, Y] of x [B, *shape]: in training with `masks` (each [B, *features], {} without
        dropout), else in evaluation.

        In training buffers are changed in place, or, where it is said which examples are `real`
        [B] bool, not: see `take_renewed`.
        """
        if self.module.training != (masks is not None):
            self.module.train(masks is not None)
        self._tape.begin(len(x), masks or {}, real)
        out: Tensor = self.module(x)
        self._tape.begin(0, None, renewed=self._tape.renewed)  # nothing of this pass stays
        return out

    def take_renewed(self) -> dict[str, Tensor]:
        """New values of the statistics after a pass with `real`, once."""
        renewed = {f"module.{name}": value for name, value in self._tape.renewed.items()}
        self._tape.renewed = {}
        return renewed

    def _find_places(self, x: Tensor) -> list[tuple[tuple[int, ...], float]]:
        """Features and rate of every call of a dropout layer."""
        probe = copy.deepcopy(self)
        probe.module.train()
        probe._tape.begin(len(x), None)
        probe._tape.places.clear()
        with torch.no_grad():
            seeded(0, lambda: probe.module(x))
        return probe._tape.places


Runnable = Model | Foreign


def adopt(
    model: nn.Module,
    in_shape: tuple[int, ...],
    examples: Tensor | None = None,
    width: int | None = None,
) -> Runnable:
    """A copy of the model if it is one of ours, else a `Foreign` around a copy, see there."""
    try:
        model = copy.deepcopy(model)
    except RuntimeError as error:  # of a tensor that is computed, as by the old weight_norm
        raise ConfigError(
            f"model={type(model).__name__} is not allowed: it cannot be copied, since a weight of "
            "it is computed from others; torch.nn.utils.parametrizations.weight_norm takes the "
            "place of torch.nn.utils.weight_norm"
        ) from error
    if isinstance(model, (Model, Foreign)):
        return model
    return Foreign(model, in_shape, examples, width)
