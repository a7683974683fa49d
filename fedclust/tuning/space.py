"""What is searched: values by key, as Hydra's sweeps write them.

`space/shared.yaml` is for every method; `space/solver/NAME.yaml` and `space/server/NAME.yaml` are
for the solver and the server that were chosen, and `about: space:` in a method's file adds to them;
what is typed takes the place of all. A file `space/METHOD.yaml` of a user's own replaces the last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    IntervalSweep,
    Override,
    QuotedString,
    RangeSweep,
    Transformer,
)
from omegaconf import DictConfig, OmegaConf

from fedclust.config.about import about
from fedclust.config.read import read_config
from fedclust.config.schema import is_setting
from fedclust.helpers.errors import require
from fedclust.tuning.tuned import can_be_searched, with_values

SHARED = "shared"  # the file that is for every method
_CHOSEN = ("solver", "server")  # groups whose choices have a file
# where a method's part of a config stands; what stands elsewhere is read by reference from there
_READ = ("algorithm", "server", "aggregation", "privacy", "compression")
Value = float | int | str | bool | None
_SWEEPS = "choices such as 1,2,4, range(1,9), interval(0.1,1) or tag(log,interval(0.001,1))"
_ONE = "several different values, since one value is no search"


@dataclass(frozen=True)
class Dimension:
    """The values of one key.

    Attributes:
        key: dotted, as typed.
        options: to choose from; empty for a range.
        low, high: ends of a range, both part of it.
        step: of whole numbers; None for real ones.
        log: whether real numbers are spread by their logarithm.
        whole: whether each of the options is tried before any comes again.
    """

    key: str
    options: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: int | None = None
    log: bool = False
    whole: bool = False

    @classmethod
    def of(cls, override: Override) -> Dimension:
        """What a sweep override asks for; ConfigError without values, or for log of 0 or less."""
        key, sweep = override.key_or_group, override.value()
        if isinstance(sweep, IntervalSweep):
            low, high = float(sweep.start or 0.0), float(sweep.end or 0.0)
            log = "log" in sweep.tags
            fits = (
                math.isfinite(low) and math.isfinite(high) and low < high and (low > 0 or not log)
            )
            allowed = "a finite interval with its lower end first, above 0 for a logarithm"
            require(fits, key, f"interval({low:g},{high:g})", allowed)
            return cls(key, low=low, high=high, log=log)
        if isinstance(sweep, RangeSweep):
            values = list(sweep.range())
            whole = bool(values) and all(isinstance(value, int) for value in values)
            require(whole, key, override.input_line, "whole numbers, at least one")
            require(len(values) > 1, key, override.get_value_string(), _ONE)
            return cls(key, low=values[0], high=values[-1], step=int(sweep.step))
        assert isinstance(sweep, ChoiceSweep)
        options: list[Any] = list(override.sweep_iterator(transformer=Transformer.identity))
        plain = (one.text if isinstance(one, QuotedString) else one for one in options)
        different = tuple(dict.fromkeys(plain))
        require(len(different) > 1, key, override.get_value_string(), _ONE)
        return cls(key, different)

    def holds(self, value: Value) -> bool:
        """Whether the value is one of these."""
        if self.options:
            return any(value == one for one in self.options)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not self.low <= value <= self.high:  # type: ignore[operator]
            return False
        return self.step is None or (value - self.low) % self.step == 0  # type: ignore[operator]

    def values(self) -> list[Value]:
        """All choices or whole numbers; of an interval its ends."""
        if self.options:
            return list(self.options)
        if self.step is None:
            return [self.low, self.high]
        return list(range(int(self.low), int(self.high) + 1, self.step))

    @property
    def size(self) -> int | None:
        """How many values there are; None for those of an interval."""
        if self.options:
            return len(self.options)
        return None if self.step is None else int(self.high - self.low) // self.step + 1

    def probes(self) -> list[Value]:
        """Values that stand for all: where each of them is allowed, all are."""
        if self.options:
            return list(self.options)
        if self.step is not None:
            return [int(self.low), int(self.high)]
        # an end itself is never drawn, and a key may leave it out
        return [math.nextafter(self.low, self.high), math.nextafter(self.high, self.low)]

    def read(self, text: str) -> Value:
        """The value that `written` wrote, else ValueError."""
        value: Value
        if self.options:
            found = [one for one in self.options if written(one) == text]
            value = found[0] if found else text
        else:
            value = float(text) if self.step is None else int(text)
        if not self.holds(value):
            raise ValueError(f"{text} is none of {self.words()}")
        return value

    def words(self) -> str:
        """As a person would type it."""
        if self.options:
            return ",".join(map(written, self.options))
        if self.step is not None:
            return f"range({int(self.low)},{int(self.high) + 1},{self.step})"
        inside = f"interval({self.low:g},{self.high:g})"
        return f"tag(log,{inside})" if self.log else inside


def written(value: Value) -> str:
    """A value in a table; it comes back with the same bits."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(float(value)) if isinstance(value, float) else str(value)


