"""Writes the tables and figures of docs/natural.md from finished experiments.

python -m scripts.docs.natural outputs/natural
"""

from __future__ import annotations

import re
import sys
from itertools import islice
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt

import fedclust
from fedclust.config.build import build
from fedclust.config.job import Job
from fedclust.core.trivial import trivial
from fedclust.report.arms import arms as arms_of
from fedclust.report.reading import read_runs
from fedclust.report.same_data import redrawn
from fedclust.report.statistics.paired import paired

mpl.use("agg")
import matplotlib.pyplot as plt

PAGE = Path(__file__).parents[2] / "docs" / "natural.md"
Values = npt.NDArray[np.float64]


def guesses(job: Job, rounds: list[int], score: str) -> Values:
    """What a guess without inputs reaches in every seed, the mean over the rounds."""
    found = []
    for seed, fed in job.federations.items():
        played = islice(job.scenario.rounds(fed, seed), max(rounds) + 1)
        asked = [trivial(rnd.fed, rnd.present) for rnd in played if rnd.t in rounds]
        found.append(np.mean([one[score] for one in asked]))
    return np.array(found)


def block(folder: Path) -> str:
    """The table of an experiment; its figure is written beside."""
    result = fedclust.load(folder)
    config = next(iter(result.configs.values()))
    job = build(config)
    task = next(iter(job.federations.values())).pool.task
    score = task.score
    unit, scale = ("points", 100) if score.unit == "fraction" else (score.unit or "", 1)
    sign = 1 if score.better == "higher" else -1
    rows = result.rounds.dropna(subset=[score.name])
    changes = getattr(job.scenario, "every", None) is not None
    rounds = sorted(rows["round"].unique()) if changes else [job.rounds - 1]
    rows = rows[rows["round"].isin(rounds)]
    values = {
        arm: scale * mine.groupby("seed")[score.name].mean().to_numpy()
        for arm, mine in rows.groupby("arm", sort=False)
    }
    guess = scale * guesses(job, rounds, score.name)
    arms = [arm for arm in result.arms if arm in values]
    ratio = redrawn(arms_of(read_runs(folder))).get("", 0.0)
    ratio = ratio if np.isfinite(ratio) else 0.0
    digits = 1 if scale == 100 else 4
    lines = [
        f"| method | {score.name}{' %' if scale == 100 else ''} | better than Local | "
        "better than FedAvg |",
        "|---|---|---|---|",
    ]
    for arm in arms:
        gains = [
            _gain(sign * (values[arm] - values[base]), ratio, digits) if arm != base else ""
            for base in ("local", "fedavg")
        ]
        mean = f"{values[arm].mean():.{digits}f} ± {values[arm].std():.{digits}f}"
        lines.append(f"| {arm} | {mean} | {gains[0]} | {gains[1]} |")
    lines.append(f"| no inputs | {guess.mean():.{digits}f} | | |")
    shown = {arm: values[arm] for arm in arms}
    _figure(folder.name, shown, ratio, guess.mean(), score.title, unit)
    return "\n".join(lines)


def _gain(differences: Values, ratio: float, digits: int) -> str:
    one = paired(differences, ratio)
    return f"{one.mean:+.{digits}f} [{one.low:+.{digits}f}, {one.high:+.{digits}f}]"


def _figure(
    name: str, values: dict[str, Values], ratio: float, guess: float, title: str, unit: str
) -> None:
    figure, axes = plt.subplots(figsize=(6, 0.32 * len(values) + 0.8), layout="constrained")
    for place, mine in enumerate(reversed(values.values())):
        mean = paired(mine, ratio)
        axes.plot([mean.low, mean.high], [place, place], color="C0", linewidth=2)
        axes.plot(mine, np.full(len(mine), place), ".", color="0.6", markersize=4, zorder=0)
        axes.plot([mine.mean()], [place], "o", color="C0", markersize=5)
    axes.axvline(guess, color="0.4", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(values)), list(reversed(values)))
    axes.set_xlabel(f"{title}{', %' if unit == 'points' else ''}; dashed: no inputs")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PAGE.parent / "images" / f"natural_{name}.svg", metadata={"Date": None})
    plt.close(figure)


def main(outputs: Path) -> None:
    """Fill the page's tables between their marks."""
    mpl.rcParams.update({"svg.hashsalt": "natural", "svg.fonttype": "none"})
    text = PAGE.read_text()
    for name in re.findall(r"<!-- table of (\w+) -->", text):
        if not (outputs / name).is_dir():
            continue
        made = f"<!-- table of {name} -->\n{block(outputs / name)}\n<!-- end of table -->"
        before, _, behind = text.partition(f"<!-- table of {name} -->")
        text = before + made + behind.partition("<!-- end of table -->")[2]
    PAGE.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
