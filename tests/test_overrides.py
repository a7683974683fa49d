"""Hints: what a message shows to be typed means, pasted into bash, what it says."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

import fedclust
from fedclust.algorithms.warmup import unclustered
from fedclust.config.schema import check_sampling
from fedclust.datasets.csv import Csv
from fedclust.datasets.npz import Npz
from fedclust.helpers.errors import ConfigError, UserError, can_be_key, typed
from fedclust.launch.compose import compose
from fedclust.launch.typed import as_typed

# of a message, what stands before a value that is typed: group=, key.of.a.part=, +tags.…=
_KEY = re.compile(r"""(?<![\w.=])['"]?\+?[a-z_]+(?:\.[a-z_]+)*=(?!=)""")


def through_bash(*texts: str) -> list[str]:
    """The arguments that bash makes of texts."""
    script = "\n".join(f"printf '%s\\0' {text}" for text in texts)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def overrides(message: str) -> list[tuple[str, Any]]:
    """Every override of a message as bash and Hydra read it: the key and the value."""
    words = []
    for found in _KEY.finditer(message):
        rest = message[found.start() :]
        quote = rest[0] if rest[0] in "'\"" else ""
        plain = r"(?:\[[^]\s]*\]|[^\s,;:)])*"  # in which a list has commas
        closed = rf"{quote}(?=[ ,;:)]|$)"
        end = re.search(closed, rest[1:]) if quote else re.match(plain, rest[1:])
        assert end is not None, rest
        words.append(rest[: 1 + end.end()])
    read = [OverridesParser.create().parse_override(one) for one in through_bash(*words)]
    return [(one.key_or_group, one.value()) for one in read]


@pytest.mark.thinned
@pytest.mark.parametrize(
    "value",
    [
        *(";", ",", "\t", "|", "#", "'", '"', " ", "$HOME", "`id`", "a!b", "\\", "null", "1", ""),
        *("my column", "größer", "it's", "a=b", "{x}", "[y]", "true", "~", "*"),
        *([], ["a", "b"], ["my column", "it's", "a,b", "1", "$x"], 1, 0.5, None, True),
    ],
    ids=repr,
)
def test_what_is_shown_means_the_value_in_bash(value: Any) -> None:
    (said,) = through_bash(typed("dataset.key", value))
    found = OverridesParser.create().parse_override(said)
    assert (found.key_or_group, found.value()) == ("dataset.key", value)


def _table(folder: Path, text: str, **more: Any) -> Any:
    (folder / "t.csv").write_text(text)
    given: dict[str, Any] = {"path": str(folder / "t.csv"), "label": "y", **more}
    return Csv(**given).load()


ROWS = "".join(f"{i},{i % 3 + 0.5},{i % 2}\n" for i in range(40))
CSV: dict[str, tuple[str, dict[str, Any], tuple[str, Any]]] = {
    "separator": ("a;b;y\n1;2;0\n3;4;1\n", {}, ("dataset.separator", ";")),
    "tab": ("a\tb\ty\n1\t2\t0\n3\t4\t1\n", {}, ("dataset.separator", r"\t")),
    "bar": ("a|b|y\n1|2|0\n3|4|1\n", {}, ("dataset.separator", "|")),
    "commas": ('a;y\n"1,5";0\n"2,5";1\n', {"separator": ";"}, ("dataset.decimal", ",")),
    "words": ("a,y\nx,0\nz,1\n", {}, ("dataset.categories", "onehot")),
    "gaps": ("a,b,y\n1,2,0\n,3,1\n", {}, ("dataset.fill", "median")),
}


@pytest.mark.parametrize("case", CSV)
def test_a_tables_hint_is_read_by_bash_and_leads_on(case: str, tmp_path: Path) -> None:
    text, given, (key, value) = CSV[case]
    with pytest.raises(UserError) as told:
        _table(tmp_path, text, **given)
    assert (key, value) in overrides(str(told.value))
    name = key.partition(".")[2]
    assert _table(tmp_path, text, **given, **{name: value}).x_train is not None


def test_columns_that_are_left_out_can_be_pasted(tmp_path: Path) -> None:
    text = "Unnamed: 0,my column,y\n" + ROWS  # the first numbers the rows
    (kept,) = (one for one in _table(tmp_path, text).remarks if "dataset.exclude=" in one)
    assert overrides(kept[kept.index("is no input") :]) == [("dataset.exclude", [])]


ODD = ("my id", "it's id", 'a"b id', "x;y id", "$HOME id", "a,b id", "50% {z} [id]/id", "größe id")


@pytest.mark.thinned
@pytest.mark.parametrize("name", ODD)
def test_hints_that_show_a_column_are_read_by_bash_whatever_it_is_called(
    name: str, tmp_path: Path
) -> None:
    rows = pd.DataFrame({name: np.arange(80) // 4, "x": np.arange(80) * 7 % 31 + 0.5})
    rows["y"] = rows["x"] > 15
    remarks = " | ".join(_frame(tmp_path, rows).remarks)
    assert ("dataset.unit", name) in overrides(remarks)
    assert ("dataset.exclude", ["x"]) in overrides(remarks)  # which tells the classes apart
    counted = rows.assign(**{name: np.arange(80) + 3})
    remarks = " | ".join(_frame(tmp_path, counted, exclude=["x"]).remarks)
    assert ("dataset.exclude", ["x", name]) in overrides(remarks)
    words = rows.assign(**{name: ["3+", "1", "2", "0"] * 20})
    with pytest.raises(UserError) as told:
        _frame(tmp_path, words)
    said = str(told.value)
    value = {name: "onehot"}
    if can_be_key(name):
        assert overrides(said)[0] == ("dataset.categories", value)
    else:  # no override can spell it
        assert (
            f"in a config file dataset.categories: {json.dumps(value, ensure_ascii=False)}" in said
        )
        with pytest.raises(ConfigError, match="in a config file alone"):
            fedclust.run({"dataset.categories": value})
    assert _frame(tmp_path, words, categories=value).names.features[0] == f"{name}=0"


@pytest.mark.parametrize("name", [one for one in (*ODD, "a:b", "my, id", "a=b") if can_be_key(one)])
def test_a_mapping_of_python_means_what_it_says(name: str) -> None:
    (text,) = as_typed([{"dataset.categories": {name: "onehot"}}], {}, many=False)
    assert OverridesParser.create().parse_override(text).value() == {name: "onehot"}


def _frame(folder: Path, rows: pd.DataFrame, **more: Any) -> Any:
    rows.to_csv(folder / "t.csv", index=False)
    return Csv(path=str(folder / "t.csv"), label="y", **more).load()


@pytest.mark.parametrize(
    ("typed_in", "meant"),
    [
        ("rounds=1,2", [("rounds", [1, 2]), ("rounds", "1,2")]),
        ("name=x;y", [("name", "x;y")]),
        ("name='a b", [("name", "a b")]),
        ('name=a"$b', [("name", 'a"$b')]),
        ("name=größe\\", [("name", "größe\\")]),
    ],
)
def test_what_is_shown_of_a_value_that_cannot_be_read_can_be(
    typed_in: str, meant: list[tuple[str, Any]]
) -> None:
    with pytest.raises(UserError) as told:
        fedclust.run(typed_in)
    found = overrides(str(told.value).partition("; " if "," in typed_in else ": ")[2])
    assert found[: len(meant)] == meant


@pytest.mark.full
def test_no_message_shows_a_column_as_it_is() -> None:
    """Where a key of columns stands before what is filled in, `typed` has to write both."""
    names = "unit|exclude|features|label|client|group|time|value|split|image|path|categories|fill"
    bare = re.compile(rf"(?:dataset\.(?:{names}|separator|decimal)|scores|frozen)=['\"\[{{]*$")
    found = []
    for file in sorted(Path(fedclust.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            found += [
                f"{file.name}:{one.lineno}"
                for one, after in pairwise(parts)
                if isinstance(one, ast.Constant) and isinstance(after, ast.FormattedValue)
                if bare.search(str(one.value))
            ]
    assert found == []


def test_hints_of_npz_lead_on(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    y = np.arange(8) % 2

    def load(labels: Any) -> Any:
        path = tmp_path / "a.npz"
        np.savez(path, x_train=x, y_train=labels, x_test=x, y_test=labels)
        return Npz(path=str(path)).load()

    one_hot = np.eye(2)[y]
    with pytest.raises(UserError, match=r"np\.argmax\(y_train, 1\)"):
        load(one_hot)
    assert load(np.argmax(one_hot, axis=1)).y_train.tolist() == y.tolist()
    with pytest.raises(UserError, match=r"y_train\.astype\(int\)"):
        load(y.astype(object))
    assert load(y.astype(object).astype(int)).y_train.tolist() == y.tolist()
    assert load(y == 1).y_train.tolist() == y.tolist()


def _tags() -> object:
    return fedclust.run("tags={idea: x}")


def _participation() -> object:
    return check_sampling({"clients_per_round": 4, "participation": 0.5}, ["participation"])


def _vocabulary() -> object:
    return fedclust.run("model=mlp", "tags.idea=x")


@pytest.mark.parametrize(
    ("refused", "hint"),
    [
        (_tags, "+tags.idea=x"),
        (_vocabulary, "+tags.idea=x"),
        (_participation, "clients_per_round=null"),
    ],
)
def test_a_hint_composes(refused: Callable[[], object], hint: str) -> None:
    with pytest.raises(UserError) as told:
        refused()
    message = str(told.value).replace("=…", "=x")
    assert hint in message
    (said,) = through_bash(hint)
    assert compose([said]) is not None


def _hints_in_code() -> list[tuple[str, str]]:
    """Overrides in messages of the package that have no part to be filled in."""
    root = Path(fedclust.__file__).parent
    pattern = re.compile(
        r"(?<![\w.'\"{=])((?:common|solver|algorithm|partition|dataset|scenario|task|cluster_method"
        r"|report|privacy|features|model|tracker|aggregation|attack)(?:\.[a-z_]+)*="
        r"[A-Za-z0-9_.+\[\]-]+)(?=[ ,;:)`\"])"
    )
    found = set()
    for file in sorted(root.rglob("*.py")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if '"' not in line or line.strip().startswith(("#", '"""')):
                continue
            # a[ is the beginning of an index
            found |= {(file.name, one) for one in pattern.findall(line) if one[-1] != "["}
    return sorted(found)


def test_every_hint_of_the_package_is_read_by_bash_and_hydra() -> None:
    hints = [text for _, text in _hints_in_code()]
    assert len(hints) > 20
    assert through_bash(*map(_bare, hints)) == list(map(_bare, hints))
    for text in map(_bare, hints):
        parsed = OverridesParser.create().parse_override(text)
        assert not parsed.is_sweep_override(), text


def _bare(text: str) -> str:
    """Without the end of a sentence."""
    return text.rstrip(".,:")


def test_signs_that_the_docs_show_survive_bash(root: Path) -> None:
    text = (root / "docs" / "how-to" / "own_data.md").read_text(encoding="utf-8")
    shown = re.findall(r"`([^`]*dataset\.(?:separator|decimal)=[^`]+)`", text)
    read = [OverridesParser.create().parse_override(one).value() for one in through_bash(*shown)]
    assert sorted(set(read)) == [",", ";"]


def test_hints_with_numbers_of_ours_are_read_by_bash(tmp_path: Path) -> None:
    said = unclustered(5, 3, "algorithm.warmup.rounds")
    assert overrides(said) == [("rounds", 6), ("algorithm.warmup.rounds", 2)]
    (tmp_path / "t.csv").write_bytes("a,y\ngröße,0\n".encode("latin-1"))
    with pytest.raises(UserError) as told:
        Csv(path=str(tmp_path / "t.csv"), label="y").load()
    assert overrides(str(told.value)) == [("dataset.encoding", "latin-1")]
