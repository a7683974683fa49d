"""The command line: fedclust run | report | list | …"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path

from fedclust import __version__
from fedclust.commands import COMMANDS
from fedclust.helpers.distributed import quiet, started
from fedclust.helpers.errors import (
    DivergedError,
    Interrupted,
    JobLost,
    RankFailed,
    RankLost,
    UserError,
    did_you_mean,
    in_words,
    interrupted,
    is_full,
)
from fedclust.helpers.garbage import searched_rarely
from fedclust.helpers.leaving import left_at_once
from fedclust.helpers.messages import OutputError, messages_may_be_lost, output_is_named
from fedclust.helpers.prose import complain
from fedclust.helpers.signals import ending

USAGE = """usage: fedclust COMMAND …

  fedclust run [KEY=VALUE …] [-m]    run a job or a sweep; `fedclust run --help` shows the settings
  fedclust plan [KEY=VALUE …] [-m]   say how long that takes, and how much memory, from its first
                                     rounds
  fedclust tune [KEY=VALUE …]        search a method's hyper-parameters on validation examples
  fedclust advise [KEY=VALUE …]      find out what the clients of your own data should train: one
                                     model, each alone, or groups
  fedclust predict FOLDER FILE [client=NAME] [to=FILE.csv]
                                     predict new rows with trained models, for clients known and
                                     new
  fedclust report FOLDER …           make tables and figures again from the result files
  fedclust list [GROUP …]            list the choices: algorithms, data sets, experiments, …
                                     with --config-dir DIR also those in your folder
  fedclust schema [GROUP]            print a JSON Schema of experiments, or of a group's files, by
                                     which editors complete and check them
  fedclust data NAME …               download data sets: mnist, cifar10, …
  fedclust example NAME [FOLDER]     write an example to start from: own_algorithm
  fedclust benchmark pack FOLDER METHOD --contact WHO [--config-dir DIR] [--version v1]
                      [--without CASE …]
                                     write an archive of a method's jobs of the benchmark
  fedclust benchmark verify ARCHIVE [--run]
                                     hold it against the benchmark; --run runs its code
  fedclust benchmark page FOLDER … --to FILE.md
                                     make the page of standings from archives and jobs
  fedclust benchmark draw SEED FOLDER
                                     write six federations that are drawn from a seed
  fedclust doctor [KEY=VALUE …]      show versions for bug reports, and which features lack
                                     something; for a job also which engine runs its model
  fedclust completion SHELL          complete fedclust in bash, zsh or fish
  fedclust --version"""


# that take settings; what the same command goes on with
_CONTINUED = {"run": "run", "tune": "search", "advise": "comparison"}
_OWN_HELP = {*_CONTINUED, "predict", "benchmark"}
_told: list[int] = []  # the exit status of a signal that has been told


def program() -> None:
    """The command line as a process of its own."""
    with left_at_once():
        main()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; a user's mistake is one line and exit status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None or sys.stderr is None:  # closed by whoever started this
        nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - of the process
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):  # what a stream cannot say is escaped
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with messages_may_be_lost():
        try:
            with output_is_named():
                _dispatch(given, forever=arguments is None)
        except OSError as error:
            _fail_in_file(error)


def _dispatch(given: list[str], *, forever: bool) -> None:
    """Run one command.

    Args:
        given: the arguments.
        forever: whether this process ends with it.
    """
    if given[:1] in (["--version"], ["-V"]):
        print(f"fedclust {__version__}")
        return
    if not given or given[0] in ("-h", "--help", "help"):
        print(USAGE)
        return
    _told.clear()
    if given[0] not in COMMANDS:
        meant = (
            did_you_mean(given[0], (*COMMANDS, "--version", "--help"))
            or f"it has {', '.join(COMMANDS)}"
        )
        _fail(f"fedclust has no command {given[0]!r}: {meant}", 2)
    if given[0] not in _OWN_HELP and {"-h", "--help"} & set(given[1:]):
        print(USAGE)
        return
    if given[0] in _CONTINUED and not {"-h", "--help", "--cfg", "--hydra-help"} & set(given):
        _show_life()
    try:
        with ending(partial(_end, given[0]), forever=forever), searched_rarely():
            _called(given[0], given[1:])
    except KeyboardInterrupt:  # a second signal, while the first was told
        _fail(_interrupted(signal.SIGINT, given[0]), 130)


def _called(name: str, arguments: Sequence[str]) -> None:
    """Call the command, as one of several ranks where torchrun has started it."""
    command: Callable[[Sequence[str]], None] = import_module(f"fedclust.commands.{name}").command
    if name != "run":  # of several ranks one is enough
        if not quiet():
            _guarded(command, name, arguments)
        return
    try:
        with started():
            _guarded(command, name, arguments)
    except UserError as error:  # ranks that do not find each other
        _fail(_one_line(error), error.exit_status)


def _show_life() -> None:
    """Say on a terminal that something happens, before the imports; the next line replaces it."""
    if sys.stderr.isatty() and not quiet():
        print("reading the config …", end="\r", file=sys.stderr, flush=True)


def _interrupted(signum: int, name: str) -> str:
    """What Ctrl-C and SIGTERM make of a command; while rounds run they are finished first."""
    return interrupted(signum, _CONTINUED.get(name, ""))


def _end(name: str, signum: int) -> None:
    """What a signal does to a command."""
    if signum == signal.SIGINT:
        raise KeyboardInterrupt
    try:
        _fail(_interrupted(signum, name), 128 + signum)
    finally:
        _told.append(128 + signum)


def _guarded(command: Callable[[Sequence[str]], None], name: str, arguments: Sequence[str]) -> None:
    """Call a command and turn what it may raise into one line and an exit status."""
    try:
        command(arguments)
    except UserError as error:
        _fail(_one_line(error), error.exit_status)
    except _hydras() as error:
        from fedclust.launch.hints import explained

        _fail(explained(error, arguments), 2)
    except _yamls() as error:
        _fail(f"a config file cannot be read: {_one_line(error)}", 2)
    except OSError as error:
        _fail_in_file(error)
    except RankLost:  # the rank that noticed has printed it
        sys.exit(1)
    except (DivergedError, JobLost, RankFailed) as error:
        _fail(_one_line(error), 1)
    except Interrupted as interruption:
        _fail(_interrupted(interruption.signum, name), interruption.exit_status)
    except KeyboardInterrupt:
        _fail(_interrupted(signal.SIGINT, name), 130)


def _hydras() -> tuple[type[Exception], ...]:
    """Hydra's errors, imported when something has been raised: a report needs no Hydra."""
    from fedclust.launch.hints import HYDRAS

    return HYDRAS


def _yamls() -> type[Exception]:
    from yaml import YAMLError

    return YAMLError


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _fail_in_file(error: OSError) -> None:
    """End with what a file that cannot be written or read means."""
    if isinstance(error, OutputError) and error.unread:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    _fail(in_words(error), 1 if is_full(error) else 2)


def _fail(message: str, status: int) -> None:
    if _told:  # what a library made of the end that a signal began
        sys.exit(_told[0])
    if not quiet():
        complain(message)
    sys.exit(status)


if __name__ == "__main__":
    program()
