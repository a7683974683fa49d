"""Lists of the methods, made of their files: docs/methods.md, the comparisons of all methods, and
the golden rounds of new ones.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fedclust.config.about import KEYS, KINDS, about
from fedclust.config.tree import CONF
from scripts.docs.rows import what_it_is

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

This page lists every method under the name that `algorithm=NAME` takes. `fedclust list algorithm`
prints the same names. `conf/algorithm/NAME.yaml` has the options of a method, and behind `_target_`
the name of its class in the code.

- *The server reads*: what the server must see of the clients' models, explained [below the
  tables](#what-the-server-reads).
- *What has been run*: *full size* means that at least one experiment of a paper was run as
  published; [the papers at full size](results/README.md) has the numbers and says what is missing.
  *Laptop size* means smaller federations only, in [the benchmark](benchmark.md) or in an experiment
  at `scale=laptop`. *No paper's experiment* means that the method was run, but in no setting of a
  paper.
"""
_TITLES = {
    "clusters": "Clustered: a model for every cluster",
    "personal": "Personalised: a model for every client",
    "one model": "One global model",
    "around any": "Additions to any method",
    "bound": "Reference points",
}
_COLUMNS = """| name | what it is | paper | the server reads | what has been run |
|---|---|---|---|---|
"""
_END = """
## What the server reads

With secure aggregation, a server learns the sum of what its participants send, but not what a
single participant sends. Whether a method can work with secure aggregation depends on what its
server must see of the clients' models. The tables above state this for the default options:

- **sums**: one weighted sum over all participants.
- **sums by cluster**: one sum per cluster. The server then knows which client is in which cluster,
  and if a cluster has only one participant, it sees that client's model. In IFCA the clients choose
  their clusters themselves and tell the server.
- **single updates**: the models or updates of single clients, because the server compares them or
  passes them on. Secure aggregation is then impossible without another protocol.
- **nothing**: clients send nothing.

If single clients send something besides models, the table names it. Options can change what the
server must see:

- An `aggregation` other than `mean` compares updates. It turns sums into single updates.
- `algorithm.start=kmeans++` of IFCA and CFL-MGD reads the models of the clients with which it
  starts.
- LCFL reads no models with `cluster_metric=psi` or `descriptor`.

The costs table of a report shows what the options of a job require. fedclust itself encrypts
nothing, since it only simulates. [`privacy=client`](how-to/attackers.md#privacy) protects clients
by adding noise to the sums.

## Deviations and gaps

The file of each method lists every difference from its paper and from the released code. These are
the ones that specialists will ask about first:

- **LCFed**: we know it only from its abstract and from the code of one package. Two details are our
  choice: the projections are taken relative to the mean model, and the first clusters come from
  k-means.
- **HCFL**: we know it only from the same package. For a given number of clusters, the package
  merges update vectors by Ward's linkage; ours uses cosines and average linkage.
- **FLUX and FEROMA**: we describe data by the inputs of the model's last layer, their released code
  by the outputs of its convolutions. The code tests a client of FEROMA with the model of the
  profile that is nearest to the client's inputs; this is `algorithm.serve_by=inputs`. By default we
  test a client with the model that it has just trained. FEROMA's accuracy is then that of a
  personal model, whereas most other methods are tested with a model of the server.
- **FedDrift**: the released code trains with AMSGrad and weight decay, and keeps the moments within
  a time step.
- **OCFL**: HDBSCAN labels some clients as noise. Like the released code, we treat all of them as
  one cluster, so one model is trained on dissimilar clients.
- **Clust-PSI-PFL** (2025, [arXiv 2512.20363](https://arxiv.org/abs/2512.20363)): only its abstract
  was available to us. As we understand it, the method is `lcfl` with `cluster_metric=psi
  cluster_method=kmeans num_clusters=auto`.
- **DPMM-CFL** (2025, [arXiv 2510.07132](https://arxiv.org/abs/2510.07132)), a Bayesian relative of
  FeSEM, is missing. No text that we could read states its variances, its concentration and its
  number of sampling steps.
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
    what, of = what_it_is(file), _about(name)  # the paper has a column of its own
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
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])},
        )
