"""Values without effect in a job's setting: read by a part that does nothing with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedclust.config.objects import Objects
from fedclust.core.traits import traits_of
from fedclust.helpers.effects import (
    IfDataChange,
    IfNotOverruled,
    IfTestsAreCut,
    Never,
    OnlyIf,
    OnlyWith,
    OnlyWithout,
)
from fedclust.helpers.errors import typed


def idle(config: Mapping[str, Any], key: str, objects: Objects) -> str:
    """Why a dotted key, of a value or part, has no effect in a job, or ""."""
    node: Any = config
    names = key.split(".")
    for place, name in enumerate(names):
        if not isinstance(node, Mapping):
            break
        if "_target_" in node and (why := _why(config, names[:place], node, name, objects)):
            return why
        node = node.get(name)
    return ""


def unused(config: Mapping[str, Any], objects: Objects) -> Mapping[str, str]:
    """Keys left without effect by the options of a job's method, which is made, and why."""
    return traits_of(objects.make(config["algorithm"], "algorithm")).unused


def _why(
    config: Mapping[str, Any],
    above: Sequence[str],
    node: Mapping[str, Any],
    name: str,
    objects: Objects,
) -> str:
    """Why an argument of a part has no effect, or ""."""
    scenario = config["scenario"]["_target_"]
    for mark in objects.marks(node["_target_"], name):
        match mark:
            case Never(why):
                return why
            case OnlyIf(holds, why) if not holds(node):
                return why
            case IfTestsAreCut() if option := (
                naming_tests(config["dataset"])
                or ("test_share" if config["dataset"].get("test_share") else "")
            ):
                return f"dataset.{option} names the test examples; it is read where none are named"
            case IfDataChange(otherwise) if node.get(otherwise) is None:
                if not objects.attribute(scenario, "shifts", True):
                    also = f", or {'.'.join([*above, otherwise])}" if otherwise else ""
                    return f"nobody's data change; it needs a scenario with a shift{also}"
            case IfNotOverruled(group, by, unless) if node.get(name) != unless:
                part = config[group]
                says = objects.attribute(part["_target_"], by, None)
                if why := says(part) if says else "":
                    return str(why)
            case OnlyWith(other, value) if node.get(other) != value:
                return f"it is read with {typed('.'.join([*above, other]), value)}"
            case OnlyWithout(other, value) if node.get(other) == value:
                return f"it is not read with {typed('.'.join([*above, other]), value)}"
            case OnlyWith(other) | OnlyWithout(other):
                if why := _why(config, above, node, other, objects):
                    return why
    return ""


def naming_tests(dataset: Mapping[str, Any]) -> str:
    """The option by which the data themselves say what is for testing; "" where they do not."""
    return next((name for name in ("split", "test") if dataset.get(name) is not None), "")
