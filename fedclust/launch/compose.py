"""What a command asks for: the config that Hydra composes of it, a user's tree in front."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers.oc import env
from yaml import YAMLError

from fedclust.config import schema
from fedclust.config.expansion import check_expansion
from fedclust.config.parts import PARTS
from fedclust.config.read import read_config
from fedclust.config.references import as_written, at
from fedclust.config.tree import choices
from fedclust.helpers.errors import ConfigError, UserError, require
from fedclust.helpers.files import read_text
from fedclust.helpers.private import ConfigLoaderImpl, put_values, register_resolver
from fedclust.launch import scales
from fedclust.launch.sweep import is_basic
from fedclust.launch.typed import Typed, job_folder

# the names that typed values read: where a launcher resolves folders, it has the environment alone
VARIABLES = "FEDCLUST_TYPED_VARIABLES"
_OURS = ("FEDCLUST_DATA",)  # read by our own files
_MISSING = object()


@dataclass(frozen=True)
class Command:
    """What is typed, and what it asks for; composed when it is first looked at.

    Attributes:
        composed: the config, where the caller has it: of its first job.
        names: its methods, where the caller knows them.
    """

    typed: Typed
    composed: DictConfig | None = None
    names: Collection[str] = ()

    @cached_property
    def config(self) -> DictConfig:
        """The config with the node `hydra`, of a sweep with its first method."""
        if self.composed is not None:
            return self.composed
        return compose(first_method(first_taking(self.typed)), self.typed.own)

    @cached_property
    def many(self) -> bool:
        """Whether a sweep is to start."""
        asked = self.typed.many
        return self.config.hydra.mode is RunMode.MULTIRUN if asked is None else asked

    @cached_property
    def whole(self) -> Typed:
        """What is typed over what an experiment sweeps."""
        return self.typed.over(self.config.hydra.sweeper.get("params") or {})

    @property
    def methods(self) -> Collection[str]:
        """By name, those inside a wrapper too."""
        return self.names or _methods(self.config, self.whole, inside=True)

    @cached_property
    def results(self) -> Path:
        """The folder of the job, or of the sweep."""
        HydraConfig.instance().set_config(self.config)  # the folder's name refers to it
        key = "sweep.dir" if self.many else "run.dir"
        return Path(str(OmegaConf.select(self.config.hydra, key)))

    @property
    def num_jobs(self) -> int | None:
        """How many there are; None where a sweeper chooses by earlier results."""
        sweeper = self.config.hydra.sweeper
        if not self.many:
            return 1
        if str(sweeper["_target_"]).endswith(".BasicSweeper"):
            return num_jobs(self.whole)
        trials = sweeper.get("n_trials")
        return trials if isinstance(trials, int) else None


def num_jobs(typed: Typed) -> int:
    """Jobs of Hydra's own sweeper: the product of the values per key, 1 without any."""
    several = (one for one in typed.last.values() if one.is_sweep_override())
    return prod(sum(1 for _ in one.sweep_iterator()) for one in several)


def _methods(config: DictConfig, typed: Typed, *, inside: bool) -> list[str]:
    """The methods that are typed, or that of the config; those `inside` a wrapper, too."""
    chosen = {"algorithm": [config.hydra.runtime.choices.algorithm], **typed.choices}
    keys = [key for key in chosen if key == "algorithm" or (inside and key[:10] == "algorithm@")]
    return [str(name) for key in keys for name in chosen[key]]


def first_method(typed: Typed) -> tuple[str, ...]:
    """The overrides with the first method of a sweep in place of all, where options of methods are
    typed: Hydra composes a sweep itself with the default method, which may not have them.

    Raises:
        ConfigError: for an option that some of the methods have and others do not.
    """
    keys = [one.get_key_element() for one in typed.overrides]
    pairs, own = list(zip(keys, typed.texts, strict=True)), typed.own
    options = {key: text for key, text in reversed(pairs) if key.startswith("algorithm.")}
    if not options:
        return typed.texts
    others = Typed(tuple(text for key, text in pairs if key not in options), own)
    config = compose(others.texts, own)
    whole = others.over(config.hydra.sweeper.get("params") or {})
    methods = _methods(config, whole, inside=False)
    if len(methods) < 2:
        return typed.texts
    nodes = {name: compose_or_none([f"algorithm={name}"], own) for name in methods}
    for key, text in reversed(options.items()):
        have = [name for name, node in nodes.items() if node and _has(node, key)]
        lack = [name for name in methods if name not in have]
        if have and lack:
            raise ConfigError(
                f"{text} is not allowed for {', '.join(lack)}: run algorithm={','.join(have)} with "
                f"it and algorithm={','.join(lack)} without; the report joins the two commands"
            )
    first = f"algorithm={methods[0]}"
    return tuple(first if key == "algorithm" else text for key, text in pairs)


