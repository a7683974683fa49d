"""What a report asks of published work. `fedclust.papers` answers; a report knows no paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedclust.report.arms import Arm
    from fedclust.report.runs import Run

_SHARE = 0.8  # of the seeds must agree with a verdict


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Attributes:
        claimed, measured: in words.
        holds: on means over seeds; None where the runs do not reach far enough to tell.
        seeds, of: in how many seeds it holds, among how many.
    """

    claimed: str
    measured: str
    holds: bool | None
    seeds: int
    of: int

    @property
    def outcome(self) -> str:
        """The verdict in words, see `outcome`."""
        return outcome(self.holds, self.seeds, self.of)


def outcome(holds: bool | None, seeds: int, of: int) -> str:
    """A verdict in words: none of one seed, or where under four fifths of several agree."""
    if of == 1 and holds is not None:
        return "one seed"
    if holds is None or (seeds if holds else of - seeds) < _SHARE * of:
        return "cannot tell"
    return "holds" if holds else "does not hold"


class Claim(Protocol):
    """A statement about some arms."""

    @property
    def about_value(self) -> bool:
        """Whether it takes runs of full size to judge it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arms it speaks of."""

    @property
    def setting(self) -> str:
        """The text with which titles of its settings begin; "" for all settings."""

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """The verdict; `arms` in the order of `names`."""


class Printed(Protocol):
    """A printed number, in the unit of its table (percent for accuracies)."""

    @property
    def mean(self) -> float:
        """Its value."""

    @property
    def std(self) -> float | None:
        """Its standard deviation, or None where none is printed."""

    def agrees(self, values: NDArray[np.float64]) -> bool | None:
        """Whether values measured with some seeds [S] agree with it; None: they cannot tell."""


class Reference(Protocol):
    """What is known of published work."""

    def table(self, name: str) -> Sequence[Mapping[str, str]]:
        """The rows of a printed table, "<paper>/<table>"; ConfigError if there is none."""

    def lookup(
        self,
        name: str,
        algorithm: str,
        choices: Mapping[str, str],
        iteration: int,
        *,
        whole: bool,
        metric: str = "test_acc",
    ) -> Printed | None:
        """The number that a table prints for an arm, see `fedclust.papers.published.lookup`."""

    def thresholds(self, name: str | None) -> list[int]:
        """The accuracies, in percent, whose first round in reaching them a table prints."""

    def claim(self, entry: Mapping[str, Any]) -> Claim:
        """The claim of a config entry; ConfigError for an unknown or missing kind, key, metric."""

    def check(self, claims: Sequence[Claim], arms: Sequence[Arm]) -> list[tuple[str, Verdict]]:
        """Verdicts, each with the setting it was checked in ("" where there is one only)."""

    def changed(self, run: Run) -> tuple[str, ...]:
        """The overrides by which a job is not the published experiment's."""

    def switched_on(self, config: Mapping[str, Any]) -> list[str]:
        """Options of a job that follow a paper where that is unsound, a line each."""
