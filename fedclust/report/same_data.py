"""Whether all jobs of a setting met the same data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedclust.report.arms import Arm, settings_of

_MOST = 0.5  # of the rows; seeds that use so many have most of theirs in common


def other_data(arms: Sequence[Arm]) -> list[str]:
    """A line for every setting whose arms met other data in a seed that they share, though their
    configs name the same.

    Compared are the digests that jobs keep of their examples and of the partition of every seed;
    jobs of earlier versions have none. Jobs with other seeds may divide and scale the examples
    otherwise, so they are not compared.
    """
    lines = []
    for setting in settings_of(arms):
        own = [arm for arm in arms if arm.setting == setting]
        if differing := _differing(own):
            what, groups = differing
            lines.append(
                f"{setting + ': ' if setting else ''}the jobs met different data ({what}): "
                f"{' | '.join(', '.join(names) for names in groups)}; differences between "
                "them may come from the data"
            )
    return lines


def _differing(arms: Sequence[Arm]) -> tuple[str, list[list[str]]] | None:
    """What differs in the first seed in which something does, and the arms that met the same."""
    seeds = sorted({seed for arm in arms for run in arm.jobs for seed in run.seeds})
    for seed in seeds:
        met: dict[str, dict[str, list[str]]] = {}  # what → digest → arms
        for arm in arms:
            for what, digest in _digests(arm, seed):
                met.setdefault(what, {}).setdefault(digest, []).append(arm.name)
        for what, by in met.items():
            if len(by) > 1:
                return what, list(by.values())
    return None


def redrawn(arms: Sequence[Arm]) -> dict[str, float]:
    """By setting, test / training examples where every seed splits the same rows anew; infinite
    where all seeds are tested on the same examples.

    Not for a setting with a single seed, whose seeds have other rows for the most part, or of jobs
    that do not say.
    """
    ratios = {}
    for setting in settings_of(arms):
        seeds = {
            seed: one
            for arm in arms
            if arm.setting == setting
            for run in arm.jobs
            for seed, one in run.federation.get("seeds", {}).items()
            if "tested" in one
        }
        if len({one["tested"] for one in seeds.values()}) > 1:
            # jobs of earlier versions do not say how many of the rows they use
            if min(float(one.get("used", 1.0)) for one in seeds.values()) >= _MOST:
                test, train = (
                    sum(float(one[split]["total"]) for one in seeds.values())
                    for split in ("test", "train")
                )
                ratios[setting] = test / train
        elif len(seeds) > 1:
            ratios[setting] = math.inf
    return ratios


def limits_of_tests(arms: Sequence[Arm]) -> list[str]:
    """What intervals and p values over seeds say of new data, a line for each kind of test."""
    ratios = redrawn(arms)
    fixed = [setting for setting, ratio in ratios.items() if math.isinf(ratio)]
    drawn = [setting for setting, ratio in ratios.items() if not math.isinf(ratio)]

    def among(some: Sequence[str]) -> str:
        return f" in {', '.join(some)}" if len(some) < len(settings_of(arms)) else ""

    lines = []
    if fixed:
        lines.append(
            f"All seeds use the same test examples{among(fixed)}. Intervals and p values describe "
            "the randomness of training only, and not what to expect on new data."
        )
    if drawn:
        lines.append(
            f"Every seed splits the same rows anew{among(drawn)}, so seeds are not independent. "
            "For new data, intervals are widened by √(1 + seeds · test / training examples). p is "
            "that of such an interval (Nadeau and Bengio 2003) if it is larger. Verdicts and bold "
            "type are based on these."
        )
    return lines


def _digests(arm: Arm, seed: int) -> list[tuple[str, str]]:
    """What the job of an arm that has a seed met, with its digest."""
    digests = []
    for run in arm.jobs:
        data = run.federation.get("data")
        if seed in run.seeds and isinstance(data, Mapping):
            digests += [(str(what), str(digest)) for what, digest in data.items()]
    return digests
