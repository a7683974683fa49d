"""From overrides to finished folders: what the command line and Python share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from hydra._internal.callbacks import Callbacks
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus, run_job
from hydra.types import HydraContext, RunMode

from fedclust.helpers.distributed import quiet
from fedclust.helpers.errors import SweepError
from fedclust.launch.checks import check_choices, check_form, check_tuned
from fedclust.launch.compose import compose, in_mode
from fedclust.launch.failures import Stopped
from fedclust.launch.guard import check_hydra
from fedclust.launch.job import JobRunner
from fedclust.launch.launchers import explained, told_elsewhere
from fedclust.launch.notes import Notes, notes
from fedclust.launch.surroundings import VARIABLES, FoldersBefore, hydra_of_its_own
from fedclust.launch.sweep import check_direction, jobs_of, methods
from fedclust.launch.sweep_loader import SweepLoader
from fedclust.launch.sweep_report import report_sweep
from fedclust.launch.unread import for_first_method, refuse_unread, typed_keys


def launch(
    overrides: Sequence[str],
    own: Path | None = None,
    *,
    multirun: bool = False,
    warn: Callable[[str], object] | None = None,
) -> Path:
    """Run one job, or with `multirun` or an experiment a sweep of them.

    What Hydra and PyTorch keep for the whole process is afterwards as it was before.

    Args:
        overrides: Hydra's.
        own: the folder given with --config-dir.
        multirun: whether KEY=VALUE,VALUE,… means a job for every value.
        warn: told what somebody should know of jobs that were done already, besides the terminal.

    Returns:
        The folder of the job, or of the sweep.

    Raises:
        SweepError: when jobs of a sweep could not run; the others have.
        Exception: what stopped the only job, as it was raised.
    """
    elsewhere = any("submitit_slurm" in one for one in overrides)
    with hydra_of_its_own(own, overrides), notes(Path.cwd() if elsewhere else None) as noted:
        where = noted.folder
        aside = [f"hydra.run.dir='{where}'", f"hydra.sweep.dir='{where}'"] if quiet() else []
        try:
            folder = _composed_and_run([*overrides, *aside], own, noted, multirun)
        except Stopped as stopped:
            raise stopped.reason from stopped.reason.__cause__
        if warn is not None:
            for line in noted.lines("remarks"):
                warn(line)
        if noted.not_run():
            raise SweepError(folder, noted.not_run())
        return folder


def _composed_and_run(overrides: list[str], own: Path | None, noted: Notes, multirun: bool) -> Path:
    """Compose, check what Hydra is about to do, and let it run the job or the sweep.

    Returns:
        The folder of the job, or of the sweep.
    """
    check_form(overrides, own)
    check_choices(overrides, own)
    config = compose(for_first_method(overrides, own), own)
    many = multirun or config.hydra.mode is RunMode.MULTIRUN
    mode = RunMode.MULTIRUN if many else RunMode.RUN
    results = check_hydra(config, [*overrides, f"hydra.mode={mode.name}"], many=many)
    if many:
        check_tuned(config, overrides, own)
    refuse_unread(config, overrides, own, methods(config, overrides, own))
    config = in_mode(config, overrides, own, mode)
    runner = JobRunner(
        own=own,
        notes=noted,
        before=FoldersBefore.of(results),
        typed=typed_keys(overrides),
        num_jobs=jobs_of(config, overrides, own) if many else 1,
        variables=os.environ[VARIABLES],
    )
    context = HydraContext(config_loader=SweepLoader(own), callbacks=Callbacks(config))
    try:
        if many:
            check_direction(config)
            launcher = config.hydra.launcher
            with told_elsewhere(launcher, results, noted, runner.num_jobs), explained(launcher):
                context.callbacks.on_multirun_start(config=config, config_name="config")
                sweeper = Plugins.instance().instantiate_sweeper(
                    hydra_context=context, task_function=runner, config=config
                )
                sweeper.sweep(list(config.hydra.overrides.task))
                context.callbacks.on_multirun_end(config=config, config_name="config")
            report_sweep(results, noted)
        else:
            context.callbacks.on_run_start(config=config, config_name="config")
            done = run_job(
                hydra_context=context,
                task_function=runner,
                config=config,
                job_dir_key="hydra.run.dir",
                job_subdir_key=None,
            )
            context.callbacks.on_run_end(config=config, config_name="config", job_return=done)
            if done.status is JobStatus.FAILED:  # `return_value` would print lines of its own
                raise done._return_value
    finally:
        runner.before.remove_unused(results)
    return results.absolute()
