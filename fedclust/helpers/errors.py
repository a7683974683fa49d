"""What a user is told: one line each, and the exit status that goes with it."""

from __future__ import annotations

import difflib
import errno
import json
import re
import shlex
import signal
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import ne
from pathlib import Path

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")  # texts that an override needs no quotes for
_READ = ("null", "true", "false", "nan", "inf")  # those that it reads as something else
_SHELL = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]-]+")  # what a shell leaves alone
_KEY = re.compile(r"[\\()\[\]{}:=, \t]")  # letters of a mapping's key that are escaped
_NO_KEY = re.compile(r"[^A-Za-z0-9_/+.$%*@?|-]")  # no override can spell the others
_PARTS = {  # of data: what one and several are called
    "features": ("input", "inputs"),
    "classes": ("class", "classes"),
    "targets": ("target", "targets"),
    "clients": ("client", "clients"),
    "groups": ("true group", "true groups"),
}


class UserError(ValueError):
    """A request that cannot be carried out: what was given, what is allowed, which key to change.

    The command line prints the message as one line and exits with status 2.
    """

    exit_status = 2

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of all frames: the message, as the command line does."""
        return [f"{type(self).__name__}: {self}"]


class ConfigError(UserError):
    """A config value, or a combination of values, that is not allowed."""


class DataError(UserError):
    """Data that are missing, unreadable or of the wrong shape."""


class RunFolderError(UserError):
    """An output folder that belongs to another config, another process or an unreadable state."""


class FolderInUse(RunFolderError):
    """An output folder that another process writes at the moment."""


class DiskFull(RunFolderError):
    """No space is left where results go; nothing that was given is wrong."""

    exit_status = 1


def is_full(error: OSError) -> bool:
    """Whether a disk is full, or a user's share of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def in_words(error: OSError, otherwise: object = "a file") -> str:
    """What a file (`otherwise` where the error names none) that cannot be written or read means."""
    if error.filename is None and isinstance(error, FileNotFoundError):
        try:
            Path.cwd()
        except FileNotFoundError:
            return "the current folder has been deleted: change to one that is there"
    why = error.strerror or " ".join(str(error).split())
    return f"{error.filename or otherwise} cannot be written or read: {why}"


class MemoryShort(UserError):
    """A job that needs more memory than there is: what needed how much, what needs less."""


class DivergedError(RuntimeError):
    """A loss that is no longer a finite number, with the round and the client where it was seen."""


class SweepError(RuntimeError):
    """Jobs of a sweep could not run; the others have, and their results are in its folder.

    Attributes:
        folder: of the sweep.
        reasons: what the jobs said, one line each.
        exit_status: of the worst.
    """

    def __init__(self, folder: Path, said: Mapping[str, int]) -> None:
        self.folder = folder
        self.reasons = [line.removeprefix("fedclust: ") for line in said]
        self.exit_status = max(said.values())
        super().__init__(
            f"{'; '.join(self.reasons)}. What could run is in {folder}: "
            f"fedclust.load({str(folder)!r})"
        )


def interrupted(signum: int, continued: str = "") -> str:
    """What ended the program, and what the same command continues, as in "run", if anything."""
    again = f"; the same command continues the {continued}" if continued else ""
    return f"interrupted by {signal.Signals(signum).name}{again}"


class Interrupted(Exception):
    """Ctrl-C or SIGTERM, with exit status 130 or 143; a round has been finished and saved."""

    def __init__(self, signum: int) -> None:
        super().__init__(interrupted(signum, "run"))
        self.signum = signum
        self.exit_status = 128 + signum

    def __reduce__(self) -> tuple[type[Interrupted], tuple[int]]:
        """Made again from the signal, since a launcher's workers send it to this process."""
        return type(self), (self.signum,)


class Enough(Exception):
    """Whoever watches a job has seen enough of it: it ends here, and is not done."""


class RankLost(Exception):
    """Another rank no longer answers. The rank that noticed has printed it."""


class RankFailed(RuntimeError):
    """Another rank has failed, or computes something else."""


class JobLost(RuntimeError):
    """The process of a job, which a launcher has started, has ended without a word."""


def require(condition: bool, key: str, got: object, allowed: str) -> None:
    """Raise a one-line `ConfigError` naming `key` unless `condition` holds.

    Args:
        key: the config key to change, as a user would type it.
        allowed: what would be accepted, in words.
    """
    if not condition:
        shown = "''" if isinstance(got, str) and not got else got
        raise ConfigError(f"{key}={shown} is not allowed: {allowed}")


def typed(key: str, value: object) -> str:
    """An override as a shell takes it, as in `'dataset.separator=";"'`, or else as a file does."""
    if isinstance(value, Mapping) and not all(can_be_key(str(one)) for one in value):
        return f"in a config file {key}: {json.dumps(dict(value), ensure_ascii=False)}"
    return pasted(f"{key}={_spelt(value)}")


def pasted(text: str) -> str:
    """A word as a shell takes it, such as an override that is spelt already."""
    return text if _SHELL.fullmatch(text) else shlex.quote(text)


def _spelt(value: object) -> str:
    """A value as an override spells it."""
    if isinstance(value, Mapping):
        each = (f"{key_text(str(name))}: {_spelt(one)}" for name, one in value.items())
        return f"{{{', '.join(each)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_spelt, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if not isinstance(value, str):
        return str(value)
    if _BARE.fullmatch(value) and value.lower() not in _READ:
        return value
    inner = re.sub(r'(\\*)(")', r"\1\1\\\2", value)  # backslashes count before a quote alone
    return '"' + re.sub(r"(\\+)$", r"\1\1", inner) + '"'


def can_be_key(name: str) -> bool:
    """Whether an override can spell the key of a mapping: Hydra takes no quotes around it."""
    return bool(name) and not _NO_KEY.search(_KEY.sub("", name))


def key_text(name: str) -> str:
    """The key of a mapping as an override spells it."""
    return _KEY.sub(lambda letter: f"\\{letter[0]}", name)


def closest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like the one given, in capitals or not; "" where none is."""
    small, given = {one.lower(): one for one in known}, word.lower()
    close = difflib.get_close_matches(given, list(small), n=1)
    if not close and len(given) in (2, 3):  # one wrong letter of so few is far off to difflib
        alike = (one for one in small if len(one) == len(given))
        close = [one for one in alike if sum(map(ne, one, given)) == 1][:1]
    return small[close[0]] if close else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question for the known word that is most like the one given; "" where none is."""
    close = closest(word, known)
    return f"did you mean {close}?" if close else ""


def printable(text: str) -> str:
    """A text that may come from anywhere, without what would control a terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def some_of(names: Collection[str], most: int, between: str = ", ") -> str:
    """The first names, once each, and how many more there are."""
    once = list(dict.fromkeys(names))
    more = f" and {len(once) - most} more" if len(once) > most else ""
    return between.join(once[:most]) + more


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 round", "1200 clients"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def parts_by_name(names: Mapping[str, Sequence[str]], most: int) -> list[str]:
    """What data call their parts, `most` names of each, in words: "2 classes (no, yes)"."""
    return [
        f"{len(names[part])} {words[len(names[part]) > 1]} "
        f"({', '.join(map(str, names[part][:most]))}{', …' * (len(names[part]) > most)})"
        for part, words in _PARTS.items()
        if names.get(part)
    ]