def options(typed: Typed) -> list[str]:
    """The typed options of a group of which several choices are typed, one that does nothing.

    ConfigError for several values of one: the choice that does nothing would run for each.
    """
    found = []
    for text, key, one in zip(typed.texts, typed.keys, typed.overrides, strict=True):
        group = key.partition(".")[0]
        names = typed.choices.get(group, ())
        idle = [name for name in names if does_nothing(group, str(name), typed.own)]
        if group == key or not idle or len(names) == len(idle):
            continue
        if one.is_sweep_override():
            raise ConfigError(
                f"{text} is not allowed for {group}={idle[0]}: run the other choices with it and "
                f"{group}={idle[0]} without; the report joins the two commands"
            )
        found.append(key)
    return found


def first_taking(typed: Typed) -> Typed:
    """With one choice that does something in place of several, where `options` are typed."""
    taken = {key.partition(".")[0] for key in options(typed)}
    first = {
        group: next(one for one in typed.choices[group] if not does_nothing(group, one, typed.own))
        for group in taken
    }
    pairs = zip(typed.keys, typed.texts, strict=True)
    return replace(
        typed, texts=tuple(f"{key}={first[key]}" if key in first else text for key, text in pairs)
    )


def does_nothing(group: str, name: str, own: Path | None) -> bool:
    """Whether a choice is as if there were no such part, and has no options."""
    null, file = PARTS[group].null if group in PARTS else None, choices(group, own).get(name)
    return null is not None and len(null) == 1 and file is not None and read_config(file) == null


def _has(node: DictConfig, key: str) -> bool:
    """Whether a config has a key, also where its value is null."""
    above, _, name = key.rpartition(".")
    holder = OmegaConf.select(node, above)
    return OmegaConf.is_dict(holder) and name in holder


def loader(own: Path | None) -> ConfigLoaderImpl:
    """What composes configs of our tree."""
    return ConfigLoaderImpl(config_search_path=scales.search_path(own))


def compose(overrides: Sequence[str], own: Path | None = None) -> DictConfig:
    """The whole config with the node `hydra`; of a key with several values, which one is open.

    Raises:
        ConfigError: for files of which Hydra cannot say what is wrong.
        hydra.errors.HydraException: for all others.
    """
    try:
        config = loader(own).load_configuration(
            "config", list(overrides), RunMode.MULTIRUN, validate_sweep_overrides=False
        )
        check_expansion(config)
    except (HydraException, OmegaConfBaseException):
        _check_mappings(overrides, own)
        raise
    except (YAMLError, UserError, OSError):
        raise
    except RecursionError as error:
        raise ConfigError(
            "the config cannot be put together: a key or a file refers to itself"
        ) from error
    except UnicodeDecodeError as error:
        for file in sorted(own.rglob("*.yaml")) if own else ():
            read_text(file)  # says which it is
        raise ConfigError(f"a config file is no text in UTF-8: {error}") from error
    except Exception as error:  # Hydra meets a list or a number where it expects a mapping
        words = " ".join(str(error).split())
        raise ConfigError(
            f"the config cannot be put together ({words}): is every override KEY=VALUE, and every "
            "file of --config-dir a mapping?"
        ) from error
    return config


def _check_mappings(overrides: Sequence[str], own: Path | None) -> None:
    """Refuse a chosen file of the user's folder that holds no keys, of which Hydra names none."""
    for text in overrides if own else ():
        group, _, choice = text.lstrip("+").partition("=")
        file = Path(own or "", group.partition("@")[0], f"{choice}.yaml")
        if file.is_file():
            node = read_config(file)
            named = isinstance(node, dict) and all(isinstance(key, str) for key in node)
            require(node is None or named, str(file), node, "a mapping, whose keys are texts")


def in_mode(command: Command) -> DictConfig:
    """The config, changed in place, as Hydra composes it where the mode is typed too."""
    composed, typed = command.config, command.typed
    mode = RunMode.MULTIRUN if command.many else RunMode.RUN
    if mode is RunMode.RUN:
        overrides = list(typed.overrides)
        ConfigLoaderImpl.validate_sweep_overrides_legal(overrides, mode, from_shell=True)
        choices = composed.hydra.runtime.choices
        if any(OmegaConf.is_missing(choices, group) for group in choices):  # a sweep may leave it
            composed = loader(typed.own).load_configuration("config", list(typed.texts), mode)
    OmegaConf.set_readonly(composed.hydra, False)
    composed.hydra.mode = mode
    composed.hydra.overrides.hydra.append(f"hydra.mode={mode.name}")
    task = [one.input_line for one in typed.overrides if not one.is_hydra_override()]
    composed.hydra.overrides.task = task
    return composed


