"""Lines on a terminal are broken between words, and paths and commands are not broken at all."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from fedclust.helpers.prose import say, wrapped

LONG = "outputs/default/lcfl,num_clusters=4,partition.num_clients=8,rounds=4,seeds=2"
NOTE = (
    "no clusters were formed: clustering begins after 5 rounds of warm-up, and the run has 4; see "
    f"`fedclust list warmup --config-dir mine`, or {LONG}: there it is — 数据集 is wide."
)


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 81, 200])
@pytest.mark.parametrize("head", ["", "  warning: "])
def test_lines_are_broken_between_words_only(width: int, head: str) -> None:
    lines = wrapped(NOTE, width, head).split("\n")
    assert " ".join("\n".join(lines).split()) == (head + NOTE).strip()
    pieces = re.findall(r"`.*`,|\S+", NOTE)
    for line in lines:
        assert Console(width=1000).measure(line).maximum <= width or line.strip() in [
            *pieces,
            "warning:",
        ]
    for whole in (LONG, "`fedclust list warmup --config-dir mine`"):
        assert sum(whole in line for line in lines) == 1
    if width == 200 and head:
        assert lines[1].startswith(" " * len(head)), "as far as the words above"
    if width == 40:
        assert f"{LONG}:" in lines, "too wide for any line: from the first column, as it is pasted"


def test_a_line_that_fits_stays_as_it_is() -> None:
    assert wrapped("  accuracy   1.0 %", 18) == "  accuracy   1.0 %"
    assert wrapped("  accuracy   1.0 %", 17) == "  accuracy 1.0 %"
    assert wrapped("    two words", 10) == "    two\n    words"


def test_only_a_terminals_lines_are_broken() -> None:
    text = "[bold] one :smile: two three"
    for is_terminal, shown in ((True, "[bold] one\n:smile: two\nthree\n"), (False, f"{text}\n")):
        file = io.StringIO()
        say(Console(file=file, width=12, force_terminal=is_terminal, color_system=None), text)
        assert file.getvalue() == shown
