"""A table and its renderings: numbers for machines in CSV, cells for people in the others."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

_TEX = {character: f"\\{character}" for character in "{}&%_#$"}
_TEX |= {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
    "“": "``",
    "”": "''",
    "✓": r"$\checkmark$",
    "✗": r"$\times$",
    ">": r"$>$",
    "<": r"$<$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "…": r"\ldots{}",
    "λ": r"$\lambda$",
    "²": r"$^2$",
    "†": r"\textdagger{}",
    "▾": r"$\blacktriangledown$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "∞": r"$\infty$",
}
# what Markdown would take for markup; an underscore inside a word is none
_MARKDOWN = {"\\": "\\\\", "|": "\\|", "<": "&lt;", ">": "&gt;", "&": "&amp;"}
_MARKDOWN |= {character: f"\\{character}" for character in "`*[]!#~"}
# columns: a table with more than the first is cut into blocks of the second; with more than the
# third it is set smaller
_MOST_COLUMNS, _WIDEST, _NARROW = 16, 12, 8
_LONG = 24  # rows; in print a table with more is set smaller, in two columns if it is narrow
_MANY = 8  # notes; in print, more are set in two columns
_WRAPPING = 4  # columns; the cells of a table with no more may have several lines
_ROOM = 1024  # pixels of the page, see page.css
# pixels of a letter, of a smaller one in a second line, and between columns; in a table set smaller
_USUAL, _SMALLER = (8.3, 6.6, 16.0), (7.5, 6.6, 12.0)
_PRINTED = 3  # notes; a paper has no room for more
_FORMULA = ("=", "+", "-", "@")  # a spreadsheet would compute a text that begins so


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell for readers.

    Attributes:
        detail: a second, smaller line.
        good: coloured and ticked when true, crossed when false, neither when None.
        strong: the best of its column.
        pale: greyed; a number that is not to be compared with those beside it.
    """

    text: str
    detail: str = ""
    good: bool | None = None
    strong: bool = False
    pale: bool = False

    def noted(self, *details: str) -> Cell:
        """The cell with such details as its second line, without empty ones."""
        return replace(self, detail="; ".join(filter(None, details)))

    @property
    def mark(self) -> str:
        """A tick, a cross or nothing."""
        return {True: "✓", False: "✗", None: ""}[self.good]


@dataclass(frozen=True, kw_only=True, repr=False)
class Table:
    """A table.

    Attributes:
        name: file name without ending.
        columns: column heads; the first column names the row.
        rows: cells, one per column.
        records: the same as plain numbers, for CSV.
        notes: lines below the table.
        printed: those of LaTeX, which has room for three; the first notes where None.
        folded: whether the page shows its heading only until it is opened.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    records: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = field(default=())
    printed: tuple[str, ...] | None = None
    folded: bool = False

    def markdown(self) -> str:
        """The table in Markdown."""
        lines = [
            f"### {in_markdown(self.title)}",
            "",
            _line([in_markdown(column) for column in self.columns]),
            _line(["---"] + ["---:"] * (len(self.columns) - 1)),
        ]
        lines += [_line([_markdown(cell) for cell in row]) for row in self.rows]
        for note in self.notes:
            lines += ["", in_markdown(note)]
        return "\n".join([*lines, ""])

    def __repr__(self) -> str:
        """As in `markdown`."""
        return self.markdown()

    def _repr_html_(self) -> str:
        """As in `html`, for a notebook."""
        return f"<h4>{html.escape(self.title)}</h4>\n{self.html()}"

    def latex(self, *, wide: bool = False) -> str:
        """The table in LaTeX, of a column or `wide`; needs booktabs, amssymb and graphicx."""
        kind = "table*" if wide else "table"
        body = "\n".join(" & ".join(_latex(cell) for cell in row) + r" \\" for row in self.rows)
        head = " & ".join(_escape(column) for column in self.columns)
        shown = (self.notes if self.printed is None else self.printed)[:_PRINTED]
        notes = "".join(rf"\par\smallskip\footnotesize {_escape(note)}" + "\n" for note in shown)
        return rf"""\begin{{{kind}}}
