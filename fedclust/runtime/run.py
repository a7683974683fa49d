"""One job from its parts to its files: every round of every seed, recorded, saved and resumable."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fedclust.config.job import Job
from fedclust.config.schema import RunConfig
from fedclust.core.federation import digest, summary, write_table
from fedclust.core.tracker import About
from fedclust.core.traits import traits_of
from fedclust.core.trivial import loss_of_all, predicted
from fedclust.core.types import Federation, Round, Served
from fedclust.engines import simulated
from fedclust.engines.lockstep import Lockstep
from fedclust.engines.sums import rows_at_once
from fedclust.helpers.distributed import Ranks, here
from fedclust.helpers.errors import (
    DivergedError,
    Enough,
    Interrupted,
    RankLost,
    RunFolderError,
    UserError,
    counted,
    require,
    typed,
)
from fedclust.helpers.garbage import searched_as_usual
from fedclust.helpers.memory import readable, short_of_memory
from fedclust.helpers.names import OF_ALL_SEEDS, OF_ONE_SEED
from fedclust.helpers.signals import Signals
from fedclust.helpers.unfinished import unfinished
from fedclust.metrics.judged import judged
from fedclust.runtime.contract import check_state, fields_of
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.memory import check_fits, keep_freed_memory
from fedclust.runtime.other_ranks import NoRecorder
from fedclust.runtime.progress import Progress
from fedclust.runtime.recorder import Recorder
from fedclust.runtime.simulation import Simulation, models_per_client
from fedclust.runtime.trained import inputs_of, saved_served, write_inputs


def run(job: Job, folder: RunFolder, progress: Progress, signals: Signals | None = None) -> None:
    """Run what is left of a job; a finished job is left alone.

    Args:
        signals: already listened to by whoever runs several jobs together; None to listen here.

    Raises:
        UserError: bad combinations that only the data show; nothing has been written then.
        Interrupted: after a signal, when the round has been saved.
        DivergedError: when every seed has failed.
        Enough: when `progress` has seen enough; the same call continues.
    """
    ranks = here()
    # jobs in lockstep with others are trials, which are small
    kept_in = None if isinstance(job.engine, Lockstep) else folder.path / "checkpoints"
    with (
        nullcontext(signals) if signals else Signals() as heard,
        ranks.together(),
        unfinished.kept_in(kept_in, job.checkpoint_seconds),
    ):
        _run(job, folder, progress, heard, ranks)


def _run(job: Job, folder: RunFolder, progress: Progress, signals: Signals, ranks: Ranks) -> None:
    keep_freed_memory()
    searched_as_usual()
    folder.check()
    if ranks.agree(folder.is_done):
        if ranks.leads and folder.has_touched_data():
            folder.confirm_data(data_digests(job.federations))
        if job.engine.remark:
            progress.tell(job.engine.remark)
        for line in folder.remarks:
            progress.warn(line)
        return
    num_clients = min(fed.num_clients for fed in job.federations.values())
    check_clusters(folder.config, num_clients)
    check_state(job.algorithm)
    if job.aggregation is not None:
        job.aggregation.check(_cohort(folder.config, num_clients))
    check_memory(job, folder.config, num_clients)
    seeds = _Seeds(job, folder)
    recorder: Recorder = NoRecorder()
    try:
        with short_of_memory("the files were begun"):
            if not ranks.agree(lambda: folder.acquire(job.versions)):
                progress.warn(f"{folder.path} has been finished by another process meanwhile")
                return
            if ranks.leads:
                recorder = begin_files(job, folder)
            first = ranks.in_turn(lambda: seeds.load(recorder))
        ranks.same(
            "the checkpoint it reads (is the results' folder on a shared file system?)", first
        )
        job.tracker.begin(About(folder=folder.path, config=folder.config, first=first))
        progress.start(folder.path, first, job.rounds)
        if names := next(iter(job.federations.values())).names.told():
            progress.tell(" · ".join(names))
        for line in folder.remarks:
            progress.warn(line)
        if any(folder.changes):
            unfinished.forget()
        if first and folder.changes.means:
            progress.warn(
                "continued by other means than begun, so equal to rounding only, which can grow: "
                f"{folder.changes.means}"
            )
        if first and folder.changes.files:
            progress.warn(
                f"continued with other code than begun, so results may differ from those of either "
                f"alone: {', '.join(folder.changes.files)} changed"
            )
        for remark in remarks_of_setting(job):
            progress.remark(remark, of_method=False)
        for remark in remarks_of_method(job):
            progress.remark(remark, of_method=True)
        device = next(iter(job.federations.values())).pool.x.device
        if precision := simulated(folder.config.get("precision", "highest"), device):
            progress.remark(precision, of_method=False)
        if full := short_of_disk(job, folder.config, folder.path, first):
            progress.warn(full)
        last = job.rounds - 1
        if 0 < first < job.rounds and job.is_evaluated(first - 1):
            seeds.recall_losses()
        signals.answer = partial(seeds.finishing, progress, first)
        t = first - 1
        while t < last and not seeds.have_ended(t):
            t += 1
            with short_of_memory(f"round {t + 1} of {job.rounds} was computed"):
                seeds.round(t, recorder, progress)
            saving = short_of_memory(f"round {t + 1} of {job.rounds} was saved")
            if t == last or seeds.have_ended(t) or seeds.is_save_due():
                with saving:
                    seeds.save(t, recorder)
            signals.answer = partial(seeds.finishing, progress, min(t + 1, last))
            if received := ranks.highest(signals.received or 0):  # also while the round was saved
                if seeds.saved < t:
                    with saving:
                        seeds.save(t, recorder)
                seeds.interrupt(t, received)
        with short_of_memory("the results were put together"):
            recorder.finish()
        folder.finish(seeds.standing("done", t))
    except (UserError, OSError) as error:
        if not seeds.has_begun:
            with suppress(OSError):
                recorder.close()
            folder.abandon()
        else:
            _fail(folder, str(error), job.rounds)
        raise
    except Enough:
        with suppress(OSError):
            folder.write_status(state="stopped", rounds=job.rounds)
        raise
    except RankLost:
        seeds.status("interrupted", seeds.saved)
        raise
    except Exception as error:
        if not isinstance(error, Interrupted):
            _fail(folder, f"{type(error).__name__}: {error}", job.rounds)
        raise
    finally:
        progress.stop()
        with suppress(OSError):  # a full disk has been told of
            recorder.close()
        folder.release()


def _fail(folder: RunFolder, error: str, rounds: int) -> None:
    """Write why the job ended, where the disk still allows it."""
    with suppress(OSError):
        folder.write_status(state="failed", error=error, rounds=rounds)


def begin_files(job: Job, folder: RunFolder) -> Recorder:
    """Write what a job says of itself before its first round."""
    devices = {f"the devices of seed {s}": own.digest for s, own in job.devices.items()}
    folder.same_data(data_digests(job.federations) | devices)
    write_partitions(job, folder)
    params = job.engine.layout.num_params
    return Recorder(folder.path, job.seeds, params, job.tracker, job.scores)


def data_digests(federations: Mapping[int, Federation]) -> dict[str, str]:
    """Digests of the examples, and of who owns which in every seed, by what they are of."""
    pool = next(iter(federations.values())).pool
    digests = {"the examples": pool.digest, OF_ALL_SEEDS: pool.digest, **pool.sources}
    for seed, fed in federations.items():
        digests[f"{OF_ONE_SEED}{seed}"] = digest(fed)
    return digests


def write_partitions(job: Job, folder: RunFolder) -> None:
    """Write who owns what, how inputs were made, and what a report needs of it."""

    def about(seed: int, fed: Federation) -> dict[str, Any]:
        arrived = job.scenario.arrived(fed, seed, job.rounds)
        summed = summary(fed, arrived)
        if job.scores:
            summed["trivial"] |= judged(predicted(fed, arrived), job.scores, fed.num_clients).values
        return summed

    def describe(file: Path) -> None:
        seeds = {str(seed): about(seed, fed) for seed, fed in job.federations.items()}
        params = job.engine.layout.num_params
        content = {"parameters": params, "seeds": seeds, "data": folder.data}
        file.write_text(json.dumps(content) + "\n", encoding="utf-8")

    folder.keep("federation.json", describe)
    for seed, fed in job.federations.items():
        folder.keep(f"partition/seed={seed}.parquet", partial(write_table, fed=fed))
        folder.keep(inputs_of(seed), partial(write_inputs, fed=fed, names=job.engine.layout))


def check_clusters(config: Mapping[str, Any], num_clients: int) -> None:
    """Refuse more clusters than clients, or more clients in each; ConfigError names the key."""
    shared = config.get("cluster_method")
    for key, value in _numbers(config.get("algorithm"), "algorithm", _OF_CLIENTS):
        name = key.rpartition(".")[2]
        named = key
        if name == "num_clusters" and value == config.get(name):
            named = name
        elif isinstance(shared, Mapping) and shared.get(name) == value:
            named = f"cluster_method.{name}"  # the algorithm refers to it
        allowed = f"at most {counted(num_clients, 'client')}, as there are"
        if named == "num_clusters" and value == RunConfig.num_clusters:
            allowed += f"; {value} is the default, and {typed(named, num_clients)} sets another"
        require(value <= num_clients, named, value, allowed)


_BOUND = 1000  # times the loss of a guess without inputs, beyond which no model learns
# what counts clusters, or the clients of each, in a method or a clustering
_SAVING = 10  # so many times as long as a checkpoint took, none is due
_OF_CLIENTS = ("num_clusters", "min_samples", "min_cluster_size")


def _numbers(node: Any, key: str, names: Collection[str]) -> Iterator[tuple[str, int]]:
    """Every whole number of some names below a node, with its key."""
    for name, value in node.items() if isinstance(node, Mapping) else ():
        if name in names and isinstance(value, int):
            yield f"{key}.{name}", value
        yield from _numbers(value, f"{key}.{name}", names)


def remarks_of_setting(job: Job) -> list[str]:
    """What a reader of the results must know of the data and the scenario in so many rounds."""
    of_data = dict.fromkeys(line for fed in job.federations.values() for line in fed.remarks)
    return list(filter(None, (*of_data, job.scenario.remark(job.rounds))))


def remarks_of_method(job: Job) -> list[str]:
    """What a reader of the results must know of the method in so many rounds."""
    num_clients = max(fed.num_clients for fed in job.federations.values())
    remarks = [job.algorithm.remark(job.rounds), job.algorithm.beside(job.scenario, num_clients)]
    if job.attack is not None and not traits_of(job.algorithm).sends:
        remarks.append("nothing is sent, so the attack only takes clients out of the test")
    return list(filter(None, remarks))


def check_memory(job: Job, config: Mapping[str, Any], num_clients: int) -> None:
    """Refuse a job that cannot fit, before its first round: see `needs` and `check_fits`."""
    pool = next(iter(job.federations.values())).pool
    check_fits(needs(job, config, num_clients), job.device, pool.x.nbytes + pool.y.nbytes)


def needs(job: Job, config: Mapping[str, Any], num_clients: int) -> dict[str, int]:
    """Bytes that all seeds of a job need at least, by what needs them.

    Counted are models of the server, a cohort and the State (before and after a round), the test
    table and the method's `tables`; neither the data nor what an engine computes with.
    """
    clusters = _clusters(config)
    cohort = _cohort(config, num_clients)
    kept = models_per_client(job.algorithm) * num_clients
    longest = max(
        max(int(split.count.max()) for name, split in fed.splits.items() if name != "train")
        for fed in job.federations.values()
    )
    params, seeds = job.engine.layout.num_params, len(job.federations)
    # a method that needs every participant's model says so in its State
    if not job.discrepancy and job.aggregation is None:
        cohort = min(cohort, rows_at_once(params, job.device))
    each = f"with {params:,} parameters each"
    bytes_of = {
        f"{counted(clusters, 'model')} of the server {each}": 4 * params * clusters,
        f"{counted(cohort, 'model')} of a cohort": 4 * params * cohort,
        f"{counted(kept, 'model')} that clients keep, before and after a round": (
            8 * params * kept
        ),
        # the rows of the pool, and where they are padded
        f"test examples of {counted(num_clients, 'client')}": 16 * num_clients * longest,
    }
    if moments := traits_of(job.algorithm).moments:
        bytes_of[f"{counted(moments * clusters, 'moment')} of the server's optimiser"] = (
            4 * params * moments * clusters
        )
    together = "" if seeds == 1 else f", in {seeds} seeds"
    # seeds cluster one after the other
    tables = job.algorithm.tables(num_clients)
    return {f"{what}{together}": seeds * size for what, size in bytes_of.items()} | dict(tables)


def _clusters(config: Mapping[str, Any]) -> int:
    """The most models of the server that any part of the method speaks of."""
    numbers = _numbers(config.get("algorithm"), "", ("num_clusters",))
    return max((k for _, k in numbers), default=1)


def _cohort(config: Mapping[str, Any], num_clients: int) -> int:
    """How many of all clients take part in a round, if none drops out."""
    share: int = round(config.get("participation", 0) * num_clients)  # as scenarios do
    size: int = config.get("clients_per_round") or share
    return max(1, size)


def short_of_disk(job: Job, config: Mapping[str, Any], folder: Path, first: int) -> str:
    """What to say where a job's checkpoints, two and the next, do not fit on the disk, or ""."""
    num_clients = min(fed.num_clients for fed in job.federations.values())
    traits = traits_of(job.algorithm)
    server = _clusters(config) * (1 + traits.moments) if traits.sends else 0
    kept = server + models_per_client(job.algorithm) * num_clients
    each = 4 * job.engine.layout.num_params * kept * len(job.federations)
    needed = each * (1 if first else 3)
    free = shutil.disk_usage(folder).free
    if needed <= free:
        return ""
    return (
        f"the checkpoints of this job take {readable(needed)} more, and {readable(free)} are free "
        f"in {folder}: a full disk ends it, and the same command continues it"
    )


