"""Hydra's launchers: how their jobs end, which GPU each computes on, what their errors mean."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from shutil import which
from signal import SIGKILL
from threading import Thread
from threading import enumerate as enumerate_threads
from time import sleep
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from fedclust.helpers.distributed import here, quiet
from fedclust.helpers.errors import ConfigError, FolderInUse, JobLost, UserError, counted
from fedclust.helpers.locks import LOCK, is_free, lock
from fedclust.helpers.prose import say
from fedclust.helpers.signals import heard
from fedclust.launch.checks import without_hydra
from fedclust.launch.guard import NO_LOGGING
from fedclust.launch.sweep import Notes, is_basic

_LOSE_PROCESSES = ("joblib", "submitit")  # whose errors mean that a process was lost
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_PATIENCE = 0.5  # seconds between two looks for the sweep's process
_MORE = ("callbacks", "verbose", "output_subdir", "job.chdir", "job.env_set")  # of a job


@dataclass(frozen=True)
class OneAfterTheOther:
    """Runs the jobs of Hydra's own sweeper in this process, as its own launcher does.

    That one makes four copies of every job's config, which takes as long as a job of one round;
    here it is one.
    """

    config: DictConfig
    context: HydraContext
    task: Callable[[DictConfig], float | None]

    @staticmethod
    def suits(hydra: Any) -> bool:
        """Whether jobs run one after the other, and nothing else of Hydra's is asked for."""
        basic = str(hydra.sweeper["_target_"]).endswith(".BasicSweeper")
        more = any(OmegaConf.select(hydra, key) for key in _MORE)
        plain = not more and bool(hydra.job_logging == NO_LOGGING)
        return basic and is_basic(hydra.launcher) and plain

    def launch(self, jobs: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Called by the sweeper with the overrides of every job, and the number of the first.

        A job that another process runs is tried again when the others have ended, so the same
        command can be started several times to share a sweep's jobs.
        """
        left = dict(enumerate(jobs, initial_job_idx))
        ended = dict[int, JobReturn]()
        while left:
            busy = dict[int, Path]()
            for number, job in left.items():
                done = self._run(list(job), number)
                if isinstance(done, Path):
                    busy[number] = done
                else:
                    ended[number] = done
            left = {number: left[number] for number in busy}
            while busy and not here().agree(partial(_any_free, busy.values())):
                sleep(_PATIENCE)
        return [ended[number] for number in sorted(ended)]

    def _run(self, overrides: list[str], number: int) -> JobReturn | Path:
        """What became of a job; its folder, where another process runs it."""
        config = self.context.config_loader.load_sweep_config(self.config, overrides)
        task, own = without_hydra(config), config.hydra
        hydra: Any = HydraConfig.instance()
        before, hydra.cfg = hydra.cfg, config  # the folder's name refers to it
        try:
            with read_write(own), open_dict(own):
                own.job.id = own.job.num = number
                folder = Path(own.sweep.dir, own.sweep.subdir)
                own.runtime.output_dir = os.path.abspath(folder)  # noqa: PTH100 - as Hydra, without ..
            Path(own.runtime.output_dir).mkdir(parents=True, exist_ok=True)
            done = JobReturn(status=JobStatus.COMPLETED)
            try:
                done.return_value = self.task(task)
            except FolderInUse:
                return Path(own.runtime.output_dir)
            except Exception as error:  # told when all have ended
                done.status, done.return_value = JobStatus.FAILED, error
        finally:
            hydra.cfg = before
        return done


def told_elsewhere(
    launcher: Mapping[str, Any], results: Path, notes: Notes, num_jobs: int | None
) -> AbstractContextManager[None]:
    """Where a launcher's jobs print into files, say which files, and what becomes of each job."""
    no_slurm = "Slurm" in str(launcher["_target_"]) and which("srun") is None  # submitit refuses it
    if "submitit_folder" not in launcher or no_slurm:
        return nullcontext()
    console = Console(stderr=True, quiet=quiet())
    tell = partial(say, console)
    begun = "the jobs are started" if num_jobs is None else f"{counted(num_jobs, 'job')} started"
    tell(f"{begun}; what they print is in {results / '.submitit'}")
    return notes.told_as_jobs_end(tell)


@contextmanager
def explained(launcher: Mapping[str, Any]) -> Iterator[None]:
    """While a launcher runs jobs, its errors are a ConfigError where it cannot start jobs, JobLost
    where it has lost a process, and KeyboardInterrupt after Ctrl-C.
    """
    try:
        with heard() as came:
            yield
    except (HydraException, OmegaConfBaseException, UserError, OSError):
        raise
    except Exception as error:
        if is_basic(launcher):
            raise
        if came:
            raise KeyboardInterrupt from error
        if isinstance(error, RuntimeError) and type(error).__module__.startswith(_LOSE_PROCESSES):
            raise JobLost(
                "a job of the sweep was lost: its process was killed, or ran out of memory or "
                "time; the same command runs what is left"
            ) from error
        name = str(launcher["_target_"]).rpartition(".")[2]
        words = " ".join(str(error).split())
        raise ConfigError(f"hydra/launcher: {name} cannot run the jobs: {words}") from error


def end_with_sweep(process: int) -> None:
    """In a process that the sweep's has started: be killed when that one is gone.
    A worker of joblib looks for it between two jobs only; submitit's jobs outlive the sweep.
    """
    name = "fedclust-end-with-sweep"
    if process != os.getppid() or any(thread.name == name for thread in enumerate_threads()):
        return

    def watch() -> None:
        while process == os.getppid():
            sleep(_PATIENCE)
        os.kill(os.getpid(), SIGKILL)

    Thread(target=watch, name=name, daemon=True).start()


def visible_gpus() -> str | None:
    """Which GPUs this process may see, for jobs whose launcher hides them; None: all."""
    return os.environ.get(_VISIBLE)


def see_gpus_again(launcher: Mapping[str, Any], seen: str | None) -> None:
    """See the GPUs that the sweep saw, in a job of submitit_local that was asked for none.

    submitit_local hides every GPU unless hydra.launcher.gpus_per_node says how many, and then
    shows all jobs the same first ones. `seen` is what `visible_gpus` said in the sweep's process.
    """
    local = str(launcher["_target_"]).endswith(".LocalLauncher")
    if not local or launcher.get("gpus_per_node") is not None:
        return
    if seen is None:
        os.environ.pop(_VISIBLE, None)
    else:
        os.environ[_VISIBLE] = seen


def _any_free(folders: Iterable[Path]) -> bool:
    """Whether no process writes one of the folders any more."""
    return any(is_free(folder / LOCK) for folder in folders)


@contextmanager
def dealt_gpu(device: str, locks: Path) -> Iterator[str]:
    """While a job runs beside others, the device for it.

    With `auto` and several GPUs it is the one with the fewest jobs of this sweep; a lock, which the
    system gives back however the process ends, says that a job is there.
    """
    import torch

    gpus = torch.cuda.device_count() if device == "auto" else 0
    if gpus < 2:
        yield device
        return
    for turn, gpu in ((turn, gpu) for turn in count() for gpu in range(gpus)):
        with _lock(locks / f"{platform.node()}-{gpu}-{turn}") as free:
            if free:
                yield f"cuda:{gpu}"
                return


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Whether nobody else has the lock; it is held meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            lock(file)
        except BlockingIOError:
            free = False
        else:
            free = True
        yield free
