"""Statements about arms that a report checks: measured, claimed, holds or not.

One class per kind; `KINDS` lists them. Rounds are counted from 1, as in the papers. A claim is
stated on means over seeds, and the number of seeds in which it holds is given beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast, get_args, get_origin, get_type_hints

from fedclust.helpers.errors import ConfigError, require
from fedclust.papers.courses import (
    BestAtEnd,
    BestEarly,
    SettlesFirst,
    SpreadShrinks,
    Steadiest,
    WorstAtEnd,
)
from fedclust.papers.orders import EqualUntil, OrderAtEnd, Overtakes
from fedclust.papers.values import AtLeast, CostRatio, FewerRounds, Gain, Reaches
from fedclust.report.arms import SEPARATOR, Arm
from fedclust.report.reference import Claim, Verdict

_ORDERS = (EqualUntil, OrderAtEnd, Overtakes)
_COURSES = (BestAtEnd, WorstAtEnd, BestEarly, Steadiest, SettlesFirst, SpreadShrinks)
_VALUES = (Reaches, AtLeast, FewerRounds, Gain, CostRatio)
KINDS: dict[str, type[Any]] = {c.kind: c for c in (*_ORDERS, *_COURSES, *_VALUES)}

_PLAIN: dict[type, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
}


def within(setting: str, title: str) -> bool:
    """Whether every piece of a claim's setting begins a piece of a title."""
    pieces = title.split(SEPARATOR)
    return all(
        any(piece.startswith(wanted) for piece in pieces) for wanted in setting.split(SEPARATOR)
    )


def claim(entry: Mapping[str, Any]) -> Claim:
    """The claim of a config entry; ConfigError for an unknown kind, key or metric, or a gap."""
    given: dict[str, Any] = {
        str(key): tuple(v) if isinstance(v, list) else v
        for key, v in entry.items()
        if v is not None
    }
    kind = given.pop("kind", None)
    require(kind in KINDS, "report.claims: kind", kind, f"one of {', '.join(KINDS)}")
    known = [field.name for field in fields(KINDS[kind])]
    hints = get_type_hints(KINDS[kind])
    for key, value in given.items():
        if key not in known:
            raise ConfigError(
                f"report.claims: {kind}.{key} is not allowed: one of {', '.join(known)}"
            )
        allowed = _expected(value, hints[key])
        require(not allowed, f"report.claims: {kind}.{key}", value, allowed)
    try:
        made: Claim = KINDS[kind](**given)
    except TypeError as error:
        raise ConfigError(
            f"report.claims: {kind} is incomplete ({error}); it takes {', '.join(known)}"
        ) from error
    return made


def _expected(value: object, hint: Any) -> str:
    """What was expected of a claim's value, where it does not fit its annotation; else ""."""
    if get_origin(hint) is tuple:
        entries = get_args(hint)
        number = None if Ellipsis in entries else len(entries)
        fits = isinstance(value, tuple) and len(value) == (number or len(value))
        if fits and not any(_expected(entry, entries[0]) for entry in cast(tuple[Any], value)):
            return ""
        return f"a list of {number or 'names'}"
    kinds, words = _PLAIN[hint]
    return "" if isinstance(value, kinds) and not isinstance(value, bool) else words


def check(claims: Sequence[Claim], arms: Sequence[Arm]) -> list[tuple[str, Verdict]]:
    """Verdicts, each with the setting it was checked in ("" where there is one only).

    A claim names algorithms, names of arms or whole labels, and is checked in every setting in
    which all of its arms ran; an arm without a setting stands for itself in all of them. Runs of
    another size tell whether an order holds there, and nothing about a value; runs of other data
    or with another protocol tell nothing.
    """
    checked = []
    for entry in claims:
        pools = [[a for a in arms if a.is_called(name)] for name in entry.names]
        settings = dict.fromkeys(arm.setting for pool in pools for arm in pool if arm.setting) or {
            "": None
        }
        for setting in settings:
            present = [
                found
                for pool in pools
                if (found := next((a for a in pool if a.setting in ("", setting)), None))
            ]
            if len(present) < len(pools):
                continue
            title = setting or str(present[0].run.asked.get("case") or "")
            if within(entry.setting, title):
                verdict = entry.check(present)
                if verdict.holds is not None:
                    verdict = _told(verdict, present, about_value=entry.about_value)
                checked.append((setting if len(settings) > 1 else "", verdict))
    return checked


def _told(verdict: Verdict, arms: Sequence[Arm], *, about_value: bool) -> Verdict:
    """What the verdict on some arms says of the published ones."""
    smaller = any(arm.run.scale != "paper" for arm in arms)
    whys = {
        "not the experiment's protocol": any(arm.changed for arm in arms),
        "not the published data": any(arm.stand_in for arm in arms),
        "not at the published size": smaller,
    }
    why = [text for text, applies in whys.items() if applies]
    verdict = replace(verdict, measured=", ".join([verdict.measured, *why]))
    if len(why) > smaller or (about_value and smaller):
        return replace(verdict, holds=None, seeds=0, of=0)
    return verdict
