"""What a config may name, and which values the named parts take."""

from __future__ import annotations

import inspect
import pkgutil
import sys
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from configs import composed

import fedclust
from fedclust.config.objects import Objects, parts
from fedclust.config.parts import MOVED, PARTS
from fedclust.config.schema import LIKE_SOLVER, relevant
from fedclust.config.tree import CONF
from fedclust.config.values import check_common, common_readers
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.ranges import Range


def targets(group: str) -> set[str]:
    """The parts that the shipped choices of a group name."""
    nodes = [yaml.safe_load(file.read_text()) for file in (CONF / group).rglob("*.yaml")]
    return {node["_target_"] for node in nodes if "_target_" in node}


@pytest.mark.thinned
@pytest.mark.parametrize("group", sorted(PARTS))
def test_the_parts_of_a_group_are_those_that_can_be_chosen(group: str) -> None:
    assert set(parts(group)) == targets(group)


def attributes() -> Iterator[str]:
    """Every attribute of every module of fedclust, by its dotted name."""
    for module in pkgutil.walk_packages(fedclust.__path__, "fedclust."):
        # Triton's files are for a GPU
        if module.name.startswith(("fedclust.engines.fused.cuda.", "fedclust.__main__")):
            continue
        for name in vars(import_module(module.name)):
            yield f"{module.name}.{name}"


@pytest.mark.full
def test_nothing_else_of_fedclust_can_be_named() -> None:
    refused = 0
    names = list(attributes())
    for group in PARTS:
        allowed = targets(group)
        for name in names:
            if name in allowed:
                continue
            with pytest.raises(ConfigError, match=r"_target_"):
                Objects().check({"_target_": name}, group)
            refused += 1
    assert refused > 10_000


@pytest.mark.parametrize(
    "target",
    [
        *("os.system", "builtins.eval", "eval", "", "fedclust", 3, None),
        *("fedclust.runtime.checkpoints.torch.load", "fedclust.datasets.npz.np.load"),
        *("fedclust.engines.fused.native.compiled._runs", "fedclust.trackers.optional"),
        *("fedclust.trackers.none", "fedclust.trackers.none.NoTracker.close"),
        *("fedclust.trackers..NoTracker", "fedclust.solver.Solver"),
    ],
)
def test_code_from_elsewhere_is_refused(target: object) -> None:
    with pytest.raises(ConfigError, match=r"tracker\._target_=.* is not allowed: a tracker of"):
        Objects().check({"_target_": target}, "tracker")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """A user's folder with a file of parts."""
    (tmp_path / "my_parts.py").write_text(
        "from os import system\n"
        "from subprocess import Popen\n"
        "from fedclust.trackers.none import NoTracker\n"
        "class Mine(NoTracker):\n"
        "    def __init__(self, depth: int = 1) -> None:\n"
        "        self.depth = depth\n"
        "class NoSink:\n"
        "    pass\n"
        "class NoTransfers:\n"
        "    def __call__(self, clients, models, common, ids, rnd):\n"
        "        return models @ models.T\n"
        "def made():\n"
        "    raise ZeroDivisionError('by hand')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_parts", raising=False)
    return Objects(tmp_path)


