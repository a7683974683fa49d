"""Warnings that stand above all numbers of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedclust.config.parts import is_null
from fedclust.helpers.errors import counted
from fedclust.report.arms import Arm
from fedclust.report.changed_files import broken
from fedclust.report.federations import unwritten
from fedclust.report.outside import measured_elsewhere
from fedclust.report.reading import left_out
from fedclust.report.reference import Reference
from fedclust.report.same_data import other_data
from fedclust.report.settings import mixed_versions
from fedclust.report.unserved import unserved

_EXPLODED = 100  # nats per example; guessing among 62 classes costs 4


def banners(folder: Path, arms: Sequence[Arm], reference: Reference) -> list[str]:
    """Warnings that stand above all numbers of a report, one line each."""
    lines = []
    data = dict.fromkeys((arm.run.choices.get("dataset"), arm.stand_in) for arm in arms)
    lines += [
        f"{used} stands in for {meant} (fetch it with `fedclust data {meant}`): not comparable "
        "with the published numbers"
        for used, meant in data
        if meant
    ]
    if smaller := sorted({arm.run.scale for arm in arms} - {"paper"}):
        lines.append(f"scaled run ({', '.join(smaller)}): compare orderings, not values")
    if others := dict.fromkeys(key for arm in arms for key in arm.changed):
        lines.append(f"not the experiment's protocol: {', '.join(others)} on the command line")
    remarks = _by_text(arms, lambda arm: map(str, arm.run.status.get("remarks") or ()))
    for remark, about in remarks.items():
        whose = "" if len(about) == len(arms) else f"{', '.join(a.label for a in about)}: "
        lines.append(f"{whose}{remark}")
    for arm in arms:
        lines += _of_arm(arm)
    runs = {run.folder: run for arm in arms for run in arm.jobs}
    for one in runs.values():
        if changed := broken(one):
            lines.append(
                f"{one.folder.name}: {', '.join(changed)} damaged or changed since the job wrote "
                f"{'it' if len(changed) == 1 else 'them'}; the numbers may not be the job's"
            )
    lines += [
        *unserved(arms),
        *unwritten(arms),
        *measured_elsewhere(arms),
        *other_data(arms),
        *left_out(folder, runs),
        *mixed_versions(arms),
    ]
    names = {str(arm.run.config.get("name")) for arm in arms}
    if len(names) > 1:
        lines.append(
            f"{len(names)} runs are mixed here ({', '.join(sorted(names))}): report each by itself"
        )
    switches = _by_text(arms, lambda arm: reference.switched_on(arm.run.config))
    for switch, users in switches.items():
        where = ", ".join(dict.fromkeys(arm.name for arm in users))
        whose = "" if len(users) == len(arms) else f" ({where})"
        lines.append(f"as published, not as is sound: {switch}{whose}")
    return lines


def _by_text(arms: Sequence[Arm], texts: Callable[[Arm], Iterable[str]]) -> dict[str, list[Arm]]:
    """The arms of which a text is said, by text."""
    about: dict[str, list[Arm]] = {}
    for arm in arms:
        for text in texts(arm):
            about.setdefault(text, []).append(arm)
    return about


def _of_arm(arm: Arm) -> list[str]:
    """Whether its run has ended, which seeds failed, and a loss that exploded."""
    lines = []
    state = arm.run.status.get("state", "unknown")
    given = arm.run.status.get("rounds") or arm.run.config.get("rounds")
    planned = counted(given, "round") if isinstance(given, int) else "? rounds"
    if state == "failed":
        error = arm.run.status.get("error") or "no reason recorded"
        lines.append(f"{arm.label} failed after {arm.run.rounds} of {planned}: {error}")
    elif state == "done" and isinstance(given, int) and arm.run.rounds < given:
        lines.append(
            f"{arm.label} is done, but its rounds.csv ends after {arm.run.rounds} of {planned}: "
            "delete the folder and run it again"
        )
    elif state != "done":
        lines.append(f"{arm.label} is not finished ({state}, {arm.run.rounds} of {planned})")
    lines += [
        f"{arm.label}: seed {seed} failed and is left out of all numbers: {error}"
        for seed, error in sorted(arm.run.failed.items())
    ]
    if arm.curve("train_loss") and (loss := float(arm.last("train_loss").max())) > _EXPLODED:
        less = "solver.lr" if is_null(arm.run.config, "privacy") else "privacy.noise or solver.lr"
        lines.append(
            f"{arm.label}: the training loss ends at {loss:.2g}; a smaller {less} may help"
        )
    return lines
