"""Values that were typed and that a job does not read, or reads without any effect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedclust.config.idle import idle, unused
from fedclust.config.objects import Objects
from fedclust.config.parts import SHARED as OF_PARTS
from fedclust.config.references import as_written, at, is_read, keys_read, of_file, places
from fedclust.config.schema import is_setting
from fedclust.config.tree import choices
from fedclust.helpers.errors import ConfigError, counted
from fedclust.launch.compose import Command
from fedclust.launch.typed import Typed

# read only where a part of the job refers to them; the others are read in every job
SHARED = (*OF_PARTS, "num_clusters", "common", "participation", "clients_per_round")
READERS = ("algorithm", "scenario", "partition", "dataset", "model")
_NAMED = 4  # methods that a line names


def shared_keys(typed: Typed) -> list[str]:
    """The shared keys and groups that get a value; not a part that is put elsewhere."""
    given = (
        key for key, one in zip(typed.keys, typed.overrides, strict=True) if not one.is_delete()
    )
    return [key for key in given if "@" not in key and key.partition(".")[0] in SHARED]


def yield_to_typed(config: DictConfig, typed: Collection[str]) -> None:
    """Give a method's own solver what was typed for the solver of all, in place."""
    for method in ("algorithm", "algorithm.base"):  # a wrapper's base has a solver of its own
        own = OmegaConf.select(config, f"{method}.solver")
        for key in unread(config, typed, [method]) if OmegaConf.is_dict(own) else ():
            name = key.removeprefix("solver.")
            if name != key and own.get(name) is not None:  # null: the method does without it
                own[name] = OmegaConf.select(config, key)


def unread(config: DictConfig, typed: Collection[str], parts: Sequence[str] = READERS) -> list[str]:
    """Those of the typed keys that none of the parts of a job, by dotted key, refers to."""
    if not typed:
        return []
    plain = as_written(config)
    read = keys_read((at(plain, part) for part in parts), plain)
    return [key for key in dict.fromkeys(typed) if not is_read(key, read)]


def check_read(command: Command) -> None:
    """Refuse what was typed and no job of the command reads."""
    typed, config, methods = command.typed, command.config, command.methods
    alone = len(methods) == 1
    for key in unread(config, shared_keys(typed), READERS if alone else READERS[1:]):
        readers = _readers(key, config, typed.own)
        own_value = alone and OmegaConf.select(config, f"algorithm.{key}") is not None
        if own_value or not readers or readers & set(methods):
            continue
        some = sorted(readers)
        more = f" and {counted(len(some) - _NAMED, 'other')}" if len(some) > _NAMED else ""
        who = f"read by {', '.join(some[:_NAMED])}{more}"
        value = next(one for one in typed.texts if one.lstrip("+").startswith(f"{key}="))
        raise ConfigError(
            f"{value} is not allowed: {', '.join(sorted(methods))} would not read it; it is {who}"
        )


def why_unread(key: str, config: DictConfig, method: str, own: Path | None) -> str:
    """Where a key is read that no part of a job refers to, in a sentence; "" for nowhere."""
    for part in READERS:
        if OmegaConf.select(config, f"{part}.{key}") is not None:
            taken = OmegaConf.is_dict(OmegaConf.select(config, f"{part}.solver"))
            yields = taken and key.startswith("solver.")  # see `yield_to_typed`
            return "" if yields else f"{key} has no effect: {part}.{key} has a value of its own"
    if _readers(key, config, own):
        return f"{key} is read by other methods, not by {method}"
    parts = [
        f"{group}={name}"
        for group in READERS[1:]
        for name, file in choices(group, own).items()
        if is_read(key, of_file(file))
    ]
    return f"{key} has no effect: it is read by {' and '.join(parts)}" if parts else ""


def without_effect(
    config: DictConfig, resolved: Mapping[str, Any], typed: Typed
) -> list[tuple[str, bool]]:
    """What was typed and has no effect, and whether that is the method's affair; imports parts."""
    objects, references = Objects(typed.own), list(places(as_written(config)))
    of_method, lines = unused(resolved, objects), list[tuple[str, bool]]()
    for text, key in typed.places:
        why = _idle(key, references, lambda one: idle(resolved, one, objects))
        if why := why or of_method.get(key, ""):
            alike = is_setting(key) and key not in of_method
            lines.append((f"{text} has no effect: {why}", not alike))
    return lines


def _idle(
    key: str, references: Sequence[tuple[str, str]], why_not: Callable[[str], str]
) -> str | None:
    """Why a key has no effect; "" where it has one, None where nobody reads it."""
    if why := why_not(key):
        return why
    if key.partition(".")[0] not in SHARED:
        return ""
    found = [_idle(place, references, why_not) for place in _read_at(key, references)]
    read = [why for why in found if why is not None]
    return None if not read else "" if "" in read else read[0]


def _read_at(key: str, references: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The places that refer to a key, to a part of it, or to what it is a part of."""
    for place, one in references:
        if f"{one}.".startswith(f"{key}."):
            yield place
        elif key.startswith(f"{one}."):
            yield place + key.removeprefix(one)


def _readers(key: str, config: DictConfig, own: Path | None) -> set[str]:
    """The methods whose files refer to a key, themselves or through a part that they take."""
    plain, files = as_written(config), choices("algorithm", own)
    return {name for name, file in files.items() if is_read(key, keys_read([of_file(file)], plain))}
