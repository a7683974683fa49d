"""What is searched: values by key, where they come from, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from configs import unresolved as composed

import fedclust.launch.compose  # noqa: F401 - registers the schema
from fedclust.config.about import about
from fedclust.config.schema import resolve
from fedclust.config.tree import CONF
from fedclust.config.values import check_method
from fedclust.helpers.errors import ConfigError
from fedclust.launch.typed import parsed
from fedclust.tuning.space import Dimension, default_of, num_settings, space_of, written
from fedclust.tuning.tuned import apply_tuned, with_values

METHODS = sorted(file.stem for file in (CONF / "algorithm").glob("*.yaml"))
SPACES = {name: about(name)["space"] for name in METHODS if "space" in about(name)}


def space(algorithm: str, *typed: str, roots: Sequence[Path] = (CONF,)) -> dict[str, str]:
    found = space_of(composed(f"algorithm={algorithm}"), algorithm, parsed(typed), roots)
    return {key: one.words() for key, one in found.items()}


def dimension(text: str) -> Dimension:
    return Dimension.of(parsed([text])[0])


@pytest.mark.parametrize(
    "values",
    [
        *({1: 2}, {None: 2}, {True: 1}, {"seeds": [5, 6]}, {"seeds": 5}, {"data.root": "/tmp"}),
        *({"rounds": 3}, {"name": "x"}, {"tuned": "y"}, {"solver._target_": "x.Y"}, {"nosuch": 1}),
        *({"solver.lr": [1]}, {"solver": {"lr": 1}}),
    ],
)
def test_a_file_with_values_that_no_search_has_is_one_line(
    tmp_path: Path, values: dict[object, object]
) -> None:
    file = tmp_path / "best.yaml"
    file.write_text(yaml.safe_dump({"choices": {}, "seeds": [1000], "values": values}))
    config = composed("algorithm=fedavg", f"tuned={file}")
    with pytest.raises(ConfigError, match=r"tuned=.*is not allowed: .*no search has") as error:
        apply_tuned(config, {}, [])
    assert repr(next(iter(values))) in str(error.value)


def test_what_is_typed_as_a_list_is_tried_whole() -> None:
    config = composed("algorithm=ifca")
    typed = parsed(["num_clusters=1,2,3", "solver.lr=interval(0.1,1)"])
    found = space_of(config, "ifca", typed, (CONF,))
    assert {key for key, one in found.items() if one.whole} == {"num_clusters"}


def test_a_sweep_becomes_its_values() -> None:
    log = dimension("lr=tag(log,interval(0.001,1))")
    assert (log.low, log.high, log.log, log.step, log.options) == (0.001, 1.0, True, None, ())
    assert dimension("k=range(2,9,2)").values() == [2, 4, 6, 8]
    assert dimension("k=1,2.5,auto,null,1").options == (1, 2.5, "auto", None)
    assert dimension("k=true,false").options == (True, False)
    assert log.holds(0.5)
    assert not log.holds(2.0)
    assert not log.holds("0.5")
    assert dimension("k=range(2,9,2)").holds(4)
    assert not dimension("k=range(2,9,2)").holds(5)
    for text in ("lr=tag(log,interval(0.001,1))", "k=range(2,7,2)", "k=1,2.5,auto,null"):
        assert dimension(f"k={dimension(text).words()}").values() == dimension(text).values()


@pytest.mark.parametrize(
    "text",
    ["lr=interval(1,0.1)", "lr=tag(log,interval(0,1))", "k=range(2,2)", "k=range(0.5,2)"],
)
def test_a_range_without_values_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not allowed"):
        dimension(text)


def test_values_come_back_from_text_with_the_same_bits() -> None:
    log, choice = dimension("lr=interval(0,1)"), dimension("k=1,2.5,auto,null")
    assert log.read(written(0.1 + 0.2)) == 0.1 + 0.2
    assert [choice.read(written(one)) for one in choice.options] == [1, 2.5, "auto", None]
    assert dimension("k=range(1,5)").read(written(3)) == 3


def test_what_is_typed_is_searched_wherever_the_default_lies() -> None:
    similarity = space("stocfl", "algorithm.similarity=interval(-0.9,-0.5)")
    assert similarity["algorithm.similarity"] == "interval(-0.9,-0.5)"
    assert space("fedavg", "solver.lr=1,2") == {"solver.lr": "1,2"}
    assert space("ifca", "num_clusters=range(2,4)")["num_clusters"] == "range(2,4,1)"


def test_settings_can_be_counted_where_no_interval_is_searched() -> None:
    found = {"a": dimension("a=1,2.5,auto"), "b": dimension("b=range(2,9,2)")}
    assert num_settings(found, {"a": 1, "b": 2}) == 12
    assert num_settings(found, {"a": 1, "b": 3}) == 13  # and the default
    assert num_settings({**found, "c": dimension("c=interval(0,1)")}, {}) is None


def test_values_that_are_not_searched_are_not_read() -> None:
    for text, value in (("k=1,2", "3"), ("k=range(1,5)", "9"), ("k=interval(0,1)", "a")):
        with pytest.raises(ValueError, match=value):
            dimension(text).read(value)


@pytest.mark.full
def test_shared_own_and_typed_values_and_what_is_fixed() -> None:
    rate, pull = "tag(log,interval(0.001,1))", "tag(log,interval(0.001,10))"
    both = {"solver.lr": rate, "algorithm.solver.proximal": pull}
    assert space("fedprox") == both
    assert space("fedprox", "solver.lr=0.3") == {"algorithm.solver.proximal": pull}
    typed = space("fedprox", "solver.lr=0.1,0.2", "solver.momentum=0.0,0.9")
    assert typed == {**both, "solver.lr": "0.1,0.2", "solver.momentum": "0.0,0.9"}
    assert space("ifca", "num_clusters=2,4") == {"solver.lr": rate, "num_clusters": "2,4"}


def test_a_file_of_the_users_takes_the_place_of_ours(tmp_path: Path) -> None:
    (tmp_path / "space").mkdir()
    (tmp_path / "space" / "fedprox.yaml").write_text("algorithm.solver.proximal: 0.5, 1.0\n")
    assert space("fedprox", roots=[tmp_path, CONF])["algorithm.solver.proximal"] == "0.5,1.0"
    (tmp_path / "space" / "fedprox.yaml").write_text("algorithm.solver.proximal: 0.5\n")
    with pytest.raises(ConfigError, match=r"fedprox\.yaml: algorithm\.solver\.proximal=0\.5 is"):
        space("fedprox", roots=[tmp_path, CONF])


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("num_clusters=2,4", "num_clusters=2,4 is not allowed: algorithm=fedavg does not read it"),
        ("cluster_method.max_iterations=5,6", "algorithm=fedavg"),
        ("rounds=5,6", "rounds=5,6 is not allowed: a search compares values under one"),
        ("algorithm.mu=1,2", "algorithm.mu=1,2 is not allowed: the config of algorithm=fedavg has"),
        ("algorithm.solver=1,2", "algorithm.solver=1,2 is not allowed: the config of"),
    ],
)
def test_a_key_that_the_method_does_not_read_is_one_line(typed: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        space("fedavg", typed)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_nothing_to_search_is_one_line() -> None:
    with pytest.raises(ConfigError, match="algorithm=fedavg is not allowed: nothing of it"):
        space("fedavg", "solver.lr=0.1")


def test_values_are_put_in_and_reach_what_refers_to_them() -> None:
    config = composed("algorithm=fedprox")
    changed = with_values(config, {"solver.lr": 0.25, "algorithm.solver.proximal": 3.0})
    assert changed.algorithm.solver.lr == 0.25
    assert changed.algorithm.solver.proximal == 3.0
    assert config.algorithm.solver.lr == 0.1
    with pytest.raises(ConfigError, match=r"solver\.rate=0\.1 is not allowed"):
        with_values(config, {"solver.rate": 0.1})


def test_a_method_of_ones_own_says_what_is_searched(tmp_path: Path) -> None:
    (tmp_path / "algorithm").mkdir()
    own = "defaults: [fedprox, _self_]\nabout:\n  space:\n    algorithm.solver.proximal: 1, 2\n"
    own += "server_lr: 1.0\n"  # the block need not be the last
    (tmp_path / "algorithm" / "mine.yaml").write_text(own)
    found = space_of(composed("algorithm=fedprox"), "mine", [], [tmp_path, CONF])
    assert found["algorithm.solver.proximal"].words() == "1,2"


def test_a_method_adds_few_keys_and_the_shared_file_has_no_others_beside_it() -> None:
    assert [file.name for file in (CONF / "space").glob("*.yaml")] == ["shared.yaml"]
    assert len(SPACES) == 26
    for node in SPACES.values():
        assert 1 <= len(node) <= 2  # beside the learning rate, as much for every method


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(SPACES))
def test_every_key_of_a_space_is_read_and_its_default_inside(algorithm: str) -> None:
    assert set(space(algorithm)) == {"solver.lr", *SPACES[algorithm]}


CHOSEN = [(g, f.stem) for g in ("solver", "server") for f in sorted((CONF / "space" / g).glob("*"))]


@pytest.mark.thinned
@pytest.mark.parametrize(("group", "name"), CHOSEN)
def test_a_solver_and_a_server_have_keys_of_their_own(group: str, name: str) -> None:
    """Each is read, allowed in its whole range, and near the default; the method's stay."""
    config = composed("algorithm=ifca", f"{group}={name}")
    plain = space_of(config, "ifca", [], [CONF])
    found = space_of(config, "ifca", [], [CONF], {"solver": "sgd", group: name})
    own = {key: one for key, one in found.items() if plain.get(key) != one}
    assert own
    assert set(plain) <= set(found)
    for key, one in own.items():
        assert key.startswith(f"{group}.")
        assert one.holds(default_of(config, key))
        for value in one.probes():
            check_method(resolve(with_values(config, {key: value}), {}))


def test_keys_of_a_solver_that_the_method_does_not_read_are_left_out() -> None:
    config = composed("algorithm=jgl", "solver=sgd")
    assert set(space_of(config, "jgl", [], [CONF], {"server": "mean", "solver": "sgd"})) == {
        "solver.lr",
        "algorithm.gradient_weight",
    }
    with pytest.raises(ConfigError, match=r"server\.rate=1,2 is not allowed: the config"):
        space_of(config, "jgl", parsed(["server.rate=1,2"]), [CONF])
