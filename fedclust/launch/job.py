"""The jobs of a command: what each checks, opens, builds and tells, in the order of `one_job`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import env_override
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from fedclust.config import schema
from fedclust.helpers.distributed import here, quiet
from fedclust.helpers.errors import ConfigError, FolderInUse, counted
from fedclust.helpers.messages import messages_may_be_lost
from fedclust.helpers.prose import say
from fedclust.launch.checks import check_report, checked, choices_of
from fedclust.launch.compose import VARIABLES, Command, does_nothing, options
from fedclust.launch.failures import attempt, attempt_in_sweep
from fedclust.launch.guard import FoldersBefore, importable
from fedclust.launch.hints import explained
from fedclust.launch.launchers import (
    OneAfterTheOther,
    dealt_gpu,
    end_with_sweep,
    see_gpus_again,
    visible_gpus,
)
from fedclust.launch.sweep import Notes, add_job, is_basic, save_jobs
from fedclust.launch.typed import Typed
from fedclust.launch.unread import shared_keys, without_effect
from fedclust.runtime.progress import Aside, Once, Progress, Replaced, Shown, SweepProgress
from fedclust.runtime.shared_data import SharedData

if TYPE_CHECKING:
    from fedclust.config.job import Job
    from fedclust.runtime.folder import RunFolder

_LONG_LOADING = 3.0  # seconds after which a log is told of it


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Runs every job of a command; a launcher takes it to the processes that it starts.

    Attributes:
        run: runs one; see `fedclust.launch.command.one_job`.
        own: the folder given with --config-dir.
        before: the folders that there were before the command.
        shared: shared keys to which values are typed.
        options: typed keys that one choice of the sweep does not take, and is run without.
        num_jobs: how many there are; None where that is not known.
        variables: of the environment that typed values read.
        gpus: which are visible to the command, see `visible_gpus`.
        data: of the job before.
    """

    run: Callable[[LaunchedJob], float]
    own: Path | None
    notes: Notes
    before: FoldersBefore
    shared: Sequence[str]
    options: Sequence[str]
    num_jobs: int | None
    variables: str
    gpus: str | None = field(default_factory=visible_gpus)
    process: int = field(default_factory=os.getpid)
    seconds: list[float] = field(default_factory=list)
    data: SharedData = field(default_factory=SharedData)

    @classmethod
    def of(cls, command: Command, notes: Notes, run: Callable[[LaunchedJob], float]) -> Jobs:
        """Those of a command that is checked."""
        return cls(
            run=run,
            own=command.typed.own,
            notes=notes,
            before=FoldersBefore.of(command.results),
            shared=shared_keys(command.typed),
            options=options(command.typed),
            num_jobs=command.num_jobs,
            variables=os.environ[VARIABLES],
        )

    def __call__(self, config: DictConfig) -> float | None:
        """Run a job; returns its objective, None where a job of a sweep could not run.

        Raises whatever stopped the only job, `Stopped` what stops a sweep, or `FolderInUse` for a
        job of a sweep that the launcher tries again.
        """
        with messages_may_be_lost(), env_override({VARIABLES: self.variables}):
            hydra = HydraConfig.get()
            job = LaunchedJob(self, config, hydra)
            if job.number is None:
                return attempt(job.run, job.folder)
            end_with_sweep(self.process)
            see_gpus_again(hydra.launcher, self.gpus)
            place = job.number - 1, os.path.relpath(job.folder, job.sweep)
            add_job(self.notes, *place)
            try:
                value, why_not = attempt_in_sweep(
                    job.run,
                    job.folder,
                    console=job.console,
                    own=self.own,
                    notes=self.notes,
                    later=OneAfterTheOther.suits(hydra),
                )
            except FolderInUse:
                job.put_off()
                raise
            if why_not:
                add_job(self.notes, *place, why_not)
                save_jobs(self.notes, job.sweep)
            self.notes.add_ended(job.number, why_not)
            return value


