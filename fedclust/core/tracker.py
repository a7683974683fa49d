"""Where a run's numbers go besides its own files; a tracker cannot change a result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedclust.helpers.errors import ConfigError, UserError
from fedclust.helpers.files import atomic_write

Parameter = bool | int | float | str
# of a config: no parameter that a user filters by
_LEFT_OUT = ("choices", "overrides", "hash", "report", "tracker", "tags", "progress", "data")


@dataclass(frozen=True, kw_only=True)
class About:
    """What a tracker is told of a job before its first round."""

    folder: Path  # of the job; its name tells the jobs of a sweep apart
    config: Mapping[str, Any]  # resolved
    first: int  # the round that comes first, above 0 where the job is continued

    @property
    def tags(self) -> dict[str, str]:
        """What the user has noted with `+tags.NAME=VALUE`."""
        return {str(name): str(value) for name, value in (self.config.get("tags") or {}).items()}

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Choices by group and values by dotted key: `algorithm`, `algorithm.warmup.rounds`, …"""
        chosen = {
            str(group).rpartition("@")[2]: str(choice)
            for group, choice in (self.config.get("choices") or {}).items()
            if choice is not None and not str(group).startswith("scaled/")
        }
        kept = {key: value for key, value in self.config.items() if key not in _LEFT_OUT}
        flat = _flatten(kept)
        return chosen | {
            key: value
            for key, value in flat.items()
            if not (key.endswith("._target_") and key.removesuffix("._target_") in chosen)
        }

    def run(self, make: Callable[[], str]) -> tuple[str, bool]:
        """The identity of the tracker's run, by `make` if it is new, and whether it is that of an
        earlier process: a job that is continued goes on in the same run.
        """
        file = self.folder / "tracker.json"
        if self.first and file.is_file():
            return str(json.loads(file.read_text(encoding="utf-8"))["run"]), True
        made = make()
        atomic_write(file, json.dumps({"run": made}) + "\n")
        return made, False


def _flatten(node: Any, prefix: str = "") -> dict[str, Parameter]:
    if isinstance(node, Mapping):
        flat: dict[str, Parameter] = {}
        for key, value in node.items():
            flat |= _flatten(value, f"{prefix}.{key}" if prefix else str(key))
        return flat
    if node is None:
        return {prefix: "null"}
    return {prefix: node if isinstance(node, bool | int | float | str) else str(node)}


class Tracker(Protocol):
    """A sink of the numbers of one job."""

    def begin(self, about: About) -> None:
        """Called before the first round that this process computes. Raises `ConfigError` where
        nothing can be stored.
        """
        ...

    def log(self, round: int, values: Mapping[int, Mapping[str, float]]) -> None:  # noqa: A002 - as in rounds.csv
        """Takes the values of a 0-based round: by seed, then by metric name."""
        ...

    def end(self, summary: Mapping[str, float], report: Callable[[], Path]) -> None:
        """Called after the last round of a job that is done, with the `summary` over seeds.
        `report` makes the job's report and returns its folder; it takes seconds.
        """
        ...

    def close(self) -> None:
        """Everything taken is stored afterwards; called once, whatever became of the job."""
        ...


def in_a_line(tracker: Tracker, name: str) -> Tracker:
    """A config's tracker `name` that refuses in one line, whenever its library does."""
    return _InALine(tracker, name)


@dataclass(frozen=True)
class _InALine:
    tracker: Tracker
    name: str

    def begin(self, about: About) -> None:
        with refusing_in_a_line(self.name):
            self.tracker.begin(about)

    def log(self, round: int, values: Mapping[int, Mapping[str, float]]) -> None:  # noqa: A002
        with refusing_in_a_line(self.name):
            self.tracker.log(round, values)

    def end(self, summary: Mapping[str, float], report: Callable[[], Path]) -> None:
        """Whoever calls it takes any error as a warning."""
        self.tracker.end(summary, report)

    def close(self) -> None:
        with refusing_in_a_line(self.name):
            self.tracker.close()


@contextmanager
def refusing_in_a_line(name: str) -> Iterator[None]:
    """Turns what the library of a tracker `name` refuses, in whatever way, into one line.

    Raises:
        ConfigError: what it said; a tracker's own is left as it is.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        words = " ".join(str(error).split())
        raise ConfigError(
            f"tracker={name} does not take the job ({type(error).__name__}: {words}): change its "
            "keys, or take tracker=none"
        ) from error
