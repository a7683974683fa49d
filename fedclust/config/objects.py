"""Parts from the nodes of a config: what `_target_` may name, and which arguments it takes.

A config file may come from anywhere, so a target is looked up among declared parts only: a public
class or function of fedclust that does what its group is for, the same of a file in the folder
given with --config-dir, or of an installed package that declares itself by an entry point of the
group `fedclust`. Whatever a module has merely imported is no part.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from fedclust.config.parts import MOVED, PARTS, SHARED
from fedclust.helpers.ambient import as_libraries_begin
from fedclust.helpers.effects import Mark
from fedclust.helpers.errors import ConfigError, UserError, require, typed
from fedclust.helpers.memory import short_of_memory
from fedclust.helpers.ranges import Range, hints_of

_OF_MODELS = ("in_shape", "num_classes")  # what every model is made for
_FROM_DATA = (*_OF_MODELS, "vocabulary")  # arguments that no config gives
_OTHER_NUMBERS = Range(-1e15, 1e15)  # of a user's part that states no range
_ASKED_BY = {part.asked_by: group for group, part in PARTS.items() if part.asked_by}


@dataclass(frozen=True)
class Objects:
    """Makes the parts of one config.

    Attributes:
        user_dir: folder given with --config-dir, or None.
        shared: nodes that others refer to, by their own key: `solver`, `cluster_metric`. A mistake
            in one is told by that key, wherever it is read.
    """

    user_dir: Path | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def for_job(cls, config: Mapping[str, Any], user_dir: Path | None) -> Objects:
        """What makes the parts of a job's config."""
        return cls(user_dir, {key: config[key] for key in SHARED})

    def make(self, node: Any, group: str, **from_data: Any) -> Any:
        """The object that the node of a group describes.

        Args:
            node: mapping with `_target_`.
            group: one of `PARTS`, which is also the key in messages.
            from_data: arguments that only the data know.

        Raises:
            ConfigError: for what is no part, or what it or its arguments do not allow.
        """
        self.check(node, group)
        return self._build(node, group, from_data)

    def check(self, node: Any, group: str) -> None:
        """Check everything below the node of a group, before anything is built; see `make`."""
        self._check(node, group, group)

    def of(self, part: Any, given: Mapping[str, Any], key: str) -> Any:
        """An object of one class from a node's arguments; ConfigError names a bad one."""
        _check_names(part, given, key, key)
        hints = hints_of(part)
        for name, value in given.items():
            self._check_value(value, f"{key}.{name}", hints.get(name, object))
        return part(**given)

    def misfit(self, value: Any, target: str, path: Sequence[str]) -> str:
        """What was expected of a target's argument, by its path of names; "" where it fits."""
        return _misfit(value, self.hint(target, path))

    def hint(self, target: str, path: Sequence[str]) -> Any:
        """The annotation of a target's argument, by its path of names; `object` without one."""
        part = self._locate(target, "common", None)
        for name in path[:-1]:
            part = _plain(hints_of(part).get(name, object))
        return hints_of(part).get(path[-1], object)

    def marks(self, target: str, name: str) -> list[Mark]:
        """When an argument of a target has an effect; empty: always."""
        hint = hints_of(self._locate(target, "common", None)).get(name)
        return [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Mark)]

    def attribute(self, target: str, name: str, default: Any) -> Any:
        """What the class of a target says of all its objects."""
        return getattr(self._locate(target, "common", None), name, default)

    def _check(self, node: Any, key: str, wanted: Any) -> None:
        """Check a node of which `wanted`, a group or a class, is asked; any part if None."""
        if not isinstance(node, Mapping) or "_target_" not in node:
            if isinstance(node, Mapping) and node:
                keys = ", ".join(map(str, node))
                raise ConfigError(
                    f"{key} has the keys {keys}, and no _target_, which names its class"
                )
            shown = "null" if node is None else node
            raise ConfigError(f"{key}={shown} is not allowed: it must be a mapping with _target_")
        key = next((own for own, one in self.shared.items() if node == one), key)
        for name in node:
            if str(name).startswith("_") and name != "_target_":
                raise ConfigError(
                    f"{key}.{name}={node[name]} is not allowed: of the keys that begin with _ "
                    "only _target_ is"
                )
        part = self._locate(node["_target_"], key, wanted)
        given = {name: value for name, value in node.items() if name != "_target_"}
        _check_names(part, given, key)
        hints = hints_of(part)
        for name, value in given.items():
            self._check_value(value, f"{key}.{name}", hints.get(name, object))

    def _check_value(self, value: Any, key: str, hint: Any) -> None:
        """Check one argument against its annotation."""
        if isinstance(value, Mapping) and "_target_" in value:
            self._check(value, key, asked(hint))
        elif isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
            for place, entry in enumerate(value):
                self._check_value(entry, f"{key}[{place}]", object)
        elif allowed := _misfit(value, hint):
            shown = "null" if value is None else value
            if "text" in allowed and (value is None or isinstance(value, bool | float)):
                text = str(shown).lower() if isinstance(value, bool) else str(shown)
                allowed += f"; {typed(key, text)} is text"
            if allowed.startswith("a list") and isinstance(value, str | int | float):
                fits = not _misfit([value], hint)
                allowed += f"; {typed(key, [value])} is one" if fits else ""
            if isinstance(value, str):
                with suppress(ValueError):
                    allowed += "; it is text, in quotes" * (not _misfit(json.loads(value), hint))
            raise ConfigError(f"{key}={shown} is not allowed: expected {allowed}")

    def _build(self, node: Any, key: str, from_data: Mapping[str, Any]) -> Any:
        """The object of a checked node, or the value itself."""
        if isinstance(node, list):
            return [self._build(entry, key, {}) for entry in node]
        if not isinstance(node, Mapping) or "_target_" not in node:
            return node
        given = {
            str(name): self._build(value, f"{key}.{name}", {})
            for name, value in node.items()
            if name != "_target_"
        }
        part = self._locate(node["_target_"], key, None)
        if "vocabulary" not in inspect.signature(part).parameters:
            from_data = {k: v for k, v in from_data.items() if k != "vocabulary"}
        try:
            with short_of_memory(f"{key} was made"):
                return part(**given, **from_data)
        except UserError:
            raise
        except Exception as error:  # a user's code can raise anything
            words = " ".join(str(error).split())
            unknown = from_data.get("vocabulary", 0) is None
            more = "; it reads token ids, so set dataset.vocabulary" if unknown else ""
            raise ConfigError(f"{key}: {type(error).__name__}: {words}{more}") from error

    def _locate(self, target: object, key: str, wanted: Any) -> Any:
        """The part that a target names, else ConfigError."""
        module, _, name = MOVED.get(str(target), str(target)).rpartition(".")
        own = module.partition(".")[0] == "fedclust"
        if own:
            groups = [wanted] if wanted in PARTS else list(PARTS)
            packages = [PARTS[group].package for group in groups]
            allowed = any(f"{module}.".startswith(f"{package}.") for package in packages)
        else:
            allowed = bool(module) and (self._is_users(module) or _is_plug_in(module))
        kind = wanted if wanted in PARTS else getattr(wanted, "__name__", "part")
        what = (
            f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind} of fedclust, of a file in the "
            "folder given with --config-dir, or of an installed package with an entry point in the "
            "group fedclust"
        )
        require(allowed, f"{key}._target_", target, what)
        try:
            with as_libraries_begin():  # some set PyTorch's dtype where they are imported
                holder = vars(import_module(module))
        except Exception as error:  # importing a user's file can raise anything
            lacks = isinstance(error, ModuleNotFoundError) and module.startswith(str(error.name))
            require(not (own and lacks), f"{key}._target_", target, what)
            words = " ".join(str(error).split())
            raise ConfigError(f"{key}._target_={target} cannot be imported: {words}") from error
        part = holder.get(name)
        if own:  # a module may pass on a part under the address that configs name
            declared = _is_declared(part, module, name) or name in holder.get("__all__", ())
        else:
            declared = _is_declared(part, module, name) and (
                self._is_from_users(module) or _is_plug_in(module)
            )
        if not own and not (declared and _fits(part, wanted, own)):
            what = _of_module(module, holder, name, wanted) or what
        require(declared and _fits(part, wanted, own), f"{key}._target_", target, what)
        return part

    def _is_users(self, module: str) -> bool:
        """Whether the user's folder has such a module."""
        top = (self.user_dir or Path()) / module.partition(".")[0]
        return self.user_dir is not None and (top.with_suffix(".py").is_file() or top.is_dir())

    def _is_from_users(self, module: str) -> bool:
        """Whether an imported module is the one of the user's folder."""
        own, file = self.user_dir, getattr(sys.modules[module], "__file__", None)
        return bool(own and file and Path(file).resolve().is_relative_to(own.resolve()))


