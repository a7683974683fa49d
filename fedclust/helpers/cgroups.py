"""What a container or a queue's job may use of its machine: Linux's control groups, 1 and 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def memory_left() -> int | None:
    """Bytes that this process can still get, file caches dropped; None without a limit."""
    newer = ("memory.max", "anon", "shmem")
    older = ("memory.limit_in_bytes", "total_rss", "total_shmem")
    found = _each("memory", lambda group: _left(group, *newer) or _left(group, *older))
    return min(map(int, found), default=None)


def cpus() -> float | None:
    """How many processors' time there is for this process; None without a limit."""
    return min(_each("cpu", _share), default=None)


def _left(group: Path, limit: str, used: str, shared: str) -> int | None:
    if not (group / limit).is_file():
        return None
    most = int((group / limit).read_text())  # of the older version a huge number without a limit
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return max(1, most - int(stat[used]) - int(stat.get(shared, 0)))


def _share(group: Path) -> float | None:
    if (group / "cpu.max").is_file():
        quota, period = (group / "cpu.max").read_text().split()
    elif (group / "cpu.cfs_quota_us").is_file():
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    else:
        return None
    return int(quota) / int(period) if int(quota) > 0 else None


def _each(controller: str, read: Callable[[Path], float | None]) -> Iterator[float]:
    """What the process's groups of a controller say, where they say something."""
    for group in _groups(controller):
        try:
            found = read(group)
        except (OSError, ValueError, KeyError):  # "max", or a file that lacks what is looked for
            continue
        if found is not None:
            yield found


def _groups(controller: str) -> Iterator[Path]:
    """The folders of a controller's groups, the process's own first, then those above."""
    try:
        lines = [line.split(":", 2) for line in OWN.read_text().splitlines()]
    except OSError:  # no Linux
        return
    for _, names, path in lines:
        if names and controller not in names.split(","):
            continue
        top = ROOT / names if names else ROOT
        top = ROOT / controller if names and not top.is_dir() else top
        below = Path(path.lstrip("/"))
        for part in (below, *below.parents):  # of a container's own view some are not there
            yield top / part