def space_of(
    composed: DictConfig,
    algorithm: str,
    typed: Sequence[Override],
    roots: Sequence[Path],
    choices: Mapping[str, str] | None = None,
) -> dict[str, Dimension]:
    """What is searched for a method, by key.

    Args:
        typed: overrides; a sweep adds its key, any other fixes it.
        roots: config trees, the first one with a file is taken.
        choices: by group; of a solver and a server their own keys are searched.

    Raises:
        ConfigError: for a key that the method does not read, or nothing to search.
    """
    shared = _file(roots, SHARED) or []
    for group in _CHOSEN:
        if name := (choices or {}).get(group):
            shared = [*shared, *(_file(roots, f"{group}/{name}") or [])]
    own = _file(roots, algorithm)
    if own is None:
        own = _of_method(roots, algorithm)
    fixed = {one.key_or_group for one in typed if not one.is_sweep_override()}
    asked = [one for one in typed if one.is_sweep_override()]
    found = {one.key_or_group: one for one in (*shared, *own, *asked)}
    space = {}
    for key, override in found.items():
        if key in fixed:
            continue
        dimension = Dimension.of(override)
        if override in asked:
            dimension = replace(dimension, whole=bool(dimension.options))
        if override in shared and not _is_read(composed, dimension, default_of(composed, key)):
            continue  # such as the learning rate of a method that brings its own
        space[key] = _checked(composed, algorithm, dimension)
    require(bool(space), "algorithm", algorithm, f"nothing of it is searched: type {_SWEEPS}")
    return space


def num_settings(space: Mapping[str, Dimension], default: Mapping[str, Value]) -> int | None:
    """How many settings a search can try, with the default; None where they are without end."""
    sizes = [one.size for one in space.values()]
    if None in sizes:
        return None
    return math.prod(size or 0 for size in sizes) + (not is_inside(space, default))


def is_inside(space: Mapping[str, Dimension], values: Mapping[str, Value]) -> bool:
    """Whether every value is one that is searched."""
    return all(dimension.holds(values[key]) for key, dimension in space.items())


def default_of(composed: DictConfig, key: str) -> Value:
    """The value of a key before anything is searched."""
    value: Value = OmegaConf.select(composed, key)
    return value


def _checked(composed: DictConfig, algorithm: str, dimension: Dimension) -> Dimension:
    """The dimension; ConfigError unless the method reads its key."""
    key, shown = dimension.key, dimension.words()
    one = f"a search compares values under one setting; give one {key}, and tune again for another"
    require(not is_setting(key), key, shown, one)
    require(can_be_searched(key), key, shown, f"algorithm={algorithm} does not read it")
    missing = object()
    default = OmegaConf.select(composed, key, default=missing)
    is_leaf = (
        default is not missing
        and not isinstance(default, dict)
        and not OmegaConf.is_config(default)
    )
    require(is_leaf, key, shown, f"the config of algorithm={algorithm} has no such number or word")
    read = _is_read(composed, dimension, default)
    require(read, key, shown, f"algorithm={algorithm} does not read it")
    return dimension


def _is_read(composed: DictConfig, dimension: Dimension, default: Value) -> bool:
    """Whether the method is another one under some of the values, or under the default."""
    seen: list[Any] = []
    for value in (*dimension.values(), default):
        changed = with_values(composed, {dimension.key: value})
        seen.append([OmegaConf.to_container(changed[key], resolve=True) for key in _READ])
    return any(one != seen[0] for one in seen)


def _file(roots: Sequence[Path], name: str) -> list[Override] | None:
    """The sweeps of the first tree with a file of this name; None where there is none."""
    file = next((f for root in roots if (f := root / "space" / f"{name}.yaml").is_file()), None)
    if file is None:
        return None
    return _sweeps(file, read_config(file) or {})


def _of_method(roots: Sequence[Path], algorithm: str) -> list[Override]:
    """The sweeps that a method's file states."""
    for root in roots:
        if space := about(algorithm, root).get("space"):
            return _sweeps(root / "algorithm" / f"{algorithm}.yaml", space)
    return []


def _sweeps(file: Path, node: Any) -> list[Override]:
    """A mapping of keys to what is tried."""
    require(isinstance(node, dict), f"{file}: space", node, f"a mapping of keys to {_SWEEPS}")
    found = OverridesParser.create().parse_overrides([f"{k}={v}" for k, v in node.items()])
    for one in found:
        key = f"{file}: {one.key_or_group}"
        require(one.is_sweep_override(), key, one.get_value_string(), _SWEEPS)
    return found
