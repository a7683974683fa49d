"""fedclust from Python: run a job or a sweep, or load what one has left, and read it.

    >>> import fedclust
    >>> result = fedclust.run("algorithm=lcfl", "seeds=3", rounds=30)
    >>> result.rounds.groupby("round")["accuracy"].mean()
    >>> result.figure("accuracy")

A call runs what `fedclust run` of the command line runs, with the same keys, files and folders: an
interrupted run continues when it is called again, and a finished one is only read. Nothing heavy is
imported before it is used.
"""

from __future__ import annotations

import html
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedclust.helpers.errors import (
    ConfigError,
    DiskFull,
    RunFolderError,
    in_words,
    is_full,
    require,
)

T = TypeVar("T")

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch.nn import Module

    from fedclust.report.table import Table
    from fedclust.report.write import Contents
    from fedclust.runtime.predicted import Predicted
    from fedclust.runtime.trained import Trained


_CALLER = 5  # calls from a warning to who has called `run` or `sweep`


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Python's `random` goes on as if nothing had been done: packages draw where they are
    imported.
    """
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)


@_same_random_numbers()
def run(
    *overrides: str | Mapping[str, Any],
    config_dir: str | Path | None = None,
    **keys: Any,
) -> Result:
    """Run one job, or all jobs of an experiment.

    Args:
        overrides: as typed behind `fedclust run`, such as "solver.lr=0.1", or mappings such as
            {"solver.lr": 0.1}.
        config_dir: the folder of your own choices and the Python files that they name.
        keys: values by key, such as rounds=30 or seeds=[0, 5].

    Returns:
        What the job has left in its folder.

    Raises:
        UserError: what cannot be run, in one line; nothing has been written then.
        SweepError: if jobs of an experiment could not run; the others have.
        DivergedError: when every seed has failed.
        Interrupted: after Ctrl-C, when the round has been saved; the same call continues.
        Exception: what a method of your own has raised.

    Warns:
        UserWarning: of a finished job whose code has changed since, or whose files have.
    """
    return Result.of(_launched(overrides, keys, config_dir, many=False))


@_same_random_numbers()
def sweep(
    *overrides: str | Mapping[str, Any],
    config_dir: str | Path | None = None,
    **keys: Any,
) -> Result:
    """Run a job for every combination of values, and write the report of all.

    Args:
        overrides: as typed behind `fedclust run -m`, such as "algorithm=lcfl,ifca", or mappings
            such as {"algorithm": ["lcfl", "ifca"], "solver.lr": [0.1, 0.01]}. A list holds the
            values to try; a value that is a list stands in a list: {"seeds": [[0, 1], [2, 3]]}.
        config_dir: as for `run`.
        keys: as `overrides`, by key.

    Returns:
        What all jobs of the sweep's folder have left.

    Raises:
        SweepError: if jobs could not run; the others have, and `load` reads them.
        UserError: as `run`.
        Interrupted: as `run`.

    Warns:
        UserWarning: as `run`.
    """
    return Result.of(_launched(overrides, keys, config_dir, many=True))


@_same_random_numbers()
def load(folder: str | Path, *, outside: str | Path | None = None) -> Result:
    """What a job or a sweep has left, finished or not; nothing is run.

    Args:
        folder: such as "outputs/quickstart".
        outside: a CSV of accuracies that another program measured on the same federation, as
            `report.outside` of `fedclust report`.

    Raises:
        ConfigError: when `folder` is no path, or the CSV does not fit.
        RunFolderError: when the folder holds no job with results, or several experiments.
        DataError: when a file cannot be read.
    """
    return Result.of(
        _path("folder", folder), None if outside is None else _path("outside", outside)
    )


def _launched(
    overrides: tuple[str | Mapping[str, Any], ...],
    keys: Mapping[str, Any],
    config_dir: str | Path | None,
    *,
    many: bool,
) -> Path:
    """Run what was asked for, as the command line does; returns its folder."""
    from yaml import YAMLError

    from fedclust.helpers.distributed import launched
    from fedclust.launch.command import launch
    from fedclust.launch.hints import HYDRAS, explained
    from fedclust.launch.typed import Typed, as_typed

    if launched():
        raise ConfigError(
            "fedclust.run is not allowed under torchrun: start `python -m fedclust run` with it"
        )
    texts = as_typed(overrides, keys, many=many)
    warn = partial(warnings.warn, stacklevel=_CALLER)
    try:
        own = None if config_dir is None else _path("config_dir", config_dir).resolve()
        return launch(Typed(tuple(texts), own, many or None), warn)
    except HYDRAS as error:
        raise ConfigError(explained(error, texts, "fedclust.sweep")) from error
    except YAMLError as error:
        words = " ".join(str(error).split())
        raise ConfigError(f"a config file cannot be read: {words}") from error
    except OSError as error:
        raise (DiskFull if is_full(error) else RunFolderError)(in_words(error)) from error


def _path(name: str, given: object) -> Path:
    """The path given as an argument; refuses what is none."""
    require(isinstance(given, str | PathLike), name, given, 'a path, as in "outputs/quickstart"')
    return Path(given)  # type: ignore[arg-type]


def _one_of(key: str, given: T | None, known: Sequence[T]) -> T:
    """What is given of several; of one, that one."""
    words = f"one of {', '.join(map(str, known))}"
    if given is None and len(known) != 1:
        raise ConfigError(f"{key} is needed: {words}")
    found = known[0] if given is None else given
    require(found in known, key, given, words)
    return found


class Result:
    """What the jobs of a folder have left, read from its files.

    An arm is a job as a report names it; jobs that differ in their seeds alone are one. Shown at
    the end of a notebook's cell, a result is its main table.

    Attributes:
        folder: of the job or the sweep.
    """

    def __init__(self, contents: Contents) -> None:
        self.folder = contents.folder
        self._contents = contents

    @classmethod
    def of(cls, folder: Path, outside: Path | None = None) -> Result:
        """Read a folder; see `load`."""
        from fedclust.papers.reports import all_contents

        experiments = all_contents(folder, outside)
        if len(experiments) > 1:
            inside = ", ".join(str(one.folder) for one in experiments)
            raise RunFolderError(f"{folder} holds several experiments; load one of {inside}")
        return cls(experiments[0])

    @property
    def arms(self) -> list[str]:
        """The names of the arms, in the order of the report."""
        return [arm.label for arm in self._contents.arms]

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Every number of every round: columns arm, seed, round (from 0) and one per metric.

        NaN where a metric was not recorded; `fedclust.metrics.METRICS` says what each means.
        """
        from fedclust.report.frames import rounds_frame

        return rounds_frame(self._contents.arms)

    @cached_property
    def clients(self) -> pd.DataFrame:
        """A row per arm, seed, evaluated round and client: its true group, its cluster (label), its
        test examples and how many were right; its name where the data have one.
        """
        from fedclust.report.frames import clients_frame

        return clients_frame(self._contents.arms)

    @cached_property
    def names(self) -> dict[str, dict[str, list[str]]]:
        """By arm what its data call their inputs (features), classes or targets, clients and
        groups, in the order of their numbers, in the first seed; only what has names.
        """
        from fedclust.report.federations import names_of

        return {arm.label: names_of(arm) for arm in self._contents.arms}

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A row per arm, seed, scored round, score and what it is over (pooled, client_mean,
        worst_decile): its value, and for how many clients it is undefined.

        Empty where `scores` asked for none. `clients` has those of every client.
        """
        from fedclust.report.scores import scores_frame

        return scores_frame(self._contents.arms)

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """A row per arm, seed and test example at the end, where `predictions=true` kept them:
        client, row of the pool, target, and output or output_0, output_1, …: the probability of
        every class or label, or a number.
        """
        from fedclust.report.frames import predictions_frame

        return predictions_frame(self._contents.arms)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """By arm and metric: mean and standard deviation (ddof=0) over seeds of the last value, and
        of the best one where a metric has a better direction.

        Columns last, last_std, best, best_std, seeds. Seeds that failed are left out.
        """
        from fedclust.report.frames import summary_frame

        return summary_frame(self._contents.arms)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config; of several arms what all have in common."""
        return _common(list(self.configs.values()))

    @cached_property
    def configs(self) -> dict[str, dict[str, Any]]:
        """The resolved config of every arm, by name."""
        return {arm.label: dict(arm.run.config) for arm in self._contents.arms}

    def model(
        self,
        client: int | str,
        *,
        seed: int | None = None,
        arm: str | None = None,
        config_dir: str | Path | None = None,
    ) -> Module:
        """The network that a client uses at the end of a job, in evaluation.

        Args:
            client: its number, or its name where the data have one.
            seed: which; None for the only one.
            arm: which; None for the only one.
            config_dir: as for `run`, where the job was run with one.

        Returns:
            The config's network. It takes inputs as the job made them, see `predict`, and returns
            what its last layer gives. Where a client mixes several, one whose predictions are
            theirs, mixed.

        Raises:
            ConfigError: no such client, seed or arm.
            RunFolderError: the job is not finished, or has not kept what is needed.
        """
        from fedclust.launch.guard import importable

        trained = self._trained(seed, arm, config_dir)
        with importable(trained.user_dir):
            return trained.network(client)

    def predict(
        self,
        examples: Any,
        client: int | str,
        *,
        seed: int | None = None,
        arm: str | None = None,
        config_dir: str | Path | None = None,
    ) -> pd.DataFrame:
        """What a client's model says of new examples, with gaps filled, words coded and numbers
        scaled as those of the job were.

        Args:
            examples: a frame with the columns of the job's table, in any order and beside others,
                or a CSV of the same form; or an array [N, …] of pictures, numbers or token ids.
            client, seed, arm, config_dir: as for `model`.

        Returns:
            A row per example: the probability of every class or label, or numbers in the unit of
            the file. Columns are called by the classes, labels or targets where these have names.

        Raises:
            DataError: a column is missing, or a value is of another kind than in the job's data.
            ConfigError, RunFolderError: as `model`.
        """
        import pandas as pd

        from fedclust.launch.guard import importable

        trained = self._trained(seed, arm, config_dir)
        with importable(trained.user_dir):
            said, names = trained.predict(examples, client)
        index = examples.index if isinstance(examples, pd.DataFrame) else None
        return pd.DataFrame(said.numpy(), index, names or None)

    def predicted(
        self,
        table: Any,
        client: str | None = None,
        *,
        seed: int | None = None,
        arm: str | None = None,
        config_dir: str | Path | None = None,
    ) -> Predicted:
        """What the models say of a table in which every row names its client, also one that the job
        did not know; what `fedclust predict` writes.

        Args:
            table: a frame with the columns of the job's table, or a CSV of the same form. Where it
                has the label too, a new client gets the model that fits it best.
            client: whose all rows are; None where the column of the clients says it.
            seed, arm, config_dir: as for `model`.

        Returns:
            The frame of predictions, and how every client got its model.

        Raises:
            DataError, ConfigError, RunFolderError: as `predict`.
        """
        from fedclust.launch.guard import importable
        from fedclust.runtime.predicted import predicted

        trained = self._trained(seed, arm, config_dir)
        given = Path(table) if isinstance(table, str | PathLike) else table
        with importable(trained.user_dir):
            return predicted(trained, given, client)

    def _trained(self, seed: int | None, arm: str | None, config_dir: str | Path | None) -> Trained:
        from fedclust.runtime.trained import Trained

        arms = {one.label: one for one in self._contents.arms if not one.outside}
        name = _one_of("arm", arm, list(arms))
        jobs = {one: job for job in arms[name].jobs for one in job.seeds}
        chosen = _one_of("seed", seed, list(jobs))
        job, own = jobs[chosen], None if config_dir is None else _path("config_dir", config_dir)
        return Trained(job.folder, job.config, chosen, own and own.resolve())

    def table(self, name: str = "table") -> Table:
        """A table of the report; shown as HTML in a notebook and printed as Markdown.

        Args:
            name: table for the main one, or that of another file of a report, such as cost.

        Raises:
            ConfigError: when the report has no such table.
        """
        tables = {table.name: table for table in self._contents.tables}
        require(name in tables, "table", name, f"one of {', '.join(tables)}")
        return tables[name]

    def figure(self, metric: str | None = None, x: str = "round") -> Figure:
        """A metric of all arms over rounds as a report draws it: mean over seeds, with a band of
        one standard deviation.

        Args:
            metric: its name, see `rounds`; None for that of the report, such as accuracy.
            x: round, or what was sent until then: models or bytes; or simulated_seconds.

        Raises:
            ConfigError: when no arm has recorded the metric.
        """
        from fedclust.report.figures import figure

        spec = self._contents.spec
        return figure(spec, self._contents.arms, metric or spec.metric, x)

    def __repr__(self) -> str:
        """The folder and the names of the arms."""
        return f"<fedclust.Result {self.folder}: {', '.join(self.arms)}>"

    def _repr_html_(self) -> str:
        """The title, what a reader must know first, and the main table, for a notebook."""
        known = "".join(f"<p>{html.escape(line)}</p>\n" for line in self._contents.banners)
        title = f"<h4>{html.escape(self._contents.title)}</h4>\n"
        where = f"<p><small>{html.escape(str(self.folder))}</small></p>"
        return title + known + self._contents.tables[0].html() + where


def _common(configs: list[dict[str, Any]]) -> dict[str, Any]:
    """The entries that all configs have with the same value, at any depth."""
    first, *others = configs
    shared: dict[str, Any] = {}
    for key, value in first.items():
        if any(key not in one for one in others):
            continue
        same = [one[key] for one in others]
        if isinstance(value, dict) and all(isinstance(one, dict) for one in same):
            shared[key] = _common([value, *same])
        elif all(one == value for one in same):
            shared[key] = value
    return shared
