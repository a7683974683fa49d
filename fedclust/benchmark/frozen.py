"""What decides the numbers of a frozen benchmark, as one digest.

v1.json beside this file holds, for every federation, the settings as composed, the seeds, and the
digests of the examples and of every seed's partition. Its own digest stands in the experiment
(`report.frozen`), and so in the config of every job, in every archive and on the page. A change of
any of these is a new version, never another v1.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

from fedclust.config.read import read_config
from fedclust.config.schema import is_setting, relevant
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.helpers.files import harmless
from fedclust.helpers.names import OF_ALL_SEEDS

VERSIONS = Path(__file__).parent
# of the local solver: how much work a client does in a round; its rate may be tuned
_WORK = ("batch_size", "drop_last", "epochs", "steps")
# of a part: where its file lies; what it holds is in the digests of the data
_PLACES = ("path",)


@dataclass(frozen=True)
class Frozen:
    """A frozen version of the benchmark.

    Attributes:
        name: such as v1.
        digest: of everything below.
        rounds: version of what a round computes, `fedclust.config.versions.ROUNDS`.
        federations: what decides the data of each and the budget, by its choice of `case`.
    """

    name: str
    digest: str
    rounds: int
    federations: Mapping[str, Mapping[str, Any]]

    def difference(self, job: Path) -> str | None:
        """The first difference between a job and its federation, in words; None where all agree.

        Args:
            job: the folder of a job, or what an archive holds of one.

        Raises:
            DataError: for a file of the job that is missing or cannot be read.
        """
        facts, case = facts_of(job), case_of(job)
        if case not in self.federations:
            return f"its federation {case} is none of {self.name}"
        rounds = json_of(job / "versions.json").get("rounds")
        if rounds != self.rounds:
            return f"its rounds are of version {rounds}, and those of {self.name} of {self.rounds}"
        frozen = dict(_flat(self.federations[case]))
        found = dict(_flat(facts))
        for key in sorted({**frozen, **found}):
            if frozen.get(key) != found.get(key):
                return f"{key} is {found.get(key)}, and {frozen.get(key)} in {self.name}"
        return None


def versions() -> list[str]:
    """The names of all versions."""
    return sorted(file.stem for file in VERSIONS.glob("*.json"))


@cache
def frozen(name: str) -> Frozen:
    """A version of the benchmark.

    Raises:
        ConfigError: for a name that is none.
    """
    if name not in versions():
        raise ConfigError(f"there is no benchmark {name}: there are {', '.join(versions())}")
    content = json.loads((VERSIONS / f"{name}.json").read_text(encoding="utf-8"))
    return Frozen(name, digest_of(content), content["rounds"], content["federations"])


def digest_of(content: Mapping[str, Any]) -> str:
    """The digest of a version's content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def case_of(job: Path) -> str:
    """The federation of a job, as its choice of `case`."""
    return choice_of(job, "case")


def choice_of(job: Path, group: str) -> str:
    """What a job has chosen of a group.

    Raises:
        DataError: for a config that cannot be read.
    """
    return choice_in(config_of(job), group)


def choice_in(config: Mapping[str, Any], group: str) -> str:
    """What a job's config has chosen of a group."""
    choices = config.get("choices")
    return str(choices.get(group)) if isinstance(choices, Mapping) else ""


def facts_of(job: Path) -> dict[str, Any]:
    """What a job's files say of its federation and budget.

    Raises:
        DataError: for a file that is missing or cannot be read.
    """
    data = json_of(job / "federation.json").get("data")
    if not isinstance(data, Mapping):
        raise DataError(f"{job / 'federation.json'} has no digests of the data")
    # versions were frozen before jobs wrote it, and it follows from the others
    known = {what: digest for what, digest in data.items() if what != OF_ALL_SEEDS}
    return {"setting": setting_of(config_of(job)), "data": known}


def setting_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a job's config that every method meets alike.

    Args:
        config: resolved.
    """
    kept = {name: _anywhere(v) for name, v in relevant(config).items() if is_setting(name)}
    solver = config.get("solver")
    solver = solver if isinstance(solver, Mapping) else {}
    return kept | {"local work": {name: solver.get(name) for name in _WORK}}


def _anywhere(part: Any) -> Any:
    """A part of a config without the places of files."""
    if not isinstance(part, Mapping):
        return part
    return {name: value for name, value in part.items() if name not in _PLACES}


def config_of(job: Path) -> Mapping[str, Any]:
    """The resolved config of a job; `DataError` where it cannot be read."""
    file = job / "config.yaml"
    return _config(file, file.stat().st_mtime_ns if file.is_file() else 0)


# what asks of a job asks several times in a row, and YAML takes most of the time of a page
@lru_cache(maxsize=8)
def _config(file: Path, _changed: int) -> Mapping[str, Any]:
    return _mapping(file, read_config)


def json_of(file: Path) -> dict[str, Any]:
    """What a JSON file of a job holds; `DataError` where it cannot be read."""
    return _mapping(file, lambda path: json.loads(harmless(path).read_text(encoding="utf-8")))


def _mapping(file: Path, read: Callable[[Path], Any]) -> dict[str, Any]:
    try:
        content = read(file)
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise DataError(f"{file.parent.name}/{file.name} cannot be read: {why}") from error
    if not isinstance(content, dict):
        raise DataError(f"{file.parent.name}/{file.name} is no mapping")
    return content


def _flat(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value below a node, by its keys joined with dots."""
    if isinstance(node, Mapping) and node:
        for name, value in node.items():
            yield from _flat(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, node
