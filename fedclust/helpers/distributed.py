"""Several processes that compute one job together, as torchrun starts them: ranks.

Every rank runs the same code on the same data. Before they exchange anything they meet: each says
where it is and whether it has failed, so that ranks that come to differ end with a message instead
of waiting. Rank 0 leads: it alone writes and prints, and decides what depends on files.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedclust.helpers import errors
from fedclust.helpers.errors import ConfigError, RankFailed, RankLost, UserError, require
from fedclust.helpers.leaving import as_status

if TYPE_CHECKING:  # fedclust list and a single process do without
    from torch import Tensor

T = TypeVar("T")
_TIMEOUT = "FEDCLUST_RANKS_TIMEOUT"  # seconds to wait for a rank, if no connection breaks before
_PATIENCE = 1800
_NUMBERS = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_SAID_BY_TORCHRUN = (*_NUMBERS, "MASTER_ADDR", "MASTER_PORT")
# what a meeting is about; the verbs of the engine use names of their own
_END, _DECISION, _TURN = "end", "decision", "turn"
_SAME, _HIGHEST, _GOODBYE = "same", "highest", "goodbye"


class Ranks:
    """This process alone: it leads, and agrees with itself.

    Attributes:
        rank: this process among all.
        size: number of processes.
        local_rank: this process among those of this machine, None without torchrun.
    """

    rank = 0
    size = 1
    local_rank: int | None = None

    @property
    def leads(self) -> bool:
        """Whether this is the rank that writes."""
        return self.rank == 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Work that all ranks end in the same way: an error of one is raised in all.

        Raises:
            RankLost: if a rank does not answer, here and below.
            RankFailed: if another rank failed in a way that is no user's mistake.
        """
        yield

    def agree(self, decide: Callable[[], T]) -> T:
        """What rank 0 decides; only there `decide` is called."""
        return decide()

    def in_turn(self, read: Callable[[], T]) -> T:
        """What `read` returns; rank 0 calls it first, so that others find what it has made."""
        return read()

    def same(self, what: str, value: int) -> None:
        """Raise `RankFailed` on all ranks, naming one, unless all have the same value."""

    def highest(self, value: int) -> int:
        """The largest value that any rank has."""
        return value

    def meet(self, place: str, check: int) -> None:
        """Wait until all ranks are here; `RankFailed` if one is elsewhere or has another check."""

    def gather(self, block: Tensor) -> Tensor:
        """The blocks [...] of all ranks, [size, ...]; all have the same shape."""
        return block.unsqueeze(0)


