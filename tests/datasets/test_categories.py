"""How words become numbers, column by column, and which words are numbers with a sign."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser

from fedclust.config.data import federate
from fedclust.config.objects import Objects
from fedclust.core.types import Dataset
from fedclust.datasets.column import Column
from fedclust.datasets.csv import Csv
from fedclust.datasets.inputs import _in_order
from fedclust.datasets.signs import by_number, sign_of, signs_of
from fedclust.helpers.errors import ConfigError, DataError, typed
from fedclust.partitions.natural import Natural

ROWS = 60
RNG = np.random.default_rng(0)
PLAIN = pd.DataFrame({"x": RNG.normal(0, 1, ROWS).round(3), "label": np.arange(ROWS) % 2})
PAIN = np.array(["low", "medium", "high"])[RNG.integers(0, 3, ROWS)]
ORDER = ["low", "medium", "high"]


def load(table: pd.DataFrame, folder: Path, **options: Any) -> Dataset:
    table.to_csv(folder / "t.csv", index=False)
    given = {"normalise": "none", "test_share": 0.2, "data_seed": 0} | options
    return Csv(path=str(folder / "t.csv"), **given).load()


def column(dataset: Dataset, name: str) -> list[float]:
    """The values of a feature, those for training first."""
    place = dataset.names.features.index(name)
    values: list[float] = torch.cat([dataset.x_train, dataset.x_test])[:, place].tolist()
    return values


def in_order(dataset: Dataset, table: pd.DataFrame, name: str) -> list[Any]:
    """The values of a column of the table in the order of the dataset's rows."""
    rows = [table["x"].round(3).tolist().index(round(x, 3)) for x in column(dataset, "x")]
    return [table[name].iloc[row] for row in rows]


