"""Whether two checkouts compute the same, to the bit.

    python -m scripts.trust.same_bits OLD NEW [WORD …]

Runs every method with the engines `loop` and `fused` on three small federations, then what stands
around a method (norms, servers, attacks, means, privacy, compression, kept optimiser states,
newcomers, a table with its own clients), a sweep of two processes and a search, on one thread, in
both checkouts. It compares what the jobs leave: rounds, clients, summaries and partitions, the
tensors of the last checkpoint, the tables of the report, and the trials of the search; not what was
measured with a clock. With words, only the jobs are run whose name has one of them. This
interpreter runs both, so its packages must do for both.

Prints the files that differ. The exit status is 1 where there are any, else 0.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ENGINES = ("loop", "fused")
FEDERATIONS = {
    "softmax": [],
    "dense": ["model=mlp", "model.hidden=[8]", "scenario=swap_part", "scenario.probability=0.5"],
    "convolutions": ["model=cnn", "scenario=unavailable", "scenario.dropout=0.3"],
}
_BATCH_NORM = ["model=resnet9", "model.channels=[4,4,4,4]", "model.norm_layer=batch", "rounds=3"]
# what stands around a method, each with some methods
AROUND = {
    "server-adam": ["server=adam"],
    "attack-median": ["attack=alie", "attack.share=0.25", "aggregation=median"],
    "attack-krum": ["attack=sign_flip", "attack.share=0.25", "aggregation=krum"],
    "privacy": ["privacy=client", "privacy.delta=0.001", "common.aggregation=uniform"],
    "compression": ["compression=top_k", "compression.share=0.1"],
    "clock": ["clock=devices", "clock.deadline=0.5", "clock.over=0.5"],
    "kept": ["solver=adam", "solver.keep=client"],
}
# the same, of networks that only one fast engine computes
AROUND_BY_VMAP = {
    "norm-average": [*_BATCH_NORM, "norm=average"],
    "norm-local": [*_BATCH_NORM, "norm=local"],
    "norm-recalibrate": [*_BATCH_NORM, "norm=recalibrate"],
    "newcomers": [
        *[*_BATCH_NORM, "norm=local", "scenario=newcomers"],
        *["scenario.fraction=0.4", "scenario.arrive_at=[1,2]"],
    ],
    "lora": ["model=mlp", "solver.lr=0.02", "+lora.rank=2"],
}
AROUND_METHODS = ("fedavg", "ifca", "ditto")
# a table with its own clients, in the units of its file
TABLE = [
    "dataset=csv",
    "dataset.path=made.csv",
    "dataset.label=y",
    "dataset.client=site",
    "partition=natural",
    "model=linear",
    "task=regression",
    "solver.lr=0.05",
    "rounds=4",
    "seeds=2",
]
_CLOCK = ("second", "memory", "date", "rate", "version")  # in names of what no two runs share


def main(arguments: Sequence[str]) -> int:
    """Compare two checkouts.

    Args:
        arguments: their folders, and words.

    Returns:
        The exit status.
    """
    old, new, *words = arguments
    found = [_digests_of(Path(checkout).resolve(), words) for checkout in (old, new)]
    differing = sorted(
        name for name in found[0] | found[1] if found[0].get(name) != found[1].get(name)
    )
    print(*differing, f"{len(found[1])} files, {len(differing)} of them differ", sep="\n")
    return int(bool(differing) or not found[1])


def _digests_of(checkout: Path, words: Sequence[str]) -> dict[str, str]:
    """What the jobs of a checkout leave, in a process of its own: a digest of each file."""
    paths = [checkout, checkout / "tests", checkout / "tests" / "algorithms"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, __file__, "--jobs", "digests.json", *words],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "OMP_NUM_THREADS": "1",
            },
            check=True,
        )
        digests = json.loads((Path(folder) / "digests.json").read_text())
    return {str(name): str(value) for name, value in digests.items()}


def _write(file: Path, words: Sequence[str]) -> None:
    """Run all jobs in the present folder, and write the digests of what they leave.

    Args:
        file: to write to.
        words: of the jobs to run; none for all.
    """
    from digits_jobs import ALGORITHMS, SETTINGS, SMALL

    import fedclust
    from fedclust.__main__ import main as command  # its place is that of every version
    from fedclust.helpers.errors import DivergedError

    digests: dict[str, str] = {}

    def wanted(name: str) -> bool:
        return not words or any(word in name for word in words)

    def run(folder: str, method: str, engine: str, overrides: Sequence[str]) -> None:
        name = f"{folder}-{engine}"
        if not wanted(f"{name}/{method}"):
            return
        values = {"engine": engine, "progress": False, "threads": 1}
        try:
            fedclust.run(f"algorithm={method}", *overrides, values, name=name)
        except (fedclust.UserError, DivergedError) as error:  # that is a result as well
            digests[f"{name}/{method}"] = str(error)

    _write_table(Path("made.csv"))
    for engine in ENGINES:
        for federation, overrides in FEDERATIONS.items():
            for method in ALGORITHMS:
                run(federation, method, engine, [*SMALL, *overrides, *SETTINGS.get(method, [])])
            if (folder := Path("outputs", f"{federation}-{engine}")).is_dir():
                command(["report", str(folder)])
        for around, overrides in AROUND.items():
            for method in AROUND_METHODS:
                run(around, method, engine, [*SMALL, *overrides])
        for method in AROUND_METHODS:
            run("table", method, engine, TABLE)
    for around, overrides in AROUND_BY_VMAP.items():
        for method in AROUND_METHODS:
            run(around, method, "vmap", [*SMALL, *overrides])
    typed = ["algorithm=fedavg,ifca", *SMALL, "progress=false", "threads=1"]
    joblib = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    searched = [one for one in typed[1:] if not one.startswith("seeds=")]
    search = ["trials=3", "tuning_seeds=[1000,1001]", "validation=0.2", "solver.lr=0.05,0.1,0.2"]
    if wanted("sweep"):
        command(["run", "-m", *typed, *joblib, "name=sweep"])
    if wanted("search"):
        command(["tune", "algorithm=ifca", *searched, *search, "name=search"])
    for one in sorted(Path("outputs").rglob("*")):
        if one.is_file() and one.name != "made.csv" and (content := "".join(_content(one))):
            digests[str(one)] = hashlib.sha256(content.encode()).hexdigest()
    file.write_text(json.dumps(digests, indent=0))


def _write_table(file: Path) -> None:
    """Write a table of four sites, whose targets are nearly linear in four numbers."""
    drawn = random.Random(0)
    lines = ["site,a,b,c,d,y"]
    for row in range(160):
        site = row % 4
        given = [drawn.gauss(0, 1 + k) for k in range(4)]
        target = sum(x * (k - site) for k, x in enumerate(given)) + drawn.gauss(0, 0.1)
        lines.append(",".join([f"site {site}", *(f"{x:.6f}" for x in [*given, target])]))
    file.write_text("\n".join(lines))


def _content(file: Path) -> Iterator[str]:
    """What of a file two runs share; nothing of a file that is not compared."""
    import pandas as pd
    import torch

    if file.suffix in (".csv", ".parquet"):
        table = pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)
        kept = [name for name in table if not any(word in str(name) for word in _CLOCK)]
        if "metric" in table:
            clocked = table["metric"].astype(str).str.contains("|".join(_CLOCK))
            table = table[~clocked]
        yield table[kept].to_csv(index=False, float_format="%.17g")
    elif file.suffix == ".npy":
        yield file.read_bytes().hex()
    elif file.suffix == ".pt":
        yield from _tensors(torch.load(file, weights_only=False))


def _tensors(value: object) -> Iterator[str]:
    """All tensors within a value, with their names."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value.numpy().tobytes().hex()
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield str(name)
            yield from _tensors(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _tensors(entry)


if __name__ == "__main__":
    if sys.argv[1] == "--jobs":
        _write(Path(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(main(sys.argv[1:]))
