"""What every setting's federation and model are: sizes, classes, examples per group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import getitem
from typing import Any

import numpy as np

from fedclust.helpers.errors import parts_by_name, some_of
from fedclust.report.arms import Arm, settings_of
from fedclust.report.columns import TableColumn, tabulate
from fedclust.report.spec import Spec
from fedclust.report.style import can_write
from fedclust.report.table import Cell, Table

_MOST_CLASS_ROWS = 40  # settings with more (setting, group) rows than this are left out
_SPLITS = ("train", "validation", "test")
_QUARTILES = ("first quartile", "median", "third quartile")
_PRINTED = {  # column → metric in the tables that describe data sets and models
    "clients": "num_devices",
    "examples": "num_samples_total",
    "parameters": "num_parameters",
}


def federation_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """A row per setting, means over seeds; None where no run wrote `federation.json`."""
    rows = [(arm, _record(arm)) for arm in one_per_setting(arms)]
    splits = max((_splits(record) for _, record in rows), key=len, default=[])

    def number(column: str) -> TableColumn:
        return TableColumn(column, lambda row: _number(spec, row[0], column, row[1]))

    def written(head: str, write: Callable[[Mapping[str, Any]], str | Cell]) -> TableColumn:
        return TableColumn(head, lambda row: row[1], write)

    columns = [
        TableColumn(None, lambda row: row[1], record=dict),
        written("setting", lambda record: record["setting"] or "all"),
        number("clients"),
        written("true groups", lambda record: f"{record['groups']:g}" if record["groups"] else "–"),
        TableColumn(
            f"examples ({' + '.join(splits)})",
            lambda row: _by_split(row[1], _number(spec, row[0], "examples", row[1])),
        ),
        *(
            written(f"{part} per client", partial(_spread, part))
            for part in ("train", "test", "classes")
        ),
        written(
            "label skew",
            lambda record: f"{record['label skew']:.2f}" if "label skew" in record else "–",
        ),
        number("parameters"),
    ]
    skew = (
        "Label skew: total variation between the classes of a client's training examples "
        "and those of all, mean over clients; 0 where all are alike. "
    )
    if not any("classes mean" in record for _, record in rows):  # a task without any
        columns[-3:-1] = []
        skew = ""
    notes = (
        "Per client: mean ± standard deviation over clients (least to most; quartiles in the "
        f"CSV). {skew}Means over seeds.",
        *(line for _, record in rows if (line := _repeated(record))),
        *dict.fromkeys(line for arm, _ in rows if (line := _named(arm))),
    )
    return tabulate("federation", "Federation and model", columns, rows, notes=notes)


def names_of(arm: Arm) -> dict[str, list[str]]:
    """What an arm's data call features, classes, clients and groups, by number; first seed."""
    seeds = arm.run.federation.get("seeds") or {"": {}}
    names: dict[str, list[str]] = next(iter(seeds.values())).get("names", {})
    return names


def called(arm: Arm, part: str, most: int = 18) -> Mapping[int, str]:
    """Names by number, short enough for a figure; empty without, or where no font has them."""
    names = list(map(str, names_of(arm).get(part, ())))
    if not all(map(can_write, names)):
        return {}
    return {i: n if len(n) <= most else f"{n[: most - 1]}…" for i, n in enumerate(names)}


def unwritten(arms: Sequence[Arm]) -> list[str]:
    """A line on names whose letters no font has; figures show numbers of classes and groups."""
    names = [arm.label for arm in arms]
    for arm in arms:
        names += [str(n) for part in ("classes", "groups") for n in names_of(arm).get(part, ())]
    names = [name for name in names if not can_write(name)]
    if not names:
        return []
    return [
        f"no installed font has the letters of {some_of(names, 3)}: figures number such classes "
        "and groups; tables have the names. Noto Sans CJK is a font of many letters"
    ]


def _named(arm: Arm) -> str:
    """The names in one line; empty where there are none."""
    named = parts_by_name(names_of(arm), most=60)
    return f"{'; '.join(named)}." if named else ""


def _record(arm: Arm) -> dict[str, Any]:
    """The numbers of a setting, means over seeds, by the names that the CSV gives them."""
    seeds = list(arm.run.federation["seeds"].values())
    record: dict[str, Any] = {"setting": _title(arm)}
    record |= {name: _mean(seeds, name) for name in ("clients", "groups")}
    totals = {split: _mean(seeds, split, "total") for split in _SPLITS if split in seeds[0]}
    record |= {**totals, "examples": sum(totals.values())}
    for part in (one for one in ("train", "test", "classes") if one in seeds[0]):
        names = ("mean", "min", "max") if part == "classes" else ("mean", "std", "min", "max")
        record |= {f"{part} {name}": _mean(seeds, part, name) for name in names}
    record["parameters"] = int(arm.run.federation["parameters"])
    if all("label_skew" in seed for seed in seeds):  # older runs lack these
        record["label skew"] = _mean(seeds, "label_skew")
    if all("quartiles" in seed[split] for seed in seeds for split in ("train", "test")):
        for split in ("train", "test"):
            each = np.mean([seed[split]["quartiles"] for seed in seeds], axis=0).tolist()
            record |= {f"{split} {q}": v for q, v in zip(_QUARTILES, each, strict=True)}
    if any(seed.get("repeated") for seed in seeds):  # older runs do not say
        record["repeated"] = _mean(seeds, "repeated")
        record["trained and tested"] = _mean(seeds, "trained_and_tested")
    return record