\centering
\caption{{{_escape(self.title)}}}
\label{{tab:{self.name}}}
\resizebox{{\ifdim\width>\linewidth\linewidth\else\width\fi}}{{!}}{{%
\begin{{tabular}}{{l{"r" * (len(self.columns) - 1)}}}
\toprule
{head} \\
\midrule
{body}
\bottomrule
\end{{tabular}}}}
{notes}\end{{{kind}}}
"""

    def csv(self) -> str:
        """The numbers, one record per line."""
        out = io.StringIO()
        names = list(dict.fromkeys(key for record in self.records for key in record))
        writer = csv.DictWriter(out, names, lineterminator="\n", restval="")
        writer.writerow({name: _inert(name) for name in names})
        writer.writerows({k: _inert(v) for k, v in record.items()} for record in self.records)
        return out.getvalue()

    def html(self) -> str:
        """The table in HTML; one with many columns in several blocks that each repeat the first."""
        notes = "".join(f"<p class=note>{html.escape(note)}</p>\n" for note in self.notes)
        if len(self.notes) > _MANY:
            notes = f"<div class=many>\n{notes}</div>\n"
        if notes:
            fold = "<details class=notes>\n<summary>How to read this</summary>\n"
            notes = f"{fold}{notes}</details>\n"
        return "".join(self._block(a, b) for a, b in pairwise(self._cuts())) + notes

    def _cuts(self) -> list[int]:
        """Where each block begins, and the end: as few as fit the page."""
        count = len(self.columns) - 1
        blocks = math.ceil(count / _WIDEST) if count > _MOST_COLUMNS else 1
        while True:
            cuts: list[int] = np.linspace(1, count + 1, blocks + 1).astype(int).tolist()
            fits = all(self._width(a, b) <= _ROOM for a, b in pairwise(cuts))
            if fits or count < _WRAPPING or blocks >= count:
                return cuts
            blocks += 1

    def _width(self, start: int, end: int) -> float:
        """About the pixels that a block takes, by the letters of its widest cells and words."""
        shown = [0, *range(start, end)]
        letter, small, between = _SMALLER if len(shown) > _NARROW else _USUAL
        width = 0.0
        for i in shown:
            words = [letter * len(word) for word in self.columns[i].split()]
            for cell in (row[i] for row in self.rows):
                words += [letter * len(cell.text), small * len(f"{cell.detail} {cell.mark}")]
            width += max(words, default=0.0) + between
        return width

    def _block(self, start: int, end: int) -> str:
        """The first column and those from `start` up to `end`."""
        shown = [0, *range(start, end)]
        head = "".join(f"<th scope=col>{html.escape(self.columns[i])}</th>" for i in shown)
        rows = "".join(
            f"<tr>{''.join(_html(row[i], 'th' if i == 0 else 'td') for i in shown)}</tr>\n"
            for row in self.rows
        )
        body = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>"
        wide = " class=wide" if len(shown) > _NARROW else ""
        long = " long" if len(self.rows) > _LONG else ""
        return f'<div class="scroll{long}" tabindex=0><table{wide}>\n{body}</table></div>\n'


def one_line(text: str) -> str:
    """The text without line breaks and other control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def in_markdown(text: str) -> str:
    """The text as Markdown that shows it as it is."""
    return "".join(_MARKDOWN.get(character, character) for character in one_line(text))


def _inert(value: Any) -> Any:
    """A cell of a CSV file that no spreadsheet takes for a formula; numbers are left alone."""
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown(cell: Cell) -> str:
    text = f"**{in_markdown(cell.text)}**" if cell.strong else in_markdown(cell.text)
    detail = f"{in_markdown(cell.detail)} {cell.mark}".strip()
    return f"{text} ({detail})" if cell.detail else f"{text} {cell.mark}".strip()


def _latex(cell: Cell) -> str:
    text = rf"\textbf{{{_escape(cell.text)}}}" if cell.strong else _escape(cell.text)
    text = rf"{{\footnotesize {text}}}" if cell.pale else text
    detail = _escape(f"{cell.detail} {cell.mark}")
    return rf"{text} {{\footnotesize ({detail})}}" if cell.detail else f"{text} {detail}".strip()


def _escape(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in one_line(text))


def _html(cell: Cell, tag: str) -> str:
    kind = {True: " class=good", False: " class=bad", None: ""}[cell.good]
    text = html.escape(cell.text)
    text = f"<strong>{text}</strong>" if cell.strong else text
    text = f"<small>{text}</small>" if cell.pale else text
    mark = f" <span class=mark>{cell.mark}</span>" if cell.mark else ""
    detail = f"<small>{html.escape(cell.detail)}{mark}</small>" if cell.detail else mark
    scope = " scope=row" if tag == "th" else ""
    return f"<{tag}{scope}{kind}>{text}{detail}</{tag}>"