def parts(group: str) -> Iterator[str]:
    """The targets of fedclust that a group offers; imports all of its modules."""
    package = PARTS[group].package
    root = import_module(package)
    start = Path(str(root.__file__)).parent
    names = [package]
    for file in sorted(start.rglob("[!_]*.py")) if "__path__" in vars(root) else ():
        names.append(".".join([package, *file.relative_to(start).with_suffix("").parts]))
    for name in names:
        passed_on = vars(root).get("__all__", ()) if name == package else ()
        for attribute, value in vars(import_module(name)).items():
            declared = _is_declared(value, name, attribute) or attribute in passed_on
            if declared and _fits(value, group, own=True):
                yield f"{name}.{attribute}"


def _is_declared(value: Any, module: str, name: str) -> bool:
    """Whether a module's attribute is a public class or function that the module defines."""
    kind = inspect.isclass(value) or inspect.isfunction(value)
    return kind and value.__module__ == module and not name.startswith("_")


def _of_module(module: str, holder: Mapping[str, Any], name: str, wanted: Any) -> str:
    """What a user's module has instead of what is asked for, in words; "" where it has nothing."""
    declared = {one: part for one, part in holder.items() if _is_declared(part, module, one)}
    part = declared.get(name)
    if inspect.isclass(part) and wanted in PARTS:
        lacks = [verb for verb in PARTS[wanted].verbs if not hasattr(part, verb)]
        return f"{name} has no {', '.join(lacks)}, and is no {wanted}" if lacks else ""
    fitting = [one for one, part in declared.items() if _fits(part, wanted, own=False)]
    return f"the module {module} has {', '.join(fitting)}" if fitting and part is None else ""


