"""Runs a list of experiments to the end, whatever happens to the machine in between.

    python scripts/papers/campaign.py run               start, or continue after any interruption
    python scripts/papers/campaign.py status            what is done, what is left, in hours
    python scripts/papers/campaign.py collect           copy what is finished to docs/results

The list is `scripts/papers/campaign.yaml`. Its entries run in its order, one job at a time, at the
lowest priority. A job that is done is skipped. A job that is done elsewhere with the same config
hash is copied instead of computed: the hash leaves out names and reports, so a figure whose curves
are runs of a table costs nothing. With `--skip-kept`, so is one whose numbers docs/results has
already, from another machine: its files are not there, so a report is of the other jobs alone.
After every entry its results go to docs/results.

By default the jobs run from a wheel of the current commit, in an environment of its own below the
campaign's folder, so that work on the code does not touch them. The environment stays the same
when the campaign continues; `--wheel` builds a new one, `--here` runs this interpreter instead.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from fedclust.config import schema
from fedclust.helpers.errors import ConfigError, UserError, require
from fedclust.helpers.files import atomic_write
from fedclust.launch.checks import check_choices, checked, choices_of, prepared, without_hydra
from fedclust.launch.compose import Command, compose
from fedclust.launch.guard import hydra_of_its_own
from fedclust.launch.typed import Typed, alternatives, job_folder
from fedclust.launch.unread import shared_keys
from fedclust.runtime.folder import config_hash

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MADE_BY = "campaign.json"  # in a job's folder: commits, command, date
_LOWEST = 19  # nice
_LOCK_PAUSE = 2.0  # seconds between two looks at a job's lock
_KEYS = ("name", "experiment", "overrides", "hours", "basis", "rows", "of")
_NEEDED = {"name", "experiment", "hours", "basis"}
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
_PARTIAL = ".taking"  # of a folder that is being copied
_NOT_COPIED = (".lock", "checkpoints", "config.yaml")


@dataclass(frozen=True)
class Entry:
    """One line of the list.

    Attributes:
        name: what the log and the state file call it.
        experiment: a config below conf/experiment.
        overrides: as on the command line of `fedclust run`; they replace the sweep's own values.
        hours: how long it takes on two quiet cores.
        basis: where `hours` comes from: measured, or estimated from what.
        rows: the published numbers it gives, as equalities on the columns of published.csv.
        of: the entry whose runs it takes, if it computes nothing itself.
    """

    name: str
    experiment: str
    overrides: tuple[str, ...]
    hours: float
    basis: str
    rows: tuple[Mapping[str, str], ...]
    of: str = ""


def read_list(file: Path) -> list[Entry]:
    """The entries of a list, in its order.

    Raises:
        ConfigError: for an unknown or missing key, or a name given twice.
    """
    try:
        nodes = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} cannot be read ({type(error).__name__})") from None
    require(isinstance(nodes, list), str(file), type(nodes).__name__, "a list of entries")
    entries: list[Entry] = []
    for node in nodes:
        label = f"{file.name}: {node.get('name', '?') if isinstance(node, dict) else node}"
        require(isinstance(node, dict), label, node, "a mapping")
        unknown, missing = sorted(set(node) - set(_KEYS)), sorted(_NEEDED - set(node))
        require(not unknown, label, ", ".join(unknown), f"one of {', '.join(_KEYS)}")
        require(not missing, label, "no " + ", ".join(missing), "every entry has it")
        hours = node["hours"]
        require(isinstance(hours, int | float) and hours > 0, f"{label}.hours", hours, "above 0")
        require(
            node["name"] not in {entry.name for entry in entries}, label, "twice", "one of a name"
        )
        entries.append(
            Entry(
                name=str(node["name"]),
                experiment=str(node["experiment"]),
                overrides=tuple(map(str, node.get("overrides", ()))),
                hours=float(hours),
                basis=str(node["basis"]),
                rows=tuple(
                    {str(k): str(v) for k, v in row.items()} for row in node.get("rows", ())
                ),
                of=str(node.get("of", "")),
            )
        )
    names = {entry.name for entry in entries}
    for entry in entries:
        where = f"{file.name}: {entry.name}.of"
        require(entry.of in ("", *names), where, entry.of, "the name of an entry")
    return entries


@dataclass(frozen=True)
class Planned:
    """One job of an entry, before it runs.

    Attributes:
        overrides: what `fedclust run` is given.
        folder: where it writes, relative to the campaign's folder.
        config: its resolved config.
    """

    overrides: tuple[str, ...]
    folder: Path
    config: Mapping[str, Any]

    @cached_property
    def hash(self) -> str:
        """What the job computes, whatever it is called."""
        return config_hash(self.config)

    @property
    def discrepancy(self) -> bool:
        """Whether it records the discrepancy, which is no part of the hash."""
        return bool(self.config.get("discrepancy"))


def plan(entry: Entry, scale: str = "paper") -> list[Planned]:
    """The jobs of an entry, in the order of its sweep.

    A smaller scale decides about the rounds itself, so there the entry's own are left out.

    Raises:
        ConfigError, HydraException: if the entry cannot be composed, or is no job.
    """
    kept = [o for o in entry.overrides if scale == "paper" or not o.startswith("rounds=")]
    base = [f"experiment={entry.experiment}", *([f"scale={scale}"] if scale != "paper" else [])]
    typed = Typed((*base, *kept), many=False)
    with hydra_of_its_own(typed):
        check_choices(Command(typed))  # before anything is composed
        swept = Typed(tuple(kept)).over(compose(base).hydra.sweeper.get("params") or {})
        axes = [
            [f"{key}={value}" for value in alternatives(one)]
            if one.is_sweep_override()
            else [str(one.input_line)]
            for key, one in swept.last.items()
        ]
        tasks = [Typed((*base, *chosen, "progress=false")) for chosen in product(*axes)]
        configs = [compose(task.texts) for task in tasks]
        methods = {str(config.hydra.runtime.choices.algorithm) for config in configs}
        prepared(typed, configs[0], methods)
        return [_planned(*one) for one in zip(tasks, configs, strict=True)]


def _planned(typed: Typed, composed: DictConfig) -> Planned:
    """A job as `fedclust run` would make it of these overrides."""
    choices, plain = choices_of(composed.hydra), without_hydra(composed)
    # the job itself tells what has no effect
    _, resolved = checked(plain, choices, typed, shared_keys(typed), lambda *_: None)
    resolved["seeds"] = schema.seed_list(resolved["seeds"])
    results = Path("outputs", resolved["name"])
    folder = results / job_folder(typed.texts, choices["algorithm"], results)
    return Planned(typed.texts, folder, resolved)


def finished_hash(job: Path) -> str | None:
    """The hash of the finished run in a job's folder; None where there is none."""
    try:
        status = json.loads((job / "status.json").read_text())
        config = yaml.load((job / "config.yaml").read_text(), Loader=yaml.CSafeLoader)
        return str(config["hash"]) if status["state"] == "done" else None
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        return None


