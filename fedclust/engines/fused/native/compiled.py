"""C sources of this folder, compiled for this processor where there is a compiler.

Compiled once, in one to seven seconds each, and kept in the user's cache folder. Without a compiler
only speed is lost.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from fedclust.helpers.files import atomic_write

_LOG = logging.getLogger(__name__)
_hanging: set[str] = set()  # compilers that did not answer in this process
_CPU = Path("/proc/cpuinfo")
_LONGEST = 60  # seconds that a command of the compiler may take; the longest needs seven
_FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fPIC")
# the first that gives a library that can be loaded: Apple's compiler knows no OpenMP, others no
# native ARM
_ATTEMPTS = (("-march=native", "-fopenmp"), ("-march=native",), ())
_NUMBERS = {"int64_t": ctypes.c_int64, "float": ctypes.c_float, "double": ctypes.c_double}


@cache
def library(name: str) -> ctypes.CDLL | None:
    """The functions of `name`.c; None where it cannot be compiled.

    They take addresses (of structures by `ctypes.byref`) and C ints, and give an int or nothing.
    """
    source = Path(__file__).with_name(f"{name}.c")
    compiler = _compiler()
    if compiler is None:
        if os.environ.get("CC") and not _hanging:
            _LOG.warning(
                "CC=%s is no program; going on without a compiled %s", os.environ["CC"], source.name
            )
        return None
    text = (
        b"".join(path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h"))))
        + processor().encode()
        + repr((compiler, _FLAGS, _ATTEMPTS)).encode()
    )
    kept = folder() / f"{name}-{hashlib.sha256(text).hexdigest()[:16]}.so"
    kept_library = _loaded(kept) if _is_whole(kept) else None
    return kept_library or _built(compiler, source, kept)


@cache
def structure(source: str, name: str) -> type[ctypes.Structure]:
    """The C structure `name` of a file of this folder, or of one that it includes, with fields by
    the names that C has; pointers are addresses or None. KeyError: there is none.
    """
    text = Path(__file__).with_name(source).read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    declared = re.search(rf"typedef struct {{([^{{}}]*)}} {name};", text)
    if declared is None:
        for header in re.findall(r'#include "(.*)"', text):
            with suppress(KeyError):
                return structure(header, name)
        raise KeyError(name)
    fields: list[tuple[str, Any]] = []
    for declaration in filter(None, map(str.strip, declared[1].split(";"))):
        kind, _, names = declaration.removeprefix("const ").partition(" ")
        for field in names.split(", "):
            pointer = field.startswith("*")
            whole = ctypes.c_void_p if pointer else _NUMBERS.get(kind) or structure(source, kind)
            fields.append((field.removeprefix("*"), whole))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def available() -> bool:
    """Whether all C sources of this folder are compiled here."""
    return all(library(name) is not None for name in sources())


def sources() -> list[str]:
    """The names of the C sources of this folder."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.c"))


def means() -> tuple[list[str] | None, Path]:
    """The command that compiles, None where there is none, and where libraries are kept."""
    return _compiler(), folder()


def _compiler() -> list[str] | None:
    """The command that compiles C: $CC, or the machine's own; None where there is none."""
    try:
        named = shlex.split(os.environ.get("CC", ""))
    except ValueError:  # an open quotation
        return None
    path = shutil.which(named[0]) if named else shutil.which("cc") or shutil.which("gcc")
    return None if path is None or path in _hanging else [path, *named[1:]]


def processor() -> str:
    """What tells this machine's kind of processor from others that share a home folder."""
    lines = _CPU.read_text(encoding="utf-8").splitlines() if _CPU.is_file() else []
    known = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return "\n".join(dict.fromkeys(known)) or f"{platform.machine()} {platform.processor()}"


def folder() -> Path:
    """Where libraries and what was measured are kept."""
    cache_home = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache_home) if cache_home else Path.home() / ".cache") / "fedclust"


def _is_ours(path: Path) -> bool:
    """Whether a file and its folder belong to this user, and nobody else can write them."""
    try:
        looks = [path.lstat(), path.parent.stat()]
    except OSError:
        return False
    mine = os.getuid() if hasattr(os, "getuid") else None
    return all(one.st_uid == mine and not one.st_mode & 0o022 for one in looks)


def _keep(made: Path, kept: Path) -> None:
    """Keep a library for the next process, in a folder that only this user can write."""
    with suppress(OSError):
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if kept.parent.stat().st_uid == os.getuid():
            kept.parent.chmod(0o700)
            atomic_write(kept, _sealed(made.read_bytes()))
            kept.chmod(0o600)


def _sealed(content: bytes) -> bytes:
    """A library with its hash behind it, where loaders do not look."""
    return content + hashlib.sha256(content).digest()


def _is_whole(path: Path) -> bool:
    """Whether a kept library is there, whole and this user's own, and so safe to load."""
    if not _is_ours(path):
        return False
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return content == _sealed(content[: -hashlib.sha256().digest_size])


def _loaded(path: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        return None


def _built(compiler: list[str], source: Path, kept: Path) -> ctypes.CDLL | None:
    """The library made anew, and kept where that is possible."""
    with tempfile.TemporaryDirectory() as folder:
        part, made = Path(folder, "part.o"), Path(folder, "made.so")
        for flags in _ATTEMPTS:
            # linked without -fopenmp, so that its calls go to PyTorch's own threads and not to a
            # second set
            commands = (
                [*compiler, *_FLAGS, *flags, "-c", str(source), "-o", str(part)],
                [*compiler, "-shared", str(part), "-o", str(made), "-lm"],
            )
            try:
                whole = all(_runs(command) for command in commands)
            except subprocess.TimeoutExpired:
                _LOG.warning(
                    "%s did not answer for %g s; going on without a compiled %s, set CC to another "
                    "compiler",
                    compiler[0],
                    _LONGEST,
                    source.name,
                )
                _hanging.add(compiler[0])
                return None
            if whole and (loaded := _loaded(made)) is not None:
                _keep(made, kept)
                return loaded
    _LOG.warning(
        "%s cannot compile %s; going on with PyTorch's operations", compiler[0], source.name
    )
    return None


def _runs(command: list[str]) -> bool:
    """Whether a command ends well; subprocess.TimeoutExpired ends it and what it has started."""
    with tempfile.TemporaryFile() as output:
        try:
            # a session of its own, since a script that stands for a compiler starts others
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=output, start_new_session=True
            )
        except OSError:
            return False
        try:
            status = process.wait(_LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if status:
            output.seek(0)
            _LOG.debug("%s: %s", shlex.join(command), output.read().decode(errors="replace"))
    return status == 0
