"""Whether all jobs of a setting met the same data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedclust.helpers.names import OF_ALL_SEEDS, OF_ONE_SEED
from fedclust.report.arms import Arm, settings_of
from fedclust.report.runs import Run

_MOST = 0.5  # of the rows; seeds that use so many have most of theirs in common


def other_data(arms: Sequence[Arm]) -> list[str]:
    """A line for every setting whose jobs met other data, though their configs name the same.

    Compared are digests of partitions, of the examples before anything of one seed went into them
    and, among jobs of the same seeds, of those that they computed with.
    """
    lines = []
    for setting in settings_of(arms):
        met: dict[tuple[str, ...], dict[str, list[str]]] = {}  # what, of which seeds → digest
        for arm in arms:
            for what, digest, label in _digests(arm) if arm.setting == setting else ():
                labels = met.setdefault(what, {}).setdefault(digest, [])
                labels += [label] if label not in labels else []
        differing = {what: by for what, by in met.items() if len(by) > 1}
        if differing:
            about, by = next(iter(differing.items()))
            lines.append(
                f"{setting + ': ' if setting else ''}the jobs met different data ({about[0]}): "
                f"{' | '.join(', '.join(names) for names in by.values())}; differences between "
                "them may come from the data"
            )
    return lines


def of_seeds(arm: Arm, run: Run) -> str:
    """The arm, and the seeds of one of its jobs where it has several."""
    if len(arm.jobs) == 1:
        return arm.name
    return f"{arm.name} seeds={','.join(map(str, run.seeds))}"


def redrawn(arms: Sequence[Arm]) -> dict[str, float]:
    """By setting, test / training examples where every seed splits the same rows anew.

    Infinite where all seeds are tested on the same examples.
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


def _digests(arm: Arm) -> list[tuple[tuple[str, ...], str, str]]:
    """What the jobs of an arm met, and of which seeds where these decide; its digest; whose."""
    digests = []
    for run in arm.jobs:
        data, seeds = run.federation.get("data"), tuple(run.federation.get("seeds", {}))
        for what, digest in data.items() if isinstance(data, Mapping) else ():
            of = () if str(what).startswith((OF_ONE_SEED, OF_ALL_SEEDS)) else seeds
            whose = of_seeds(arm, run) if what == OF_ALL_SEEDS else arm.name
            digests.append(((str(what), *of), str(digest), whose))
    return digests
