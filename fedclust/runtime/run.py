"""One job from its parts to its files: every round of every seed, recorded, saved and resumable."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from fedclust.config.build import Job
from fedclust.distributed import Ranks, here
from fedclust.engines.clients import SeedClients
from fedclust.engines.lockstep import Lockstep
from fedclust.errors import DivergedError, Interrupted, RankLost, UserError
from fedclust.federation import summary, write_table
from fedclust.files import atomic_write
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.memory import keep_freed_memory
from fedclust.runtime.onlooker import NoRecorder
from fedclust.runtime.progress import Progress
from fedclust.runtime.recorder import Recorder
from fedclust.types import Cost, Evaluation, Federation, Round
from fedclust.verbs import Algorithm


@dataclass
class Simulation:
    """One seed: its rounds, its algorithm and the algorithm's state."""

    seed: int
    algorithm: Algorithm
    engine: Lockstep
    rounds: Iterator[Round]
    state: Any = None

    @classmethod
    def of(cls, seed: int, job: Job, fed: Federation, engine: Lockstep) -> Simulation:
        """The simulation of one seed before round 0."""
        return cls(seed, job.algorithm, engine, job.scenario.rounds(fed, seed))

    def resume(self, t: int, state: dict[str, Any]) -> None:
        """Continue after round t; data shifts are replayed, they cost no training."""
        for _ in range(t + 1):
            next(self.rounds)
        self.state = self.algorithm.State(**state)

    def step(self, evaluated: bool) -> tuple[Round, list[Cost], Evaluation | None]:
        """One round: what it cost, and the test results where the round is evaluated."""
        rnd, costs = next(self.rounds), []
        clients = SeedClients(self.engine, rnd)
        if rnd.t == 0:
            self.state, cost = self.algorithm.init(clients, rnd)
            costs.append(cost)
        self.state, cost = self.algorithm.round(self.state, clients, rnd)
        # what serving needs besides belongs to the test
        counted = clients.passes
        passes = Cost(forward_passes=counted.forward, backward_passes=counted.backward)
        costs += [cost, passes]
        if not evaluated:
            return rnd, costs, None
        return rnd, costs, clients.evaluate(self.algorithm.serve(self.state, clients, rnd))


