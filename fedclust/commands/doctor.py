"""`fedclust doctor`: what a bug report needs, and what is missing for what."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from rich.console import Console

from fedclust import __version__
from fedclust.commands.data import found, known, remedy
from fedclust.helpers.errors import DataError, require
from fedclust.helpers.extras import install
from fedclust.helpers.prose import say
from fedclust.launch.typed import Typed

_SIDE = 1024  # of the matrices whose product is timed
_ENOUGH = 0.2  # seconds that a rate is measured for
# what an extra is for; the packages stand in the distribution's metadata
_FOR = {
    "joblib": "hydra/launcher=joblib",
    "submitit": "hydra/launcher=submitit_local and submitit_slurm",
    "ray": "hydra/launcher=ray",
    "tensorboard": "tracker=tensorboard",
    "mlflow": "tracker=mlflow",
    "wandb": "tracker=wandb",
    "tune": "`fedclust tune`; not beside extra optuna",
    "optuna": "hydra/sweeper=optuna; not beside extra tune, whose Optuna it replaces by version 2",
    "hf": "dataset=hf",
    "watch": "dataset=watch",
    "flwr": "partition=flwr; with an older `datasets`",
    "sklearn-extra": "cluster_method=kmedoids_sklearn_extra (NumPy 1 and Python 3.11)",
}
Rows = Iterator[tuple[str, str]]


def command(arguments: Sequence[str]) -> None:
    """Print what there is, section by section, then what is missing, or a job's engine instead."""
    console = Console()
    if arguments:
        for name, value in _model(arguments):
            say(console, value, head=f"  {name:<14} ")
        return
    missing: list[str] = []
    for title, rows in (
        ("versions", _versions()),
        ("machine", _machine()),
        ("devices", _devices(missing)),
        ("compiled code", _compiled(missing)),
        ("data sets", _data_sets(missing)),
        ("extras", _extras(missing)),
    ):
        console.print(title, style="bold")
        for name, value in rows:
            say(console, value, head=f"  {name:<14} ")
    console.print("missing" if missing else "nothing is missing", style="bold")
    for line in missing:
        say(console, line, head="  ")


def _model(arguments: Sequence[str]) -> Rows:
    """Which engine computes the model of a job, and what prevents a faster one."""
    from fedclust.config import schema
    from fedclust.config.build import build
    from fedclust.launch.checks import without_hydra
    from fedclust.launch.compose import compose
    from fedclust.launch.guard import hydra_of_its_own, importable

    typed = Typed.of([*arguments, "seeds=1"])
    allowed = "none, or overrides as of fedclust run, such as model=cnn"
    for one in typed.texts:
        require("=" in one and not one.startswith("-"), "fedclust doctor", one, allowed)
    typed.check_form()
    with hydra_of_its_own(typed), importable(typed.own):
        config = without_hydra(compose(typed.texts, typed.own))
        job = build(schema.resolve(config, {}), typed.own)
    yield "model", f"{job.engine.layout.num_params} numbers"
    yield "engine", job.engine.name
    yield "", job.engine.remark or "no other one is faster"


def _versions() -> Rows:
    import torch

    from fedclust.config.versions import versions

    made = versions(torch.device("cpu"), "auto", None)
    yield "fedclust", f"{__version__}, commit {made['commit'] or 'unknown: installed'}"
    yield "in", str(Path(__file__).parent.parent)
    yield "python", f"{platform.python_version()}, {sys.executable}"
    for name, version in made["packages"].items():
        if name != "fedclust":
            yield name, version or "missing"


def _machine() -> Rows:
    import torch

    from fedclust.config.versions import processor
    from fedclust.helpers.memory import readable

    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    yield "system", platform.platform()
    yield "processor", processor()
    usable = f", {affinity} of them for this process" if affinity else ""
    yield "cores", f"{os.cpu_count()}{usable}; PyTorch uses {torch.get_num_threads()} threads"
    if "SC_PHYS_PAGES" in os.sysconf_names:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        yield "memory", readable(size)
    folder = Path.cwd()
    yield "free disk", f"{readable(shutil.disk_usage(folder).free)} in {folder}, for outputs/"


