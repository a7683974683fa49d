"""What every setting's federation and model are: sizes, classes per client, examples per class and
group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedclust.report.arms import Arm, settings_of
from fedclust.report.spec import Spec
from fedclust.report.table import Cell, Table

_MOST_CLASS_ROWS = 40  # settings with more (setting, group) rows than this are left out
_QUARTILES = ("first quartile", "median", "third quartile")
_PRINTED = {  # column → metric in the tables that describe data sets and models
    "clients": "num_devices",
    "examples": "num_samples_total",
    "parameters": "num_parameters",
}


def federation_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """One row per setting: clients, examples, per client, classes, parameters; mean over seeds.

    None where no run wrote `federation.json`.
    """
    rows, records, repeats = [], [], list[str]()
    names = ["train", "test"]
    for arm in _one_per_setting(arms):
        seeds = list(arm.run.federation["seeds"].values())
        record: dict[str, Any] = {"setting": _title(arm)}
        record["clients"] = _mean(seeds, "clients")
        record["groups"] = _mean(seeds, "groups")
        splits = [split for split in ("train", "validation", "test") if split in seeds[0]]
        names = max(names, splits, key=len)
        for split in splits:
            record[split] = _mean(seeds, split, "total")
        record["examples"] = sum(record[split] for split in splits)
        for split in ("train", "test"):
            for name in ("mean", "std", "min", "max"):
                record[f"{split} {name}"] = _mean(seeds, split, name)
        for name in ("mean", "min", "max"):
            record[f"classes {name}"] = _mean(seeds, "classes", name)
        record["parameters"] = int(arm.run.federation["parameters"])
        if all("label_skew" in seed for seed in seeds):  # older runs lack these
            record["label skew"] = _mean(seeds, "label_skew")
            for split in ("train", "test"):
                each = [seed[split]["quartiles"] for seed in seeds]
                for name, value in zip(_QUARTILES, np.mean(each, axis=0).tolist(), strict=True):
                    record[f"{split} {name}"] = value
        repeats += _repeated(record, seeds)
        records.append(record)
        examples = _number(spec, arm, "examples", record)
        rows.append(
            (
                Cell(text=record["setting"] or "all"),
                _number(spec, arm, "clients", record),
                Cell(text=f"{record['groups']:g}" if record["groups"] else "–"),
                replace(
                    examples,
                    detail="; ".join(
                        filter(
                            None,
                            (
                                " + ".join(f"{record[split]:,.0f}" for split in splits),
                                examples.detail,
                            ),
                        )
                    ),
                ),
                _spread(record, "train"),
                _spread(record, "test"),
                _range(record["classes mean"], record["classes min"], record["classes max"]),
                Cell(text=f"{record['label skew']:.2f}" if "label skew" in record else "–"),
                _number(spec, arm, "parameters", record),
            )
        )
    if not rows:
        return None
    return Table(
        name="federation",
        title="Federation and model",
        columns=(
            "setting",
            "clients",
            "true groups",
            f"examples ({' + '.join(names)})",
            "train per client",
            "test per client",
            "classes per client",
            "label skew",
            "parameters",
        ),
        rows=tuple(rows),
        records=tuple(records),
        notes=(
            "Per client: mean ± standard deviation over clients (least to most; quartiles in the "
            "CSV). Label skew: total variation between the classes of a client's training examples "
            "and those of all, mean over clients; 0 where all are alike. Means over seeds.",
            *repeats,
        ),
    )


def class_table(arms: Sequence[Arm]) -> Table | None:
    """Training examples of every class per setting and true group, first seed; None where none are
    known.
    """
    rows: list[tuple[Cell, ...]] = []
    records: list[Mapping[str, Any]] = []
    left_out = 0
    for arm in _one_per_setting(arms):
        seed = next(iter(arm.run.federation["seeds"].values()))
        examples: Mapping[str, Sequence[int]] = seed["examples"]
        if len(rows) + len(examples) > _MOST_CLASS_ROWS:
            left_out += 1
            continue
        for group, counts in examples.items():
            name = "no groups" if group == "-1" else f"group {group}"
            title = ", ".join(part for part in (_title(arm), name) if part)
            rows.append((Cell(text=title), *(Cell(text=f"{n:,}") for n in (*counts, sum(counts)))))
            records.append(
                {
                    "setting": _title(arm),
                    "group": group,
                    **{str(c): n for c, n in enumerate(counts)},
                }
            )
    if not rows:
        return None
    wide = max(len(row) for row in rows) - 2
    padded = [(*row[:-1], *[Cell(text="")] * (wide + 2 - len(row)), row[-1]) for row in rows]
    note = f"{left_out} more settings with many groups are left out." if left_out else ""
    return Table(
        name="classes",
        title="Training examples per class and true group",
        columns=("group", *(f"class {c}" for c in range(wide)), "all"),
        rows=tuple(padded),
        records=tuple(records),
        notes=tuple(filter(None, ("First seed.", note))),
        folded=True,
    )


def _one_per_setting(arms: Sequence[Arm]) -> list[Arm]:
    """The first arm of every setting that wrote about its federation."""
    first = [
        next((a for a in arms if a.setting == s and a.run.federation.get("seeds")), None)
        for s in settings_of(arms)
    ]
    return [arm for arm in first if arm is not None]


def _title(arm: Arm) -> str:
    return arm.setting or str(arm.run.asked.get("case") or "")


def _mean(seeds: Sequence[Mapping[str, Any]], *path: str) -> float:
    values = []
    for seed in seeds:
        node: Any = seed
        for key in path:
            node = node[key]
        values.append(node)
    return float(np.mean(values))


def _repeated(record: dict[str, Any], seeds: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line on rows that are owned more than once, whose numbers are put into the record."""
    if not any(seed.get("repeated") for seed in seeds):  # older runs do not say
        return []
    record["repeated"] = _mean(seeds, "repeated")
    record["trained and tested"] = _mean(seeds, "trained_and_tested")
    where = f"{record['setting']}: " if record["setting"] else ""
    return [
        f"{where}examples are counted for every client that has them: {record['repeated']:,.0f} "
        f"are repeats of another's, and {record['trained and tested']:,.0f} different ones are in "
        "somebody's training and somebody's test set. Means over seeds."
    ]


def _number(spec: Spec, arm: Arm, column: str, record: Mapping[str, Any]) -> Cell:
    """A count beside the one the paper prints; exact equality is agreement."""
    printed = spec.printed("", arm.cell, 0, whole=True, metric=_PRINTED[column])
    value = record[column]
    if printed is None:
        return Cell(text=f"{value:,.0f}")
    good = None if not arm.comparable else bool(value == printed.mean)
    return Cell(text=f"{value:,.0f}", detail=f"paper {printed.mean:,.0f}", good=good)


def _spread(record: Mapping[str, Any], split: str) -> Cell:
    mean, std, least, most = (record[f"{split} {name}"] for name in ("mean", "std", "min", "max"))
    if most <= least:
        return Cell(text=f"{mean:g}")
    return Cell(text=f"{mean:.1f} ± {std:.1f}", detail=f"{least:.0f} to {most:.0f}")


def _range(mean: float, least: float, most: float) -> Cell:
    if most <= least:
        return Cell(text=f"{mean:g}")
    return Cell(text=f"{mean:.1f}", detail=f"{least:.3g} to {most:.3g}")