class _Seeds:
    """All seeds of a job in lockstep, and what has become of each."""

    def __init__(self, job: Job, folder: RunFolder) -> None:
        self._job, self._folder = job, folder
        self._lockstep = Lockstep(job.engine)
        self._alive = {
            s: Simulation.of(s, job, fed, self._lockstep) for s, fed in job.federations.items()
        }
        self._failed: dict[int, str] = {}
        # by seed, of its test loss; infinite when a person has been told
        self._bound: dict[int, float] = {}
        self._short = False  # whether a person has been told of an aggregation that was
        self._served: dict[int, Served] = {}  # at the end
        self._saved_at, self._saving = time.monotonic(), 0.0  # [s] the latter for one checkpoint
        self._rounds, self._began, self._ended = 0, self._saved_at, self._saved_at
        self.saved = -1  # the round of the newest checkpoint
        self.has_begun = False

    def load(self, recorder: Recorder) -> int:
        """Restore the newest checkpoint, or RunFolderError; returns the round to run next."""
        checkpoint = self._folder.load(self._job.device)
        if checkpoint is None:
            recorder.start()
            return 0
        t, contents, position = checkpoint
        for seed, content in contents.items():
            if content["failed"] is not None:
                self._failed[seed] = content["failed"]
                del self._alive[seed]
            else:
                self._check_same_state(content["state"])
                self._alive[seed].resume(t, content["state"], content.get("private"))
        recorder.resume(position, {seed: content["recorder"] for seed, content in contents.items()})
        self.saved, self.has_begun = t, True
        return t + 1

    def recall_losses(self) -> None:
        """See `Simulation.recall_losses`."""
        turns = self._lockstep.map({s: sim.recall_losses for s, sim in self._alive.items()})
        for turn in turns.values():
            if turn.outcome is not None:
                raise turn.outcome

    def _check_same_state(self, saved: Mapping[str, Any]) -> None:
        """Refuse a state with other fields than the algorithm's."""
        wanted = [f.name for f in dataclasses.fields(self._job.algorithm.State)]
        if sorted(saved) != sorted(wanted):
            raise RunFolderError(
                f"{self._folder.path} was saved by another version of "
                f"{type(self._job.algorithm).__qualname__}: its State had {', '.join(saved)}, and "
                f"has {', '.join(wanted)} now; bring it back, or choose another name=…"
            )

    def _tell_of_bound(self, rnd: Round, loss: float, progress: Progress) -> None:
        """Warn once in a seed of a test loss that only models that diverge have."""
        if rnd.seed not in self._bound:
            self._bound[rnd.seed] = _BOUND * loss_of_all(rnd.fed)
        bound = self._bound[rnd.seed]
        if loss > bound:
            self._bound[rnd.seed] = math.inf
            progress.warn(
                f"seed {rnd.seed}, round {rnd.t}: the test loss is {loss:.3g}, and that of a guess "
                f"without inputs {bound / _BOUND:.3g}: training diverges; a smaller solver.lr, or "
                "solver=adam, may help"
            )

    def round(self, t: int, recorder: Recorder, progress: Progress) -> None:
        """Round t of every seed that is alive."""
        evaluated = self._job.is_evaluated(t)
        predicted = self._job.is_predicted(t)
        steps = {s: partial(sim.step, evaluated, predicted) for s, sim in self._alive.items()}
        turns = self._lockstep.map(steps)
        for seed, turn in turns.items():
            outcome = turn.outcome
            if isinstance(outcome, DivergedError):
                self._failed[seed] = str(outcome)
                del self._alive[seed]
                progress.warn(str(outcome))
                continue
            if isinstance(outcome, Exception):
                raise outcome
            for cost in outcome.costs:
                recorder.cost(seed, t, cost)
                if cost.notes.get("median_instead") and not self._short:
                    self._short = True
                    by_class = type(self._job.aggregation).__name__
                    rule = self._job.choices.get("aggregation", by_class)
                    progress.remark(
                        f"aggregation={rule} takes the median in clusters whose participants in a "
                        "round are too few for it; median_instead in rounds.csv counts them",
                        of_method=True,
                    )
            recorder.seconds(seed, t, turn.seconds)
            if outcome.untrained is not None:
                recorder.change(outcome.rnd, outcome.untrained)
            if outcome.evaluation is not None:
                values = recorder.evaluate(outcome.rnd, outcome.evaluation, outcome.said)
                self._tell_of_bound(outcome.rnd, values.get("test_loss", 0.0), progress)
            if outcome.validation is not None:
                recorder.validate(outcome.rnd, outcome.validation, outcome.said_held_out)
            if t < self._job.rounds - 1 and self._job.hours is None:
                continue
            if outcome.served is not None:
                self._served[seed] = outcome.served
            if outcome.said is not None and self._job.predictions:
                recorder.keep(outcome.rnd, outcome.said)
        if not self._alive:
            last = next(reversed(self._failed.values()))
            raise DivergedError(f"every seed has failed; the last one: {last}")
        self.has_begun = True
        self._rounds, self._ended = self._rounds + 1, time.monotonic()
        progress.round(t, recorder.latest())

    def have_ended(self, t: int) -> bool:
        """Whether every seed has used the hours of the job, and been tested after round t."""
        hours = self._job.hours
        if hours is None or t < 0 or not self._job.is_evaluated(t):
            return False
        return all(sim.state.elapsed >= 3600 * hours for sim in self._alive.values())

    def finishing(self, progress: Progress, t: int, signum: int) -> None:
        """A signal has come, and the job ends after round t: say when, by earlier rounds."""
        each = (self._ended - self._began) / self._rounds if self._rounds else None
        left = None if each is None else each - (time.monotonic() - self._ended)
        progress.finishing(t, self.saved, None if left is None else max(0.0, left), signum)

    def is_save_due(self) -> bool:
        """Whether losing the time since the last checkpoint would hurt more than saving."""
        least = self._job.checkpoint_seconds
        if least:  # 0 saves every round
            least = max(least, _SAVING * self._saving)
        return time.monotonic() - self._saved_at >= least

    def save(self, t: int, recorder: Recorder) -> None:
        """Make round t the newest checkpoint."""
        begun = time.monotonic()
        position, remembered = recorder.commit(), recorder.state()
        contents: dict[int, dict[str, Any]] = {}
        for seed in (*self._alive, *self._failed):
            sim = self._alive.get(seed)
            contents[seed] = {
                "state": {} if sim is None else fields_of(sim.state),
                "private": {} if sim is None else dict(sim.private),
                "recorder": remembered.get(seed, {}),
                "failed": self._failed.get(seed),
            }
            if seed in self._served and (t == self._job.rounds - 1 or self.have_ended(t)):
                contents[seed]["served"] = saved_served(self._served[seed])
        self._folder.save(t, contents, position)
        unfinished.forget()
        self._saved_at, self.saved = time.monotonic(), t
        self._saving = self._saved_at - begun
        self.status("running", t)

    def interrupt(self, t: int, signum: int) -> None:
        """Raise Interrupted; round t has been saved."""
        self.status("interrupted", t)
        raise Interrupted(signum)

    def status(self, state: str, t: int) -> None:
        """Write where the job stands."""
        self._folder.write_status(**self.standing(state, t))

    def standing(self, state: str, t: int) -> dict[str, Any]:
        """Where the job stands after round t."""
        seeds = {str(s): self._failed.get(s, "ok") for s in sorted([*self._alive, *self._failed])}
        standing = {
            "state": state,
            "rounds_done": t + 1,
            "rounds": t + 1 if state == "done" else self._job.rounds,
            "seeds": seeds,
        }
        remarks = [*remarks_of_setting(self._job), *remarks_of_method(self._job)]
        return {**standing, "remarks": remarks} if remarks else standing
