"""Names in what an experiment asks of its report that nothing here has."""

from __future__ import annotations

from collections.abc import Sequence

from fedclust.helpers.errors import some_of
from fedclust.report.arms import SEPARATOR, Arm
from fedclust.report.spec import Spec

_MOST = 8  # names of a kind in a note


def unmatched(spec: Spec, arms: Sequence[Arm]) -> list[str]:
    """A note on names in `claims`, `target` and `order` that no arm has, and those of the arms."""
    pieces = {piece for arm in arms for piece in arm.setting.split(SEPARATOR)}
    cases = {str(arm.run.asked.get("case")) for arm in arms}
    asked = {
        "claims": [name for claim in spec.claims for name in claim.names],
        "target": [spec.target.arm] if spec.target is not None and spec.target.arm else [],
        "order": [name for name in spec.order if name not in pieces | cases],
    }
    parts = []
    for key, names in asked.items():
        unknown = [name for name in names if not any(arm.is_called(name) for arm in arms)]
        if unknown:
            parts.append(f"report.{key} names {some_of(unknown, _MOST)}")
    if not parts:
        return []
    known = some_of([arm.name for arm in arms], _MOST)
    return [f"No arm here is called so: {'; '.join(parts)}. Arms: {known}."]