def _is_plug_in(module: str) -> bool:
    """Whether an installed package has declared the module, or a package that holds it."""
    declared = [point.module for point in metadata.entry_points(group="fedclust")]
    return any(f"{module}.".startswith(f"{one}.") for one in declared)


def _fits(part: Any, wanted: Any, own: bool) -> bool:
    """Whether a class or function is what is asked for: a group, a class, or any part."""
    if inspect.isclass(wanted):
        return not inspect.isclass(part) or issubclass(part, wanted)
    groups = [wanted] if wanted in PARTS else list(PARTS)
    return any(_is_of(part, group, own) for group in groups) or (
        wanted is None and (is_dataclass(part) or not own)
    )


def _is_of(part: Any, group: str, own: bool) -> bool:
    """Whether a class or function makes parts of a group."""
    if group == "model":
        return not own or (
            inspect.isfunction(part) and set(_OF_MODELS) <= set(inspect.signature(part).parameters)
        )
    if inspect.isfunction(part):  # a user's, and what it makes is theirs
        return not own
    if getattr(part, "_is_protocol", False) or inspect.isabstract(part):
        return False
    # a class itself can be called, whatever its objects can
    names = {name for one in part.__mro__ for name in vars(one)}
    return names >= set(PARTS[group].verbs) or (not own and "__getattr__" in names)


