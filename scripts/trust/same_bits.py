"""Whether two checkouts compute the same, to the bit.

    python -m scripts.trust.same_bits OLD NEW [WORD …]

Runs every method with the engines `loop` and `fused` on three small federations, on one thread, in
both checkouts, and compares what the jobs leave: rounds, clients, summaries and partitions, the
tensors of the last checkpoint, and the tables of the report; not what was measured with a clock.
With words, only the jobs are run whose name has one of them. This interpreter runs both, so its
packages must do for both.

Prints the files that differ. The exit status is 1 where there are any, else 0.
"""

from __future__ import annotations

import hashlib
import json
import os
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

    digests = {}
    for engine in ENGINES:
        for federation, overrides in FEDERATIONS.items():
            for method in ALGORITHMS:
                name = f"{federation}-{engine}/{method}"
                if words and not any(word in name for word in words):
                    continue
                given = [f"algorithm={method}", *SMALL, *overrides, *SETTINGS.get(method, [])]
                values = {"engine": engine, "progress": False, "threads": 1}
                try:
                    fedclust.run(*given, values, name=f"{federation}-{engine}")
                except (fedclust.UserError, DivergedError) as error:  # that is a result as well
                    digests[name] = str(error)
            if (folder := Path("outputs", f"{federation}-{engine}")).is_dir():
                command(["report", str(folder)])
    for one in sorted(Path("outputs").rglob("*")):
        if one.is_file() and one.name != "made.csv" and (content := "".join(_content(one))):
            digests[str(one)] = hashlib.sha256(content.encode()).hexdigest()
    file.write_text(json.dumps(digests, indent=0))


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
