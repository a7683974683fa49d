"""File systems that lack a call: a preloaded library makes it fail below a folder."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from shutil import which

from faults.case import Case
from faults.jobs import SMALL, signature

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int below(const char *path) {  /* whether the call is to fail */
  char real[PATH_MAX];
  const char *top = getenv("LACKING_BELOW");
  return top && realpath(path, real) && !strncmp(real, top, strlen(top));
}
static int opened(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return realpath(link, path) && below(path);
}
static int lacks(const char *name) {
  const char *call = getenv("LACKING_CALL");
  return call && !strcmp(call, name);
}
static int fail(void) { errno = atoi(getenv("LACKING_ERROR")); return -1; }
#define PLAIN(type, name) __typeof__(type) plain = (__typeof__(type))dlsym(RTLD_NEXT, name)

int chmod(const char *path, mode_t mode) {
  PLAIN(int (*)(const char *, mode_t), "chmod");
  return lacks("chmod") && below(path) ? fail() : plain(path, mode);
}
int fchmod(int fd, mode_t mode) {
  PLAIN(int (*)(int, mode_t), "fchmod");
  return lacks("chmod") && opened(fd) ? fail() : plain(fd, mode);
}
int fsync(int fd) {
  PLAIN(int (*)(int), "fsync");
  struct stat at;
  int folder = !fstat(fd, &at) && S_ISDIR(at.st_mode);
  return (lacks("fsync") || (folder && lacks("fsync of a folder"))) && opened(fd) ? fail()
                                                                                  : plain(fd);
}
int flock(int fd, int how) {
  PLAIN(int (*)(int, int), "flock");
  return lacks("flock") && opened(fd) ? fail() : plain(fd, how);
}
int rename(const char *from, const char *to) {
  PLAIN(int (*)(const char *, const char *), "rename");
  return lacks("rename") && below(from) ? fail() : plain(from, to);
}
"""
_LACKS = {
    "chmod": (errno.EPERM, errno.ENOTSUP, errno.ENOSYS),
    "fsync of a folder": (errno.EINVAL, errno.ENOTSUP),
    "fsync": (errno.ENOSYS, errno.EINVAL),
    "flock": (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP),
    "rename": (errno.EPERM, errno.EIO),  # without it nothing is safe: one line
}
_JOB = ("algorithm=ifca", "progress=false", "hydra.run.dir=job")
_UNSEEDED = [one for one in SMALL if not one.startswith("seeds=")]
_COMMANDS = {
    "run": ("run", *SMALL, *_JOB),
    "sweep": ("run", "-m", *SMALL, "algorithm=fedavg,ifca", "progress=false", "name=s"),
    "tune": (
        *("tune", *_UNSEEDED, "algorithm=fedprox", "progress=false"),
        *("trials=2", "tuning_seeds=[7]"),
    ),
    "example": ("example", "own_algorithm"),
}


@cache
def library() -> Path | None:
    """The library, compiled once; None without a compiler."""
    compiler = which("gcc") or which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    folder = Path(tempfile.mkdtemp(prefix="fedclust-faults-"))
    (folder / "lacking.c").write_text(_SOURCE)
    made = folder / "lacking.so"
    options = ("-shared", "-fPIC", "-O1", "-o", str(made), str(folder / "lacking.c"), "-ldl")
    subprocess.run([compiler, *options], capture_output=True, check=True)
    return made


def _started(name: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedclust", *_COMMANDS[name]]
    whole = {**os.environ, **env}
    return subprocess.run(
        command, cwd=folder, env=whole, capture_output=True, text=True, check=False
    )


@cache
def _whole() -> str:
    folder = Path(tempfile.mkdtemp(prefix="fedclust-faults-"))
    done = _started("run", folder, {})
    assert done.returncode == 0, done.stderr
    return signature(folder / "job", states=False)


def lacking(name: str, call: str, number: int, folder: Path) -> tuple[str, str]:
    """Run a command on a file system without a call."""
    env = {
        "LD_PRELOAD": str(library()),
        "LACKING_BELOW": str(folder.resolve()),
        "LACKING_CALL": call,
        "LACKING_ERROR": str(number),
    }
    done = _started(name, folder, env)
    lines = [line for line in done.stderr.splitlines() if line.startswith("fedclust: ")]
    if done.returncode == 0:
        warned = done.stderr.count("this file system has no locks")
        if warned != (call == "flock" and name != "example"):
            return "wrong", f"{warned} warnings"
        same = name != "run" or signature(folder / "job", states=False) == _whole()
        return ("survived" if same else "wrong"), ""
    if "Traceback" in done.stderr or not lines or call != "rename":
        return "crashed", done.stderr[-500:]
    return "refused", lines[0]


def cases(quick: bool) -> Iterator[Case]:
    """Every call that may be lacking, of every command; none without a compiler."""
    if library() is None:
        return
    for call, numbers in _LACKS.items():
        for number in numbers[: 1 if quick else None]:
            for name in ("run",) if quick else _COMMANDS:
                work = partial(lacking, name, call, number)
                yield Case("lacking calls", f"{name} {call} {errno.errorcode[number]}", work)