def _devices(missing: list[str]) -> Rows:
    import torch

    from fedclust.helpers.memory import readable

    yield "cpu", f"{_rate(torch.device('cpu')):.0f} GFLOP/s in products of float32"
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        device = torch.device(f"cuda:{i}")
        free = readable(torch.cuda.mem_get_info(device)[0])
        size = f"{readable(about.total_memory)}, {free} free"
        yield f"cuda:{i}", f"{about.name}, {size}, {_rate(device):.0f} GFLOP/s"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None:
        yield "", f"CUDA_VISIBLE_DEVICES={hidden}"
    if not torch.cuda.device_count():
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU only"
        yield "cuda", f"no GPU is visible; this PyTorch is built for {built}"
        if torch.version.cuda is None and shutil.which("nvidia-smi"):
            missing.append("a PyTorch with CUDA: device=cuda on the GPU that nvidia-smi shows")


def _rate(device: object) -> float:
    """10^9 operations per second in a product of two float32 matrices, after a first one."""
    import torch

    assert isinstance(device, torch.device)
    a = torch.ones(_SIDE, _SIDE, device=device)

    def ended() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    done, seconds = 0, 0.0
    (a @ a).sum()
    ended()
    began = time.perf_counter()
    while seconds < _ENOUGH:
        a @ a
        ended()
        done, seconds = done + 1, time.perf_counter() - began
    return 2e-9 * _SIDE**3 * done / seconds


def _compiled(missing: list[str]) -> Rows:
    import torch

    from fedclust.engines.fused import gpu
    from fedclust.engines.fused.native import compiled

    compiler, folder = compiled.means()
    yield "C compiler", "none" if compiler is None else _first_line([*compiler, "--version"])
    for name in compiled.sources():
        there = compiled.library(name) is not None
        yield f"{name}.c", "compiled" if there else "not compiled; PyTorch computes it"
    if compiler is None:
        missing.append("a C compiler (cc or gcc): faster training, most of all of small models")
    elif not compiled.available():
        missing.append("compiled code: the C compiler is there, but does not compile it")
    yield "kept in", str(folder)
    if torch.cuda.is_available():
        triton = gpu.version(torch.device("cuda:0"))
        yield "triton", triton or "not used; PyTorch's own operations are"
        if triton is None:
            missing.append("kernels for this GPU: make check-gpu turns on those that are faster")


def _first_line(command: Sequence[str]) -> str:
    """What a program says first, with its path."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return f"{command[0]}: {done.stdout.strip().splitlines()[0] if done.stdout else 'silent'}"


def _data_sets(missing: list[str]) -> Rows:
    """Which data sets can be read."""
    from fedclust.helpers.memory import readable

    root = Path(os.environ.get("FEDCLUST_DATA", "data"))
    why = "FEDCLUST_DATA" if "FEDCLUST_DATA" in os.environ else "FEDCLUST_DATA is not set"
    folders = (root.absolute(), *root.absolute().parents)
    free = readable(shutil.disk_usage(next(one for one in folders if one.is_dir())).free)
    yield "looked in", f"{root.absolute()} ({why}), {free} free"
    for name in known():
        try:
            yield name, found(name, str(root), download=False)
        except DataError as error:
            yield name, " ".join(str(error).split()).partition(": data.root")[0]
            missing.append(f"{name}: {remedy(name)}")


def _extras(missing: list[str]) -> Rows:
    """Optional packages, by the extra that brings them."""
    try:
        about = metadata.metadata("fedclust")
    except metadata.PackageNotFoundError:
        yield "unknown", "fedclust itself is not installed here"
        return
    needs = [Requirement(one) for one in about.get_all("Requires-Dist") or ()]
    for extra in about.get_all("Provides-Extra") or ():
        own = [one for one in needs if one.marker and one.marker.evaluate({"extra": extra})]
        lacks = [lack for one in own if (lack := _lack(one))]
        if extra == "dev" or not own:
            continue
        yield extra, "there" if not lacks else f"lacks {', '.join(lacks)}"
        if lacks:
            use = _FOR.get(extra, "")
            missing.append(f"extra {extra}{use and ', for ' + use}: {install(extra)}")


def _lack(needed: Requirement) -> str:
    """What is wrong with a package; "" where it fits."""
    try:
        version = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return needed.name
    fits = needed.specifier.contains(version, prereleases=True)
    return "" if fits else f"{needed.name}{needed.specifier} (there is {version})"