def test_a_users_class_is_a_part(mine: Objects) -> None:
    assert mine.make({"_target_": "my_parts.Mine", "depth": 3}, "tracker").depth == 3


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"_target_": "my_parts.system", "command": "true"}, r"_target_=my_parts.system"),
        ({"_target_": "my_parts.Popen", "args": "true"}, r"_target_=my_parts.Popen"),
        (
            {"_target_": "my_parts.NoSink"},
            r"NoSink has no begin, log, end, close, and is no t",
        ),
        ({"_target_": "my_parts.Min"}, r"Min is not allowed: the module my_parts has Mine"),
        ({"_target_": "my_parts.Mine", "depth": "4"}, r"000\]; it is text, in quotes$"),
        ({"_target_": "my_parts.Mine", "depth": "four"}, r"000\]$"),
        ({"depth": 4}, r"tracker has the keys depth, and no _target_, which names its class$"),
        ({"_target_": "my_parts.Mine", "depth": 1e300}, r"depth=1e\+300 .* an integer in"),
        ({"_target_": "my_parts.Mine", "width": 1}, r"tracker has the keys depth"),
        ({"_target_": "my_parts.made"}, r"tracker: ZeroDivisionError: by hand"),
        ({"_target_": "subprocess.Popen", "args": "true"}, r"_target_=subprocess.Popen"),
    ],
)
def test_what_a_users_file_merely_imports_is_none(
    mine: Objects, node: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        mine.make(node, "tracker")


def test_a_metric_that_does_not_say_what_it_sends_is_none(mine: Objects) -> None:
    with pytest.raises(ConfigError, match=r"_target_=my_parts.NoTransfers is not allowed"):
        mine.make({"_target_": "my_parts.NoTransfers"}, "cluster_metric")


def test_a_module_passes_on_only_the_parts_that_it_says_it_does() -> None:
    assert Objects().attribute("fedclust.solver.Solver", "__name__", "") == "SGD"
    with pytest.raises(ConfigError, match=r"flexcfl\.ShiftTest is not allowed"):
        Objects().attribute("fedclust.algorithms.flexcfl.ShiftTest", "__name__", "")


@pytest.mark.parametrize(("first", "now"), MOVED.items())
def test_a_folder_from_before_a_class_moved_finds_it_and_is_continued(first: str, now: str) -> None:
    assert Objects().attribute(first, "__module__", "") == now.rpartition(".")[0]
    with pytest.raises(ModuleNotFoundError):
        import_module(first.rpartition(".")[0])
    configs = ({"algorithm": {"part": {"_target_": one}}} for one in (first, now))
    assert [relevant(one)["algorithm"]["part"]["_target_"] for one in configs] == [first, first]


def test_a_file_named_like_a_module_does_not_open_that_module(tmp_path: Path) -> None:
    (tmp_path / "subprocess.py").touch()
    with pytest.raises(ConfigError, match=r"_target_=subprocess\.Popen is not allowed"):
        Objects(tmp_path).make({"_target_": "subprocess.Popen", "args": "true"}, "tracker")


def test_an_installed_plug_in_is_asked_for_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "fedclust_sink"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from fedclust.trackers.none import NoTracker\nclass Sink(NoTracker):\n    pass\n"
    )
    node = {"_target_": "fedclust_sink.Sink"}
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"_target_=fedclust_sink\.Sink"):
        Objects().make(node, "tracker")
    about = tmp_path / "fedclust_sink-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: fedclust_sink\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fedclust]\nsink = fedclust_sink\n")
    assert type(Objects().make(node, "tracker")).__name__ == "Sink"


