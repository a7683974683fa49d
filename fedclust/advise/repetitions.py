"""Repeated splits of a federation, with every setting chosen inside each of them.

In a repetition (a seed) the rows of every client are split into training, validation and test rows.
Every setting of every method is trained on the training rows and judged by its loss on all
validation rows; test rows are not looked at. Of each choice, such as *groups*, the setting with the
least loss is then trained again on training and validation rows together, and tested: once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from fedclust.advise.arms import on_tests, settings
from fedclust.advise.evidence import exchanged
from fedclust.advise.verdict import CHOICES, GROUPS
from fedclust.config.build import build
from fedclust.config.data import load_dataset
from fedclust.config.job import Job
from fedclust.config.objects import Objects
from fedclust.config.schema import headline_of
from fedclust.config.values import Parts
from fedclust.core.federation import summary
from fedclust.core.types import Federation, Split
from fedclust.helpers.errors import ConfigError, DataError, DivergedError, counted, require
from fedclust.metrics import METRICS
from fedclust.metrics.judged import OVER
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Progress, Silent
from fedclust.runtime.run import check_clusters, run
from fedclust.runtime.trained import Trained
from fedclust.tuning.one_search import Search
from fedclust.tuning.record import seeds_of
from fedclust.tuning.space import Value

_JUDGED = "validation_loss"
_TESTED = ("tests", "exchanged")
_UNEVEN = 0.65  # of the rows; a more frequent class makes accuracy a poor measure
_EXCHANGED = 1_000_000  # seeds from here on name federations whose clients exchanged rows


@dataclass(frozen=True)
class Arm:
    """A method that is compared.

    Attributes:
        choice: what it is to a user, one of `CHOICES`.
        search: its config and its space.
        settings: values by key, see `fedclust.advise.arms.settings`.
    """

    choice: str
    search: Search
    settings: Sequence[Mapping[str, Value]]

    @property
    def method(self) -> str:
        """Its name."""
        return self.search.title


@dataclass(frozen=True)
class Setting:
    """One setting of one method: places in the list of arms and among the arm's settings."""

    arm: int
    place: int


@dataclass(frozen=True, kw_only=True)
class Repetitions:
    """What came out of all repetitions.

    Attributes:
        metric: what was measured on test rows; `better` says which direction.
        seeds: one per repetition.
        chosen: by choice the setting of each repetition.
        losses: by choice [R] its loss on validation rows.
        scores: by choice [R] on test rows, in the metric's unit.
        labels: [R, M] groups of clients where groups were trained.
        clients: columns choice, seed, client, name, train_count, test_count, score.
        redrawn: test / training rows.
        rows: of all clients.
    """

    metric: str
    better: str
    seeds: Sequence[int]
    chosen: Mapping[str, Sequence[Setting]]
    losses: Mapping[str, NDArray[np.float64]]
    scores: Mapping[str, NDArray[np.float64]]
    labels: NDArray[np.int64]
    clients: pd.DataFrame
    redrawn: float
    rows: int

    @property
    def sign(self) -> float:
        """1 where more of the metric is better, -1 where less."""
        return 1.0 if self.better == "higher" else -1.0

    def usual(self, choice: str) -> Setting:
        """The setting that most repetitions chose, the first of those that as many did."""
        settings = list(self.chosen[choice])
        return max(settings, key=settings.count)

    @cached_property
    def others(self) -> NDArray[np.float64]:
        """[R] test scores of the choice beside groups that validation rows would have chosen."""
        names = [name for name in CHOICES if name in self.losses and name != GROUPS]
        losses = np.stack([self.losses[name] for name in names])
        scores = np.stack([self.scores[name] for name in names])
        return np.asarray(scores[losses.argmin(0), np.arange(losses.shape[1])])


def _all_served(choice: str, fine: NDArray[np.bool_]) -> None:
    """Refuse a choice that in some repetition leaves clients out, which others serve."""
    if not fine.all():
        raise ConfigError(
            f"{CHOICES[choice]}: in repetition {int(fine.argmin()) + 1} its method gives some "
            "clients no model (label −1) that other choices serve, so their scores cannot be "
            "compared; leave the method out of algorithm=…"
        )


