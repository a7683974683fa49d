"""What was typed and has no effect in a job's setting: read by a part that does nothing with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from fedclust.config.objects import Objects
from fedclust.helpers.effects import IfDataChange, Never, OnlyWith, OnlyWithout


def idle_lines(config: Mapping[str, Any], typed: Sequence[str], objects: Objects) -> Iterator[str]:
    """A line for every override without effect.

    Args:
        config: a job's, resolved and checked.
        typed: overrides.
        objects: what knows the parts of the config.
    """
    parse = OverridesParser.create().parse_override
    for text in typed:
        one = parse(text)
        key = (one.package or one.key_or_group).lstrip("+~")  # where a group is put
        if why := idle(config, key, objects):
            yield f"{text} has no effect: {why}"


def idle(config: Mapping[str, Any], key: str, objects: Objects) -> str:
    """Why a key has no effect in a job, or "".

    Args:
        config, objects: see `idle_lines`.
        key: dotted; of a value or of a part.
    """
    node: Any = config
    names = key.split(".")
    for place, name in enumerate(names):
        if not isinstance(node, Mapping):
            break
        if "_target_" in node and (why := _why(config, names[:place], node, name, objects)):
            return why
        node = node.get(name)
    return ""


def _why(
    config: Mapping[str, Any],
    above: Sequence[str],
    node: Mapping[str, Any],
    name: str,
    objects: Objects,
) -> str:
    """Why an argument of a part has no effect, or "".

    Args:
        config, objects: see `idle_lines`.
        above: names that lead to the part.
        node: the part's.
        name: of the argument.
    """
    scenario = config["scenario"]["_target_"]
    for mark in objects.marks(node["_target_"], name):
        match mark:
            case Never(why):
                return why
            case IfDataChange(otherwise) if node.get(otherwise) is None:
                if not objects.attribute(scenario, "shifts", True):
                    also = f", or {'.'.join([*above, otherwise])}" if otherwise else ""
                    return f"nobody's data change; it needs a scenario with a shift{also}"
            case OnlyWith(other, value) if node.get(other) != value:
                return f"it is read with {'.'.join([*above, other])}={_shown(value)}"
            case OnlyWithout(other, value) if node.get(other) == value:
                return f"it is not read with {'.'.join([*above, other])}={_shown(value)}"
            case OnlyWith(other) | OnlyWithout(other):
                if why := _why(config, above, node, other, objects):
                    return why
    return ""


def _shown(value: Any) -> str:
    return {None: "null", True: "true", False: "false"}.get(value, str(value))
