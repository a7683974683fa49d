"""One job of a run or of a sweep: from the composed config to its finished folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from fedclust.commands import gpus, sweep
from fedclust.commands.checks import check_report, check_scale
from fedclust.commands.surroundings import importable, own_folder
from fedclust.commands.sweep_report import save_jobs
from fedclust.commands.unread import unread, yield_to_typed
from fedclust.config import schema
from fedclust.helpers.distributed import here
from fedclust.helpers.errors import counted
from fedclust.runtime.progress import Aside
from fedclust.tuning.tuned import apply_tuned, elsewhere

if TYPE_CHECKING:
    from fedclust.runtime.progress import Progress
    from fedclust.trackers import Tracker


def one_job(config: DictConfig, hydras: Path, console: Console, in_sweep: bool) -> float:
    """Check a composed config and run what is left of its job; returns the job's objective.

    Args:
        config: as Hydra composed it.
        hydras: the folder that Hydra gives it.
        console: where to tell.
        in_sweep: whether it is one of several.

    Raises:
        UserError: for a config that cannot run.
    """
    own = own_folder()
    hydra_config = HydraConfig.get()
    choices = {
        str(k): v for k, v in hydra_config.runtime.choices.items() if not str(k).startswith("hydra")
    }
    try:
        overrides = list(hydra_config.overrides.task)
        typed = " ".join(sweep.lines("typed")).split()
        yield_to_typed(config, typed)
        for key in unread(config, typed) if in_sweep else ():
            text = f"{key} is read by other methods of this sweep, not by {choices['algorithm']}"
            if OmegaConf.select(config, f"algorithm.{key}") is None:
                Aside(str(choices["algorithm"]), console).warn(text)
        tuned, search, settings = apply_tuned(config, choices, overrides)
        resolved = schema.resolve(tuned, {"choices": choices, "overrides": overrides, **search})
        check_scale(choices, resolved["scale"], own)
        schema.check_keys(resolved)
        schema.check_sampling(resolved, list(hydra_config.overrides.task))
        resolved["seeds"] = schema.seed_list(resolved["seeds"])
        title = _title(choices, resolved)
        if remark := elsewhere(settings, resolved):
            Aside(title, console).warn(remark)
        number = None
        if in_sweep:
            number = int(hydra_config.job.num) + 1
            of_all = "" if sweep.jobs() is None else f" of {sweep.jobs()}"
            title = f"job {number}{of_all}: {title}"
        folder_path = here().agree(lambda: hydras)
        one_by_one = str(hydra_config.launcher._target_).endswith(".BasicLauncher")
        with importable(own), ExitStack() as afterwards:
            value = _run(
                resolved,
                _relative(folder_path),
                own,
                title,
                console,
                number,
                afterwards,
                alone=number is None or one_by_one,
            )
        if not in_sweep and resolved["progress"]:
            console.print(
                f"`fedclust report {_relative(folder_path)}` makes tables and figures",
                highlight=False,
                soft_wrap=True,
            )
        return value
    finally:
        sweep.remove_unused(hydras)


def _run(
    resolved: dict[str, Any],
    path: Path,
    own: Path | None,
    title: str,
    console: Console,
    number: int | None,
    afterwards: ExitStack,
    *,
    alone: bool,
) -> float:
    """Build and run a checked config; returns its objective.

    Args:
        resolved: the config.
        path: of the job's folder.
        own: the folder given with --config-dir.
        title: the job in a few words.
        console: where to tell.
        number: of the job in a sweep, from 1; None for a single one.
        afterwards: what is done when the job has ended.
        alone: whether no other job of the sweep runs at the same time.
    """
    began = perf_counter()
    loading: AbstractContextManager[object] = nullcontext()
    if resolved["progress"]:
        text = f"loading: {title}"
        if alone and console.is_terminal:
            loading = console.status(text[: console.width - 3], refresh_per_second=4)
        elif not console.is_jupyter:
            console.print(text, highlight=False, soft_wrap=True)
    with loading:
        # what a run needs and nothing else does costs most of a start
        import torch

        from fedclust.config.build import build, data_of
        from fedclust.config.idle import idle_lines
        from fedclust.config.objects import Objects
        from fedclust.metrics import meaning
        from fedclust.metrics.summary import objective
        from fedclust.metrics.told import read_meanings
        from fedclust.runtime.folder import RunFolder
        from fedclust.runtime.onlooker import NO_TRACKER, SeenFolder
        from fedclust.runtime.progress import Replaced, Shown, Sweep
        from fedclust.runtime.run import data_digests, run

        afterwards.callback(torch.set_num_threads, torch.get_num_threads())
        ranks = here()
        if not ranks.leads:
            resolved["tracker"] = NO_TRACKER
        folder = (RunFolder if ranks.leads else SeenFolder)(path, resolved, own)
        folder.check()
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            save_jobs(Path(HydraConfig.get().sweep.dir))
        built = None
        if not ranks.agree(folder.is_done):
            device = resolved["device"]
            if not alone:
                device = afterwards.enter_context(gpus.dealt(device))
            built = build({**resolved, "device": device}, own)
            for line in idle_lines(resolved, resolved["overrides"], Objects(own)):
                Aside(title, console).warn(line)
        else:
            read_meanings(path)  # no file of a user's was imported
            meaning(schema.objective_of(resolved), "objective")
            if ranks.leads and folder.has_touched_data():
                folder.confirm_data(data_digests(data_of(resolved, own)))
        if resolved["report"] is not None:
            check_report(resolved)
        if built is None:
            folder.renew()
    if built is None:
        console.print(f"{folder.path} is done already", highlight=False, soft_wrap=True)
        for remark in folder.remarks:
            Aside(title, console).warn(remark)
            sweep.note("remarks", remark)
        return ranks.agree(lambda: objective(folder.path, schema.objective_of(resolved)))
    after, name, jobs = None, "", sweep.jobs()
    if number is not None and not alone:
        name = f"job {number}" if jobs is None else f"job {number}/{jobs}"
    elif number is not None and jobs is not None:
        after = Sweep(jobs - number, sweep.mean_seconds())
    progress: Progress = Aside(title, console)
    if resolved["progress"]:
        kind = Replaced if console.is_jupyter else Shown
        progress = kind(title, console, after, name=name, live=alone)
    afterwards.callback(built.tracker.close)
    run(built, folder, progress)
    if folder.finished_here:  # whoever finished it has done so
        _hand_over(built.tracker, folder.path, progress)
    sweep.note_seconds(perf_counter() - began)
    return ranks.agree(lambda: objective(folder.path, schema.objective_of(resolved)))


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
        said = " ".join(str(error).split())
        progress.warn(f"the tracker did not take the results: {type(error).__name__}: {said}")


def _title(choices: Mapping[str, Any], resolved: Mapping[str, Any]) -> str:
    """The job in a few words."""
    return (
        f"{choices['algorithm']} on {choices['partition']} {choices['dataset']}, "
        f"{counted(len(resolved['seeds']), 'seed')}, {counted(resolved['rounds'], 'round')}"
    )


def _relative(path: Path) -> Path:
    """The path as a person would type it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
