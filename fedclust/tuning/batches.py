"""A search from its first trial to its best, batch by batch.

The trials of a batch are computed together: each is a job in a folder of its own, which is judged
by validation examples and sees no test example.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from fedclust.config.build import build
from fedclust.config.job import Job
from fedclust.engines.lockstep import Lockstep
from fedclust.helpers.errors import (
    ConfigError,
    DivergedError,
    Enough,
    MemoryShort,
    RunFolderError,
    counted,
)
from fedclust.helpers.locks import LOCK, lock, without_locks
from fedclust.helpers.memory import short_of_memory
from fedclust.helpers.prose import say
from fedclust.helpers.signals import Signals
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.memory import check_fits
from fedclust.runtime.progress import Once, Said
from fedclust.runtime.run import needs, run
from fedclust.runtime.shared_data import SharedData
from fedclust.tuning.one_search import Search
from fedclust.tuning.record import (
    Trial,
    best_of,
    curve_of,
    drop_files,
    read_trials,
    same_search,
    seeds_of,
    spent,
    write_best,
    write_trials,
)
from fedclust.tuning.search import Proposal, next_batch, num_untried
from fedclust.tuning.space import Value, num_settings, written
from fedclust.tuning.trial_progress import BatchProgress, TrialProgress
from fedclust.tuning.tuned import settings_of

_PATIENCE = 30.0  # seconds that a round of many trials has after a signal
_Begun = tuple[Proposal, Job, RunFolder]


@dataclass(frozen=True)
class OfSearches:
    """What the searches of one command share: the data, and what has been said."""

    data: SharedData = field(default_factory=SharedData)
    said: Said = field(default_factory=Said)


class TrialRunner:
    """Runs trials of one search, all on the same data and engine.

    The trials of a batch run in lockstep, as the seeds of a job do: calls that meet and are of one
    kind are one computation. By the engine law each has the numbers it would have by itself.

    Args:
        search: what it is.
        shared: with the other searches of the command.
        console: where to tell.
    """

    def __init__(
        self,
        search: Search,
        shared: OfSearches,
        console: Console,
        fatal: tuple[type[BaseException], ...],
        in_a_line: Callable[[Exception, Path | None], str],
    ) -> None:
        self._search, self._data, self._console = search, shared.data, console
        self._once = Once(search.title, shared.said.is_new)
        self._fatal, self._in_a_line = fatal, in_a_line
        self._shared: Job | None = None  # its data and engine are those of all
        self._lockstep: Lockstep | None = None
        self._left: float | None = None

    def run(self, proposals: Sequence[Proposal], left: float) -> list[Trial]:
        """What became of the trials of a batch, of `left` complete ones, in their order.

        Raises:
            UserError: as a job; of a bad setting if it is the default.
            Interrupted: when the round has been saved; the same call continues.
        """
        ends: dict[int, Exception | None] = {}
        begun: list[_Begun] = []
        self._left = left if self._shared is None else None
        with self._loading():
            for one in proposals:
                try:
                    begun.append(self._begin(one))
                except (ConfigError, DivergedError) as failure:
                    ends[one.number] = self._allowed(one, failure)
        with Signals(_PATIENCE) as signals:
            for some in [begun] if _fit(begun) else [[one] for one in begun]:
                ends |= self._together(some, signals)
        return [self._trial(one, ends[one.number]) for one in proposals]

    def drop_files(self, trials: Iterable[Trial]) -> None:
        """Delete what only the continuation of trials needs; their numbers stay."""
        for one in trials:
            drop_files(self._path(one.number))

    def _loading(self) -> AbstractContextManager[object]:
        """Show on a terminal that the data are loaded, before the first batch."""
        quiet = self._shared is not None or not self._search.resolved()["progress"]
        if quiet or not self._console.is_terminal:
            return nullcontext()
        text = f"loading: {self._search.title}"
        return self._console.status(text[: self._console.width - 3], refresh_per_second=4)

    def _begin(self, proposal: Proposal) -> _Begun:
        """The job of a trial, and its folder."""
        resolved = self._search.resolved(proposal.values)
        kept = None if self._shared else self._data.of(resolved)
        job = replace(build(resolved, self._search.own, self._shared, kept), tested=False)
        if self._shared is None:
            self._data.keep(job.federations)
            self._lockstep = Lockstep(job.engine)
            self._shared = job = replace(job, engine=self._lockstep)
        return proposal, job, RunFolder(self._path(proposal.number), resolved, self._search.own)

    def _together(self, begun: Sequence[_Begun], signals: Signals) -> dict[int, Exception | None]:
        """Run jobs in lockstep; why each ended early, None where it did not."""
        if not begun:
            return {}
        assert self._lockstep is not None
        shown = self._progress(begun)
        work = {}
        for proposal, job, folder in begun:
            progress = TrialProgress(
                proposal, self._search.metric, job, self._console, shown, self._once
            )
            work[proposal.number] = partial(run, job, folder, progress, signals)
        ends: dict[int, Exception | None] = {}
        try:
            with short_of_memory("a batch of trials was computed"):
                turns = self._lockstep.map(work)
        except self._fatal:
            raise
        except Exception as error:  # in a call that several may share: whose it is shows alone
            if len(begun) == 1:
                return {begun[0][0].number: error}
            for one in begun:
                ends |= self._together([one], signals)
            return ends
        finally:
            shown.stop()
        for proposal, _, folder in begun:
            outcome = turns[proposal.number].outcome
            ends[proposal.number] = self._allowed(proposal, outcome) if outcome else _failed(folder)
        return ends

    def _progress(self, begun: Sequence[_Begun]) -> BatchProgress:
        """What a person sees of jobs that run together."""
        numbers = [proposal.number + 1 for proposal, _, _ in begun]
        last = f"s {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f" {numbers[0]}"
        _, job, folder = begun[0]
        sizes = f"{counted(len(job.federations), 'seed')}, {counted(self._search.rounds, 'round')}"
        first = min(int(one.status.get("rounds_done", 0)) for _, _, one in begun)
        return BatchProgress(
            f"{self._search.title}, trial{last}, {sizes}",
            self._console,
            folder=self._search.folder / "trials",
            first=first,
            rounds=self._search.rounds,
            is_shown=bool(folder.config["progress"]),
            batches=None if self._left is None else self._left / len(begun),
        )

    def _trial(self, proposal: Proposal, end: Exception | None) -> Trial:
        """The record of a trial that has ended."""
        path = self._path(proposal.number)
        state = "pruned" if isinstance(end, Enough) else "failed" if end else "complete"
        error = self._reason(end) if end and state == "failed" else ""
        curve = curve_of(path, self._search.metric)
        value = curve.get(self._search.rounds - 1) if state == "complete" else None
        if state == "complete" and value is None:
            state, error = "failed", f"it has no {self._search.metric} at its end"
        rounds, steps = spent(path)
        return Trial(
            number=proposal.number,
            values=proposal.values,
            state=state,  # type: ignore[arg-type]
            value=value,
            rounds=rounds,
            gradient_steps=steps,
            curve=curve,
            error=error,
            served=min(seeds_of(path, "served", self._search.rounds - 1).values(), default=1.0),
        )

    def _reason(self, error: Exception) -> str:
        """Why a trial failed, in one line."""
        if isinstance(error, ConfigError | DivergedError):
            return " ".join(str(error).split())
        return self._in_a_line(error, self._search.own)

    def _allowed(self, proposal: Proposal, error: Exception) -> Exception:
        """An error that only ends the trial, such as a mistake in a user's method, or raise it.

        A default that is refused ends the search, as do files or memory: every trial would fail.
        """
        if isinstance(error, Enough | DivergedError):
            return error
        if isinstance(error, ConfigError) and proposal.number:
            return error
        if isinstance(error, self._fatal):
            raise error
        return error

    def _path(self, number: int) -> Path:
        return self._search.folder / "trials" / f"{number:03d}"


def _failed(folder: RunFolder) -> DivergedError | None:
    """Why some seed of a job that ran to its end failed; None where none did."""
    bad = [what for what in folder.status.get("seeds", {}).values() if what != "ok"]
    return DivergedError(bad[0]) if bad else None


def _fit(begun: Sequence[_Begun]) -> bool:
    """Whether there is memory to run the jobs together."""
    if len(begun) < 2:
        return True
    needed: Counter[str] = Counter()
    for _, job, folder in begun:
        num_clients = min(fed.num_clients for fed in job.federations.values())
        needed.update(needs(job, folder.config, num_clients))
    try:
        check_fits(needed, begun[0][1].device, 0)
    except MemoryShort:
        return False
    return True


def run_search(search: Search, batches: TrialRunner, wanted: int, console: Console) -> None:
    """Run what is left of a search, and write its files.

    Raises:
        UserError, Interrupted: as a job.
        DivergedError: when every trial has failed.
    """
    about, space, default = search.about(), search.space, search.default
    finite = num_settings(space, default)
    most = counted(wanted if finite is None else min(wanted, finite), "trial")
    sizes = most, counted(len(about["seeds"]), "seed"), counted(search.rounds, "round")
    say(console, f"{search.title}: {' × '.join(sizes)}, over {', '.join(space)}")
    with _locked(search.folder, console):
        same_search(search.folder, about)
        trials = read_trials(search.folder, space, default)

        def following() -> int:
            return next_batch(trials, wanted, search.rounds, num_untried(space, default, trials))

        def complete() -> float:
            """What has been computed, in complete trials."""
            return sum(one.rounds for one in trials) / search.rounds

        def tell(what: str, more: str = "") -> None:
            say(console, f"{search.title}, {what}, {complete():.1f} of {wanted} spent{more}")

        while number := following():
            for trial in batches.run(search.propose(trials, number), wanted - complete()):
                trials.append(trial)
                best = best_of(trials, higher=search.higher)
                tell(f"trial {trial.number + 1}", _became(trial, search.metric, best))
            write_trials(search.folder, trials, list(space))
            batches.drop_files(trials[-number:])
        if next_batch(trials, wanted, search.rounds):
            tell(f"all {counted(finite or 0, 'setting')} have been tried")
        best = best_of(trials, higher=search.higher)
        if best is None:
            raise DivergedError(f"every trial has failed; the last one: {trials[-1].error}")
        settings = settings_of(search.resolved(), space)
        more = {"default": trials[0].value, "trials": len(trials), "settings": settings}
        kept = {key: about[key] for key in ("choices", "metric", "seeds", "validation")}
        write_best(search.folder, best, {**kept, **more})


def _became(trial: Trial, metric: str, best: Trial | None) -> str:
    """A trial's values, what became of it, and which trial leads."""
    values = ", ".join(f"{key}={_short(value)}" for key, value in trial.values.items())
    became = trial.state if trial.value is None else f"{metric} {trial.value:.4f}"
    became += f": {trial.error}" if trial.error else ""
    if trial.served < 1:
        became += f", {100 * trial.served:.3g} % of the clients have a model"
    leads = "" if best is None else f"; best {best.value:.4f}, trial {best.number + 1}"
    return f": {values}: {became}{leads}"


def _short(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else written(value)


@contextmanager
def _locked(folder: Path, console: Console) -> Iterator[None]:
    """While one process searches, no other does: RunFolderError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("ab") as file:
        try:
            told = [] if lock(file) else without_locks(file)
        except BlockingIOError:
            raise RunFolderError(
                f"{folder} is being searched by another process; wait, or change name=…"
            ) from None
        for line in told:
            say(console, line, style="yellow")
        yield
