"""Arms that leave clients without a model which other arms serve, and are scored on fewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedclust.report.arms import Arm, seeds_with_values, settings_of


def served(arm: Arm, iteration: int | None = None) -> Mapping[int, float]:
    """The share of the clients that have a model, by seed: in a 1-based round, or at the end."""
    curve = arm.curve("served")
    if curve is None:
        return {}
    values = curve.last() if iteration is None else curve.at(iteration - 1)
    return seeds_with_values(curve.seeds, values)


def leaving_out(arms: Sequence[Arm], iteration: int | None = None) -> dict[str, float]:
    """By label, the least share of the clients that an arm serves, if it serves fewer than another
    arm of its setting in a common seed. Their scores are of other clients, and say nothing against
    those of arms that serve more.
    """
    shares = {arm.label: served(arm, iteration) for arm in arms}
    found = {}
    for setting in settings_of(arms):
        own = [arm.label for arm in arms if arm.setting == setting]
        for label in own:
            most = {s: max(shares[one].get(s, 0.0) for one in own) for s in shares[label]}
            if any(share < most[seed] for seed, share in shares[label].items()):
                found[label] = min(shares[label].values())
    return found


def unserved(arms: Sequence[Arm]) -> list[str]:
    """A line on every arm that leaves clients out which others serve."""
    ended = [arm for arm in arms if arm.finished]
    return [
        f"{label} gives some clients no model (label −1) that other arms serve, and is tested on "
        f"{100 * share:.3g} % of the clients only: it is not compared with them"
        for label, share in leaving_out(ended).items()
    ]