def test_a_list_is_the_order_and_other_columns_have_a_coding_of_their_own(tmp_path: Path) -> None:
    ward, cp = np.array(["a", "b"])[np.arange(ROWS) // 2 % 2], RNG.integers(1, 5, ROWS)
    table = PLAIN.assign(pain=PAIN, ward=ward, cp=cp, kind=ward)
    how = {"pain": ORDER, "cp": "onehot", "*": "onehot"}
    dataset = load(table, tmp_path, categories=how)
    assert dataset.names.features == (
        *("x", "pain", "ward=a", "ward=b"),
        *("cp=1", "cp=2", "cp=3", "cp=4", "kind=a", "kind=b"),
    )
    assert not [line for line in dataset.remarks if "pain" in line]
    assert column(dataset, "pain") == [*map(ORDER.index, in_order(dataset, table, "pain"))]
    assert column(dataset, "cp=3") == [value == 3 for value in in_order(dataset, table, "cp")]
    turned = load(table, tmp_path, categories=how | {"cp": [4, 3, 2, 1]})
    assert column(turned, "cp") == [4 - value for value in in_order(turned, table, "cp")]
    with pytest.raises(
        DataError, match=r"words in column kind .*'dataset.categories=\{pain: .*onehot"
    ):
        load(table, tmp_path, categories={"pain": ORDER, "ward": "onehot"})
    with pytest.raises(DataError, match=r"has high in column pain, which dataset.categories does"):
        load(table, tmp_path, categories=how | {"pain": ["low", "medium"]})
    with pytest.raises(DataError, match=r"no column pein, which dataset.categories names"):
        load(table, tmp_path, categories={"pein": ORDER})


@pytest.mark.parametrize("normalise", ["mean_std", "client"])
def test_ids_stay_whole_numbers_from_0(tmp_path: Path, normalise: str) -> None:
    cp = np.array([1, 3, 4, 7])[RNG.integers(0, 4, ROWS)].astype(object)
    cp[:8] = None
    table = PLAIN.assign(pain=PAIN, cp=cp, site=np.arange(ROWS) // 2 % 2)
    how = {"pain": "ids", "cp": "ids"}
    dataset = load(
        *(table, tmp_path), categories=how, fill="mean", normalise=normalise, client="site"
    )
    seen = federate(dataset, Natural(), [0], torch.device("cpu"))[0].pool.x
    for name, known in (("pain", 3), ("cp", 4)):
        place = dataset.names.features.index(name)
        raw = torch.cat([dataset.x_train, dataset.x_test])[:, place]
        there = ~raw.isnan()
        assert bool(there.all()) == (name == "pain")
        assert torch.equal(seen[there, place], raw[there])
        assert set(seen[:, place].tolist()) == {*range(known)}  # gaps have no mean of codes
    assert float(seen[:, 0].mean()) == pytest.approx(0, abs=0.2)


def test_words_in_sorted_order_are_told_and_an_ordered_column_of_parquet_keeps_its_own(
    tmp_path: Path,
) -> None:
    table = PLAIN.assign(pain=PAIN, yes=np.where(PAIN == "low", "n", "y"))
    dataset = load(table, tmp_path, categories="ordinal")
    (remark,) = dataset.remarks  # of two words the order says nothing
    assert "column pain is numbered in sorted order, high < low < medium; " in remark
    assert "'dataset.categories={pain: [first,second,third]}' gives another" in remark
    ordered = table.assign(pain=pd.Categorical(PAIN, categories=ORDER, ordered=True))
    ordered.to_parquet(tmp_path / "t.parquet")
    given: dict[str, Any] = {"normalise": "none", "data_seed": 0, "categories": "ordinal"}
    dataset = Csv(path=str(tmp_path / "t.parquet"), **given).load()
    assert not dataset.remarks
    assert column(dataset, "pain") == [*map(ORDER.index, in_order(dataset, table, "pain"))]


def test_numbers_with_a_sign_are_sorted_by_their_numbers(tmp_path: Path) -> None:
    crp = np.array(["10.0", "1.8", "<0.5", "19.3", "2.0", "0.5", ">20"])[np.arange(ROWS) % 7]
    order = ["<0.5", "0.5", "1.8", "2.0", "10.0", "19.3", ">20"]
    table = PLAIN.assign(crp=crp)
    dataset = load(table, tmp_path, categories={"crp": "ordinal"})
    assert column(dataset, "crp") == [*map(order.index, in_order(dataset, table, "crp"))]
    (remark,) = dataset.remarks
    shown = "<0.5 < 0.5 < 1.8 < 2.0 < 10.0 < …"
    assert f"column crp is numbered in the order of its numbers, {shown}; " in remark
    onehot = load(table, tmp_path, categories={"crp": "onehot"}).names.features
    assert onehot[1:] == tuple(f"crp={word}" for word in sorted(order))


def test_an_order_of_words_is_shown_where_its_numbers_fall(tmp_path: Path) -> None:
    words = np.array(["1 g", "2 g", "4 g", "11 mg", "9 mg", "unknown"])[np.arange(ROWS) // 2 % 6]
    table = PLAIN.assign(dose=words)
    remark = load(table, tmp_path, categories={"dose": "ordinal"}).remarks[0]
    assert "in sorted order, 1 g < 11 mg < 2 g < 4 g < 9 mg < …; " in remark
    many = [*"abcdef", "10 mg", "9 mg", "zz"]
    table = PLAIN.assign(dose=np.array(many)[np.arange(ROWS) % len(many)])
    remark = load(table, tmp_path, categories={"dose": "ordinal"}).remarks[0]
    assert "in sorted order, 10 mg < 9 mg < a < b < c < …; " in remark


@pytest.mark.parametrize(
    ("words", "order"),
    [
        (["10 mg", "5 mg", "<2 mg", "7"], ["<2 mg", "5 mg", "7", "10 mg"]),
        (["1 200", "900", "≥1300", "\u22125"], ["\u22125", "900", "1 200", "≥1300"]),
        (["$10", "$9"], ["$9", "$10"]),
        (["5 mg", "1 g"], []),  # several units
        (["10-19", "5"], []),
        (["1,5", "10"], []),  # a comma may stand between thousands
    ],
)
def test_the_numbers_of_words(words: list[str], order: list[str]) -> None:
    assert by_number(words) == order


def test_an_order_is_shown_around_its_break() -> None:
    words = ["5", "6", "7", "8", "19", "2", "3"]
    assert _in_order(words) == "… < 7 < 8 < 19 < 2 < 3"
    assert _in_order([*"abcdef"]) == "a < b < c < d < e < …"
    assert _in_order(["1", "0", "a"]) == "1 < 0 < a"


def test_words_that_look_alike_are_told_of_inputs_too(tmp_path: Path) -> None:
    sex = np.array(["male", "Male ", "female"])[RNG.integers(0, 3, ROWS)]
    (remark,) = load(PLAIN.assign(sex=sex), tmp_path, categories="onehot").remarks
    assert "column sex: 'Male' and 'male' differ in capitals or blanks only, and count as" in remark


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        *[("<0.5", "<"), ("≥ 3", "≥"), ("43%", "%"), ("4.5 %", "%"), ("61 kg", "kg"), ("$43", "$")],
        *[("2.7±0.1", "±"), ("1\u2009081", "\u2009"), ("1 081", " "), ("\u221243", "\u2212")],
        *[
            (" <0.5\t", "<"),
            ("1_021", "_"),
            ("0x29", "0x"),
            ("5.2 mmol/l", "mmol/l"),
            ("3+", "+"),
            ("37 °C", "°C"),
        ],
        *[("low", ""), ("18-39", ""), ("ward 3", ""), ("T1", ""), ("12:30", ""), ("1.2.3", "")],
        *[("", ""), ("IV", ""), ("AB-", ""), ("2020-01-31", "")],
    ],
)
def test_the_sign_beside_a_number(text: str, sign: str) -> None:
    assert sign_of(text) == sign


@pytest.mark.parametrize(
    ("texts", "signs"),
    [
        (("<1", ">9", "5%"), ["%", "<", ">"]),
        (("<1", ">9", "5%", "2 kg"), []),  # codes have as many
        (("<1", "<2", "low"), ["<"]),
        (("<1", "low"), []),
    ],
)
def test_few_signs_of_most_values_make_measurements(texts: tuple[str, ...], signs: Any) -> None:
    assert signs_of(texts) == signs


def test_what_a_column_holds() -> None:
    def of(*values: Any, coding: Any = None) -> Column:
        return Column("v", np.array(values, dtype=object), coding)

    assert of(10, 3, 1.0, 10.0, coding="ids").known == ["1", "3", "10"]
    assert of("10", "3", "b", coding="ids").known == ["10", "3", "b"]
    blank = of("1", " NaN ", "2")
    assert blank.gaps.tolist() == [False, True, False]
    assert not blank.odd.any()
    assert [of(*words).is_words for words in (("1", "a"), ("1", "a", "b"))] == [False, True]
    assert [of(*some).how(indicated=True).indicator for some in ((1, 2), (1, None))] == [
        False,
        True,
    ]
    dates = "2020-01-31", "2020-02-01"
    assert [of(*dates, coding=how).is_dates for how in (None, "onehot")] == [True, False]


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("<{}", "take '<' out"),
        ("{}%", "take '%' out"),
        ("{} kg", "take 'kg' out"),
        ("${}", "take '$' out"),
        ("{}±0.1", "take '±' out"),
        ("\u2212{}", "write -"),
        ("1_0{}", "take '_' out"),
        ("0x{}", "take '0x' out"),
        ("1\u2009{}", "take a thin blank out"),
    ],
)
@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
def test_measurements_with_a_sign_are_no_categories(
    form: str, says: str, share: float, tmp_path: Path
) -> None:
    number = RNG.integers(100, 140, ROWS)
    signed = np.arange(ROWS) < share * ROWS
    value = [form.format(n) if odd else str(n) for n, odd in zip(number, signed, strict=True)]
    with pytest.raises(DataError, match="in column v, row 1: features must be numbers") as error:
        load(PLAIN.assign(v=value), tmp_path, categories="onehot")
    assert says in str(error.value)
    hint = "'dataset.categories={v: onehot, *: onehot}' reads all of column v as words"
    assert hint in str(error.value)
    taken = load(PLAIN.assign(v=value), tmp_path, categories={"v": "onehot"})
    assert len(taken.names.features) == 1 + len(set(value))


