"""Arms: the jobs of a sweep under names a reader recognises."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.config.schema import SCHEMA, chooses, is_setting, tells_arms_apart
from fedclust.metrics import headline_of
from fedclust.report.formats import sign
from fedclust.report.runs import Curve, Run

_SYMBOLS = {"gradient_weight": "λ (gradient_weight)"}  # what papers call an option
SEPARATOR = ", "  # between the pieces of a setting
_REPEATS = ("rounds", "eval_every", "stop")  # keys whose values make no other federation


@dataclass(frozen=True)
class Arm:
    """One run with its name.

    Attributes:
        name: the algorithm choice, and the options in which it differs from its other runs: "ifca
            num_clusters=4".
        setting: the federation where not all runs of the report have the same one: "MNIST-MCLR,
            swap all".
        factors: what tells it apart from the other runs of its algorithm, by short key.
        changed: the overrides by which it is not the published experiment's.
        again: the pieces of the setting that say how long it ran and how often it was tested, which
            make no other federation.
    """

    run: Run
    name: str
    setting: str
    factors: Mapping[str, str] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    @property
    def federation(self) -> str:
        """The setting without `again`."""
        return SEPARATOR.join(p for p in self.setting.split(SEPARATOR) if p not in self.again)

    @property
    def label(self) -> str:
        """Name and setting."""
        return SEPARATOR.join(part for part in (self.name, self.setting) if part)

    @property
    def jobs(self) -> Sequence[Run]:
        """The jobs it was joined from, or its only one; none of what was measured elsewhere."""
        return self.run.parts or (() if self.outside else (self.run,))

    @property
    def outside(self) -> bool:
        """Whether another program measured it, see `fedclust.report.outside`."""
        return not self.run.is_job

    @property
    def algorithm(self) -> str:
        """The algorithm choice."""
        return self.run.choices.get("algorithm") or self.name

    def is_called(self, name: str) -> bool:
        """Whether a claim or an order that says `name` means this arm."""
        return _plain(name) in {_plain(own) for own in (self.label, self.name, self.algorithm)}

    @property
    def comparable(self) -> bool:
        """Whether printed values may be held against its own: full size, data and protocol."""
        others = [key for key in self.changed if not key.startswith("rounds=")]
        return self.run.scale == "paper" and not self.stand_in and not others

    @property
    def base(self) -> str:
        """The algorithm choice inside a wrapper; without one, the algorithm itself."""
        return self.run.choices.get("algorithm@algorithm.base") or self.algorithm

    @property
    def finished(self) -> bool:
        """Whether the job has run to its end; one that says nothing of its state has."""
        return bool(self.run.status.get("state", "done") == "done")

    @property
    def stand_in(self) -> str:
        """The data set the experiment is about, where the job used another one; else ""."""
        meant = str(self.run.asked.get("dataset") or "")
        return "" if meant == self.run.choices.get("dataset") else meant

    @property
    def cell(self) -> Mapping[str, str]:
        """The keys that tell cells of a printed table apart: choices, and classes per client."""
        classes = (self.run.config.get("partition") or {}).get("classes_per_client")
        if self.run.choices.get("partition") == "iid":
            classes = 10
        meant = {"dataset": self.stand_in} if self.stand_in else {}
        return {**self.run.choices, "classes": str(classes), **meant}

    def curve(self, metric: str) -> Curve | None:
        """A metric without seeds that failed, None where not recorded; "models" is down plus up."""
        curve = self.run.curves.get(metric)
        down, up = self.run.curves.get("models_down"), self.run.curves.get("models_up")
        if metric == "models" and down and up and down.values.shape == up.values.shape:
            curve = replace(down, values=down.values + up.values)
        return curve.without(self.run.failed) if curve else None

    def by_seed(self, metric: str, score: str = "last") -> dict[int, float]:
        """The score of every seed that has one.

        Args:
            score: last, the newest value; max, the best of the rounds that count, see `counted`; or
                validation, that of the round of the best validation score among them, the first
                where several are equal.
        """
        curve = self.curve(metric) if score == "last" else self.counted(metric)
        if curve is None:
            return {}
        if score == "last":
            values = curve.last()
        elif score == "max":  # the largest, or the least where less is better
            values = sign(metric) * np.fmax.reduce(sign(metric) * curve.values, axis=0)
        else:
            values = self._at_best_validation(curve)
        return seeds_with_values(curve.seeds, values)

    @property
    def validated(self) -> str:
        """The metric by which a round is chosen: the task's score on validation examples."""
        return f"validation_{headline_of(self.run.curves)}"

    def _at_best_validation(self, curve: Curve) -> NDArray[np.float64]:
        """[S] the value in every seed's round of the best validation score; NaN without."""
        validated = self.counted(self.validated)
        if validated is None:
            return np.full(len(curve.seeds), np.nan)
        known = np.nan_to_num(sign(self.validated) * validated.values, nan=-np.inf)
        best = dict(zip(validated.seeds, validated.rounds[known.argmax(axis=0)], strict=True))
        return np.array([curve.at(best[seed])[place] for place, seed in enumerate(curve.seeds)])

    def last(self, metric: str) -> NDArray[np.float64]:
        """[S] newest value per seed, without the seeds that have none."""
        return np.array(list(self.by_seed(metric).values()))

    def over_rounds(
        self, statistic: Callable[..., Any], metric: str, factor: float = 1.0, last: int = 0
    ) -> NDArray[np.float64]:
        """[S] a statistic of the last values of a metric times `factor`; 0 is all values."""
        curve = self.curve(metric)
        values = factor * curve.values[-last:] if curve else np.empty((0, 0))
        known = values[:, ~np.isnan(values).all(axis=0)]
        return np.asarray(statistic(known, axis=0)) if known.size else np.empty(0)

    def total(self, metric: str) -> NDArray[np.float64]:
        """[S] sum over rounds per seed."""
        curve = self.curve(metric)
        return np.nansum(curve.values, axis=0) if curve else np.empty(0)

    def best(self, metric: str) -> NDArray[np.float64]:
        """[S] best of the rounds that count, see `counted`, without the seeds that have none."""
        return np.array(list(self.by_seed(metric, "max").values()))

    def counted(self, metric: str) -> Curve | None:
        """The curve from the first round on in which every client is served, NaN before."""
        curve, served = self.curve(metric), self.curve("served")
        if curve is None or served is None or served.values.shape != curve.values.shape:
            return curve
        included = np.maximum.accumulate(np.nan_to_num(served.values), axis=0) >= 1
        # a run in which somebody is never served is scored over all of its rounds
        values = np.where(~included & included.any(axis=0), np.nan, curve.values)
        return replace(curve, values=values)


