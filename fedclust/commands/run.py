"""`fedclust run`, and what it shares with `fedclust.run` of Python: Hydra around one job."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from shutil import which
from typing import NoReturn

import hydra
from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from fedclust.commands import gpus, sweep
from fedclust.commands.checks import check_choices, check_form, check_tuned
from fedclust.commands.composing import compose, hydra_for
from fedclust.commands.failures import TOLD, Stopped, attempt, tell_traceback
from fedclust.commands.guard import check_hydra, read_environment, variables_in
from fedclust.commands.names import job_folder, user_dir, without_user_dir
from fedclust.commands.one_job import one_job
from fedclust.commands.surroundings import USER_DIR, hydra_of_its_own
from fedclust.commands.sweep_report import begin_job, fail_job
from fedclust.commands.sweepers import check_direction, jobs_of
from fedclust.commands.unread import for_first_method, refuse_unread, typed_keys
from fedclust.config import schema
from fedclust.config.tree import CONF
from fedclust.helpers.distributed import quiet
from fedclust.helpers.errors import (
    ConfigError,
    JobLost,
    SweepError,
    UserError,
    counted,
    did_you_mean,
    require,
)
from fedclust.helpers.messages import messages_may_be_lost
from fedclust.runtime.signals import heard

_LAUNCHERS = ("joblib", "submitit")  # whose errors mean that a process was lost

HELP = """usage: fedclust run [KEY=VALUE …] [-m] [--cfg job] [--config-dir DIR]

  KEY=VALUE         another value than the default; a.b=VALUE for one inside a part
  GROUP=CHOICE      another part; `fedclust list` shows the groups and their choices
  -m                a sweep: KEY=VALUE,VALUE,… runs a job for every combination
  --cfg job         show the whole config of the job instead of running it
  --config-dir DIR  your own choices, and the Python files that they name

Hydra has more flags; `fedclust run --hydra-help` shows them.

keys:"""


def checked_name(name: str) -> str:
    """The name, which becomes a folder before a job is checked.

    Raises:
        ConfigError: unless the folder is below outputs/.
    """
    require(schema.NAME.holds(name), "name", name, schema.NAME.allowed)
    return str(name)


schema.register()
OmegaConf.register_new_resolver("fedclust_job", job_folder, replace=True)
OmegaConf.register_new_resolver("fedclust_name", checked_name, replace=True)
OmegaConf.register_new_resolver("oc.env", read_environment, replace=True)


def main(arguments: Sequence[str]) -> None:
    """Run what the arguments ask for: one job, or with -m or an experiment a sweep of them.

    Args:
        arguments: Hydra's: overrides, -m, --cfg job, --help, --config-dir DIR.

    Raises:
        UserError, Interrupted, hydra.errors.HydraException: for `fedclust.__main__` to print.
    """
    # argparse takes overrides in one piece only, so flags that stand among them go in front
    folder, others = user_dir(arguments), without_user_dir(arguments)
    flags = ("-m", "--multirun")
    arguments = [
        *(() if folder is None else ("--config-dir", str(folder))),
        *(a for a in others if a in flags),
        *(a for a in others if a not in flags),
    ]
    if {"-h", "--help"} & set(arguments):
        print("\n".join([HELP, *(f"  {line}" for line in schema.help_lines())]))
        return
    given = _parsed(arguments)
    if given.shell_completion:
        raise ConfigError(
            "fedclust run has no --shell-completion; `fedclust completion SHELL` does it"
        )
    if given.multirun and (given.cfg or given.info):
        shown = "--cfg" if given.cfg else "--info"
        raise ConfigError(f"fedclust run: {shown} shows the config of one job: leave out -m")
    if given.cfg or given.info or given.hydra_help:
        sys.argv = ["fedclust run", *arguments]
        with hydra_of_its_own(folder):
            hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(job)()
        return
    try:
        start(given.overrides, folder, multirun=given.multirun)
    except SweepError as error:  # each job has said why
        sys.exit(error.exit_status)
    except TOLD:
        raise
    except Exception as error:  # a mistake of a user's algorithm, or of this program
        tell_traceback(error, Console(stderr=True, quiet=quiet()), folder)
        sys.exit(1)


def start(
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
    with hydra_of_its_own(own), sweep.notes(Path.cwd() if elsewhere else None) as notes:
        aside = [f"hydra.run.dir='{notes}'", f"hydra.sweep.dir='{notes}'"] if quiet() else []
        try:
            folder = _start([*overrides, *aside], own, notes, multirun=multirun)
        except Stopped as stopped:
            raise stopped.reason from stopped.reason.__cause__
        if warn is not None:
            for line in sweep.lines("remarks"):
                warn(line)
        if sweep.not_run():
            raise SweepError(folder, sweep.not_run())
        return folder


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Hydra's reading of its flags.

    Raises:
        ConfigError: for a flag that it does not know.
    """

    def refuse(message: str) -> NoReturn:
        wrong = message.removeprefix("unrecognized arguments: ").split(" ")[0]
        flags = parser._option_string_actions  # argparse shows them nowhere else
        meant = wrong.startswith("--") and did_you_mean(wrong, flags)
        more = meant or "`fedclust run --help` shows what there is"
        raise ConfigError(f"fedclust run: {message}; {more}")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args(list(arguments))


