"""What is typed behind a command, read once; and what Python hands over as if it had been typed."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fedclust.config.schema import chooses, names_folder
from fedclust.config.tree import choices, groups
from fedclust.helpers.errors import ConfigError, did_you_mean, require
from fedclust.helpers.overrides import is_list, value_text

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_LONGEST = 120  # letters of a folder's name
_CONFIG_DIR = ("--config-dir", "-cd")


@dataclass(frozen=True)
class Typed:
    """The overrides of a command or of a job.

    Attributes:
        texts: the overrides in order, as typed.
        own: the folder given with --config-dir; None without.
        many: whether a job runs for every combination of values; None: where the config says so.
    """

    texts: tuple[str, ...]
    own: Path | None = None
    many: bool | None = None

    @classmethod
    def of(cls, arguments: Sequence[str]) -> Typed:
        """The arguments of a command; the texts are all but --config-dir and its folder."""
        texts, own, rest = list[str](), None, list(arguments)
        while rest:
            one = rest.pop(0)
            flag, equals, folder = one.partition("=")
            if flag not in _CONFIG_DIR or not (equals or rest):
                texts.append(one)
                continue
            folder = folder if equals else rest.pop(0)
            own = own or Path(folder).resolve()
        return cls(tuple(texts), own)

    @classmethod
    def of_keys(cls, arguments: Sequence[str], command: str) -> Typed:
        """The arguments of a command that has no flags but --config-dir; ConfigError for others."""
        typed = cls.of(arguments)
        if flags := [one for one in typed.texts if one.startswith("-")]:
            shown = f"`fedclust {command} --help` shows all"
            raise ConfigError(f"fedclust {command} has no flag {flags[0]}; {shown}")
        typed.check_form()
        return typed

    def check_form(self) -> None:
        """Refuse what is no KEY=VALUE, for which Hydra has no words, with a likely choice."""
        for text in self.texts:
            key, equals, _ = text.partition("=")
            if key and (equals or key.startswith("~")):
                continue
            known = (group for group in groups(self.own) if text in choices(group, self.own))
            meant = " or ".join(f"{group}={text}" for group in known)
            allowed = f"did you mean {meant}?" if meant else "KEY=VALUE, as in rounds=20"
            raise ConfigError(f"{text!r} is not allowed: {allowed}")

    @cached_property
    def overrides(self) -> tuple[Override, ...]:
        """The overrides as Hydra reads them; they know the choices of groups, for glob(…).

        Raises:
            ConfigError: see `check_form`.
            hydra.errors.HydraException: for a value that its grammar cannot read.
        """
        self.check_form()
        return parsed(self.texts, self.own)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Of every override the key or group and place, as in cluster_metric@algorithm.metric."""
        return tuple(one.get_key_element().lstrip("+~") for one in self.overrides)

    @property
    def places(self) -> list[tuple[str, str]]:
        """The overrides with the key that each sets; of a part, the place where it is put."""
        named = (one.package or one.key_or_group for one in self.overrides)
        return [(text, key.lstrip("+~")) for text, key in zip(self.texts, named, strict=True)]

    @cached_property
    def values(self) -> Mapping[str, str]:
        """The text behind the = by key, the last of each."""
        texts = (text.partition("=")[2] for text in self.texts)
        return dict(zip(self.keys, texts, strict=True))

    @cached_property
    def last(self) -> Mapping[str, Override]:
        """The overrides by key, the last of each."""
        return {one.get_key_element(): one for one in self.overrides}

    @cached_property
    def choices(self) -> Mapping[str, list[Any]]:
        """Of every group that is typed what is chosen, by key."""
        known = groups(self.own)
        chosen = (one for one in self.last.values() if one.key_or_group in known)
        return {one.get_key_element(): alternatives(one) for one in chosen if not one.is_delete()}

    def latest(self) -> Typed:
        """Without the values of which a later override takes the place."""
        texts = dict[str, str]()
        for place, (one, text) in enumerate(zip(self.overrides, self.texts, strict=True)):
            key = one.get_key_element()
            name = f"{place}" if key.startswith(("+", "~")) else key
            texts.pop(name, None)
            texts[name] = text
        return replace(self, texts=tuple(texts.values()))

    def over(self, params: Mapping[str, Any]) -> Typed:
        """What is typed over the values of an experiment's sweep, `hydra.sweeper.params`."""
        if not params:
            return self
        return replace(self, texts=(*(f"{key}={one}" for key, one in params.items()), *self.texts))