def arms(
    runs: Sequence[Run],
    order: Sequence[str] = (),
    changed: Callable[[Run], tuple[str, ...]] = lambda _: (),
) -> list[Arm]:
    """The arms of some runs by setting; those named in `order` first, then as the sweep gave them.

    Args:
        order: algorithm choices, names, whole labels or pieces of settings, in row order.
        changed: the overrides by which a run is not the published experiment's.
    """
    federation = _federations(runs)
    by_algorithm: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_algorithm[_algorithm(run)].append(run)
    options = {
        algorithm: _differing_keys(group, lambda key: not is_setting(key))
        for algorithm, group in by_algorithm.items()
    }
    ends = {
        key: path_ends(_value(run, key) for run in runs)
        for key in {*federation, *(key for keys in options.values() for key in keys)}
        if not chooses(key)
    }
    made = []
    for run in runs:
        algorithm = _algorithm(run)
        short = options[algorithm]
        setting, given = (_given(run, keys, ends) for keys in (federation, short))
        own = {short[key]: _shown(key, value) for key, value in given.items()}
        pieces = {k: _piece(run, k, federation[k], value) for k, value in setting.items()}
        again = tuple(piece for key, piece in pieces.items() if key.partition(".")[0] in _REPEATS)
        factors = {federation[key]: value for key, value in setting.items()} | own
        name = " ".join([algorithm, *(option(key, value) for key, value in own.items())])
        made.append(Arm(run, name, SEPARATOR.join(pieces.values()), factors, changed(run), again))
    alike = Counter((arm.name, arm.setting) for arm in made)
    for i, arm in enumerate(made):
        if alike[arm.name, arm.setting] > 1:  # nothing but their folders tells them apart
            made[i] = replace(arm, name=f"{arm.name} ({arm.run.folder.name})")
    return in_order(made, order)


def in_order(made: Sequence[Arm], order: Sequence[str]) -> list[Arm]:
    """Some arms in the order of `arms`."""
    rank = {_plain(name): position for position, name in enumerate(order)}
    first: dict[tuple[str, str], int] = {}  # (setting, "") or ("", name) → first place in the sweep
    for arm in made:
        for what in ((arm.setting, ""), ("", arm.name)):
            first[what] = min(first.get(what, arm.run.place), arm.run.place)

    def key(arm: Arm) -> tuple[object, ...]:
        return (
            [rank.get(piece, len(rank)) for piece in arm.setting.split(SEPARATOR)],
            first[arm.setting, ""],
            _natural(arm.setting),
            min(rank.get(_plain(own), len(rank)) for own in (arm.label, arm.name, arm.algorithm)),
            first["", arm.name],
            _natural(arm.name),
        )

    return sorted(made, key=key)