SOLVER = {"_target_": "fedclust.solver.Solver", "lr": 0.1}


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({**SOLVER, "_partial_": True}, r"solver\._partial_=True is not allowed"),
        ({**SOLVER, "_args_": [1]}, r"solver\._args_"),
        ({**SOLVER, "_recursive_": False}, r"solver\._recursive_"),
        ({**SOLVER, "_convert_": "all"}, r"solver\._convert_"),
        ({"_target_": SOLVER["_target_"]}, r"solver\.lr is missing"),
        (None, r"solver=null is not allowed: it must be a mapping with _target_"),
        (3, r"solver=3 is not allowed"),
        ([SOLVER], r"solver=\[.* is not allowed"),
        ({}, r"solver=\{\} is not allowed"),
        ({**SOLVER, "lr": float("inf")}, r"solver\.lr=inf .* a number in \(0, 1,000,000,000\]"),
        ({**SOLVER, "lr": float("nan")}, r"solver\.lr=nan"),
        ({**SOLVER, "lr": 1e300}, r"solver\.lr=1e\+300"),
        ({**SOLVER, "lr": True}, r"solver\.lr=True"),
        (
            {**SOLVER, "batch_size": 10**30},
            r"batch_size=1000000.* an integer in .* or null",
        ),
    ],
)
def test_a_bad_node_is_one_line(node: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        Objects().make(node, "solver")
    assert "\n" not in str(raised.value)


def test_a_mistake_in_a_shared_node_is_told_by_its_own_key() -> None:
    solver = {**SOLVER, "lr": -1}
    node = {"_target_": "fedclust.algorithms.fedavg.FedAvg", "solver": solver}
    with pytest.raises(ConfigError, match=r"^solver\.lr=-1 is not allowed"):
        Objects(shared={"solver": solver}).check(node, "algorithm")
    with pytest.raises(ConfigError, match=r"^algorithm\.solver\.lr=-1 is not allowed"):
        Objects().check(node, "algorithm")


def test_a_part_of_another_kind_is_refused_where_an_argument_asks_for_one() -> None:
    tracker = {"_target_": "fedclust.trackers.none.NoTracker"}
    node = {"_target_": "fedclust.algorithms.fedavg.FedAvg", "solver": tracker}
    with pytest.raises(ConfigError, match=r"algorithm\.solver\._target_=.*: a solver of fedclust"):
        Objects().check(node, "algorithm")


def numbers(hint: Any, bounded: bool = False) -> Iterator[bool]:
    """For every kind of number that an annotation allows, whether its range is stated."""
    if typing.get_origin(hint) is typing.Annotated:
        plain, *more = typing.get_args(hint)
        yield from numbers(plain, any(isinstance(one, Range) for one in more))
    elif hint in (int, float):
        yield bounded
    elif typing.get_origin(hint) is not typing.Literal:
        for inner in typing.get_args(hint):
            yield from numbers(inner, bounded)


def all_targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "_target_" in node:
            yield node["_target_"]
        for value in node.values():
            yield from all_targets(value)


@pytest.mark.full
def test_every_number_of_every_part_states_its_range() -> None:
    files = [file for file in CONF.rglob("*.yaml") if "hydra" not in file.parts]
    found = {one for file in files for one in all_targets(yaml.safe_load(file.read_text()))}
    found.discard(LIKE_SOLVER)
    checked = 0
    for target in sorted(found):
        module, _, name = target.rpartition(".")
        part = getattr(import_module(module), name)
        holder = part.__init__ if _own_init(part) else part
        for field, hint in typing.get_type_hints(holder, include_extras=True).items():
            of_data = field in ("in_shape", "num_classes", "return")
            if not of_data and typing.get_origin(hint) is not typing.ClassVar:
                stated = list(numbers(hint))
                assert all(stated), f"{target}.{field} states no range"
                checked += len(stated)
    assert checked > 100


def _own_init(part: Any) -> bool:
    is_data = "__dataclass_fields__" in vars(part)
    return inspect.isclass(part) and not is_data and inspect.isfunction(part.__init__)


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 1e300, 10**30])
def test_a_range_holds_no_absurd_number(value: float) -> None:
    assert not Range(0).holds(value)
    assert Range(0).holds(1e9)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Range(0, 1, open_low=True), "in (0, 1]"),
        (Range(0, 1, open_high=True), "in [0, 1)"),
        (Range(1), "in [1, 1,000,000,000]"),
    ],
)
def test_a_range_in_words(limits: Range, words: str) -> None:
    assert limits.words == words
    assert (limits.holds(0) is not limits.open_low and limits.low == 0) or not limits.holds(0)


def test_what_stands_below_common_is_read_and_checked() -> None:
    readers = common_readers([CONF])
    assert sorted(readers) == [
        "aggregation",
        "baseline_aggregation",
        "cluster_choice",
        "cluster_participation",
        "release_every",
        "restart_fraction",
        "swap_probability",
        "warmup_participation",
    ]
    set_in_config = composed()["common"]
    assert set(set_in_config) == set(readers)
    for name, value in set_in_config.items():  # of which nobody is asked when a job starts
        assert "" in [Objects().misfit(value, *reader) for reader in readers[name]]
    check_common({"cluster_choice": "test_loss", "restart_fraction": None}, Objects())
    for name, value, said in (
        ("aggregation", "nonsense", "expected one of uniform, by_samples, first_client$"),
        ("restart_fraction", 0, r"expected a number in \(0, 1\] or null"),
        ("release_every", 2.5, "expected an integer"),
        ("nonsense", 1, "no group reads it"),
        ("nonsense", None, "no group reads it"),
        ("release_every", 50.0, "expected an integer"),
    ):
        with pytest.raises(ConfigError, match=rf"common\.{name}={value} is not allowed: .*{said}"):
            check_common({name: value}, Objects())