def _start(overrides: list[str], own: Path | None, notes: Path, *, multirun: bool) -> Path:
    """Compose, check what Hydra is about to do, and let it run the job or the sweep.

    Returns:
        The folder of the job, or of the sweep.
    """
    check_form(overrides, own)
    check_choices(overrides, own)
    sweep.note("environment", " ".join(variables_in(overrides)))
    main_hydra = hydra_for(own)
    composed = compose(main_hydra, for_first_method(overrides, own, partial(compose, main_hydra)))
    many = multirun or composed.hydra.mode is RunMode.MULTIRUN
    added = [f"hydra.mode={(RunMode.MULTIRUN if many else RunMode.RUN).name}"]
    results = check_hydra(composed, [*overrides, *added], many=many)
    if many:
        check_tuned(composed, overrides, own, partial(compose, main_hydra))
    refuse_unread(composed, overrides, own, sweep.methods(composed, overrides))
    sweep.note_folders(results)
    sweep.note("typed", " ".join(typed_keys(overrides)))
    # a launcher may keep its workers, with the environment of an earlier sweep
    told = {sweep.NOTES: notes, **({} if own is None else {USER_DIR: own})}
    quoted = {name: QuotedString(str(p), Quote.single).with_quotes() for name, p in told.items()}
    added += [f"++hydra.job.env_set.{name}={text}" for name, text in quoted.items()]
    overrides += added
    main_hydra.go_on_from(composed, added)
    try:
        if many:
            check_direction(composed)
            gpus.note_visible()
            sweep.note_jobs(jobs_of(composed, overrides))
            with told_elsewhere(composed.hydra.launcher, results):
                _multirun(main_hydra, overrides, str(composed.hydra.launcher._target_))
        else:
            main_hydra.run("config", job, overrides)
    finally:
        sweep.remove_unused(results)
    return results.absolute()


def told_elsewhere(launcher: DictConfig, results: Path) -> AbstractContextManager[None]:
    """Where a launcher's jobs print into files, say which files, and what becomes of each job.

    Args:
        launcher: its part of the config.
        results: the sweep's folder.
    """
    no_slurm = "Slurm" in str(launcher._target_) and which("srun") is None  # submitit refuses it
    if "submitit_folder" not in launcher or no_slurm:
        return nullcontext()
    console = Console(stderr=True, quiet=quiet())
    tell = partial(console.print, highlight=False, soft_wrap=True, markup=False)
    number = sweep.jobs()
    begun = "the jobs are started" if number is None else f"{counted(number, 'job')} started"
    tell(f"{begun}; what they print is in {results / '.submitit'}")
    return sweep.told_as_jobs_end(tell)


def _multirun(main_hydra: Hydra, overrides: list[str], launcher: str) -> None:
    """Run the jobs of a sweep.

    Raises:
        ConfigError: where the launcher cannot start them.
        JobLost: where it has lost a process that ran one; what a job itself meets is told by it,
            see `attempt`.
        KeyboardInterrupt: after Ctrl-C, also where the launcher tells of the jobs that it ended.
    """
    try:
        with heard() as came:
            main_hydra.multirun("config", job, overrides)
    except (HydraException, OmegaConfBaseException, UserError, OSError):
        raise
    except Exception as error:
        if launcher.endswith(".BasicLauncher"):
            raise
        if came:
            raise KeyboardInterrupt from error
        if isinstance(error, RuntimeError) and type(error).__module__.startswith(_LAUNCHERS):
            raise JobLost(
                "a job of the sweep was lost: its process was killed, or ran out of memory or "
                "time; the same command runs what is left"
            ) from error
        name = launcher.rpartition(".")[2]
        said = " ".join(str(error).split())
        raise ConfigError(f"hydra/launcher: {name} cannot run the jobs: {said}") from error


def job(config: DictConfig) -> float | None:
    """One job, from the composed config to its finished folder.

    Returns:
        Its objective, for a sweeper; None where a job of a sweep could not run, see `attempt`.
    """
    with messages_may_be_lost():  # also in the process of a launcher
        return _job(config)


def _job(config: DictConfig) -> float | None:
    console, hydra_config = Console(stderr=True, quiet=quiet()), HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    in_sweep = hydra_config.mode is RunMode.MULTIRUN
    if in_sweep:
        sweep.end_with_sweep()
        gpus.see_again(hydra_config.launcher)
        begin_job()
    said: list[str] = []
    value = attempt(
        partial(one_job, config, folder, console, in_sweep),
        folder,
        console,
        in_sweep=in_sweep,
        on_failure=said.append,
    )
    for line in said:
        fail_job(line)
    if in_sweep:
        sweep.note_ended(int(hydra_config.job.num) + 1, *said)
    return value