def parsed(texts: Iterable[str], own: Path | None = None) -> tuple[Override, ...]:
    """Overrides as Hydra reads them; see `Typed.overrides`."""
    from fedclust.helpers.private import ConfigLoaderImpl
    from fedclust.launch.scales import search_path

    loader = ConfigLoaderImpl(config_search_path=search_path(own))
    return tuple(replace(_parsed(text), config_loader=loader) for text in texts)


@lru_cache(maxsize=512)  # jobs of a sweep share most
def _parsed(text: str) -> Override:
    """An override as Hydra reads it, which knows no choices."""
    # only to list what there is takes no Hydra
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(text)


def alternatives(override: Override) -> list[Any]:
    """The values that an override gives a key: several of a sweep, as text, or the one."""
    several = override.is_sweep_override()
    return list(override.sweep_string_iterator()) if several else [override.value()]


def parsed_flags(texts: Sequence[str]) -> argparse.Namespace:
    """Hydra's reading of its flags, which may stand among the overrides."""

    def refuse(message: str) -> NoReturn:
        wrong = message.removeprefix("unrecognized arguments: ").split(" ")[0]
        flags = parser._option_string_actions  # argparse shows them nowhere else
        meant = wrong.startswith("--") and did_you_mean(wrong, flags)
        more = meant or "`fedclust run --help` shows what there is"
        raise ConfigError(f"fedclust run: {message}; {more}")

    from fedclust.helpers.private import get_args_parser

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    # argparse takes overrides in one piece only, so flags that stand among them go in front
    return parser.parse_args(sorted(texts, key=lambda one: one not in ("-m", "--multirun")))


def as_typed(
    given: Sequence[str | Mapping[str, Any]], named: Mapping[str, Any], *, many: bool
) -> list[str]:
    """Overrides from what was handed to `fedclust.run` or `fedclust.sweep`.

    Args:
        many: whether a list holds the values to try, so that a value that is a list itself stands
            in a list; else a list is the value.

    Raises:
        ConfigError: for a value that no config can hold.
    """
    overrides: list[str] = []
    for one in (*given, named):
        if isinstance(one, str):
            overrides.append(one)
        elif isinstance(one, Mapping):
            for key, value in one.items():
                several = many and is_list(value)
                require(not several or len(value) > 0, key, value, "at least one value to try")
                texts = [value_text(str(key), v) for v in (value if several else [value])]
                overrides.append(f"{key}={','.join(texts)}")
        else:
            raise ConfigError(f"{one!r} is not allowed: 'KEY=VALUE' or a mapping of keys to values")
    return overrides


def job_folder(overrides: Sequence[str], algorithm: str, below: str | Path | None = None) -> str:
    """The folder of a job below the run's: its algorithm and the overrides that make it differ.

    Where that is longer than 120 characters, a path such as dataset.path=/data/sites/a.csv is named
    by its last part and four digits of the whole, dataset.path=a.csv-6a98; what is still too long
    is cut, with eight digits of all.

    Args:
        overrides: task overrides as given to Hydra, e.g. ["algorithm=ifca", "rounds=60"].
        below: the run's folder; a long name that is there already, cut with its paths in full as
    """
    last = {override.lstrip("+~").split("=", 1)[0]: override for override in overrides}
    named = [one for key, one in sorted(last.items(), key=itemgetter(1)) if names_folder(key)]
    start = algorithm.replace("/", "_")
    whole = ",".join([start, *map(_plain, named)])
    if len(whole) <= _LONGEST:
        return whole
    cut = f"{whole[:_LONGEST]}-{_digest(whole)[:8]}"
    if below is not None and Path(below, cut).is_dir():
        return cut
    short = ",".join([start, *map(_short, named)])
    return short if len(short) <= _LONGEST else f"{short[:_LONGEST]}-{_digest(whole)[:8]}"


def _plain(override: str) -> str:
    """An override in letters that a file system takes, with digits where another could be alike."""
    plain, value = _letters(override), override.partition("=")[2]
    # "a b.npz" and a_b.npz are two files; a choice such as case=a/b is one of few, and of what
    # marks a list or mapping there is seldom more than one spelling
    listed = value[:1] in ("[", "{")
    lost = {"/"} & set(value) if listed else set(value) - set(plain + "'\"")
    alike = "." in override.partition("=")[0] and lost
    return f"{plain}-{_digest(override)[:4]}" if alike else plain


def _short(override: str) -> str:
    """The same, of a path its last part alone."""
    key, _, value = override.partition("=")
    if "/" not in value or value[:1] in ("[", "{") or chooses(key):
        return _plain(override)
    last = value.strip("'\"").rstrip("/").rpartition("/")[2]
    return f"{_letters(f'{key}={last}')}-{_digest(override)[:4]}"


def _letters(text: str) -> str:
    return "".join(c if c.isalnum() or c in "=._-+," else "_" for c in text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
