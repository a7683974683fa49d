"""From what is typed to the first round and the report. Read this first.

`launch` is what `fedclust run` and Python call, `run_job` what Hydra's launcher calls for every
job, in this process or in others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus, run_job
from hydra.types import HydraContext

from fedclust.helpers.distributed import quiet
from fedclust.helpers.errors import SweepError
from fedclust.helpers.private import Callbacks, failure_of
from fedclust.launch.checks import prepared
from fedclust.launch.compose import Command, SweepLoader, in_mode
from fedclust.launch.failures import as_raised
from fedclust.launch.guard import hydra_of_its_own
from fedclust.launch.job import Jobs, LaunchedJob
from fedclust.launch.launchers import OneAfterTheOther, explained, told_elsewhere
from fedclust.launch.sweep import notes, report_sweep
from fedclust.launch.typed import Typed


def launch(typed: Typed, warn: Callable[[str], object] = lambda _: None) -> Path:
    """Run one job or a sweep of them; returns the folder. `warn` is told of jobs done already.

    Raises:
        SweepError: when jobs of a sweep could not run; the others have.
        Exception: what stopped the only job, as it was raised.
    """
    with hydra_of_its_own(typed), notes(typed.texts) as noted, as_raised():
        command = prepared(_aside(typed, noted.folder))  # composes, and refuses what cannot be
        _by_hydra(command, Jobs.of(command, noted, one_job))  # calls `one_job` for every job
        if command.many:
            report_sweep(command.results, noted)
        for line in noted.lines("remarks"):
            warn(line)
        if failed := noted.not_run():
            raise SweepError(command.results.absolute(), failed)
        return command.results.absolute()


def one_job(job: LaunchedJob) -> float:
    """One job, from its config to its last round; returns its objective."""
    config = job.checked()  # refuses what this job cannot have
    with job.loading(config):
        folder = job.opened(config)  # new, or to be continued; refuses that of another config
        built = None if job.is_done(folder) else job.built(config, folder)  # data, engine, method
    if built is None:
        return job.told_again(folder)
    from fedclust.runtime.run import run  # and with it PyTorch

    progress = job.progress(config)
    run(built, folder, progress)  # the rounds, from the newest checkpoint on
    return job.told(folder, built, progress)


def _aside(typed: Typed, folder: Path) -> Typed:
    """What is typed; a rank beside the first has Hydra's folders aside."""
    if not quiet():
        return typed
    folders = f"hydra.run.dir='{folder}'", f"hydra.sweep.dir='{folder}'"
    return replace(typed, texts=(*typed.texts, *folders))


def _by_hydra(command: Command, jobs: Jobs) -> None:
    """Let Hydra run the job, or its sweeper and launcher the jobs of a sweep."""
    config, own = in_mode(command), command.typed.own
    context = HydraContext(config_loader=SweepLoader(own), callbacks=Callbacks(config))
    try:
        if command.many:
            launcher = config.hydra.launcher
            elsewhere = told_elsewhere(launcher, command.results, jobs.notes, jobs.num_jobs)
            with elsewhere, explained(launcher):
                context.callbacks.on_multirun_start(config=config, config_name="config")
                sweeper: Any = Plugins.instance().instantiate_sweeper(
                    hydra_context=context, task_function=jobs, config=config
                )
                if OneAfterTheOther.suits(config.hydra):
                    sweeper.launcher = OneAfterTheOther(config, context, jobs)
                sweeper.sweep(list(config.hydra.overrides.task))
                context.callbacks.on_multirun_end(config=config, config_name="config")
            return
        context.callbacks.on_run_start(config=config, config_name="config")
        done = run_job(
            hydra_context=context,
            task_function=jobs,
            config=config,
            job_dir_key="hydra.run.dir",
            job_subdir_key=None,
        )
        context.callbacks.on_run_end(config=config, config_name="config", job_return=done)
        if done.status is JobStatus.FAILED:
            raise failure_of(done)
    finally:
        jobs.before.remove_unused(command.results)