def _splits(record: Mapping[str, Any]) -> list[str]:
    return [split for split in _SPLITS if split in record]


def _by_split(record: Mapping[str, Any], examples: Cell) -> Cell:
    """The number of examples, with that of every split behind it."""
    each = " + ".join(f"{record[split]:,.0f}" for split in _splits(record))
    return examples.noted(each, examples.detail)


def class_table(arms: Sequence[Arm]) -> Table | None:
    """Training examples of every class by setting and true group, first seed; None without any."""
    rows: list[tuple[Arm, str, Sequence[int]]] = []
    left_out = 0
    known = one_per_setting(arms)
    for arm in known:
        seed = next(iter(arm.run.federation["seeds"].values()))
        examples: Mapping[str, Sequence[int]] = seed["examples"] if "classes" in seed else {}
        if len(rows) + len(examples) > _MOST_CLASS_ROWS:
            left_out += 1
        else:
            rows += [(arm, group, counts) for group, counts in examples.items()]
    wide = max((len(counts) for _, _, counts in rows), default=0)
    classes = {tuple(names_of(arm).get("classes", ())) for arm in known}
    names = classes.pop() if len(classes) == 1 else ()
    heads = names if len(names) == wide else [f"class {c}" for c in range(wide)]

    def head(row: tuple[Arm, str, Sequence[int]]) -> str:
        arm, group, _ = row
        groups = dict(enumerate(names_of(arm).get("groups", ())))
        name = "no groups" if group == "-1" else groups.get(int(group), f"group {group}")
        return ", ".join(part for part in (_title(arm), name) if part)

    def of_class(number: int, head: str) -> TableColumn:
        return TableColumn(head, lambda row: f"{row[2][number]:,}" if number < len(row[2]) else "")

    columns = [
        TableColumn("group", head),
        TableColumn(None, lambda row: {"setting": _title(row[0]), "group": row[1]}, record=dict),
        TableColumn(None, lambda row: {str(c): n for c, n in enumerate(row[2])}, record=dict),
        *(of_class(number, str(name)) for number, name in enumerate(heads)),
        TableColumn("all", lambda row: f"{sum(row[2]):,}"),
    ]
    notes = ["First seed."]
    notes += [f"{left_out} more settings with many groups are left out."] * bool(left_out)
    heading = "Training examples per class and true group"
    return tabulate("classes", heading, columns, rows, notes=notes, folded=True)


def one_per_setting(arms: Sequence[Arm]) -> list[Arm]:
    """The first arm of every setting that wrote about its federation."""
    first = [
        next((a for a in arms if a.setting == s and a.run.federation.get("seeds")), None)
        for s in settings_of(arms)
    ]
    return [arm for arm in first if arm is not None]


def _title(arm: Arm) -> str:
    return arm.setting or str(arm.run.asked.get("case") or "")


def _mean(seeds: Sequence[Mapping[str, Any]], *path: str) -> float:
    return float(np.mean([reduce(getitem, path, seed) for seed in seeds]))


def _repeated(record: Mapping[str, Any]) -> str:
    """A line on rows that are owned more than once; "" where there are none."""
    if "repeated" not in record:
        return ""
    where = f"{record['setting']}: " if record["setting"] else ""
    return (
        f"{where}examples are counted for every client that has them: {record['repeated']:,.0f} "
        f"are repeats of another's, and {record['trained and tested']:,.0f} different ones are in "
        "somebody's training and somebody's test set. Means over seeds."
    )


def _number(spec: Spec, arm: Arm, column: str, record: Mapping[str, Any]) -> Cell:
    """A count beside the one the paper prints; exact equality is agreement."""
    printed = spec.printed("", arm.cell, 0, whole=True, metric=_PRINTED[column])
    value = record[column]
    if printed is None:
        return Cell(text=f"{value:,.0f}")
    good = None if not arm.comparable else bool(value == printed.mean)
    return Cell(text=f"{value:,.0f}", detail=f"paper {printed.mean:,.0f}", good=good)


def _spread(what: str, record: Mapping[str, Any]) -> Cell:
    """Mean over clients, with its standard deviation where that is told, and the range."""
    if f"{what} mean" not in record:  # a task without classes beside one that has them
        return Cell(text="–")
    mean, least, most = (record[f"{what} {name}"] for name in ("mean", "min", "max"))
    if most <= least:
        return Cell(text=f"{mean:g}")
    if what == "classes":
        return Cell(text=f"{mean:.1f}", detail=f"{least:.3g} to {most:.3g}")
    text = f"{mean:.1f} ± {record[f'{what} std']:.1f}"
    return Cell(text=text, detail=f"{least:.0f} to {most:.0f}")