class SweepLoader(ConfigLoaderImpl):
    """What composes the configs of jobs, each once where the jobs run in this process.

    Hydra composes every job to see whether it can be, and again to run it: 0.2 to 0.3 s each. The
    first config is kept, so a file that changes during a sweep changes none of its jobs. Jobs of
    the same choices that differ in values share what is composed of the choices.
    """

    def __init__(self, own: Path | None) -> None:
        super().__init__(config_search_path=scales.search_path(own))
        self._own = own
        self._kept: dict[tuple[str, ...], bytes] = {}  # compressed: objects of a config take 1 MB
        self._of_choices: dict[tuple[str, ...], bytes] = {}

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        """The config of one job of a sweep; the second time the one of before."""
        job = tuple(sweep_overrides)
        if (kept := self._kept.pop(job, None)) is not None:
            config: DictConfig = pickle.loads(zlib.decompress(kept))
        else:
            chosen = dict(one.split("=", 1) for one in job if "=" in one)
            # a sweeper spells `~key` so, and of Hydra 1.4 this deletes nothing but null
            plain = (one.removesuffix("=null") if one[:1] == "~" else one for one in job)
            read = [
                one
                for one in plain
                if not (group := one.partition("=")[0].partition("."))[1]
                or not does_nothing(group[0], chosen.get(group[0], ""), self._own)
            ]
            config = self._composed(master_config, read)
            if is_basic(master_config.hydra.launcher):  # others compose where they run
                self._kept[job] = zlib.compress(pickle.dumps(config), level=1)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def _composed(self, master: DictConfig, overrides: list[str]) -> DictConfig:
        """What Hydra composes of a job; where it can be, values put into that of its choices."""
        parsed = OverridesParser.create().parse_overrides(overrides)
        is_choice = [self.repository.group_exists(one.key_or_group) for one in parsed]
        plain = all(one.type is OverrideType.CHANGE for one in parsed)
        values = [one for one, of_group in zip(parsed, is_choice, strict=True) if not of_group]
        changed = any("searchpath" in one for one in master.hydra.overrides.hydra)
        if not plain or changed or any(one.package or one.is_hydra_override() for one in values):
            return super().load_sweep_config(master, overrides)
        self.validate_sweep_overrides_legal(parsed, RunMode.RUN, from_shell=True)
        choices = tuple(t for t, of_group in zip(overrides, is_choice, strict=True) if of_group)
        if (shared := self._of_choices.get(choices)) is None:
            shared = pickle.dumps(super().load_sweep_config(master, list(choices)))
            self._of_choices[choices] = shared
        config: DictConfig = pickle.loads(shared)
        put_values(config, parsed, values)
        return config


def compose_or_none(overrides: Sequence[str], own: Path | None = None) -> DictConfig | None:
    """See `compose`; None where the overrides give no config."""
    try:
        return compose(overrides, own)
    except (HydraException, OmegaConfBaseException, YAMLError, UserError, OSError):
        return None


def node_at(config: DictConfig, key: str) -> Any:
    """The value of a dotted key, interpolations as they are written; None where it has none."""
    plain = as_written(config)
    return at(plain, key) if key else plain


def names_of(group: str, own: Path | None = None) -> dict[str, Path | None]:
    """The choices of a group by name, with the file of each where it is one of ours."""
    if not group.startswith("hydra/"):
        return {**choices(group, own)}
    store = ConfigStore.instance()
    names = store.list(group) if store.get_type(group) is ObjectType.GROUP else []
    return dict.fromkeys(sorted(name.removesuffix(".yaml") for name in names))


def checked_name(name: str) -> str:
    """The name, which becomes a folder before a job is checked; ConfigError if not in outputs/."""
    require(schema.NAME.holds(name), "name", name, schema.NAME.allowed)
    return str(name)


def read_environment(name: str, default: object = _MISSING) -> object:
    """What `${oc.env:NAME}` is; ConfigError unless typed, or a file could send it to trackers."""
    if VARIABLES in os.environ:  # otherwise it is another program's config
        known = (*_OURS, *os.environ[VARIABLES].split())
        require(name in known, "oc.env", name, "read by values that are typed only, not by files")
    return env(name) if default is _MISSING else env(name, default)


def register(keys: type = schema.RunConfig) -> None:
    """Make Hydra know the keys of the top level, our way to read files, and our resolvers."""
    setup_globals()
    scales.register()
    Plugins.instance()  # registers the launchers and sweepers there are
    ConfigStore.instance().store(name="schema", node=keys)
    schema.use(keys)
    for name, resolver in (
        ("fedclust_job", job_folder),
        ("fedclust_name", checked_name),
        ("oc.env", read_environment),
    ):
        register_resolver(name, resolver)


register()
