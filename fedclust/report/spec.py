"""What an experiment asks of its report: the `report` node of its config."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fedclust.helpers.errors import ConfigError, require
from fedclust.metrics import METRICS, headline_of, meaning
from fedclust.report.reference import Claim, Printed, Reference

TIME = "simulated_seconds"  # that a clock has computed
AXES = ("round", "models", "bytes", TIME)
AXES_ALLOWED = f"round, models, bytes or {TIME}"
SCORES = ("last", "max", "validation")
LATEX = ("column", "wide")
_TEXTS = {"title", "published", "case", "dataset", "latex", "outside", "frozen"}
# what the folders of version 0.1.0 call keys, kinds of claims and axes
_FORMER = {"iterations": "rounds", "iteration": "round", "fewer_iterations": "fewer_rounds"}


@dataclass(frozen=True, kw_only=True)
class FigureSpec:
    """The `report.figure` node: the curves.

    Attributes:
        rows: metrics, one row of panels each; none for the headline metric alone.
        x: round, or what was sent so far in either direction: models, bytes; or simulated_seconds.
    """

    rows: tuple[str, ...] = ()
    x: str = "round"

    def __post_init__(self) -> None:
        for name in self.rows:
            meaning(name, "report.figure.rows")
        require(self.x in AXES, "report.figure.x", self.x, AXES_ALLOWED)

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> FigureSpec:
        """What a `report.figure` node asks for; ConfigError for an unknown key, metric or axis."""
        _only_known(cls, node, "report.figure", "a mapping")
        rows = node.get("rows") or []
        require(isinstance(rows, list), "report.figure.rows", rows, "a list of metrics")
        return cls(rows=tuple(rows), x=str(node.get("x") or "round"))


@dataclass(frozen=True, kw_only=True)
class Target:
    """The `report.target` node: a score to reach, fixed before anything is run.

    Attributes:
        value: of the report's metric; or
        arm: an arm whose value at the end, mean over seeds, is meant, in every setting its own.
        share: how much of that arm's value, in (0, 1]; of an error, what part of the target it is.
    """

    value: float | None = None
    arm: str = ""
    share: float = 1.0

    def __post_init__(self) -> None:
        require(
            (self.value is None) != (not self.arm),
            "report.target",
            f"{{value: {self.value}, arm: {self.arm or None}}}",
            "one of value and arm, as in {value: 0.9} or {arm: oracle, share: 0.95}",
        )
        plain = isinstance(self.share, int | float)
        require(plain and 0 < self.share <= 1, "report.target.share", self.share, "in (0, 1]")

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Target:
        """What a `report.target` node asks for; ConfigError unless it has one of value and arm."""
        _only_known(cls, node, "report.target", "a mapping, as in {value: 0.9}")
        return cls(**node)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The `report` node of an experiment.

    Attributes:
        published: "<paper>/<table>" as in published.csv, or None.
        metric: the metric of the headline table.
        rounds: 1-based columns of the headline table; None for the last one only.
        score: last; or of the rounds from the first one on in which every client is served, max,
            or the one of best validation accuracy: validation.
        order: names of arms in row order; the others follow.
        claims: statements to check.
        figure: the curves.
        target: what the rounds, bytes and steps of every arm are counted to, or None.
        latex: width of the tables in LaTeX: column, or wide for both columns of a page.
        case: title of the federation that this job belongs to, where an experiment has several.
        dataset: the data set the experiment is about; another choice is reported as standing in for
            it.
        frozen: version of the benchmark and its digest, see `fedclust.benchmark.frozen`.
        outside: CSV of accuracies that another program measured, see `fedclust.report.outside`.
        reference: what knows the printed tables and the kinds of claims.
    """

    title: str = ""
    published: str | None = None
    metric: str = "accuracy"
    rounds: tuple[int, ...] | None = None
    score: str = "last"
    order: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    figure: FigureSpec = field(default_factory=FigureSpec)
    target: Target | None = None
    latex: str = "column"
    case: str = ""
    dataset: str = ""
    frozen: str = ""
    outside: str = ""
    reference: Reference | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        meaning(self.metric, "report.metric")
        require(self.score in SCORES, "report.score", self.score, "last, max or validation")
        require(self.latex in LATEX, "report.latex", self.latex, "column or wide")
        require(
            self.target is None or METRICS[self.metric].better != "neither",
            "report.target",
            f"one of {self.metric}",
            "only with a metric of which more, or less, is better",
        )
        if self.target is not None and self.target.value is not None:
            check_value(self.target.value, self.metric, "report.target.value")
        if self.published is not None:
            assert self.reference is not None
            self.reference.table(self.published)
        require(
            self.rounds is None or all(type(i) is int and i >= 1 for i in self.rounds),
            "report.rounds",
            self.rounds,
            "rounds from 1 on, or null for the last",
        )
        for name in self.order:
            require(isinstance(name, str), "report.order", name, "names of arms")

    @classmethod
    def of(cls, config: Mapping[str, Any], reference: Reference) -> Spec:
        """What a job's config asks for, else defaults; ConfigError for what nobody knows."""
        asked = _renewed(config.get("report"))
        asked = {} if asked is None else asked
        _only_known(cls, asked, "report", "a mapping")
        node = {key: value for key, value in asked.items() if value is not None}
        node.setdefault("title", config.get("name", ""))
        for key in sorted(node.keys() & _TEXTS):
            value = node[key]
            require(isinstance(value, str | int | float), f"report.{key}", value, "text")
            node[key] = str(value)
        for key in sorted(node.keys() & {"rounds", "order", "claims"}):
            require(isinstance(node[key], list), f"report.{key}", node[key], "a list")
            node[key] = tuple(node[key])
        claims = node.get("claims", ())
        for entry in claims:
            require(isinstance(entry, Mapping), "report.claims", entry, "a list of mappings")
        node["claims"] = tuple(map(reference.claim, claims))
        node["figure"] = FigureSpec.of(node.get("figure", {}))
        if "target" in node:
            node["target"] = Target.of(node["target"])
        return cls(**node, reference=reference)

    def judging(self, recorded: Collection[str]) -> Spec:
        """The spec, with the headline of the task that ran in place of another task's metric."""
        own = headline_of(recorded)
        return self if self.metric in recorded or own not in recorded else replace(self, metric=own)

    def printed(
        self,
        algorithm: str,
        choices: Mapping[str, str],
        iteration: int,
        *,
        whole: bool,
        metric: str = "test_acc",
    ) -> Printed | None:
        """The number printed for an arm, see `Reference.lookup`; None without a table."""
        if self.published is None or self.reference is None:
            return None
        lookup = self.reference.lookup
        return lookup(self.published, algorithm, choices, iteration, whole=whole, metric=metric)


def check_value(value: Any, metric: str, key: str) -> None:
    """Refuse what a metric cannot reach: no number, or a fraction outside of [0, 1]."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    require(plain and math.isfinite(value), key, value, "a number")
    if metric in METRICS and METRICS[metric].unit == "fraction":
        require(0 <= value <= 1, key, value, f"in [0, 1], {metric} is a fraction")


def _renewed(node: Any) -> Any:
    """The node with the present name of everything that has a former one."""
    if isinstance(node, Mapping):
        return {_FORMER.get(key, key): _renewed(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_renewed(entry) for entry in node]
    return _FORMER.get(node, node) if isinstance(node, str) else node


def _only_known(kind: type[Any], node: object, name: str, allowed: str) -> None:
    """Refuse what is no mapping, and a key that is no field of a dataclass."""
    require(isinstance(node, Mapping), name, node, allowed)
    assert isinstance(node, Mapping)
    known = {entry.name for entry in fields(kind)}
    for key in node:
        if key not in known:
            raise ConfigError(f"{name}.{key} is not allowed: one of {', '.join(sorted(known))}")