def finished(roots: Sequence[Path]) -> dict[str, Path]:
    """The folder of every finished job below some folders, by its hash."""
    found: dict[str, Path] = {}
    for root in roots:
        for file in sorted(root.rglob("status.json")):
            known = finished_hash(file.parent)
            if known is not None and file.parent.suffix != _PARTIAL:
                found.setdefault(known, file.parent)
    return found


def kept_hashes(docs: Path) -> frozenset[str]:
    """The hashes of the jobs whose numbers a folder of results has."""
    found: set[str] = set()
    for file in sorted((docs / "runs").rglob("jobs.csv")):
        with file.open(newline="") as lines:
            found.update(word for row in csv.DictReader(lines) for word in row["hash"].split())
    return frozenset(found)


def take_over(source: Path, job: Planned, folder: Path) -> None:
    """Make `folder` hold the finished run of `source` under the name of `job`.

    The files are linked where the file system can, else copied; the config is the job's own, so
    that reports see its names. A process that dies in between leaves no folder.
    """
    partial = folder.with_name(folder.name + _PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for file in sorted(source.rglob("*")):
        inside = file.relative_to(source)
        if not file.is_file() or any(part in _NOT_COPIED for part in inside.parts):
            continue
        target = partial / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, target)
        except OSError:
            shutil.copy2(file, target)
    text = OmegaConf.to_yaml(OmegaConf.create({**job.config, "hash": job.hash}))
    atomic_write(partial / "config.yaml", text)
    shutil.rmtree(folder, ignore_errors=True)  # nothing but an empty start, see `Campaign.job`
    partial.rename(folder)


class _Stop(Exception):
    """A signal that ends the campaign."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGINT and SIGTERM become `_Stop`."""

    def stop(signum: int, _: FrameType | None) -> None:
        raise _Stop(signum)

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other campaign writes this folder meanwhile.

    Raises:
        ConfigError: if one does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"--folder={folder} is not allowed: a campaign is running there already"
            ) from None
        yield


