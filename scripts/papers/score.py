"""How many published results are reproduced: one sentence and one bar."""

from __future__ import annotations

from collections.abc import Mapping

from scripts.papers.rules import (
    ALONE,
    CANNOT_TELL,
    CONJECTURE,
    CONSISTENT,
    NOT_RUN,
    OTHER_DATA,
    OUTSIDE,
    REPRODUCED,
    SHOWN,
)

PICTURE = "drawn/score.svg"
# what a bar has from left to right: name, its states, and colours that everybody tells apart
_PARTS = (
    ("reproduced", (REPRODUCED,), "#00735c"),
    ("consistent", (CONSISTENT,), "#56b4e9"),
    ("differ", (SHOWN, CONJECTURE, OUTSIDE), "#d55e00"),
    ("cannot tell", (CANNOT_TELL,), "#f0e442"),
    ("one seed", (ALONE,), "#cc79a7"),
    ("other data", (OTHER_DATA,), "#b0b0b0"),
    ("not run", (NOT_RUN,), "#e2e2e2"),
)
_WIDTH, _BAR = 760, 22  # pixels
_LETTER = 6.4  # of a legend's text; with more its end would be cut off


def _counted(count: Mapping[str, int]) -> dict[str, int]:
    return {name: sum(count[state] for state in states) for name, states, _ in _PARTS}


def sentence(count: Mapping[str, int]) -> str:
    """The score, from the number of results in every state."""
    of = _counted(count)
    return (
        f"**{of['reproduced']} of {sum(of.values())} published results are reproduced**, and "
        f"{of['consistent']} are consistent with our runs; {of['differ']} differ, for "
        f"{count[SHOWN]} of these a run shows why; for {of['cannot tell']} our seeds differ too "
        f"much to tell, {of['one seed']} agree in the only seed that was run, "
        f"{of['other data']} were measured on other data than the paper's, and {of['not run']} "
        "have not been run."
    )


def bar(count: Mapping[str, int]) -> str:
    """The same as an SVG picture."""
    of = _counted(count)
    total, left, text = sum(of.values()), 0.0, 0.0
    drawn = []
    for name, _, colour in _PARTS:
        width, said = _WIDTH * of[name] / max(total, 1), f"{of[name]} {name}"
        drawn += [
            f'<rect x="{left:.1f}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>',
            f'<rect x="{text:.1f}" y="{_BAR + 12}" width="10" height="10" fill="{colour}"/>',
            f'<text x="{text + 15:.1f}" y="{_BAR + 21}" fill="#767676">{said}</text>',
        ]
        left, text = left + width, text + 30 + _LETTER * len(said)
    size = f'width="{_WIDTH}" height="{_BAR + 30}" viewBox="0 0 {_WIDTH} {_BAR + 30}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    )
    return "\n".join(
        [head, f"<title>{sentence(count).replace('*', '')}</title>", *drawn, "</svg>\n"]
    )