class _Signals:
    """Remembers the first SIGINT or SIGTERM so that the round can end; a second one acts at
    once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, signum: int, _: FrameType | None) -> None:
        self.received = signum
        self._restore()

    def _restore(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)


def run(job: Job, folder: RunFolder, progress: Progress) -> None:
    """Run what is left of a job; a finished job is left alone.

    Args:
        job: the parts; see `fedclust.config.build.build`.
        folder: where the files go; continued where it was left.
        progress: what a person sees meanwhile.

    Raises:
        UserError: bad combinations that only the data show; nothing has been written then.
        Interrupted: after a signal, when the round has been saved.
        DivergedError: when every seed has failed.
    """
    with _Signals() as signals:
        _run_as_one(job, folder, progress, signals, here())


def run_together(jobs: Sequence[tuple[Job, RunFolder, Progress]]) -> list[Exception | None]:
    """Run several jobs with one engine in lockstep, with the results of running each by itself.

    Args:
        jobs: what `run` takes, at least one, all with the same engine.

    Returns:
        Per job what it raised, see `run`, or None.
    """
    with _Signals() as signals:
        ranks = here()
        work = {i: partial(_run_as_one, *parts, signals, ranks) for i, parts in enumerate(jobs)}
        return [turn.outcome for turn in Lockstep(jobs[0][0].engine).map(work).values()]


def _run_as_one(
    job: Job, folder: RunFolder, progress: Progress, signals: _Signals, ranks: Ranks
) -> None:
    """Run a job so that all ranks end it in the same way."""
    with ranks.together():
        _run(job, folder, progress, signals, ranks)


def _run(job: Job, folder: RunFolder, progress: Progress, signals: _Signals, ranks: Ranks) -> None:
    keep_freed_memory()
    seeds = _Seeds(job, folder)
    recorder = begin_files(job, folder) if ranks.leads else NoRecorder()
    try:
        first = seeds.load(recorder)
        ranks.same(
            "the checkpoint it reads (is the results' folder on a shared file system?)", first
        )
        progress.start(folder.path, first, job.rounds)
        if first and folder.changes:
            progress.warn(
                "continued by other means than begun, so equal to rounding only, which can grow: "
                f"{folder.changes}"
            )
        if remark := job.algorithm.remark(job.rounds):
            progress.warn(remark)
        for t in range(first, job.rounds):
            seeds.round(t, recorder, progress)
            received = ranks.highest(signals.received or 0)
            if received or t == job.rounds - 1 or seeds.is_save_due():
                seeds.save(t, recorder)
            if received:
                seeds.interrupt(t, received)
        recorder.finish()
        seeds.status("done", job.rounds - 1)
    except UserError as error:
        recorder.close()
        if seeds.has_begun:
            folder.write_status(state="failed", error=str(error), rounds=job.rounds)
        else:
            folder.abandon()
        raise
    except RankLost:
        seeds.status("interrupted", seeds.saved)
        raise
    except Exception as error:
        if not isinstance(error, Interrupted):
            folder.write_status(
                state="failed", error=f"{type(error).__name__}: {error}", rounds=job.rounds
            )
        raise
    finally:
        progress.stop()
        recorder.close()
        folder.release()


def begin_files(job: Job, folder: RunFolder) -> Recorder:
    """Take the folder, and write what a job says of itself before its first round."""
    folder.acquire(job.versions)
    write_partitions(job, folder)
    return Recorder(folder.path, job.seeds, job.engine.layout.num_params, job.tracker)


def write_partitions(job: Job, folder: RunFolder) -> None:
    """Write who owns what, a table per seed that partition=from_file reads, and what a report says
    of it.
    """
    described = folder.path / "federation.json"
    if not described.is_file():
        seeds = {str(seed): summary(fed) for seed, fed in job.federations.items()}
        content = {"parameters": job.engine.layout.num_params, "seeds": seeds}
        atomic_write(described, json.dumps(content) + "\n")
    for seed, fed in job.federations.items():
        target = folder.path / "partition" / f"seed={seed}.parquet"
        if not target.is_file():
            target.parent.mkdir(exist_ok=True)
            partial = target.with_suffix(".partial")
            try:
                write_table(partial, fed)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)


class _Seeds:
    """All seeds of a job in lockstep, and what has become of each."""

    def __init__(self, job: Job, folder: RunFolder) -> None:
        self._job, self._folder = job, folder
        self._lockstep = Lockstep(job.engine)
        self._alive = {
            s: Simulation.of(s, job, fed, self._lockstep) for s, fed in job.federations.items()
        }
        self._failed: dict[int, str] = {}
        self._saved_at = time.monotonic()
        self.saved = -1  # the round of the newest checkpoint
        self.has_begun = False

    def load(self, recorder: Recorder) -> int:
        """Restore the newest checkpoint; returns the round to run next."""
        checkpoint = self._folder.load(self._job.device)
        if checkpoint is None:
            recorder.start()
            return 0
        self.has_begun = True
        t, contents, position = checkpoint
        self.saved = t
        recorder.resume(position, {seed: content["recorder"] for seed, content in contents.items()})
        for seed, content in contents.items():
            if content["failed"] is not None:
                self._failed[seed] = content["failed"]
                del self._alive[seed]
            else:
                self._alive[seed].resume(t, content["state"])
        return t + 1

    def round(self, t: int, recorder: Recorder, progress: Progress) -> None:
        """Round t of every seed that is alive."""
        evaluated = self._job.is_evaluated(t)
        turns = self._lockstep.map(
            {s: partial(sim.step, evaluated) for s, sim in self._alive.items()}
        )
        for seed, turn in turns.items():
            outcome = turn.outcome
            if isinstance(outcome, DivergedError):
                self._failed[seed] = str(outcome)
                del self._alive[seed]
                progress.warn(str(outcome))
                continue
            if isinstance(outcome, Exception):
                raise outcome
            rnd, reports, evaluation = outcome
            for report in reports:
                recorder.cost(seed, t, report)
            recorder.seconds(seed, t, turn.seconds)
            if evaluation is not None:
                recorder.evaluate(rnd, evaluation)
        if not self._alive:
            last = next(reversed(self._failed.values()))
            raise DivergedError(f"every seed has failed; the last one: {last}")
        self.has_begun = True
        progress.round(t, recorder.latest())

    def is_save_due(self) -> bool:
        """Whether so much time has passed since the last checkpoint that losing it would hurt."""
        return time.monotonic() - self._saved_at >= self._job.checkpoint_seconds

    def save(self, t: int, recorder: Recorder) -> None:
        """Make round t the newest checkpoint."""
        position = recorder.commit()
        remembered = recorder.state()
        contents: dict[int, dict[str, Any]] = {
            seed: {
                "state": _fields(sim.state),
                "recorder": remembered.get(seed, {}),
                "failed": None,
            }
            for seed, sim in self._alive.items()
        }
        for seed, error in self._failed.items():
            contents[seed] = {"state": {}, "recorder": remembered.get(seed, {}), "failed": error}
        self._folder.save(t, contents, position)
        self._saved_at, self.saved = time.monotonic(), t
        self.status("running", t)

    def interrupt(self, t: int, signum: int) -> None:
        """End here; round t has been saved.

        Raises:
            Interrupted: always.
        """
        self.status("interrupted", t)
        raise Interrupted(signum)

    def status(self, state: str, t: int) -> None:
        """Write where the job stands."""
        seeds = {str(s): self._failed.get(s, "ok") for s in sorted([*self._alive, *self._failed])}
        self._folder.write_status(
            state=state, rounds_done=t + 1, rounds=self._job.rounds, seeds=seeds
        )


def _fields(state: Any) -> dict[str, Any]:
    """The fields of a state dataclass, shallow: tensors are not copied."""
    return {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