class Runner:
    """Runs the jobs of one command, one after the other; those done already are only read.

    Args:
        searches: config and space of every method, with the choice that it is.
        budget: settings of each, see `fedclust.advise.arms.settings`.
        folder: where all go.
        metric: of test rows; None for that of the task, or macro F1 where a class is frequent.
        begun: is told what begins, and of how many jobs at least, before each job.
        progress: what a job tells.
    """

    def __init__(
        self,
        searches: Sequence[tuple[str, Search]],
        budget: int,
        folder: Path,
        metric: str | None,
        begun: Callable[[str, int], object],
        progress: Progress,
    ) -> None:
        first = searches[0][1]
        self._folder, self._begun, self._progress = folder, begun, progress
        self._like: dict[str, Job] = {}
        self._seeds: Sequence[int] = first.resolved()["seeds"]
        self.federations = self._job("tests", on_tests(first, self._seeds, ())).federations
        self._check_splits()
        headline = headline_of(first.resolved())[0]
        self.metric = self._usual_metric(headline) if metric is None else metric
        self._score = self.metric
        for end in filter(None, OVER):
            self._score = self._score.removesuffix(end)
        self._scores = () if self.metric == headline else (self._score,)
        try:
            self._job("tests", on_tests(first, self._seeds, self._scores))
        except ConfigError as error:  # the score is none
            raise ConfigError(str(error).replace("scores=", "metric=", 1)) from error
        allowed = "a score of predictions such as accuracy, f1_macro, auroc_over_clients or mae"
        require(self.metric in METRICS, "metric", self.metric, allowed)
        self.arms = [
            Arm(choice, search, settings(search.space, budget, self.num_clients))
            for choice, search in searches
        ]
        for arm in self.arms:  # before anything is computed
            for one in arm.settings:
                check_clusters(arm.search.resolved(one), self.num_clients)

    @property
    def num_clients(self) -> int:
        """Clients of the federation."""
        return next(iter(self.federations.values())).num_clients

    @property
    def _least(self) -> int:
        """Jobs that there are at least: of every setting, and one test of every choice."""
        return sum(len(arm.settings) for arm in self.arms) + len({a.choice for a in self.arms})

    def all(self) -> Repetitions:
        """Search, choose and test."""
        arms = self.arms
        losses = {
            Setting(a, place): self._validated(Setting(a, place))
            for a, arm in enumerate(arms)
            for place in range(len(arm.settings))
        }
        served = {one: self._served(self._folder_of("search", one)) for one in losses}
        most = np.fmax.reduce(list(served.values()))
        chosen: dict[str, list[Setting]] = {}
        least: dict[str, NDArray[np.float64]] = {}
        for choice in dict.fromkeys(arm.choice for arm in arms):
            own = [one for one in losses if arms[one.arm].choice == choice]
            table = np.array([[losses[one].get(s, math.inf) for s in self._seeds] for one in own])
            table[~np.isfinite(table)] = math.inf
            if not np.isfinite(table.min(0)).all():
                raise DivergedError(f"{CHOICES[choice]}: no setting learns; lower solver.lr")
            # one that leaves clients out is judged by the rows of others
            table[np.stack([served[one] for one in own]) < most] = math.inf
            least[choice] = table.min(0)
            _all_served(choice, np.isfinite(least[choice]))
            chosen[choice] = [own[place] for place in table.argmin(0)]
        tested = {
            one: self._tested(
                one, [seed for seed, its in zip(self._seeds, by, strict=True) if its == one]
            )
            for by in chosen.values()
            for one in dict.fromkeys(by)
        }
        shares = {
            choice: np.array([self._served(tested[one])[place] for place, one in enumerate(by)])
            for choice, by in chosen.items()
        }
        for choice, its in shares.items():
            _all_served(choice, ~(its < np.fmax.reduce(list(shares.values()))))
        return self._put_together(chosen, least, tested)

    def _served(self, folder: Path) -> NDArray[np.float64]:
        """[R] the share of the clients that a job gives a model; NaN where it does not say, as it
        diverged, or is of an older version.
        """
        found = seeds_of(folder, "served", self.arms[0].search.rounds - 1)
        return np.array([found.get(seed, math.nan) for seed in self._seeds])

    def exchanged(self, pair: tuple[Setting, Setting], count: int) -> NDArray[np.float64]:
        """[B] by how much the first setting is better than the second on test rows of `count`
        federations whose clients exchanged their rows, each with another split.
        """
        seeds = [_EXCHANGED + number for number in range(count)]
        unit = self._units()
        feds = list(self.federations.values())
        altered = {
            seed: exchanged(feds[number % len(feds)], seed, unit)
            for number, seed in enumerate(seeds)
        }
        values = []
        for one in pair:
            search = on_tests(self.arms[one.arm].search, seeds, self._scores)
            path = self._run("exchanged", one, search, altered)
            found = seeds_of(path, self.metric, search.rounds - 1)
            values.append(np.array([found.get(seed, math.nan) for seed in seeds]))
        sign = 1 if METRICS[self.metric].better == "higher" else -1
        gains = sign * (values[0] - values[1])
        return np.asarray(gains[np.isfinite(gains)])

    def tested(self, one: Repetitions, choice: str) -> list[tuple[Trained, Federation]]:
        """The models of a choice in every repetition, and what they were tested on."""
        found = []
        for seed, setting in zip(one.seeds, one.chosen[choice], strict=True):
            search = self.arms[setting.arm].search
            config = search.resolved(self.arms[setting.arm].settings[setting.place])
            config = {**config, "seeds": [seed]}
            path = self._folder_of("tests", setting)
            found.append((Trained(path, config, seed, search.own), self.federations[seed]))
        return found

    def into_use(self, one: Setting) -> Trained:
        """Train a setting on all rows of every client, test rows too, and test nothing; returns its
        models, which predict new rows.
        """
        seed = self._seeds[0]
        fed = self.federations[seed]
        rows = [
            torch.cat([s.of_client(c) for s in fed.splits.values()]) for c in range(fed.num_clients)
        ]
        search = on_tests(self.arms[one.arm].search, [seed], ())
        path = self._run("chosen", one, search, {seed: replace(fed, train=Split.of(rows))})
        config = {**search.resolved(self.arms[one.arm].settings[one.place]), "seeds": [seed]}
        return Trained(path, config, seed, search.own)

    def _units(self) -> NDArray[np.int64] | None:
        """Of whom every row is; None where each is by itself."""
        search = self.arms[0].search
        config = search.resolved()
        if config["dataset"].get("unit") is None:
            return None
        parts = Parts.of(config, Objects.for_job(config, search.own), ("task",))
        loader = parts.objects.make(config["dataset"], "dataset")
        unit = load_dataset(loader, parts.made["task"]).unit
        return None if unit is None else unit.numpy()

    def _validated(self, one: Setting) -> dict[int, float]:
        """The loss on validation rows by seed, none of those that diverge."""
        search = self.arms[one.arm].search
        with suppress(DivergedError):
            self._run("search", one, search)
        return seeds_of(self._folder_of("search", one), _JUDGED, search.rounds - 1)

    def _tested(self, one: Setting, seeds: Sequence[int]) -> Path:
        """The folder of the job that tests a setting in the repetitions that chose it."""
        search = on_tests(self.arms[one.arm].search, seeds, self._scores)
        return self._run("tests", one, search, {seed: self.federations[seed] for seed in seeds})

    def _folder_of(self, stage: str, one: Setting) -> Path:
        method = self.arms[one.arm].method.replace("/", "_")
        return self._folder / stage / method / f"{one.place + 1:02d}"

    def _run(
        self,
        stage: str,
        one: Setting,
        search: Search,
        federations: Mapping[int, Federation] | None = None,
    ) -> Path:
        """Run the job of a setting, on these federations; without, on those with validation rows.

        Returns its folder.
        """
        path = self._folder_of(stage, one)
        self._begun(f"{stage}: {self.arms[one.arm].method}", self._least)
        resolved = search.resolved(self.arms[one.arm].settings[one.place])
        kind = "search" if federations is None else "tests"
        job = replace(self._job(kind, search, resolved), tested=stage in _TESTED)
        if federations is not None:
            job = replace(job, federations=federations)
        # a setting that diverges is not chosen, so nobody needs to hear of it
        shown = Silent() if federations is None else self._progress
        run(job, RunFolder(path, resolved, search.own), shown)
        return path

    def _job(self, kind: str, search: Search, resolved: Mapping[str, Any] | None = None) -> Job:
        """The parts of a job; those of one kind share data and engine."""
        config = search.resolved() if resolved is None else resolved
        job = build(config, search.own, self._like.get(kind))
        self._like.setdefault(kind, job)
        return job

    def _usual_metric(self, headline: str) -> str:
        """The task's; macro F1 where one class is so frequent that accuracy hides the others."""
        pool = next(iter(self.federations.values())).pool
        if pool.task.targets != "classes":
            return headline
        shares = pool.y.bincount().double() / len(pool.y)
        return "f1_macro" if float(shares.max()) > _UNEVEN else headline

    def _check_splits(self) -> None:
        """Refuse data of which nothing can be said: one client, or the same tests in every seed."""
        if self.num_clients < 2:
            raise ConfigError(
                "all rows are of one client, and advice compares two or more: dataset.client=… "
                "names the column that tells clients apart"
            )
        for fed in self.federations.values():
            fewest = int(fed.train.count.argmin())
            if int(fed.train.count[fewest]) < 2:
                name = fed.names.clients[fewest] if fed.names.clients else fewest
                raise DataError(
                    f"client {name} has {counted(int(fed.train.count[fewest]), 'row')} besides its "
                    "test rows, and needs two, one to train on and one to choose settings by: "
                    "partition.min_train=2 leaves such clients out"
                )
        tested = {summary(fed)["tested"] for fed in self.federations.values()}
        if len(self._seeds) > 1 and len(tested) == 1:
            raise ConfigError(
                "every repetition would be tested on the same rows, of which no interval says what "
                "to expect on others: give data that are split anew (dataset.data_seed=null, "
                "dataset.split=null, dataset.test_share=0.2; of series dataset.blocks=10; of any "
                "other data partition=resplit partition@partition.base=natural, or from_file)"
            )

    def _put_together(
        self,
        chosen: Mapping[str, Sequence[Setting]],
        losses: Mapping[str, NDArray[np.float64]],
        tested: Mapping[Setting, Path],
    ) -> Repetitions:
        last = self.arms[0].search.rounds - 1
        scores, frames = {}, []
        labels = np.zeros((len(self._seeds), self.num_clients), dtype=np.int64)
        for choice, picked in chosen.items():
            found: dict[int, float] = {}
            for one in dict.fromkeys(picked):
                found |= seeds_of(tested[one], self.metric, last)
                table = self._clients(tested[one])
                frames.append(table.assign(choice=choice))
                for seed in table["seed"].unique() if choice == GROUPS else ():
                    own = table[table["seed"] == seed].sort_values("client")
                    labels[list(self._seeds).index(seed)] = own["label"]
            lost = [seed for seed in self._seeds if not math.isfinite(found.get(seed, math.nan))]
            if lost:
                raise DivergedError(
                    f"{CHOICES[choice]} has no {self.metric} in repetition {lost[0]}: lower "
                    "solver.lr, or choose another metric"
                )
            scores[choice] = np.array([found[seed] for seed in self._seeds])
        fed = next(iter(self.federations.values()))
        test, train = (
            sum(int(split.count.sum()) for split in splits)
            for splits in zip(*((f.test, f.train) for f in self.federations.values()), strict=True)
        )
        return Repetitions(
            metric=self.metric,
            better=METRICS[self.metric].better,
            seeds=self._seeds,
            chosen=chosen,
            losses=losses,
            scores=scores,
            labels=labels,
            clients=pd.concat(frames, ignore_index=True),
            redrawn=test / train,
            rows=int(fed.train.count.sum() + fed.test.count.sum()),
        )

    def _clients(self, folder: Path) -> pd.DataFrame:
        """A row per seed and client of a job's last evaluation, with the client's score."""
        table = pd.read_parquet(folder / "clients.parquet")
        if self._score in table:
            score = table[self._score]
        elif "correct" in table:
            score = table["correct"] / table["test_count"]
        else:
            score = table["loss_sum"] / table["test_count"]
        table["score"] = score
        if "name" not in table:
            table["name"] = table["client"].astype(str)
        kept = ["seed", "client", "name", "label", "train_count", "test_count", "score"]
        return table[kept]
