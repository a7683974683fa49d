"""C sources of this folder, compiled for this processor where there is a compiler.

Compiled once, in half a second, and kept in the user's cache folder. Without a compiler only speed
is lost.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from fedclust.files import atomic_write

_LOG = logging.getLogger(__name__)
_CPU = Path("/proc/cpuinfo")
_LONGEST = 60  # seconds
_FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fPIC")
# the first that gives a library that can be loaded: Apple's compiler knows no OpenMP, others no
# native ARM
_ATTEMPTS = (("-march=native", "-fopenmp"), ("-march=native",), ())


@cache
def library(name: str) -> ctypes.CDLL | None:
    """The functions of `name`.c; None where it cannot be compiled."""
    source = Path(__file__).with_name(f"{name}.c")
    compiler = _compiler()
    if compiler is None:
        if os.environ.get("CC"):
            _LOG.warning(
                "CC=%s is no program; going on without a compiled %s", os.environ["CC"], source.name
            )
        return None
    text = (
        source.read_bytes() + _processor().encode() + repr((compiler, _FLAGS, _ATTEMPTS)).encode()
    )
    kept = _folder() / f"{name}-{hashlib.sha256(text).hexdigest()[:16]}.so"
    return (_loaded(kept) if _is_whole(kept) else None) or _built(compiler, source, kept)


def available() -> bool:
    """Whether all C sources of this folder are compiled here."""
    return all(library(path.stem) is not None for path in sorted(Path(__file__).parent.glob("*.c")))


def _compiler() -> list[str] | None:
    """The command that compiles C: $CC, or the machine's own; None where there is none."""
    named = shlex.split(os.environ.get("CC", ""))
    found = shutil.which(named[0]) if named else shutil.which("cc") or shutil.which("gcc")
    return None if found is None else [found, *named[1:]]


def _processor() -> str:
    """What tells this machine's kind of processor from others that share a home folder."""
    lines = _CPU.read_text().splitlines() if _CPU.is_file() else []
    told = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return "\n".join(dict.fromkeys(told)) or f"{platform.machine()} {platform.processor()}"


def _folder() -> Path:
    """Where libraries are kept."""
    cache_home = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache_home) if cache_home else Path.home() / ".cache") / "fedclust"


def _sealed(content: bytes) -> bytes:
    """A library with its hash behind it, where loaders do not look."""
    return content + hashlib.sha256(content).digest()


def _is_whole(path: Path) -> bool:
    """Whether a kept library is there and undamaged: half of one would end the process when it is
    loaded.
    """
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
            if all(_runs(command) for command in commands) and (found := _loaded(made)) is not None:
                with suppress(OSError):
                    atomic_write(kept, _sealed(made.read_bytes()))
                return found
    _LOG.warning(
        "%s cannot compile %s; going on with PyTorch's operations", compiler[0], source.name
    )
    return None


def _runs(command: list[str]) -> bool:
    """Whether a command ends well."""
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_LONGEST, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode:
        _LOG.debug("%s: %s", shlex.join(command), done.stderr)
    return done.returncode == 0