class Campaign:
    """A list being worked off in a folder.

    The folder holds `outputs/` with the jobs, `state.json` (what ran how long), `log.txt` (one
    line per event) and `jobs.log` (what the jobs printed).
    """

    def __init__(
        self,
        folder: Path,
        entries: Sequence[Entry],
        scale: str,
        docs: Path,
        also: Sequence[Path],
        kept: frozenset[str] = frozenset(),
    ) -> None:
        self._folder, self._entries, self._scale = folder, entries, scale
        self._docs, self._also, self._kept = docs, also, kept
        self._known: dict[str, Path] = {}
        self._printed = 0  # how much of jobs.log is of earlier jobs
        self._state = read_state(folder)
        environment = folder / "environment.json"
        made = json.loads(environment.read_text()) if environment.is_file() else {}
        here = Path(sys.executable).resolve() == Path(made.get("python", "/")).resolve()
        self._commit = made["commit"] if here else head(ROOT)

    def run(self) -> int:
        """Everything that is left; returns how many jobs failed."""
        self._known = finished([self._folder / "outputs", *self._also])
        self._say(f"{len(self._entries)} entries, commit {self._commit}")
        failed = 0
        for entry in self._entries:
            failed += self._entry(entry)
        self._say("the list is done" + (f", {failed} jobs failed" if failed else ""))
        return failed

    def _entry(self, entry: Entry) -> int:
        """One entry; returns how many of its jobs failed."""
        try:
            jobs = plan(entry, self._scale)
        except (UserError, HydraException) as error:
            self._say(f"{entry.name}: cannot be composed: {str(error).splitlines()[0]}")
            self._note(entry, {"state": "failed", "error": str(error).splitlines()[0]})
            return 1
        states = self._state.get(entry.name, {}).get("jobs", {})
        records = {}
        for number, job in enumerate(jobs, 1):
            key = str(job.folder)
            before = states.get(key, {})
            if finished_hash(self._folder / job.folder) == job.hash:
                taken = before.get("state") == "taken"
                records[key] = {
                    **{name: value for name, value in before.items() if name != "error"},
                    "state": "taken" if taken else "done",
                    "seconds": 0.0 if taken else self._seconds(job),
                }
                self._known.setdefault(job.hash, self._folder / job.folder)
                continue
            if job.hash in self._kept and self._source(job) is None and not job.discrepancy:
                records[key] = {"state": "kept", "seconds": 0.0}
                continue
            self._note(entry, self._summary(entry, jobs, {**states, **records}, "running"))
            records[key] = self._job(job, f"{entry.name} {number}/{len(jobs)}")
        failed = [record["state"] for record in records.values()].count("failed")
        ended = self._summary(entry, jobs, records, "failed" if failed else "done")
        if self._state.get(entry.name) != ended:
            self._note(entry, ended)
            self._say(
                f"{entry.name}: {ended['state']}, {ended['hours']:.2f} hours of computing "
                f"(expected {entry.hours:g})"
            )
            self._collect(jobs)
        return failed

    def _job(self, job: Planned, label: str) -> dict[str, Any]:
        """Take one job over, or compute what is left of it."""
        folder = self._folder / job.folder
        source = self._source(job)
        begun = (folder / "checkpoints" / "latest.json").is_file()
        if source is not None and not begun and source.resolve() != folder.resolve():
            take_over(source, job, folder)
            self._say(f"{label}: {job.folder} is {source}")
            return {"state": "taken", "from": str(source), "seconds": 0.0, **_now()}
        self._say(f"{label}: {'continues' if begun else 'starts'} {job.folder}")
        command = ["run", *job.overrides, "hydra.mode=RUN"]
        began = time.monotonic()
        status = self._child(command, folder)
        took = time.monotonic() - began
        if status == 0 and finished_hash(folder) == job.hash:
            self._known[job.hash] = folder
            made = {"commit": self._commit, "command": command_of(job.overrides), **_now()}
            atomic_write(folder / MADE_BY, json.dumps(made, indent=2) + "\n")
            self._say(f"{label}: done after {took:.0f} s")
            return {"state": "done", "seconds": self._seconds(job), **_now()}
        reason = self._last_line() or f"exit status {status}"
        self._say(f"{label}: failed: {reason}")
        return {"state": "failed", "error": reason, "seconds": self._seconds(job), **_now()}

    def _source(self, job: Planned) -> Path | None:
        """A finished run of the same computation that recorded what this one is to record."""
        source = self._known.get(job.hash)
        if source is None or not job.discrepancy:
            return source
        return source if ",discrepancy," in (source / "rounds.csv").read_text() else None

    def _child(self, arguments: Sequence[str], folder: Path) -> int:
        """`fedclust` with these arguments; its exit status. It ends its round when this ends."""
        _wait_until_free(folder)
        with (self._folder / "jobs.log").open("a") as log:
            self._printed = log.tell()
            child = subprocess.Popen(
                [sys.executable, "-m", "fedclust", *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches it through this process, once
                preexec_fn=_in_child if sys.platform == "linux" else None,
            )
            try:
                return child.wait()
            except _Stop:
                child.terminate()  # it ends and saves its round
                child.wait()
                raise

    def _last_line(self) -> str:
        """The last thing a job printed."""
        text = (self._folder / "jobs.log").read_bytes()[self._printed :]
        lines = text.decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _seconds(self, job: Planned) -> float:
        """Time of all rounds of all seeds, over all interruptions."""
        file = self._folder / job.folder / "rounds.csv"
        if not file.is_file():
            return 0.0
        rows = (line.split(",") for line in file.read_text().splitlines()[1:])
        return round(sum(float(r[3]) for r in rows if len(r) == 4 and r[2] == "seconds"), 1)

    def _summary(
        self, entry: Entry, jobs: Sequence[Planned], records: Mapping[str, Any], state: str
    ) -> dict[str, Any]:
        seconds = sum(r["seconds"] for r in records.values() if r["state"] != "taken")
        return {
            "state": state,
            "hours": round(seconds / 3600, 4),
            "expected_hours": entry.hours,
            "of": len(jobs),
            "jobs": dict(records),
        }

    def _note(self, entry: Entry, record: Mapping[str, Any]) -> None:
        self._state[entry.name] = record
        atomic_write(self._folder / "state.json", json.dumps(self._state, indent=1) + "\n")

    def _collect(self, jobs: Sequence[Planned]) -> None:
        """Copy the results of the experiment that these jobs belong to."""
        for home in dict.fromkeys(job.folder.parent for job in jobs):
            done = subprocess.run(
                collect_command(self._folder / home, self._docs, self._scale),
                cwd=self._folder,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["no message"])[-1]
                self._say(f"{home}: not collected: {said}")

    def _say(self, text: str) -> None:
        line = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}"
        print(line, flush=True)
        with (self._folder / "log.txt").open("a") as file:
            file.write(line + "\n")