class LaunchedJob:
    """One job as Hydra has launched it, in the order of `fedclust.launch.command.one_job`.

    Attributes:
        typed: the job's overrides.
        chosen: the choices of every group.
        folder: the job's.
        number: of the job in its sweep, from 1; None for a single one.
        sweep: the sweep's folder.
        alone: whether no other job of the sweep runs at the same time.
    """

    def __init__(self, jobs: Jobs, composed: DictConfig, hydra: Any) -> None:
        in_sweep = hydra.mode is RunMode.MULTIRUN
        self._jobs, self._composed = jobs, composed
        self.typed = Typed(tuple(hydra.overrides.task), jobs.own)
        self.chosen = choices_of(hydra)
        self.folder = Path(hydra.runtime.output_dir)
        self.number = int(hydra.job.num) + 1 if in_sweep else None
        self.sweep = Path(hydra.sweep.dir) if in_sweep else Path()
        self.alone = not in_sweep or is_basic(hydra.launcher)
        self.console = Console(stderr=True, quiet=quiet())
        method = str(self.chosen["algorithm"])
        self._once = Once(method, jobs.notes.is_new) if in_sweep else None
        self._title = method
        self._untold: list[tuple[str, bool]] = []  # until nothing is refused: an error comes last
        self._began = perf_counter()

    def run(self) -> float:
        """Run what is left of it; returns its objective."""
        try:
            with importable(self._jobs.own), ExitStack() as self._afterwards:
                return self._jobs.run(self)
        finally:
            self._jobs.before.remove_unused(self.folder)

    def checked(self) -> dict[str, Any]:
        """The resolved config; UserError for one that cannot run."""
        try:
            self._composed, resolved = checked(
                self._composed,
                self.chosen,
                self.typed,
                self._jobs.shared,
                lambda *told: self._untold.append(told),
            )
        except OmegaConfBaseException as error:  # a reference to a key that is not there
            raise ConfigError(explained(error, ())) from error
        for key in self._jobs.options:
            group = key.partition(".")[0]
            if does_nothing(group, str(self.chosen[group]), self._jobs.own):
                line = f"{key} is read by other choices of {group}, not by {self.chosen[group]}"
                self._untold.append((line, False))
        resolved["seeds"] = schema.seed_list(resolved["seeds"])
        self._title = _title(self.chosen, resolved)
        if self.number is not None:
            of_all = "" if self._jobs.num_jobs is None else f" of {self._jobs.num_jobs}"
            self._title = f"job {self.number}{of_all}: {self._title}"
        return resolved

    @contextmanager
    def loading(self, config: Mapping[str, Any]) -> Iterator[None]:
        """While the block runs, say that the data are loaded."""
        self._began = perf_counter()
        with _told_of_loading(self._title, self.console, config["progress"], self.alone):
            # what a run needs and nothing else does costs most of a start
            import torch

            self._afterwards.callback(torch.set_num_threads, torch.get_num_threads())
            yield

    def opened(self, config: dict[str, Any]) -> RunFolder:
        """The job's folder, new or of the same config, else RunFolderError."""
        from fedclust.runtime.folder import RunFolder
        from fedclust.runtime.other_ranks import NO_TRACKER, ReadFolder

        ranks = here()
        path = _relative(ranks.agree(lambda: self.folder))
        if not ranks.leads:  # the first rank alone has its tracker
            config["tracker"] = NO_TRACKER
        folder = (RunFolder if ranks.leads else ReadFolder)(path, config, self._jobs.own)
        folder.check()
        if self.number is not None:
            save_jobs(self._jobs.notes, self.sweep)
        return folder

    def is_done(self, folder: RunFolder) -> bool:
        """Whether nothing is left to do; then what could be refused all the same is looked at."""
        if not here().agree(folder.is_done):
            return False
        from fedclust.config.data import data_of
        from fedclust.metrics import meaning
        from fedclust.metrics.meanings import read_meanings
        from fedclust.runtime.run import data_digests

        config = folder.config
        read_meanings(folder.path)  # no file of a user's was imported
        if config["objective"] is not None:
            meaning(config["objective"], "objective")
        if here().leads and folder.has_touched_data():
            folder.confirm_data(data_digests(data_of(config, self._jobs.own)))
        if config["report"] is not None:
            check_report(config)
        folder.renew()
        return True

    def built(self, config: Mapping[str, Any], folder: RunFolder) -> Job:
        """The parts of the job; tells what has no effect; UserError for parts that do not fit."""
        from fedclust.config.build import build

        folder.check_unused()
        device, jobs = config["device"], self._jobs
        if not self.alone:
            device = self._afterwards.enter_context(dealt_gpu(device, jobs.notes.folder / "gpus"))
        config = {**config, "device": device, "engine": here().agree(folder.engine)}
        built = build(config, jobs.own, federations=jobs.data.of(config))
        jobs.data.keep(built.federations)
        self._tell()
        aside = Aside(self._title, self.console, self._once)
        for line, of_method in without_effect(self._composed, folder.config, self.typed):
            aside.remark(line, of_method=of_method)
        if config["report"] is not None:  # a user's file has documented its metrics by now
            check_report(config)
        self._afterwards.callback(built.tracker.close)
        return built

    def _tell(self) -> None:
        """Say what `checked` has found to have no effect."""
        aside = Aside(str(self.chosen["algorithm"]), self.console, self._once)
        for line, of_method in self._untold:
            aside.remark(line, of_method=of_method)

    def progress(self, config: Mapping[str, Any]) -> Progress:
        """What a person sees of the job while it runs."""
        if not config["progress"]:
            return Aside(self._title, self.console, self._once)
        after, name, num_jobs, seconds = None, "", self._jobs.num_jobs, self._jobs.seconds
        if not self.alone:
            name = f"job {self.number}" + ("" if num_jobs is None else f"/{num_jobs}")
        elif self.number is not None and num_jobs is not None:
            mean = sum(seconds) / len(seconds) if seconds else None
            after = SweepProgress(num_jobs - self.number, mean)
        kind = Replaced if self.console.is_jupyter else Shown
        return kind(self._title, self.console, after, name=name, live=self.alone, once=self._once)

    def put_off(self) -> None:
        """Say that another process runs the job, which comes again after the others."""
        line = f"{_relative(self.folder)}: another process runs it; looked at again after the rest"
        if self._jobs.notes.is_new(line):
            say(self.console, line)

    def told_again(self, folder: RunFolder) -> float:
        """The objective of a job that was done already, which is told."""
        self._tell()
        for remark in folder.remarks:
            Aside(self._title, self.console).warn(remark)
            self._jobs.notes.add("remarks", remark)
        return self._ended(folder, "is done already")

    def told(self, folder: RunFolder, built: Job, progress: Progress) -> float:
        """The objective of a job that has ended, which is told, and handed to its tracker."""
        if folder.finished_here:  # whoever finished it has done so
            _hand_over(built, folder.path, progress)
        self._jobs.seconds.append(perf_counter() - self._began)
        return self._ended(folder, "is done")

    def _ended(self, folder: RunFolder, how: str) -> float:
        """The objective; what came out of the job, and where, is the last that is said of it."""
        from fedclust.metrics.summary import last_by_seed, objective
        from fedclust.report.outcome import outcome

        config, path = folder.config, folder.path
        value = here().agree(lambda: objective(path, config["objective"]))
        shown = self.number is not None and config["progress"] and how == "is done"
        if quiet() or shown:  # one of several ranks does it; or its last round was shown
            return value
        if self.number is None and config["progress"]:
            line = f"`fedclust report {shlex.quote(str(path))}` makes tables and figures"
            say(self.console, line)
        say(self.console, outcome(path, last_by_seed(path), config, how))
        return value