@pytest.mark.parametrize(
    "words", [("18-39", "<18", "65+"), ("5 mg", "10 mg"), ("1st", "2nd", "3rd"), ("I", "II", "IV")]
)
def test_few_words_with_numbers_in_them_are_categories(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    value = np.array(words)[RNG.integers(0, len(words), ROWS)]
    dataset = load(PLAIN.assign(v=value), tmp_path, categories="onehot")
    assert set(dataset.names.features) == {"x", *(f"v={word}" for word in words)}
    assert not dataset.remarks


def test_words_among_numbers_are_refused_or_told_and_have_a_way_out(tmp_path: Path) -> None:
    livch = np.array(["0", "1", "2", "3+"])[RNG.integers(0, 4, ROWS)]
    with pytest.raises(DataError, match=r"has 3\+ in column livch, row \d+: features must be") as e:
        load(PLAIN.assign(livch=livch), tmp_path, categories="onehot")
    (hint,) = [part for part in shlex.split(str(e.value)) if part.startswith("dataset.categories=")]
    how = OverridesParser.create().parse_override(hint).value()
    assert how == {"livch": "onehot", "*": "onehot"}
    table = PLAIN.assign(livch=livch)
    dataset = load(table, tmp_path, categories=how)
    assert dataset.names.features[1:] == ("livch=0", "livch=1", "livch=2", "livch=3+")
    assert column(dataset, "livch=2") == [v == "2" for v in in_order(dataset, table, "livch")]
    drive = np.array(["4", "f", "r", "f"])[RNG.integers(0, 4, ROWS)]
    (remark,) = load(PLAIN.assign(drive=drive), tmp_path, categories="onehot").remarks
    assert "column drive mixes words with numbers such as 4: all of it is read as words" in remark


@pytest.mark.parametrize(
    "value",
    [";", ",", "\t", "a b", "null", "true", "07", "1e3", "it's", 'q"u', "back\\", "größe", "<0.5"],
)
def test_a_hint_survives_a_shell_and_hydra(value: str) -> None:
    for given in (value, [1, value], {"x y": value, "q(1)": [value], "*": "onehot"}):
        (word,) = shlex.split(typed("dataset.key", given))
        assert OverridesParser.create().parse_override(word).value() == given
    assert typed("dataset.exclude", ["a", "b"]) == "dataset.exclude=[a,b]"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"categories": "onehott"},
            "categories=onehott is not allowed: expected one of onehot, or",
        ),
        (
            {"categories": {"a": "one"}},
            "a mapping, each entry one of onehot, ordinal, ids or a list",
        ),
        ({"label": None}, "label=null is not allowed: .*'dataset.label=\"null\"' is text"),
        ({"label": 2.5}, "label=2.5 is not allowed: .*'dataset.label=\"2.5\"' is text"),
        ({"features": True}, "features=True is not allowed: expected a list or null$"),
        (
            {"exclude": "admitted"},
            r"expected a list or null; dataset.exclude=\[admitted\] is one$",
        ),
        ({"features": "a b"}, r"; 'dataset.features=\[\"a b\"\]' is one$"),
    ],
)
def test_options_that_are_none_are_one_line(options: dict[str, Any], says: str) -> None:
    node = {"_target_": "fedclust.datasets.csv.Csv", "path": "t.csv", **options}
    with pytest.raises(ConfigError, match=says):
        Objects().check(node, "dataset")


@pytest.mark.parametrize("coding", [None, "onehot"])
def test_decimal_commas_beside_signs_are_numbers(coding: str | None, tmp_path: Path) -> None:
    values = [f"{(i % 40) / 10}".replace(".", ",") if i % 8 else "<0,5" for i in range(80)]
    path = tmp_path / "lab.csv"
    path.write_text("y;crp\n" + "".join(f"{i % 2};{one}\n" for i, one in enumerate(values)))
    given: dict[str, Any] = {"path": str(path), "label": "y", "separator": ";"}
    given["categories"] = coding
    with pytest.raises(DataError, match="numbers with commas in column crp"):
        Csv(**given).load()
    with pytest.raises(DataError, match=r"<0,5 in column crp, row 1: .*take '<' out"):
        Csv(**given, decimal=",").load()