def _check_names(part: Any, given: Mapping[str, Any], key: str, by: str = "") -> None:
    """Refuse arguments that a part does not take, and miss those that it, named `by`, needs."""
    parameters = inspect.signature(part).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    hidden = _FROM_DATA if set(_OF_MODELS) <= set(parameters) else _OF_MODELS
    plain = {name: p for name, p in parameters.items() if name not in hidden}
    unknown = [name for name in given if name not in plain]
    if unknown and not open_ended:
        raise ConfigError(
            f"{key}.{unknown[0]}={given[unknown[0]]} is not allowed: "
            + (f"{key} has the keys {', '.join(plain)}" if plain else f"{key} has no keys")
        )
    for name, p in plain.items():
        needed = p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        if needed and name not in given:
            raise ConfigError(f"{key}.{name} is missing: {by or f'{key}._target_'} needs it")


def _plain(hint: Any) -> Any:
    """An annotation without its range and without null."""
    if typing.get_origin(hint) is typing.Annotated:
        return _plain(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        others = [one for one in typing.get_args(hint) if one is not type(None)]
        return _plain(others[0]) if len(others) == 1 else hint
    return hint


def asked(hint: Any) -> Any:
    """The group or class that an annotation asks for; None where it asks for nothing we know."""
    plain = _plain(hint)
    if not inspect.isclass(plain) or plain is object:
        return None
    names = [one.__name__ for one in plain.__mro__]
    group = next((_ASKED_BY[name] for name in names if name in _ASKED_BY), None)
    return group or (plain if is_dataclass(plain) else None)


def _misfit(value: Any, hint: Any, numbers: Range | None = None) -> str:
    """What was expected instead, where a plain value does not fit an annotation; else "" ."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        plain, *more = typing.get_args(hint)
        ranges = [one for one in more if isinstance(one, Range)]
        return _misfit(value, plain, ranges[0] if ranges else numbers)
    if origin in (typing.Union, types.UnionType):
        wanted = [_misfit(value, option, numbers) for option in typing.get_args(hint)]
        return "" if "" in wanted else " or ".join(dict.fromkeys(wanted))
    if origin is typing.Literal:
        options = typing.get_args(hint)
        fits = any(value == option and type(value) is type(option) for option in options)
        return "" if fits else "one of " + ", ".join(map(str, options))
    if origin is not None and inspect.isclass(origin) and issubclass(origin, Sequence):
        return _misfit_list(value, typing.get_args(hint))
    if origin is not None and inspect.isclass(origin) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return "a mapping"
        wanted = [_misfit(entry, typing.get_args(hint)[1]) for entry in value.values()]
        return next((f"a mapping, each entry {one}" for one in wanted if one), "")
    if hint is type(None):
        return "" if value is None else "null"
    if hint in (int, float):
        in_range, kinds = numbers or _OTHER_NUMBERS, (int, float) if hint is float else (int,)
        fits = isinstance(value, kinds) and not isinstance(value, bool) and in_range.holds(value)
        return "" if fits else f"{'a number' if hint is float else 'an integer'} {in_range.words}"
    if hint is bool:
        return "" if isinstance(value, bool) else "true or false"
    if hint is str:
        return "" if isinstance(value, str) else "text"
    if asked(hint) is not None:
        return "a mapping with _target_"
    return ""


def _misfit_list(value: Any, entries: tuple[Any, ...]) -> str:
    """`_misfit` of a list, whose entries have an annotation each, or all the same."""
    if not isinstance(value, list):
        inside = typing.get_origin(entries[0]) if entries else None
        nested = inspect.isclass(inside) and issubclass(inside, Sequence)
        return "a list of lists" if nested else "a list"
    wanted = [_misfit(entry, entries[0] if entries else object) for entry in value]
    wrong = [one for one in wanted if one]
    return f"a list, each entry {wrong[0]}" if wrong else ""
