"""Numbers that are written with a sign, a unit or blanks, so that they are read as words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

_MOST = 3  # different signs of one column, as < and >; codes such as 5A, 5B, 6C have more
# the digits of a number, of thousands apart by blanks, points or signs, and what stands beside it
_BLANK = "\u00a0\u2007\u2009\u202f '’_"
_NUMBER = rf"[-+\u2212\u2013]?\d+(?:[{_BLANK}]\d+)*(?:[.,]\d+)?(?:[eE][-+]?\d+)?"
_BEFORE = r"(?:[<>≤≥~≈±=]{1,2}|[A-Z]{0,2}[$€£¥]|\()"
_AFTER = r"(?:%|‰|[$€£¥]|[*†+?)]|°?[A-Za-zµμ²³]+(?:[/·^][A-Za-zµμ²³0-9]+)*)"
_SIGNED = re.compile(rf"({_BEFORE})?\s*({_NUMBER})\s*(?:(±)\s*{_NUMBER}|({_AFTER}))?")
_SIDES = {"<": -1, "≤": -1, ">": 1, "≥": 1}
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")


def sign_of(text: str) -> str:
    """The signs beside the number of a text, or within it; "" where it is no number with a sign."""
    text = text.strip()
    if _HEX.fullmatch(text):
        return "0x"
    if (match := _SIGNED.fullmatch(text)) is None:
        return ""
    before, number, spread, after = match.groups()
    inner = next((sign for sign in f"{_BLANK}\u2212\u2013" if sign in number), "")
    return before or spread or after or inner


def rank_of(text: str) -> tuple[float, int, str] | None:
    """The number of a text, what side of it a text such as <0.5 or >9 is on (-1, 0 or 1), and its
    unit, "" without; None where it is no number, or a comma leaves open which.
    """
    match = _SIGNED.fullmatch(text.strip())
    if match is None or "," in match[2]:
        return None
    before, number, _, after = match.groups()
    plain = re.sub(f"[{_BLANK}]", "", number).translate({0x2212: "-", 0x2013: "-"})
    side = next((way for sign, way in _SIDES.items() if sign in (before or "")), 0)
    unit = after or ("" if before is None or before[-1] not in "$€£¥" else before)
    return float(plain), side, unit


def by_number(texts: Collection[str]) -> list[str]:
    """Texts in the order of their numbers, <0.5 before 0.5 and >9 behind 9; none unless all hold
    numbers, and those with a unit the same.
    """
    ranks = {text: rank for text in texts if (rank := rank_of(text)) is not None}
    units = {unit for _, _, unit in ranks.values()} - {""}
    if len(ranks) < len(texts) or len(units) > 1:
        return []
    return sorted(texts, key=lambda text: (*ranks[text], text))


def signs_of(texts: Sequence[str]) -> list[str]:
    """The signs of texts most of which hold a number beside the same few; else none."""
    signs = Counter(sign_of(text) for text in texts)
    count = len(texts) - signs.pop("", 0)
    return sorted(signs) if 2 * count > len(texts) and len(signs) <= _MOST else []


def shown_sign(sign: str) -> str:
    """A sign as a message shows it."""
    names = {
        " ": "a blank",
        "\u2212": "the minus sign '\u2212' (write -)",
        "\u2013": "the dash '–'",
    }
    return names.get(sign) or ("a thin blank" if sign.isspace() else repr(sign))
