"""`fedclust run`: Hydra's command line around one job."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from fedclust.commands.failures import Stopped, attempt, not_run, remembering
from fedclust.commands.names import CONF, job_folder, user_dir
from fedclust.commands.together import Noted, note
from fedclust.config.build import build, check_name, register_schema, resolve, seed_list
from fedclust.distributed import here, quiet
from fedclust.errors import ConfigError, require
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.onlooker import NO_TRACKER, SeenFolder
from fedclust.runtime.progress import Aside, Progress, Shown
from fedclust.runtime.run import run

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
    with remembering() as notes:
        sys.argv = ["fedclust run", *(_aside(arguments, notes) if quiet() else arguments)]
        try:
            hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(job)()
        except Stopped as stopped:
            raise stopped.reason from stopped.reason.__cause__
        if not_run():
            sys.exit(max(not_run().values()))


def _aside(arguments: Sequence[str], folder: Path) -> list[str]:
    """The arguments of a rank that writes nothing: the folders that Hydra makes are in another
    place.
    """
    overrides = [i for i, a in enumerate(arguments) if a[:1] != "-" and ("=" in a or a[:1] == "~")]
    after = overrides[-1] + 1 if overrides else len(arguments)  # in one piece
    moved = [f"hydra.run.dir='{folder}'", f"hydra.sweep.dir='{folder}'"]
    return [*arguments[:after], *moved, *arguments[after:]]


def job(config: DictConfig) -> None:
    """One job, from the composed config to its finished folder; see `attempt` for those that
    cannot run.
    """
    console, hydra_config = Console(stderr=True, quiet=quiet()), HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    in_sweep = hydra_config.mode is RunMode.MULTIRUN
    attempt(partial(_job, config, folder, console, in_sweep), folder, console, in_sweep=in_sweep)


def _job(config: DictConfig, hydras: Path, console: Console, in_sweep: bool) -> None:
    user = os.environ.get("FEDCLUST_USER_DIR")
    if user and user not in sys.path:
        sys.path.insert(0, user)
    user_dir = Path(user) if user else None
    hydra_config = HydraConfig.get()
    choices = {
        str(k): v for k, v in hydra_config.runtime.choices.items() if not str(k).startswith("hydra")
    }
    ranks = here()
    try:
        check_scale(choices)
        extra = {"choices": choices, "overrides": list(hydra_config.overrides.task)}
        resolved = resolve(config, extra)
        resolved["seeds"] = seed_list(resolved["seeds"])
        check_lockstep(resolved["lockstep"])
        folder_path = ranks.agree(lambda: hydras)
        if not ranks.leads:
            resolved["tracker"] = NO_TRACKER
        kind = RunFolder if ranks.leads else SeenFolder
        folder = kind(_relative(folder_path), resolved, user_dir)
        folder.check()
        title = _title(choices, resolved)
        if ranks.agree(folder.is_done):
            console.print(f"{folder.path} is done already", highlight=False, soft_wrap=True)
            for remark in folder.remarks:
                Aside(title, console).warn(remark)
            return
        if in_sweep and resolved["lockstep"] == "all":
            note(
                Noted(config=resolved, folder=folder, title=title, user_dir=user_dir),
                hydra_config.launcher._target_,
            )
            return
        progress: Progress = (Shown if resolved["progress"] else Aside)(title, console)
        run(build(resolved, user_dir), folder, progress)
        if not in_sweep and resolved["progress"]:
            console.print(
                f"`fedclust report {folder.path}` makes tables and figures",
                highlight=False,
                soft_wrap=True,
            )
    finally:
        _remove_if_empty(hydras)


def check_lockstep(which: str) -> None:
    """Refuse anything but the two kinds of lockstep.

    Raises:
        ConfigError: naming the key.
    """
    require(
        which in ("seeds", "all"), "lockstep", which, "seeds, or all (also the jobs of a sweep)"
    )


def check_scale(choices: dict[str, Any]) -> None:
    """Refuse a scale that the experiment does not define; Hydra would quietly run it at full
    size.
    """
    experiment, scale = choices.get("experiment"), choices["scale"]
    if scale == "paper":
        return
    require(
        experiment is not None, "scale", scale, "only an experiment=… has scales other than paper"
    )
    if not (CONF / "scaled" / f"{experiment}" / f"{scale}.yaml").is_file():
        there = sorted(file.stem for file in (CONF / "scaled" / f"{experiment}").glob("*.yaml"))
        raise ConfigError(
            f"scale={scale} is not allowed: {experiment} has the scales "
            f"{', '.join(['paper', *there])}"
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
    """Hydra makes folders, and a sweep's multirun.yaml, before a job has been checked; leave none
    behind.
    """
    while folder != Path.cwd() and folder != folder.parent:
        if folder.is_dir():
            left = {path.name for path in folder.iterdir()}
            if left - {"multirun.yaml"}:
                return
            (folder / "multirun.yaml").unlink(missing_ok=True)
            folder.rmdir()
        folder = folder.parent