def collect_command(home: Path, docs: Path, scale: str) -> list[str]:
    """What copies the results of one experiment's folder."""
    script = HERE / "collect_results.py"
    return [sys.executable, str(script), str(home), "--to", str(docs), "--scale", scale]


def command_of(overrides: Sequence[str]) -> str:
    """What a person would type for a job."""
    return " ".join(["fedclust run", *(o for o in overrides if o != "progress=false")])


def read_state(folder: Path) -> dict[str, Any]:
    """What `state.json` says; nothing where there is none."""
    file = folder / "state.json"
    content = json.loads(file.read_text()) if file.is_file() else {}
    assert isinstance(content, dict)
    return content


def _wait_until_free(folder: Path) -> None:
    """Wait for what still writes a job's folder: a run that ends its last round."""
    file = folder / ".lock"
    while file.is_file():
        with file.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE)
                continue
            return


def _in_child() -> None:
    """In a new child on Linux: lowest among sessions too, and SIGTERM when the campaign is killed.

    Linux may weigh sessions instead of processes (autogroup), and then nice counts only within one.
    """
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_LOWEST))
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)


def _now() -> dict[str, str]:
    return {"finished": f"{datetime.now(UTC):%Y-%m-%d %H:%M}"}


def head(root: Path) -> str:
    """The commit checked out, marked where files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def environment(root: Path, folder: Path, *, anew: bool) -> Path:
    """The interpreter of an environment that holds a wheel of the current commit.

    Args:
        root: the checkout.
        folder: the campaign's; the environment lies below it.
        anew: build it even where there is one.

    Raises:
        ConfigError: when a step fails, with its last line.
    """
    record = folder / "environment.json"
    if record.is_file() and not anew:
        return Path(json.loads(record.read_text())["python"])
    commit = _output(["git", "rev-parse", "--short", "HEAD"], root)
    place, uv = folder / f"environment-{commit}", _uv()
    shutil.rmtree(place, ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        source, wheels = Path(made, "source"), Path(made, "wheels")
        source.mkdir()
        _output(["git", "archive", "--output", f"{made}/source.tar", commit], root)
        _output(["tar", "-xf", f"{made}/source.tar", "-C", str(source)], root)
        _output([uv, "build", "--wheel", "--out-dir", str(wheels), str(source)], root)
        _output([uv, "venv", "--python", sys.executable, str(place)], root)
        lines = (source / "requirements.lock").read_text().splitlines()
        pinned = [line.removesuffix(" \\") for line in lines if "--hash" not in line]
        Path(made, "constraints.txt").write_text("\n".join(pinned) + "\n")
        python = place / "bin" / "python"
        wheel = str(next(wheels.glob("*.whl")))
        constraints = ["-c", f"{made}/constraints.txt"]
        _output([uv, "pip", "install", "--python", str(python), *constraints, wheel], root)
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(record, json.dumps({"python": str(python), "commit": commit}) + "\n")
    return python


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        raise ConfigError("--wheel needs uv, which `make setup` installs; or use --here")
    return found


def _output(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"{' '.join(command[:3])} failed: {said}")
    return done.stdout.strip()


def show(entries: Sequence[Entry], folder: Path) -> str:
    """The list with what has become of every entry, as text."""
    state = read_state(folder)
    lines, left, used = [], 0.0, 0.0
    for entry in entries:
        known = state.get(entry.name, {})
        jobs = known.get("jobs", {})
        done = sum(record["state"] in ("done", "taken", "kept") for record in jobs.values())
        hours = float(known.get("hours", 0.0))
        used += hours
        if known.get("state") != "done":
            left += max(entry.hours - hours, 0.0)
        what = known.get("state", "waits")
        of = f"{done}/{known['of']}" if "of" in known else ""
        lines.append(f"{entry.name:44} {what:8} {of:>8} {hours:7.2f} of {entry.hours:6.2f} h")
    return "\n".join([*lines, f"{used:.1f} hours used, about {left:.1f} left"])


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("run", "status", "collect"))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--wheel", action="store_true", help="build the environment anew")
    where.add_argument("--here", action="store_true", help="run with this interpreter")
    parser.add_argument("--folder", type=Path, default=ROOT / "outputs" / "campaign")
    parser.add_argument("--list", type=Path, default=HERE / "campaign.yaml")
    parser.add_argument("--scale", default="paper", help="paper, laptop or smoke")
    parser.add_argument("--docs", type=Path, help="where results go; docs/results at full size")
    parser.add_argument(
        "--also", type=Path, action="append", default=[], help="take finished jobs from here too"
    )
    parser.add_argument(
        "--skip-kept", action="store_true", help="leave out jobs whose numbers docs/results has"
    )
    parser.add_argument("--only", nargs="+", default=[], help="these entries, by name")
    return parser.parse_args(list(given))


def main(given: Sequence[str]) -> int:
    """Do what the arguments ask for; returns the exit status."""
    asked = _arguments(given)
    folder, root = asked.folder.resolve(), ROOT
    docs = asked.docs or (
        root / "docs" / "results" if asked.scale == "paper" else folder / "results"
    )
    entries = read_list(asked.list)
    unknown = sorted(set(asked.only) - {entry.name for entry in entries})
    require(not unknown, "--only", ", ".join(unknown), "names of entries of the list")
    entries = [entry for entry in entries if not asked.only or entry.name in asked.only]
    if asked.what == "status":
        print(show(entries, folder))
        return 0
    if not asked.here:
        python = environment(root, folder, anew=asked.wheel)
        rest = [argument for argument in given if argument != "--wheel"]
        os.environ.pop("PYTHONPATH", None)  # the wheel is to be found, not a checkout
        os.execv(python, [str(python), str(HERE / "campaign.py"), *rest, "--here"])
    if asked.what == "collect":
        return _collect_all(folder, docs.resolve(), asked.scale)
    also = [one.resolve() for one in asked.also]
    kept = kept_hashes(root / "docs" / "results") if asked.skip_kept else frozenset()
    with _alone(folder), _signals_raise():
        os.setpriority(os.PRIO_PROCESS, 0, _LOWEST)
        try:
            made = Campaign(folder, entries, asked.scale, docs.resolve(), also, kept)
            return min(made.run(), 1)
        except _Stop as stop:
            print(f"interrupted by {stop}; the same command continues the campaign", flush=True)
            return 128 + stop.signum


def _collect_all(folder: Path, docs: Path, scale: str) -> int:
    """Copy the results of every experiment of the campaign; 1 if one could not be."""
    homes = {file.parent.parent for file in (folder / "outputs").rglob("status.json")}
    codes = [subprocess.run(collect_command(h, docs, scale)).returncode for h in sorted(homes)]
    return int(any(codes))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"campaign: {error}", file=sys.stderr)
        sys.exit(UserError.exit_status)
