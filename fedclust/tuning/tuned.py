"""Values that `fedclust tune` has found, put into a config: `tuned=best.yaml`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedclust.config.schema import part_of, seed_list
from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.files import harmless

_SAME = ("algorithm", "dataset", "partition", "scenario", "model", "case")  # groups
# what a search holds for: keys, and groups with all of their keys
_HELD = (
    *("rounds", "clients_per_round", "participation", "num_clusters"),
    *("dataset", "partition", "scenario", "model"),
)
_PLACES = ("root", "path", "download")  # where data lie


def settings_of(resolved: Mapping[str, Any], searched: Collection[str]) -> dict[str, Any]:
    """The federation and the model of a config by dotted key, without what was searched."""
    found: dict[str, Any] = {}
    for name in _HELD:
        found |= _flat(name, resolved.get(name))
    return {key: value for key, value in found.items() if key not in searched}


def _flat(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {} if key.rpartition(".")[2] in _PLACES else {key: value}
    return {k: v for name, one in value.items() for k, v in _flat(f"{key}.{name}", one).items()}


def elsewhere(settings: Mapping[str, Any], resolved: Mapping[str, Any]) -> str:
    """Which settings of a search are not those of a job, in words; "" where all are."""
    here = settings_of(resolved, ())
    other = [key for key, value in settings.items() if here.get(key, value) != value]
    if not other:
        return ""
    said = ", ".join(f"{key}={settings[key]} (here {here[key]})" for key in other[:3])
    more = f" and {len(other) - 3} more" if len(other) > 3 else ""
    return f"the values of tuned=… were searched with {said}{more}: others may be better here"


def apply_tuned(
    config: DictConfig, choices: Mapping[str, Any], typed: Mapping[str, str]
) -> tuple[DictConfig, dict[str, Any], dict[str, Any]]:
    """The config with the values of the search that its key `tuned` names, that search, and the
    settings that it held for.

    Without one the config as it is, and nothing. Of the search: what was compared (`metric`,
    `validation`, `seeds`), the number of `trials`, the best one's `values`, and the metric's
    `value` there and with the `default`s.

    Raises:
        ConfigError: for a file that is none of `fedclust tune`, is for another method, shares seeds
            with the job, or sets what is typed too.
    """
    try:
        named = config.get("tuned")
    except OmegaConfBaseException as error:
        raise ConfigError(f"tuned: {str(error).partition(chr(10))[0]}") from error
    if named is None:
        return config, {}, {}
    file = best_file(Path(str(named)), choices)
    found = _read(file)
    for group in _SAME:
        there, here = found["choices"].get(group), choices.get(group)
        require(there == here, "tuned", file, f"it is for {group}={there}, and this is {here}")
    shared = sorted(set(seed_list(config.seeds)) & set(found["seeds"]))
    allowed = f"seeds that {file} was not chosen by; it was by {', '.join(map(str, shared))}"
    require(not shared, "seeds", config.seeds, allowed)
    for key in found["values"]:
        require(key not in typed, key, typed.get(key), f"{file} sets it too; give one of both")
    search = {key: value for key, value in found.items() if key not in ("choices", "settings")}
    settings = found.get("settings") or {}
    return with_values(config, found["values"], file), {"search": search}, settings


def with_values(
    config: DictConfig, values: Mapping[str, Any], file: Path | None = None
) -> DictConfig:
    """A config with other values by dotted key.

    `file` is where the values stand, where a user gave one; a message names it.

    Raises:
        ConfigError: for a key that it does not have, or a value of a wrong type.
    """
    changed = config.copy()
    for key, value in values.items():
        try:
            OmegaConf.update(changed, key, value, merge=False)
        except OmegaConfBaseException as error:
            said = str(error).partition("\n")[0]
            at_fault = f"{key}={value}" if file is None else f"tuned={file}"
            detail = said if file is None else f"{key}={value}: {said}"
            raise ConfigError(f"{at_fault} is not allowed: {detail}") from error
    return changed


def best_file(path: Path, choices: Mapping[str, Any]) -> Path:
    """The file itself, or the one in a folder that is for these choices; `ConfigError` without."""
    if not path.is_dir():
        require(path.is_file(), "tuned", path, "a best.yaml of `fedclust tune`, or its folder")
        return path
    wanted = {group: choices.get(group) for group in _SAME}
    fitting = [
        file
        for file in sorted(path.rglob("best.yaml"))
        if {group: _read(file)["choices"].get(group) for group in _SAME} == wanted
    ]
    said = ", ".join(f"{group}={choice}" for group, choice in wanted.items() if choice is not None)
    allowed = f"a folder with one best.yaml for {said}; it holds {len(fitting)}"
    require(len(fitting) == 1, "tuned", path, allowed)
    return fitting[0]


def _read(file: Path) -> dict[str, Any]:
    looks = file.stat() if file.is_file() else None
    return _read_once(file, looks and (looks.st_mtime_ns, looks.st_size))


@cache
def _read_once(file: Path, looks: tuple[int, int] | None) -> dict[str, Any]:  # noqa: ARG001
    """What a file holds; a sweep asks for each of them once per job."""
    try:
        node = yaml.safe_load(harmless(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        node = None
    kinds = {"choices": dict, "values": dict, "seeds": list}
    fits = isinstance(node, dict) and all(isinstance(node.get(k), v) for k, v in kinds.items())
    require(fits, "tuned", file, "a best.yaml that `fedclust tune` has written")
    assert isinstance(node, dict)
    for key, value in node["values"].items():
        allowed = f"a best.yaml that `fedclust tune` has written, and no search has {key!r}"
        plain = isinstance(value, int | float | str | None)
        require(can_be_searched(key) and plain, "tuned", file, f"{allowed}: {value!r}")
    return node


def can_be_searched(key: object) -> bool:
    """Whether a search may try values of a key: an option of the method or what it reads."""
    if not isinstance(key, str) or part_of(key) != "method":
        return False
    return key != "tuned" and not key.rpartition(".")[2].startswith("_")