def settings_of(arms: Sequence[Arm]) -> list[str]:
    """The settings of some arms, in their order."""
    return list(dict.fromkeys(arm.setting for arm in arms))


def _plain(name: str) -> str:
    """A name with the keys of options as a config has them."""
    for key, symbol in _SYMBOLS.items():
        name = name.replace(symbol, key)
    return name


def _algorithm(run: Run) -> str:
    return run.choices.get("algorithm") or run.folder.name


def _given(run: Run, keys: Iterable[str], ends: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The run's values of some keys as they are shown, see `path_ends`; without empty ones."""
    values = {key: value for key in keys if (value := _value(run, key))}
    return {key: ends.get(key, {}).get(value, value) for key, value in values.items()}


def path_ends(values: Iterable[str]) -> dict[str, str]:
    """Every path among values with its shortest unique end: a.csv of /data/2025/a.csv."""
    parts = {value: tuple(value.strip("'\"").rstrip("/").split("/")) for value in values}
    others = Counter(end for each in set(parts.values()) for end in _ends(each))
    return {
        value: "/".join(next((end for end in _ends(each) if others[end] == 1), each))
        for value, each in parts.items()
        if len(each) > 1 and value[:1] not in ("[", "{")
    }


def _ends(parts: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The ends of a path, the shortest first."""
    return [parts[-n:] for n in range(1, len(parts) + 1)]


def option(key: str, value: str) -> str:
    """A factor of an arm in words; "default" and "tuned" need no key."""
    return value if key == "tuned" else f"{_SYMBOLS.get(key, key)}={value}"


def _shown(key: str, value: str) -> str:
    """A value as readers see it; of values that a search has found only that they are."""
    return ("default" if value == "null" else "tuned") if key == "tuned" else value


def _piece(run: Run, key: str, short: str, value: str) -> str:
    """One difference between federations in words."""
    if key == "case":
        return str(run.asked.get("case") or value.rpartition("/")[2])
    return value.replace("_", " ") if key in run.choices else f"{short}={value}"


def _federations(runs: Sequence[Run]) -> dict[str, str]:
    """The keys that tell federations apart, with short names: the case, and what differs in one."""
    differing = _differing_keys(runs, is_setting)
    if "case" not in differing:
        return differing
    by_case: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_case[_value(run, "case")].append(run)
    within = {
        key
        for group in by_case.values()
        for key in differing
        if len({_value(run, key) for run in group}) > 1
    }
    return {key: short for key, short in differing.items() if key == "case" or key in within}


def _differing_keys(runs: Sequence[Run], wanted: Callable[[str], bool]) -> dict[str, str]:
    """The wanted overridden keys that differ among the runs, each with its shortest clear name."""
    given = dict.fromkeys(key for run in runs for key in _overrides(run) if wanted(key))
    differing = [key for key in given if len({_comparable(_value(run, key)) for run in runs}) > 1]
    # a part of a key that is a key itself would be taken for that one
    short = Counter([*SCHEMA, *(key.rpartition(".")[2] for key in differing if "." in key)])
    return {key: s if short[s := key.rpartition(".")[2]] < 2 else key for key in differing}


def _value(run: Run, key: str) -> str:
    """What the run has for a key, given or by default; "" where it has none."""
    given = _overrides(run).get(key) or run.choices.get(key)
    if given is not None:
        return given
    node: object = run.config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return "" if node is None or isinstance(node, Mapping) else str(node)


def _overrides(run: Run) -> Mapping[str, str]:
    pairs = (str(text).lstrip("+~").partition("=") for text in run.config.get("overrides") or ())
    # seeds are no federation: runs that differ in nothing else have been joined
    beside = ("algorithm", "seeds")
    return {key: value for key, _, value in pairs if key not in beside and tells_arms_apart(key)}


def _comparable(text: str) -> float | str:
    """The number a text stands for, so that 1e-1 and 0.1 are the same; else the text."""
    try:
        return float(text)
    except ValueError:
        return text


def _natural(text: str) -> list[tuple[int, float, str]]:
    """A sort key in which 9 comes before 10."""
    pieces = text.replace("=", " ").replace(",", " ").split()
    return [(0, float(p), "") if p.replace(".", "", 1).isdigit() else (1, 0.0, p) for p in pieces]


def seeds_with_values(seeds: Sequence[int], values: NDArray[np.float64]) -> dict[int, float]:
    """The values [S] by seed, without NaN."""
    pairs = zip(seeds, values.tolist(), strict=True)
    return {seed: value for seed, value in pairs if not np.isnan(value)}
