"""One job of a run or of a sweep: from the composed config to its finished folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Timer
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import env_override
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console

from fedclust.config import schema
from fedclust.core.traits import traits_of
from fedclust.helpers.distributed import here, quiet
from fedclust.helpers.errors import counted
from fedclust.helpers.messages import messages_may_be_lost
from fedclust.helpers.prose import say
from fedclust.launch import gpus
from fedclust.launch.checks import check_report, checked
from fedclust.launch.failures import attempt, attempt_in_sweep
from fedclust.launch.launchers import end_with_sweep, is_basic
from fedclust.launch.notes import Notes
from fedclust.launch.surroundings import VARIABLES, FoldersBefore, importable
from fedclust.launch.sweep_report import add_job, save_jobs
from fedclust.launch.unread import without_effect
from fedclust.runtime.progress import Aside, Once, Progress, Replaced, Shown, Sweep
from fedclust.runtime.shared_data import SharedData

if TYPE_CHECKING:
    from fedclust.trackers import Tracker

_LONG_LOADING = 3.0  # seconds after which a log is told of it


@dataclass(frozen=True, kw_only=True)
class Request:
    """What Hydra asks for beside the config.

    Attributes:
        choices: of every group.
        overrides: of the job.
        folder: the job's.
        number: of the job in its sweep, from 1; None for a single one.
        sweep: the sweep's folder.
        alone: whether no other job of the sweep runs at the same time.
    """

    choices: Mapping[str, Any]
    overrides: Sequence[str]
    folder: Path
    number: int | None
    sweep: Path
    alone: bool

    @classmethod
    def of(cls, hydra: Any) -> Request:
        """The request of the job that Hydra is in.

        Args:
            hydra: its part of the job's config.
        """
        named = hydra.runtime.choices.items()
        in_sweep = hydra.mode is RunMode.MULTIRUN
        return cls(
            choices={str(k): v for k, v in named if not str(k).startswith("hydra")},
            overrides=list(hydra.overrides.task),
            folder=Path(hydra.runtime.output_dir),
            number=int(hydra.job.num) + 1 if in_sweep else None,
            sweep=Path(hydra.sweep.dir) if in_sweep else Path(),
            alone=not in_sweep or is_basic(hydra.launcher),
        )


@dataclass(frozen=True, kw_only=True)
class JobRunner:
    """Runs every job of a command; a launcher takes it to the processes that it starts.

    Attributes:
        own: the folder given with --config-dir.
        notes: what the jobs tell the command.
        before: the folders that there were before the command.
        typed: shared keys to which values are typed.
        num_jobs: how many there are; None where that is not known.
        variables: of the environment that typed values read.
        gpus: which are visible to the command, see `gpus.visible`.
        process: the command's.
        seconds: what jobs in this process have taken so far.
        data: of the job before.
    """

    own: Path | None
    notes: Notes
    before: FoldersBefore
    typed: Sequence[str]
    num_jobs: int | None
    variables: str
    gpus: str | None = field(default_factory=gpus.visible)
    process: int = field(default_factory=os.getpid)
    seconds: list[float] = field(default_factory=list)
    data: SharedData = field(default_factory=SharedData)

    def __call__(self, config: DictConfig) -> float | None:
        """Run a job.

        Args:
            config: as Hydra composed it, without its own part.

        Returns:
            Its objective, for a sweeper; None where a job of a sweep could not run.

        Raises:
            Exception: what stopped the only job.
            Stopped: what stops a sweep.
        """
        with messages_may_be_lost(), env_override({VARIABLES: self.variables}):
            hydra = HydraConfig.get()
            request = Request.of(hydra)
            console = Console(stderr=True, quiet=quiet())
            work = partial(self._from_config, config, request, console)
            if request.number is None:
                return attempt(work, request.folder)
            end_with_sweep(self.process)
            gpus.see_again(hydra.launcher, self.gpus)
            place = request.number - 1, os.path.relpath(request.folder, request.sweep)
            add_job(self.notes, *place)
            value, why_not = attempt_in_sweep(
                work, request.folder, console=console, own=self.own, notes=self.notes
            )
            if why_not:
                add_job(self.notes, *place, why_not)
                save_jobs(self.notes, request.sweep)
            self.notes.add_ended(request.number, why_not)
            return value

    def _from_config(self, config: DictConfig, request: Request, console: Console) -> float:
        """Check a composed config and run what is left of its job; returns the job's objective.

        Raises:
            UserError: for a config that cannot run.
        """
        try:
            choices = request.choices
            aside = Aside(str(choices["algorithm"]), console, self._once(request))
            tuned, resolved = checked(
                config,
                choices,
                request.overrides,
                self.typed,
                self.own,
                lambda line, of_method: aside.remark(line, of_method=of_method),
            )
            resolved["seeds"] = schema.seed_list(resolved["seeds"])
            title = _title(choices, resolved)
            if request.number is not None:
                of_all = "" if self.num_jobs is None else f" of {self.num_jobs}"
                title = f"job {request.number}{of_all}: {title}"
            path = _relative(here().agree(lambda: request.folder))
            with importable(self.own), ExitStack() as afterwards:
                told = partial(without_effect, tuned, resolved, request.overrides, self.own)
                value = self._finish(resolved, path, title, request, console, afterwards, told)
            return value
        finally:
            self.before.remove_unused(request.folder)

    def _finish(
        self,
        resolved: dict[str, Any],
        path: Path,
        title: str,
        request: Request,
        console: Console,
        afterwards: ExitStack,
        without_effect: Callable[[], list[str]],
    ) -> float:
        """Build and run a checked config; returns its objective.

        Args:
            resolved: the config.
            path: of the job's folder.
            title: the job in a few words.
            request: what Hydra asks for.
            console: where to tell.
            afterwards: what is done when the job has ended.
            without_effect: what was typed and has no effect, a sentence each.
        """
        began = perf_counter()
        with _told_of_loading(title, console, resolved["progress"], request.alone):
            # what a run needs and nothing else does costs most of a start
            import torch

            from fedclust.config.build import build, check_device, data_of
            from fedclust.metrics import meaning
            from fedclust.metrics.meanings import read_meanings
            from fedclust.metrics.summary import objective
            from fedclust.runtime.folder import RunFolder
            from fedclust.runtime.other_ranks import NO_TRACKER, ReadFolder
            from fedclust.runtime.run import data_digests, run

            afterwards.callback(torch.set_num_threads, torch.get_num_threads())
            ranks = here()
            if not ranks.leads:
                resolved["tracker"] = NO_TRACKER
            folder = (RunFolder if ranks.leads else ReadFolder)(path, resolved, self.own)
            folder.check()
            if request.number is not None:
                save_jobs(self.notes, request.sweep)
            metric = resolved["objective"]  # None for the task's own
            built = None
            if not ranks.agree(folder.is_done):
                device = resolved["device"]
                if not request.alone:
                    locks = self.notes.folder / "gpus"
                    device = afterwards.enter_context(gpus.dealt(device, locks))
                engine = ranks.agree(folder.engine)
                config = {**resolved, "device": device, "engine": engine}
                built = build(config, self.own, federations=self.data.of(config))
                self.data.keep(built.federations)
                aside = Aside(title, console, self._once(request))
                unused = traits_of(built.algorithm).unused
                for line in without_effect():
                    key = line.lstrip("+").partition("=")[0]
                    of_method = key in unused or not schema.is_setting(key)
                    aside.remark(line, of_method=of_method)
            else:
                check_device(resolved["device"])
                read_meanings(path)  # no file of a user's was imported
                if metric is not None:
                    meaning(metric, "objective")
                if ranks.leads and folder.has_touched_data():
                    folder.confirm_data(data_digests(data_of(resolved, self.own)))
            if resolved["report"] is not None:
                check_report(resolved)
            if built is None:
                folder.renew()
        if built is None:
            for remark in folder.remarks:
                Aside(title, console).warn(remark)
                self.notes.add("remarks", remark)
            value = ranks.agree(lambda: objective(folder.path, metric))
            self._end(resolved, path, request, console, "is done already")
            return value
        progress = self._progress(title, console, request, shown=resolved["progress"])
        afterwards.callback(built.tracker.close)
        run(built, folder, progress)
        if folder.finished_here:  # whoever finished it has done so
            _hand_over(built.tracker, folder.path, progress)
        self.seconds.append(perf_counter() - began)
        value = ranks.agree(lambda: objective(folder.path, metric))
        if request.number is None or not resolved["progress"]:  # else its last round was shown
            self._end(resolved, path, request, console, "is done")
        return value

    def _end(
        self, resolved: Mapping[str, Any], path: Path, request: Request, console: Console, how: str
    ) -> None:
        """Say what came out of a job, and where, as the last that is said of it."""
        if quiet():  # one of several ranks does it
            return
        from fedclust.launch.outcome import outcome
        from fedclust.metrics.summary import last_by_seed

        if request.number is None and resolved["progress"]:
            say(console, f"`fedclust report {shlex.quote(str(path))}` makes tables and figures")
        say(console, outcome(path, last_by_seed(path), resolved, how))

    def _progress(self, title: str, console: Console, request: Request, *, shown: bool) -> Progress:
        """What a person sees of a job while it runs."""
        if not shown:
            return Aside(title, console, self._once(request))
        after, name = None, ""
        if not request.alone:
            name = f"job {request.number}" + ("" if self.num_jobs is None else f"/{self.num_jobs}")
        elif request.number is not None and self.num_jobs is not None:
            mean = sum(self.seconds) / len(self.seconds) if self.seconds else None
            after = Sweep(self.num_jobs - request.number, mean)
        kind = Replaced if console.is_jupyter else Shown
        once = self._once(request)
        return kind(title, console, after, name=name, live=request.alone, once=once)

    def _once(self, request: Request) -> Once | None:
        """What says once what jobs of a sweep share; None where there is one job."""
        if request.number is None:
            return None
        return Once(str(request.choices["algorithm"]), self.notes.is_new)


@contextmanager
def _told_of_loading(title: str, console: Console, shown: bool, alone: bool) -> Iterator[None]:
    """Say that the data are loaded: on a terminal while they are, in a log where it takes long, so
    that a job that is refused says that alone.
    """
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


def _hand_over(tracker: Tracker, folder: Path, progress: Progress) -> None:
    """Give the results of a finished job to its tracker.

    They are on the disk, so what goes wrong here is a warning.
    """
    from fedclust.metrics.summary import over_seeds

    def report() -> Path:
        # matplotlib and pandas cost a second; a run without a tracker does not pay it
        from fedclust.papers.reports import make_report

        return make_report(folder).parent

    try:
        tracker.end(over_seeds(folder), report)
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
