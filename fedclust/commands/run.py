"""`fedclust run`: its flags, and what they ask for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from fedclust.config import schema
from fedclust.helpers.distributed import quiet
from fedclust.helpers.errors import ConfigError, SweepError
from fedclust.launch.command import launch
from fedclust.launch.failures import mistakes_told
from fedclust.launch.guard import show
from fedclust.launch.typed import Typed, parsed_flags

HELP = """usage: fedclust run [KEY=VALUE …] [-m] [--cfg job] [--config-dir DIR]

  KEY=VALUE         set a key; a.b=VALUE sets the option b of the part a
  GROUP=CHOICE      select a choice; `fedclust list` shows the groups and their choices
  -m                a sweep: KEY=VALUE,VALUE,… runs a job for every combination
  --cfg job         show the whole config of the job instead of running it
  --config-dir DIR  a folder with your own choices and their Python files

Hydra has more flags; `fedclust run --hydra-help` shows them.

keys:"""


def command(arguments: Sequence[str]) -> None:
    """Run what the arguments ask for: one job, or with -m or an experiment a sweep of them."""
    if {"-h", "--help"} & set(arguments):
        print("\n".join([HELP, *(f"  {line}" for line in schema.help_lines())]))
        return
    all_ = Typed.of(arguments)
    given = parsed_flags(all_.texts)
    typed = Typed(tuple(given.overrides), all_.own, given.multirun or None)
    if given.shell_completion:
        raise ConfigError(
            "fedclust run has no --shell-completion; `fedclust completion SHELL` does it"
        )
    if given.multirun and (given.cfg or given.info):
        shown = "--cfg" if given.cfg else "--info"
        raise ConfigError(f"fedclust run: {shown} shows the config of one job: leave out -m")
    if given.cfg or given.info or given.hydra_help:
        show(given, typed)
        return
    try:
        with mistakes_told(Console(stderr=True, quiet=quiet()), typed.own):
            launch(typed)
    except SweepError as error:  # each job has said why
        sys.exit(error.exit_status)
