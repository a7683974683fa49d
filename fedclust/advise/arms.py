"""What is compared: methods by what they are to a user, and the settings that each may have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from fedclust.advise.verdict import CHOICES, GROUPS
from fedclust.config.about import about
from fedclust.helpers.errors import require
from fedclust.tuning.one_search import Search
from fedclust.tuning.space import Dimension, Value
from fedclust.tuning.tuned import with_values

# of `about: kind` of a method's file, what it is to a user
_OF_KIND = {"one model": "one", "personal": "adapted", "around any": "adapted", "clusters": GROUPS}
_NUMBER = "num_clusters"


def choice_of(method: str, roots: Sequence[Path]) -> str:
    """Which of `CHOICES` a method is, by what its file says of it.

    Raises:
        ConfigError: it is none, such as a method that knows the true groups.
    """
    said = next((told for root in roots if (told := about(method, root))), {})
    is_there = any((root / "algorithm" / f"{method}.yaml").is_file() for root in roots)
    require(is_there, "algorithm", method, "a method of `fedclust list algorithm`")
    choice = "alone" if said.get("reads") == "nothing" else _OF_KIND.get(str(said.get("kind")))
    allowed = f"methods whose file says `about: kind:` as one of {', '.join(_OF_KIND)}, or local"
    require(choice is not None, "algorithm", method, allowed)
    return str(choice)


def check_methods(methods: Mapping[str, str]) -> None:
    """Refuse methods, by name what they are, that leave a question open."""
    for choice in ("alone", "one", GROUPS):
        allowed = f"it needs methods for three choices, and none is for {CHOICES[choice]}"
        require(choice in methods.values(), "algorithm", ",".join(methods), allowed)


def settings(
    space: Mapping[str, Dimension], budget: int, num_clients: int
) -> list[dict[str, Value]]:
    """At most `budget` settings, or one of each combination of options: the same number for every
    method as far as its options divide it, so that none is searched more closely than another.

    Options are all tried, intervals at equally spaced points inside, by logarithm where they are
    so. No setting has more clusters than one less than there are clients, two at least.
    """
    most = max(2, num_clients - 1)
    options = {key: one.values() for key, one in space.items() if one.size is not None}
    for key, values in options.items():
        if key.rpartition(".")[2] == _NUMBER:
            fitting = [one for one in values if not isinstance(one, int) or one <= most]
            options[key] = fitting or [most]
    kinds = math.prod(map(len, options.values()))
    real = [key for key, one in space.items() if one.size is None]
    points = int((budget / kinds) ** (1 / max(1, len(real))) + 1e-9)
    for key in real:
        options[key] = _points(space[key], max(2 if kinds > 1 else 1, points))
    return [dict(zip(options, values, strict=True)) for values in product(*options.values())]


def _points(one: Dimension, count: int) -> list[Value]:
    """Points inside an interval, rounded to three digits."""
    place = (np.arange(count) + 0.5) / count
    low, high = (math.log(end) if one.log else end for end in (one.low, one.high))
    values = low + place * (high - low)
    return [float(f"{value:.3g}") for value in (np.exp(values) if one.log else values)]


def on_tests(search: Search, seeds: Sequence[int], scores: Sequence[str]) -> Search:
    """The search's method without validation rows: trained on all rows that are no test rows."""
    changed = {"validation": 0.0, "seeds": list(seeds), "scores": list(scores)}
    return replace(search, config=with_values(search.config, changed))
