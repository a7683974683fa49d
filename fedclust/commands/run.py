"""`fedclust run`: Hydra's command line around one job."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from fedclust.commands.names import CONF, job_folder, user_dir
from fedclust.config import build, check_name, register_schema, resolve, seed_list
from fedclust.errors import (
    ConfigError,
    DivergedError,
    Interrupted,
    RankFailed,
    RankLost,
    RunFolderError,
    UserError,
    require,
)
from fedclust.folder import RunFolder
from fedclust.onlooker import NO_TRACKER, SeenFolder
from fedclust.progress import Progress, Shown, Silent
from fedclust.ranks import here, quiet
from fedclust.run import run

register_schema()
OmegaConf.register_new_resolver("fedclust_job", job_folder, replace=True)


def main(arguments: Sequence[str]) -> None:
    """Run what the arguments ask for: one job, or with -m or an experiment a sweep of them.

    Args:
        arguments: Hydra's: overrides, -m, --cfg job, --help, --config-dir DIR.

    Raises:
        UserError, Interrupted, hydra.errors.HydraException: for `fedclust.__main__` to print.
    """
    flags = ("-m", "--multirun")
    # argparse takes overrides in one piece only, so the flag goes in front of them
    arguments = [*(a for a in arguments if a in flags), *(a for a in arguments if a not in flags)]
    folder = user_dir(arguments)
    if folder is not None:
        require(folder.is_dir(), "--config-dir", folder, "an existing folder")
        os.environ["FEDCLUST_USER_DIR"] = str(folder)  # reaches the workers of a launcher
    for argument in arguments:  # Hydra makes the folder before a job is checked
        if argument.startswith("name="):
            check_name(argument.removeprefix("name="))
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach us as they are instead of being printed
    with tempfile.TemporaryDirectory(prefix="fedclust-") as said:
        os.environ[_NOT_RUN] = str(Path(said, "not_run"))
        Path(said, "not_run").touch()
        # what Hydra writes on ranks that are to write nothing
        aside = [f"hydra.run.dir='{said}'", f"hydra.sweep.dir='{said}'"] if quiet() else []
        sys.argv = ["fedclust run", *arguments, *aside]
        try:
            hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(job)()
        except _Stopped as stopped:
            raise stopped.reason from stopped.reason.__cause__
        if _not_run():
            sys.exit(max(_not_run().values()))


# names a file for what the jobs of a sweep could not do, since a launcher may run them in other processes
_NOT_RUN = "FEDCLUST_NOT_RUN"


def _not_run() -> dict[str, int]:
    """What jobs of this sweep said before they gave up, with the exit status it means."""
    file = Path(os.environ[_NOT_RUN])
    lines = file.read_text().splitlines() if file.is_file() else []
    return {text: int(status) for status, _, text in (line.partition(" ") for line in lines)}


class _Stopped(BaseException):
    """Carries an error past Hydra, which prints lines of its own about every `Exception`.

    Attributes:
        reason: what happened.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


def job(config: DictConfig) -> None:
    """One job, from the composed config to its finished folder.

    A job that cannot run, or whose every seed diverges, ends a single run; a sweep says so once, goes on with
    the other jobs and ends with the exit status of the worst.
    """
    console = Console(stderr=True, quiet=quiet())
    try:
        with here().together():
            _job(config, console)
    except (Interrupted, RankLost, RankFailed) as end:
        raise _Stopped(end) from None
    except (DivergedError, UserError) as error:
        if HydraConfig.get().mode is not RunMode.MULTIRUN:
            raise _Stopped(error) from None
        line = " ".join(f"fedclust: {error}".split())
        if line not in _not_run():
            console.print(line, style="red", highlight=False, soft_wrap=True, markup=False)
        with Path(os.environ[_NOT_RUN]).open("a") as file:
            file.write(f"{2 if isinstance(error, UserError) else 1} {line}\n")


def _job(config: DictConfig, console: Console) -> None:
    user = os.environ.get("FEDCLUST_USER_DIR")
    if user and user not in sys.path:
        sys.path.insert(0, user)
    hydra_config = HydraConfig.get()
    choices = {str(k): v for k, v in hydra_config.runtime.choices.items() if not str(k).startswith("hydra")}
    ranks, hydras = here(), Path(hydra_config.runtime.output_dir)
    folder_path = ranks.agree(lambda: hydras)
    try:
        check_scale(choices)
        extra = {"choices": choices, "overrides": list(hydra_config.overrides.task)}
        resolved = resolve(config, extra)
        resolved["seeds"] = seed_list(resolved["seeds"])
        folder = (RunFolder if ranks.leads else SeenFolder)(_relative(folder_path), resolved)
        folder.check()
        if ranks.agree(lambda: folder.status["state"] == "done"):
            console.print(f"{folder.path} is done already", highlight=False, soft_wrap=True)
            return
        progress: Progress = Shown(_title(choices, resolved), console) if resolved["progress"] else Silent()
        parts = resolved if ranks.leads else {**resolved, "tracker": NO_TRACKER}
        run(build(parts, Path(user) if user else None), folder, progress)
        if hydra_config.mode is not RunMode.MULTIRUN and resolved["progress"]:
            console.print(
                f"`fedclust report {folder.path}` makes tables and figures", highlight=False, soft_wrap=True
            )
    except OSError as error:
        where = error.filename or folder_path
        raise RunFolderError(f"{where} cannot be written or read: {error.strerror or error}") from error
    finally:
        _remove_if_empty(hydras)


def check_scale(choices: dict[str, Any]) -> None:
    """Refuse a scale that the experiment does not define; Hydra would quietly run it at full size."""
    experiment, scale = choices.get("experiment"), choices["scale"]
    if scale == "paper":
        return
    require(experiment is not None, "scale", scale, "only an experiment=… has scales other than paper")
    if not (CONF / "scaled" / f"{experiment}" / f"{scale}.yaml").is_file():
        there = sorted(file.stem for file in (CONF / "scaled" / f"{experiment}").glob("*.yaml"))
        raise ConfigError(
            f"scale={scale} is not allowed: {experiment} has the scales {', '.join(['paper', *there])}"
        )


def _title(choices: dict[str, Any], resolved: dict[str, Any]) -> str:
    """The job in a few words."""
    seeds = len(resolved["seeds"])
    return (
        f"{choices['algorithm']} on {choices['partition']} {choices['dataset']}, "
        f"{seeds} seed{'s' if seeds > 1 else ''}, {resolved['rounds']} rounds"
    )


def _relative(path: Path) -> Path:
    """The path as a person would type it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _remove_if_empty(folder: Path) -> None:
    """Hydra makes folders, and a sweep's multirun.yaml, before a job has been checked; leave none behind."""
    while folder != Path.cwd() and folder != folder.parent:
        if folder.is_dir():
            left = {path.name for path in folder.iterdir()}
            if left - {"multirun.yaml"}:
                return
            (folder / "multirun.yaml").unlink(missing_ok=True)
            folder.rmdir()
        folder = folder.parent
