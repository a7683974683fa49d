"""`fedclust schema` allows what ships, and refuses what a job would."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
import yaml

from fedclust.commands import schema
from fedclust.config.options import options
from fedclust.config.parts import PARTS
from fedclust.config.read import read_config
from fedclust.config.tree import CONF, EXAMPLES, choices
from fedclust.helpers.errors import ConfigError

KINDS = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}
BOUNDS = {
    "minimum": lambda v, b: v >= b,
    "maximum": lambda v, b: v <= b,
    "exclusiveMinimum": lambda v, b: v > b,
    "exclusiveMaximum": lambda v, b: v < b,
}
SAID = {"$schema", "title", "description", "definitions"}
KNOWN = {*SAID, *BOUNDS, "$ref", "anyOf", "enum", "type", "pattern", "properties", "items"}
KNOWN |= {"patternProperties", "additionalProperties"}


def wrong(value: Any, rule: Any, root: Any, place: str = "") -> str:
    """Where a value does not fit a schema, by what JSON Schema's draft 7 says of the words that
    ours uses; "" where it fits.
    """
    assert rule.keys() <= KNOWN, rule
    if "$ref" in rule:
        name = rule["$ref"].removeprefix("#/definitions/")
        return wrong(value, root["definitions"][name], root, place)
    if "anyOf" in rule:
        found = [wrong(value, one, root, place) for one in rule["anyOf"]]
        return "" if "" in found else max(found, key=len)
    if "enum" in rule and not any(
        value == one and type(value) is type(one) for one in rule["enum"]
    ):
        return place
    if "type" in rule and not KINDS[rule["type"]](value):
        return place
    if isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
        return place
    if KINDS["number"](value) and not all(BOUNDS[b](value, rule[b]) for b in BOUNDS if b in rule):
        return place
    if isinstance(value, list):
        found = [
            wrong(v, rule.get("items", {}), root, f"{place}[{i}]") for i, v in enumerate(value)
        ]
        return next(filter(None, found), "")
    if isinstance(value, dict):
        for name, inside in value.items():
            inner = rule.get("properties", {}).get(name)
            patterns = rule.get("patternProperties", {}).items()
            inner = next((one for text, one in patterns if re.search(text, name)), inner)
            inner = rule.get("additionalProperties", True) if inner is None else inner
            at = f"{place}.{name}".lstrip(".")
            if inner is False:
                return at
            if inner is not True and (found_there := wrong(inside, inner, root, at)):
                return found_there
    return ""


@cache
def experiments() -> Any:
    """The schema as it is printed."""
    return json.loads(json.dumps(schema.of_experiments()))


@cache
def group(name: str) -> Any:
    return json.loads(json.dumps(schema.of_group(name)))


def misfit(text: str) -> str:
    """Where an experiment does not fit."""
    return wrong(yaml.safe_load(text), experiments(), experiments())


@pytest.mark.full
@pytest.mark.parametrize("kind", ["experiment", "case"])
def test_everything_that_ships_fits(kind: str) -> None:
    found = {
        name: wrong(read_config(file), experiments(), experiments())
        for name, file in choices(kind).items()
    }
    assert {name: place for name, place in found.items() if place} == {}
    assert len(found) > 20


@pytest.mark.thinned
@pytest.mark.parametrize("name", sorted(PARTS))
def test_every_choice_fits_its_group(name: str) -> None:
    rules = group(name)
    for choice, file in choices(name).items():
        assert wrong(read_config(file), rules, rules) == "", choice


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("rounds: 20", ""),
        ("rounds: ${scale.rounds}", ""),
        ("rounds: many", "rounds"),
        ("rounds: 0", "rounds"),
        ("rounds: 2.5", "rounds"),
        ("participation: 1.0", ""),
        ("participation: 0", "participation"),
        ("validation: 1", "validation"),
        ("clients_per_round: null", ""),
        ("engine: fast", "engine"),
        ("engine: loop", ""),
        ("round: 20", "round"),
        ("partition: {alpha: 0.5}", ""),
        ("partition: {alfa: 0.5}", "partition.alfa"),
        ("solver: {lr: -1}", "solver.lr"),
        ("solver: {lr: 0.1, batch_size: null}", ""),
        ("attack: {spread: one_group}", ""),
        ("attack: {spread: all}", "attack.spread"),
        ("compression: {share: 1.5}", "compression.share"),
        ("common: {aggregation: uniform}", ""),
        ("common: {aggregation: median}", "common.aggregation"),
        ("common: {agregation: uniform}", "common.agregation"),
        ("defaults: [{override /partition: dirichlet}, _self_]", ""),
        ("defaults: [{override /partition: dirichelt}]", "defaults[0].override /partition"),
        ("defaults: [{/algorithm@algorithm.base: ifca}]", ""),
        ("scales: {laptop: {rounds: 5, costs: {hours: 1}}}", ""),
        ("scales: {laptop: {rounds: 0}}", "scales.laptop.rounds"),
    ],
)
def test_what_an_editor_marks(text: str, place: str) -> None:
    assert misfit(text) == place


def test_what_an_editor_shows_is_what_the_files_say() -> None:
    inside = experiments()["definitions"]
    told = options("partition", "dirichlet")["alpha"].comment
    assert told in inside["partition"]["properties"]["alpha"]["description"]
    assert "rounds of federated training" in inside["rounds"]["description"]
    entry = inside["defaults"]["items"]["anyOf"][1]["patternProperties"]
    known = next(rule for text, rule in entry.items() if "?compression(" in text)
    assert known["enum"] == [*choices("compression"), None]
    assert "sign: clients send the signs" in known["description"]
    targets = group("compression")["properties"]["_target_"]["anyOf"][0]["enum"]
    assert "fedclust.updates.compressions.TopK" in targets


@pytest.mark.full
def test_choices_and_options_of_a_users_own_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = EXAMPLES / "own_algorithm"
    schema.command(["--config-dir", str(mine)])
    rules = json.loads(capsys.readouterr().out)
    text = "defaults: [{override /algorithm: server_momentum}]\nalgorithm: {beta: 0.5}"
    assert wrong(yaml.safe_load(text), rules, rules) == ""
    assert misfit(text) == "defaults[0].override /algorithm"
    described = rules["definitions"]["algorithm"]["properties"]["beta"]["description"]
    assert "what is left of the velocity after a round" in described
    schema.command(["algorithm", "--config-dir", str(mine)])
    rules = json.loads(capsys.readouterr().out)
    assert wrong(read_config(mine / "algorithm" / "server_momentum.yaml"), rules, rules) == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["algoritm"], "fedclust schema algoritm is not allowed: did you mean algorithm"),
        (["algorithm", "solver"], "fedclust schema algorithm solver is not allowed"),
        (["experiment"], "fedclust schema experiment is not allowed"),
        (["--config-dir", "nowhere"], "nowhere is not allowed: there is no such folder"),
    ],
)
def test_what_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        schema.command(arguments)
    assert "\n" not in str(refused.value)


def test_the_comment_of_every_experiment_names_one_place() -> None:
    """That of `fedclust schema > conf/schema.json`."""
    named = 0
    for file in sorted((CONF / "experiment").rglob("*.yaml")):
        found = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", file.read_text(), re.M)
        named += len(found)
        assert all((file.parent / one).resolve() == CONF / "schema.json" for one in found)
    assert named > 40
