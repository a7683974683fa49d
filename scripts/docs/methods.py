"""Lists of the methods, made of their files: docs/methods.md, the comparisons of all methods, and
the golden rounds of new ones.

    python -m scripts.docs.methods
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fedclust.commands.list import describe
from fedclust.config.about import KEYS, KINDS, about
from fedclust.config.tree import CONF

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE, GOLDEN = ROOT / "docs/methods.md", ROOT / "tests/algorithms/golden.json"
# where all methods stand beside each other, and which do not by what a file says
_BENCHMARK = CONF / "experiment/benchmark.yaml"
COMPARISONS = (CONF / "experiment/compare/mnist.yaml", _BENCHMARK)
JOBS = ROOT / "scripts/papers/benchmark.yaml"  # which lists all but oracle for one federation
NAMES = sorted(file.stem for file in (CONF / "algorithm").glob("*.yaml"))
_SWEPT = re.compile(r"(?<=algorithm[:=])( ?)((?:\w+,){9,}\w+)")
_ORDER = re.compile(r"^(  order: \[)(.*)\]$", re.MULTILINE)
_HEAD = """# Methods

Every method, by the name that `algorithm=NAME` takes, in five kinds. The last column says what has
been run. *Full size*: at least one experiment of a paper as published; [the papers at full
size](results/README.md) has the numbers, and what is missing. *Laptop size*: smaller federations
only, in [the benchmark](benchmark.md) or in an experiment at `scale=laptop`. What [the server
reads](#what-the-server-reads) is below. `conf/algorithm/NAME.yaml` has a method's options, and the
address of its code behind `_target_`.
"""
_TITLES = {
    "clusters": "A model for every cluster",
    "personal": "A model for every client, with the others' help",
    "one model": "One model for everybody",
    "around any": "Around any method",
    "bound": "Bounds: what the others are measured by",
}
_COLUMNS = """| name | what it is | paper | the server reads | what has been run |
|---|---|---|---|---|
"""
_END = """
## What the server reads

With secure aggregation a server learns sums of what its participants send, and no summand. What it
must see of their models, by default options:

- **sums**: one sum over all participants, weighted as they say.
- **sums by cluster**: a sum for every cluster, so the server knows who is in which, and of a
  cluster with one participant its model. Of IFCA the client chooses, and tells its choice.
- **single updates**: models, or updates, of single clients, which it compares or passes on. Secure
  aggregation is not possible without another protocol.
- **nothing**: clients send nothing.

What else single clients send stands behind it. An `aggregation` other than `mean` compares updates,
so it turns sums into single updates; `algorithm.start=kmeans++` of IFCA and CFL-MGD reads the
models of the clients it starts with; LCFL reads no models for `cluster_metric=psi` and
`descriptor`. The table of costs of a report says what a job's options come to, `fedclust list
algorithm` what the default is. Nothing is encrypted in a simulation: this is what the method needs.
[`privacy=client`](how-to/attackers.md#privacy) hides clients in the sums.

Clust-PSI-PFL (2025, [arXiv 2512.20363](https://arxiv.org/abs/2512.20363)) is, by our reading of its
abstract, which is all that was at hand, `lcfl` with `cluster_metric=psi cluster_method=kmeans
num_clusters=auto`. DPMM-CFL (2025, [arXiv
2510.07132](https://arxiv.org/abs/2510.07132)), a Bayesian relative of FeSEM, is missing: its
variances, its concentration and its number of sampling steps are in no text that we could read.

What a specialist would ask first (the file of each method says all that differs):

- LCFed is known to us by its abstract and one package's code; that its numbers are taken about the
  mean model, and that the first clusters are k-means', is ours. HCFL is that package's alone: with
  a given number of clusters it merges by Ward's linkage of update vectors, ours by cosines and
  average linkage.
- FLUX and FEROMA describe data by what enters a model's last layer, their released code by what its
  convolutions put out. The code tests every client of FEROMA with the model of the profile nearest
  to its inputs, which is `algorithm.serve_by=inputs`. By default a client is served the model that
  it has just trained, so FEROMA's accuracy is that of a personal model, beside methods that are
  tested with the server's.
- FedDrift's released code trains with AMSGrad and weight decay, whose moments live through a time
  step.
- OCFL takes the clients that HDBSCAN calls noise for one cluster, as its code does, so one model
  trains on unlike clients.
"""


def page() -> str:
    """The page of the methods, a row for every file below the heading of its kind."""
    rows: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in NAMES:
        rows[_about(name)["kind"]].append(_row(name))
    tables = (f"\n## {_TITLES[k]}\n\n{_COLUMNS}" + "\n".join(rows[k]) + "\n" for k in KINDS)
    return _HEAD + "".join(tables) + _END


def _about(name: str) -> Mapping[str, str]:
    """What a method's file says of it, complete."""
    of = about(name)
    if missing := {"kind", "paper", "run", "look", "reads"} - of.keys():
        raise SystemExit(f"{name}: about.{min(missing)} is missing: {KEYS[min(missing)]}")
    if of["kind"] not in KINDS:
        raise SystemExit(f"{name}: about.kind={of['kind']} is not allowed: {', '.join(KINDS)}")
    return of


def _row(name: str) -> str:
    file = CONF / "algorithm" / f"{name}.yaml"
    what, of = describe(file).replace("|", "\\|"), _about(name)
    what = re.sub(r" \([^()]*\d{4}[^()]*\)$", "", what)  # the paper has a column of its own
    columns = f"`{name}`", what, of["paper"], of["reads"], of["run"]
    return f"| {' | '.join(columns)} |"


def left_out(text: str) -> list[str]:
    """The methods that a comparison says it leaves out, each with why in brackets."""
    (told,) = re.findall(r"^# left out: (.*)", text, re.MULTILINE)
    return re.findall(r"\w+", re.sub(r"\(.*?\)", "", told))


def completed(text: str, aside: list[str]) -> str:
    """A comparison with what its lists forget at their end, and without the methods aside."""
    listed = {name for match in _SWEPT.finditer(text) for name in match[2].split(",")}
    gone = sorted(listed & set(aside))  # a title of a federation can be the name of a method

    def kept(names: list[str]) -> list[str]:
        rest = [name for name in names if name not in gone]
        return [*rest, *(name for name in NAMES if name not in {*rest, *aside})]

    def swept(match: re.Match[str]) -> str:
        return match[1] + ",".join(kept(match[2].split(",")))

    def order(match: re.Match[str]) -> str:
        return match[1] + ", ".join(kept(match[2].split(", "))) + "]"

    return _ORDER.sub(order, _SWEPT.sub(swept, text))


def main() -> None:
    """Write all of them."""
    PAGE.write_text(page())
    for file in COMPARISONS:
        text = file.read_text()
        file.write_text(completed(text, left_out(text)))
    aside = [*left_out(_BENCHMARK.read_text()), "oracle"]
    JOBS.write_text(completed(JOBS.read_text(), aside))
    missing = [name for name in NAMES if name not in json.loads(GOLDEN.read_text())]
    if missing:
        subprocess.run(
            [sys.executable, GOLDEN.with_name("golden.py"), *missing],
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        )


if __name__ == "__main__":
    main()
