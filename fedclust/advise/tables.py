"""The tables of an advice: choices, clients, and what is known of the groups."""

from __future__ import annotations

import math

from fedclust.advise.verdict import CHOICES
from fedclust.advise.words import (
    FEWEST,
    SMALL,
    Advice,
    digits,
    gained,
    pair_of,
    shown,
    sites,
    sized,
)
from fedclust.report.formats import factor, heading, in_percent, inside, show
from fedclust.report.table import Cell, Table

_PARTS = ("mean", "low", "high")
_LONG = 60  # rows, above which a table is folded
_MOST_INPUTS = 21  # with the label


def choices_table(advice: Advice) -> Table:
    """The mean score of every choice, and what the verdict's gains over it."""
    one, made = advice.repetitions, advice.verdict
    times, rows, records = factor(one.metric), [], []
    for choice in CHOICES:
        if choice not in one.scores:
            continue
        scores, lead = one.scores[choice], made.gains.get(choice)
        cell = "" if lead is None else gained(advice, lead)
        mark = Cell(text=CHOICES[choice], strong=choice == made.choice)
        rows.append((mark, Cell(text=show(one.metric, float(scores.mean()))), Cell(text=cell)))
        record = {"choice": choice, "mean": times * float(scores.mean())}
        if lead is not None:
            record |= {f"gain {part}": times * getattr(lead, part) for part in _PARTS}
        records.append(record)
    note = (
        f"Mean over {len(one.seeds)} repetitions. Gain of the verdict's choice over each, with the "
        "95 % interval for new data (Nadeau and Bengio 2003)."
    )
    columns = ("choice", heading(one.metric), f"gain of {CHOICES[made.choice]}")
    return Table(
        name="table",
        title="The choices",
        columns=columns,
        rows=tuple(rows),
        records=tuple(records),
        notes=(note,),
    )


def sites_table(advice: Advice) -> Table:
    """Every client by name."""
    one = advice.repetitions
    known = [choice for choice in CHOICES if choice in one.scores]
    made = advice.verdict
    chosen, other = pair_of(made)
    rows, records = [], []
    for client, site in enumerate(sites(advice)):
        told = "–" if site.gain is None else gained(advice, site.gain)
        cells = [Cell(text=show(one.metric, site.means[choice])) for choice in known]
        gain = Cell(text=told, detail=site.says)
        calibrated = {choice: float(by[client]) for choice, by in advice.calibration.items()}
        off = Cell(text=_excess(advice, calibrated.get(made.choice, math.nan)))
        rows.append((Cell(text=site.name), Cell(text=str(site.rows)), *cells, off, gain))
        record = {"client": site.name, "rows": site.rows, **site.means, "says": site.says}
        record |= {f"calibration {choice}": value for choice, value in calibrated.items()}
        if site.gain is not None:
            record |= {f"gain {part}": getattr(site.gain, part) for part in _PARTS}
        records.append(record)
    wide = (
        f"“Too few rows”: fewer than {FEWEST} test rows in a repetition, or an interval around 0 "
        f"that is wider than ± {sized(advice, SMALL * advice.margin)}."
    )
    each = (
        "Gains and loses: by Holm's correction for all clients that are told of. The intervals are "
        "those of each client by itself, at least as wide as so few test rows allow."
    )
    return Table(
        name="clients",
        title="Who gains and who loses",
        columns=(
            *("client", "rows", *known, f"calibration of {CHOICES[made.choice]}"),
            f"{CHOICES[chosen]} over {CHOICES[other]}",
        ),
        rows=tuple(rows),
        records=tuple(records),
        notes=(wide, each, _CALIBRATION),
        folded=len(rows) > _LONG,
    )


_CALIBRATION = (
    "Calibration, over the test rows of all repetitions: of classes how sure the model is on "
    "average (the probability of what it says), minus how often it is right; above zero it is too "
    "sure. Of yes-or-no labels and of numbers: the mean of what is said minus that of what is true."
)


def _excess(advice: Advice, value: float) -> str:
    """A calibration, with its sign."""
    if math.isnan(value):
        return "–"
    if in_percent(advice.metric) or advice.repetitions.better == "higher":
        return f"{100 * value:+.1f} points"
    return f"{value:+.{digits(advice.margin)}f}"


def relations_table(advice: Advice) -> Table:
    """How the test rows of every group fare under the models of the others."""
    members, rows, records = advice.members(), [], []
    for one in advice.relations:
        values = (one.own, one.others, one.corrected)
        scores = [Cell(text=show(one.metric, value)) for value in values]
        lead = Cell(text=shown(one.metric, one.lead, advice.margin))
        rows.append((Cell(text=members[one.group]), *scores, lead))
        times = factor(one.metric)
        found = zip(("own", "others", "corrected"), values, strict=True)
        record = {"group": members[one.group], **{name: times * value for name, value in found}}
        records.append(record | {f"lead {p}": times * getattr(one.lead, p) for p in _PARTS})
    note = (
        "The mean over repetitions. Corrected: with the probabilities times the ratio of the "
        "groups' shares of labels. Where a group's own model is no better than these, the groups "
        "do not differ in the relation of inputs and label, apart from those shares."
    )
    metric = inside(heading(advice.relations[0].metric))
    return Table(
        name="relation",
        title="One group's model on another's rows",
        columns=(
            *(
                "test rows of",
                f"own model, {metric}",
                "models of the others",
                "the same, corrected",
            ),
            "lead of its own over these",
        ),
        rows=tuple(rows),
        records=tuple(records),
        notes=(note,),
    )


def differences_table(advice: Advice) -> Table:
    """In what the groups differ, the largest difference of inputs first."""
    members, rows, records = advice.members(), [], []
    for one in advice.differences[:_MOST_INPUTS]:
        more, less = (members[group] for group in one.groups)
        by_chance = "" if math.isnan(one.chance) else f"up to {one.chance:.2f} by chance"
        size = Cell(text=f"{one.size:.2f}", detail=by_chance)
        rows.append((Cell(text=one.what), size, Cell(text=more), Cell(text=less)))
        records.append({"what": one.what, "size": one.size, "chance": one.chance})
    notes = (
        "Inputs and numbers: difference of means in standard deviations. Classes: total variation "
        "of their shares. By chance: what the largest difference of all inputs and pairs of groups "
        "exceeds in 5 % of cases where all are alike. The groups were made of these rows, so "
        "nothing is tested here.",
    )
    return Table(
        name="differences",
        title="In what the groups differ",
        columns=("what", "difference", "of the group", "from the group"),
        rows=tuple(rows),
        records=tuple(records),
        notes=notes,
    )