@contextmanager
def _told_of_loading(title: str, console: Console, shown: bool, alone: bool) -> Iterator[None]:
    """Say that the data are loaded: on a terminal while they are, in a log where it takes long."""
    text = f"loading: {title}"
    if shown and alone and console.is_terminal:
        with console.status(text[: console.width - 3], refresh_per_second=4):
            yield
        return
    later = Timer(_LONG_LOADING, say, (console, text))
    later.daemon = True
    if shown and not console.is_jupyter:
        later.start()
    try:
        yield
    finally:
        later.cancel()


def _hand_over(built: Job, folder: Path, progress: Progress) -> None:
    """Give a finished job's results, which are on the disk, to its tracker; errors only warn."""
    from fedclust.metrics.summary import over_seeds

    def report() -> Path:
        # matplotlib and pandas cost a second; a run without a tracker does not pay it
        from fedclust.papers.reports import make_report

        return make_report(folder).parent

    try:
        built.tracker.end(over_seeds(folder), report)
    except Exception as error:  # a tracker's own, of whatever kind
        words = " ".join(str(error).split())
        progress.warn(f"the tracker did not take the results: {type(error).__name__}: {words}")


def _title(choices: Mapping[str, Any], resolved: Mapping[str, Any]) -> str:
    """The job in a few words."""
    return (
        f"{choices['algorithm']} on {choices['partition']} {choices['dataset']}, "
        f"{counted(len(resolved['seeds']), 'seed')}, {counted(resolved['rounds'], 'round')}"
    )


def _relative(path: Path) -> Path:
    """The path as a person would type it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
