"""Lines for a person: a terminal's break between words, others stay whole for grep."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from fedclust.helpers.errors import printable

if TYPE_CHECKING:  # most commands that fail have not needed it
    from rich.console import Console

_PIECES = re.compile(r"(?:`[^`]*`|\S)+")  # a path, or a command in backticks, is pasted whole
_USUAL = 80  # columns of a terminal that does not say how many it has


def wrapped(text: str, width: int, head: str = "") -> str:
    """A text in lines of at most `width` columns, broken between words only.

    What is wider than a line, such as a path or a command in backticks, has one of its own.

    Args:
        text: without line breaks; spaces at its beginning belong to the head.
        width: columns of the terminal.
        head: stands before the first line; the others are indented as far.
    """
    if cell_len(head + text) <= width:
        return head + text
    begin = head + text[: len(text) - len(text.lstrip())]
    indent, lines, words = " " * cell_len(begin), list[str](), list[str]()
    for piece in _PIECES.findall(text):
        if words and cell_len(begin + " ".join([*words, piece])) > width:
            lines.append(begin + " ".join(words))
            begin, words = indent, []
        if not words and cell_len(begin + piece) > width:
            lines += [begin.rstrip()] if begin.strip() else []
            begin = ""
        words.append(piece)
    return "\n".join([*lines, begin + " ".join(words)])


def say(console: Console, text: str, *, head: str = "", style: str = "") -> None:
    """Print a line without markup; on a terminal in as many as it needs, see `wrapped`."""
    from rich.text import Text

    line = wrapped(text, console.width, head) if console.is_terminal else head + text
    console.print(Text(line, style=style), soft_wrap=True)


def complain(message: str) -> None:
    """Print on standard error what prevents a command."""
    line = f"fedclust: {printable(message)}"
    if sys.stderr.isatty():
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
        line = wrapped(line, columns or _USUAL)
    try:
        print(line, file=sys.stderr, flush=True)
    except RuntimeError:  # a signal's handler, called while this stream was being written
        os.write(sys.stderr.fileno(), f"{line}\n".encode(errors="backslashreplace"))


def table(
    head: Sequence[str], rows: Sequence[Sequence[object]], numbers: int, left: int | None = None
) -> str:
    """A Markdown table; the columns from `numbers` to `left` are set to the right."""
    end = len(head) if left is None else left
    rule = ["---:" if numbers <= i < end else "---" for i in range(len(head))]
    lines = [head, rule, *([str(value).replace("|", "\\|") for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
