"""Arms that leave clients without a model which other arms serve, and are scored on fewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedclust.report.arms import Arm, seeds_with_values


def served(arm: Arm, iteration: int | None = None) -> Mapping[int, float]:
    """The share of the clients that have a model, by seed: in a 1-based round, or at the end."""
    curve = arm.curve("served")
    if curve is None:
        return {}
    values = curve.last() if iteration is None else curve.at(iteration - 1)
    return seeds_with_values(curve.seeds, values)


def leaving_out(arms: Sequence[Arm], iteration: int | None = None) -> dict[str, float]:
    """By label, the least share of the clients that an arm serves, if it serves fewer than another
    arm of its setting in a common seed, which has run no longer: clients arrive, and none leaves.
    Their scores are of other clients, and say nothing against those of arms that serve more.
    """
    shares = {arm.label: served(arm, iteration) for arm in arms}
    found = {}
    for arm in arms:
        own = shares[arm.label]
        others = [
            shares[other.label]
            for other in arms
            if other.setting == arm.setting
            and (iteration is not None or other.run.rounds <= arm.run.rounds)
        ]
        if any(share < max(one.get(seed, 0.0) for one in others) for seed, share in own.items()):
            found[arm.label] = min(own.values())
    return found


def unserved(arms: Sequence[Arm]) -> list[str]:
    """A line on every arm that leaves clients out which others serve."""
    ended = [arm for arm in arms if arm.finished]
    return [
        f"{label} gives some clients no model (label −1) that other arms serve, and is tested on "
        f"{100 * share:.3g} % of the clients only: it is not compared with them"
        for label, share in leaving_out(ended).items()
    ]