class Group(Ranks):
    """The processes that torchrun has started.

    Args:
        store: where all ranks can leave notes, a `torch.distributed.Store`.
        rank, size, local_rank: see `Ranks`.
        timeout: seconds to wait for a rank.
    """

    def __init__(self, store: Any, rank: int, size: int, local_rank: int, timeout: float) -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.size, self.local_rank = rank, size, local_rank
        self._store, self._timeout = store, timeout
        self._known: list[Exception] = []  # errors that all ranks have been told of
        self._broken = False  # whether there is anybody left to talk to
        nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if nccl else "gloo",
            store=store,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout),
        )

    @classmethod
    def join(cls) -> Group:
        """The group that the environment describes; ConfigError if ranks do not find each other."""
        from torch.distributed.rendezvous import rendezvous

        given = {name: os.environ[name] for name in _SAID_BY_TORCHRUN}
        said = os.environ.get(_TIMEOUT, str(_PATIENCE))
        require(said.isdecimal() and int(said) > 0, _TIMEOUT, said, "whole seconds")
        rank, size, timeout = int(given["RANK"]), int(given["WORLD_SIZE"]), int(said)
        try:
            store, _, _ = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=timeout)))
            return cls(store, rank, size, int(given["LOCAL_RANK"]), timeout)
        except RuntimeError as error:  # torch.distributed's errors are of this kind
            where = f"{given['MASTER_ADDR']}:{given['MASTER_PORT']}"
            said = f"rank {rank} cannot reach the other ranks through {where}"
            raise ConfigError(said) from error

    @contextmanager
    def together(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._broken and not any(known is error for known in self._known):
                self._meet(_END, error=error)
            raise
        except (KeyboardInterrupt, SystemExit):  # a second signal: end at once
            self._broken = True
            raise
        self._meet(_END)

    def agree(self, decide: Callable[[], T]) -> T:
        decision = [decide()] if self.leads else [None]
        self._meet(_DECISION)
        self._tell(decision, 0)
        result: Any = decision[0]
        return result  # type: ignore[no-any-return]

    def in_turn(self, read: Callable[[], T]) -> T:
        if self.leads:
            value = read()
            self._meet(_TURN)
            return value
        self._meet(_TURN)
        return read()

    def same(self, what: str, value: int) -> None:
        self._compare(what, self._meet(_SAME, value))

    def highest(self, value: int) -> int:
        return max(self._meet(_HIGHEST, value))

    def meet(self, place: str, check: int) -> None:
        self._compare(f"what it is to compute ({place})", self._meet(place, check))

    def gather(self, block: Tensor) -> Tensor:
        import torch.distributed as dist

        together = block.new_empty(self.size, *block.shape)
        try:
            dist.all_gather_into_tensor(together.view(-1), block.contiguous().view(-1))
        except RuntimeError as error:
            raise self._lost(error) from error
        return together

    def leave(self) -> bool:
        """Wait for the others to finish and close connections; False where one is lost."""
        import torch.distributed as dist

        if self._broken:
            return False
        try:
            self._meet(_GOODBYE)
        except (RankLost, RankFailed):
            return False
        dist.destroy_process_group()
        return True

    def _meet(self, place: str, check: int = 0, error: Exception | None = None) -> list[int]:
        """The checks of all ranks, once all are here.

        Raises:
            Exception: on all ranks the error of the first that has one.
            RankFailed: if a rank is elsewhere.
        """
        import torch

        header = torch.tensor([_number(place), error is not None, check])
        places, failed, checks = self.gather(header).T.tolist()
        if any(failed):
            first = failed.index(1)
            said = [_described(error)] if error is not None else [None]
            self._tell(said, first)
            assert said[0] is not None
            if error is None or said[0] != _described(error):
                error = _elsewhere(first, *said[0])
            raise self._all_know(error)
        if len(set(places)) > 1:
            self._broken = True  # what the others wait for will not come
            alike = "start all with the same command and files"
            raise RankFailed(f"the ranks do different things; {alike}")
        return list(checks)

    def _compare(self, what: str, values: list[int]) -> None:
        """Raise on all ranks unless all values are the same."""
        for rank, value in enumerate(values):
            if value != values[0]:
                differs = (
                    f"rank {rank} differs from rank 0 in {what}; all ranks need the same command, "
                    "the same files and the same kind of processor"
                )
                raise self._all_know(RankFailed(differs))

    def _all_know(self, error: Exception) -> Exception:
        """The error, which need not be told again."""
        self._known.append(error)
        return error

    def _tell(self, message: list[Any], source: int) -> None:
        """Replace the one entry of `message` by that of the rank `source`."""
        import torch
        import torch.distributed as dist

        try:
            dist.broadcast_object_list(message, source, device=torch.device("cpu"))
        except RuntimeError as error:
            raise self._lost(error) from error

    def _lost(self, reason: RuntimeError) -> RankLost:
        """The error that a rank does not answer, printed by the first that notices."""
        late = "timed out" in str(reason).lower()
        what = f"a rank did not answer for {self._timeout:g} s" if late else "a rank was lost"
        lost = RankLost(f"{what}; the same command continues the run")
        if self._broken:
            return lost
        self._broken = True
        try:
            first = self._store.add("fedclust/lost", 1) == 1
        except RuntimeError:  # torchrun itself has gone
            first = True
        if first:  # now, since torchrun is about to end this rank too
            print(f"fedclust: {lost}", file=sys.stderr, flush=True)
        return lost


def _number(place: str) -> int:
    """A place as a number that all processes give it."""
    return int.from_bytes(place.encode()[:7], "big")


def _described(error: Exception) -> tuple[str, tuple[Any, ...]]:
    """What another process makes the error again from: its class, and the arguments."""
    if isinstance(error, OSError):
        return "OSError", (error.errno, error.strerror or str(error), error.filename)
    known = next(
        (c.__name__ for c in type(error).__mro__ if getattr(errors, c.__name__, None) is c), ""
    )
    text = " ".join(str(error).split())
    return known, (text if known else f"{type(error).__name__}: {text}",)


def _elsewhere(rank: int, kind: str, arguments: tuple[Any, ...]) -> Exception:
    """The error of another rank."""
    if kind == "OSError":
        return OSError(*arguments)
    found = getattr(errors, kind, RankFailed)
    if issubclass(found, UserError | errors.DivergedError):
        return found(*arguments)
    return RankFailed(f"rank {rank} failed: {arguments[0]}")


_here = Ranks()


def here() -> Ranks:
    """The ranks of this process; ConfigError where one of several ranks has started it."""
    if launched() and not isinstance(_here, Group):
        raise ConfigError(
            "hydra/launcher is not allowed here: ranks run the jobs of a sweep themselves"
        )
    return _here


def launched() -> bool:
    """Whether torchrun has started this process as one of several."""
    given = all(name in os.environ for name in _SAID_BY_TORCHRUN)
    return given and os.environ["WORLD_SIZE"].strip() not in ("0", "1")


def quiet() -> bool:
    """Whether another process prints what this one would."""
    return launched() and os.environ["RANK"].isdecimal() and int(os.environ["RANK"]) > 0


def check_launch() -> None:
    """Refuse what torchrun says by halves: the process would compute alone, beside the others."""
    named = {name: os.environ[name] for name in _NUMBERS if name in os.environ}
    if not named or named.get("WORLD_SIZE", "").strip() == "1":
        return
    missing = [name for name in _SAID_BY_TORCHRUN if name not in os.environ]
    name, value = next(iter(named.items()))
    if missing:
        raise ConfigError(
            f"{name}={value} is set as torchrun does, but {missing[0]} is not: start with "
            f"torchrun, or unset {name}"
        )
    for name, value in {**named, "MASTER_PORT": os.environ["MASTER_PORT"]}.items():
        require(value.isdecimal(), name, value, "a whole number, as torchrun sets it")
    size = int(named["WORLD_SIZE"])
    for name in ("RANK", "LOCAL_RANK"):
        require(int(named[name]) < size, name, named[name], f"below WORLD_SIZE={size}")


@contextmanager
def started() -> Iterator[None]:
    """Everything a process does as one of several ranks, if torchrun has started it."""
    global _here
    check_launch()
    if not launched():
        yield
        return
    group = Group.join()
    _share_cores()
    _here = group
    status: object = 0
    try:
        if group.leads:
            yield
        else:
            with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
                yield
    except SystemExit as end:
        status = end.code
        raise
    except Exception:  # printed before the others may end, since torchrun then ends this one
        traceback.print_exc()
        status = 1
        sys.exit(1)
    finally:
        _here = Ranks()
        if group.leave():
            atexit._run_exitfuncs()
        # a normal end would wait for connections that nobody closes any more, or abort where
        # threads of PyTorch are still closing theirs
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(as_status(status))


def _share_cores() -> None:
    """Give every rank of this machine its part of the cores."""
    import torch

    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    torch.set_num_threads(max(1, cores // int(os.environ["LOCAL_WORLD_SIZE"])))
