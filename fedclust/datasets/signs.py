"""Numbers that are written with a sign, a unit or blanks, so that they are read as words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_MOST = 3  # different signs of one column, as < and >; codes such as 5A, 5B, 6C have more
# the digits of a number, of thousands apart by blanks, points or signs, and what stands beside it
_BLANK = "\u00a0\u2007\u2009\u202f '’_"
_NUMBER = rf"[-+\u2212\u2013]?\d+(?:[{_BLANK}]\d+)*(?:[.,]\d+)?(?:[eE][-+]?\d+)?"
_BEFORE = r"(?:[<>≤≥~≈±=]{1,2}|[A-Z]{0,2}[$€£¥]|\()"
_AFTER = r"(?:%|‰|[$€£¥]|[*†+?)]|°?[A-Za-zµμ²³]+(?:[/·^][A-Za-zµμ²³0-9]+)*)"
_SIGNED = re.compile(rf"({_BEFORE})?\s*({_NUMBER})\s*(?:(±)\s*{_NUMBER}|({_AFTER}))?")
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")


def sign_of(text: str) -> str:
    """The signs beside the number of a text, or within it; "" where it is no number with a sign."""
    text = text.strip()
    if _HEX.fullmatch(text):
        return "0x"
    if (found := _SIGNED.fullmatch(text)) is None:
        return ""
    before, number, spread, after = found.groups()
    inner = next((sign for sign in f"{_BLANK}\u2212\u2013" if sign in number), "")
    return before or spread or after or inner


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
