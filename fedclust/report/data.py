"""Whether all jobs of a setting met the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedclust.report.arms import Arm, settings_of


def other_data(arms: Sequence[Arm]) -> list[str]:
    """A line for every setting whose jobs met other data, though their configs name the same.

    Compared are the digests that jobs keep of their examples and of the partition of every seed;
    jobs of earlier versions have none.
    """
    told = []
    for setting in settings_of(arms):
        met: dict[str, dict[str, list[str]]] = {}  # what → digest → arms
        for arm in arms:
            for what, digest in _digests(arm) if arm.setting == setting else ():
                labels = met.setdefault(what, {}).setdefault(digest, [])
                labels += [arm.name] if arm.name not in labels else []
        differing = {what: by for what, by in met.items() if len(by) > 1}
        if differing:
            what, by = next(iter(differing.items()))
            told.append(
                f"{setting + ': ' if setting else ''}the jobs met different data ({what}): "
                f"{' | '.join(', '.join(names) for names in by.values())}; differences between "
                "them may come from the data"
            )
    return told


def _digests(arm: Arm) -> list[tuple[str, str]]:
    """What the jobs of an arm met, with its digest."""
    found = []
    for run in arm.run.parts or (arm.run,):
        data = run.federation.get("data")
        if isinstance(data, Mapping):
            found += [(str(what), str(digest)) for what, digest in data.items()]
    return found
