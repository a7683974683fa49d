"""docs/benchmark.md is what its command makes of kept jobs, and names files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedclust.benchmark.write_page import write_page
from scripts.papers.kept_runs import KEPT, restore

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmark.md"
BESIDE = ROOT / "docs" / "benchmark"
MOST_LINES, MOST_BYTES = 120, 3 * 10**6


@pytest.mark.full
def test_the_page_is_what_its_command_makes_of_the_kept_jobs(tmp_path: Path) -> None:
    restore(tmp_path / "kept")
    made = tmp_path / "docs" / "benchmark.md"
    (made.parent / "benchmark").mkdir(parents=True)
    for by_hand in BESIDE.glob("changed.txt"):
        (made.parent / "benchmark" / by_hand.name).write_text(by_hand.read_text())
    write_page([tmp_path / "kept"], made, "v1")
    assert made.read_text() == PAGE.read_text()
    for name in ("data.md", "scores.csv"):
        assert (made.parent / "benchmark" / name).read_text() == (BESIDE / name).read_text()


def test_the_page_is_short_and_answers_first() -> None:
    text = PAGE.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    heads = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert heads[0] == "In short"
    answers = text.partition("## In short")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d)\. \*\*", answers, re.MULTILINE) == list("1234567")


def test_the_page_speaks_of_files_that_are_there() -> None:
    for page in (PAGE, *BESIDE.glob("*.md")):
        text = page.read_text()
        named = re.findall(r"\]\(([^)#:]+)", text)
        missing = [name for name in named if not (page.parent / name).exists()]
        kept = re.findall(r"\b((?:docs|scripts|conf|fedclust)/[\w./-]+\w)", text)
        assert [*missing, *(name for name in kept if not (ROOT / name).exists())] == [], page.name


def test_every_archive_is_small() -> None:
    archives = sorted(KEPT.glob("*.tar.xz"))
    assert archives
    assert [file.name for file in archives if file.stat().st_size > MOST_BYTES] == []
