"""Whether all jobs of a setting met the same data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedclust.report.arms import Arm, settings_of


def other_data(arms: Sequence[Arm]) -> list[str]:
    """A line for every setting whose jobs met other data, though their configs name the same.

    Compared are the digests that jobs keep of their examples and of the partition of every seed;
    jobs of earlier versions have none.
    """
    lines = []
    for setting in settings_of(arms):
        met: dict[str, dict[str, list[str]]] = {}  # what → digest → arms
        for arm in arms:
            for what, digest in _digests(arm) if arm.setting == setting else ():
                labels = met.setdefault(what, {}).setdefault(digest, [])
                labels += [arm.name] if arm.name not in labels else []
        differing = {what: by for what, by in met.items() if len(by) > 1}
        if differing:
            what, by = next(iter(differing.items()))
            lines.append(
                f"{setting + ': ' if setting else ''}the jobs met different data ({what}): "
                f"{' | '.join(', '.join(names) for names in by.values())}; differences between "
                "them may come from the data"
            )
    return lines


def widening(arms: Sequence[Arm]) -> dict[str, float]:
    """By setting, how many times as wide as over its seeds an interval is for new data; not for a
    setting with a single seed, or of jobs that do not say.

    Infinite where all n seeds are tested on the same examples. Where they draw them from the same
    rows, √(1 + n · test / training examples): Nadeau and Bengio, Machine Learning 52 (2003).
    """
    widths = {}
    for setting in settings_of(arms):
        seeds = {
            seed: one
            for arm in arms
            if arm.setting == setting
            for run in arm.jobs
            for seed, one in run.federation.get("seeds", {}).items()
            if "tested" in one
        }
        if len(seeds) > 1:
            drawn = len({one["tested"] for one in seeds.values()}) > 1
            test, train = (
                sum(float(one[split]["total"]) for one in seeds.values())
                for split in ("test", "train")
            )
            widths[setting] = math.sqrt(1 + len(seeds) * test / train) if drawn else math.inf
    return widths


def limits_of_tests(arms: Sequence[Arm]) -> list[str]:
    """What intervals and p values over seeds can say of new data, a line for each kind of test."""
    widening_by_setting = widening(arms)
    fixed = [setting for setting, width in widening_by_setting.items() if math.isinf(width)]
    drawn = [setting for setting, width in widening_by_setting.items() if not math.isinf(width)]

    def among(some: Sequence[str]) -> str:
        return f" in {', '.join(some)}" if len(some) < len(widening_by_setting) else ""

    lines = []
    if fixed:
        lines.append(
            f"Every seed is tested on the same examples{among(fixed)}: intervals and p values are "
            "over training only, and cannot speak of new data."
        )
    if drawn:
        widths = sorted({f"{widening_by_setting[setting]:.1f}" for setting in drawn}, key=float)
        lines.append(
            f"Every seed draws its test examples from the same rows{among(drawn)}, so that seeds "
            "err together: p values are too small to speak of new data, and an interval for these "
            f"is at least about {' to '.join(dict.fromkeys((widths[0], widths[-1])))} times as "
            "wide (Nadeau and Bengio 2003)."
        )
    return lines


def _digests(arm: Arm) -> list[tuple[str, str]]:
    """What the jobs of an arm met, with its digest."""
    digests = []
    for run in arm.jobs:
        data = run.federation.get("data")
        if isinstance(data, Mapping):
            digests += [(str(what), str(digest)) for what, digest in data.items()]
    return digests
