"""Tables in LaTeX fit a two-column paper and compile."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from made_up import job

from fedclust.helpers.errors import ConfigError
from fedclust.papers.reports import make_report, spec_of
from fedclust.report.table import Cell, Table

_PAPER = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,amssymb,graphicx}
\begin{document}
%s
\end{document}
"""


def _compiled(folder: Path, tables: list[Path]) -> None:
    """Nothing where no LaTeX is installed; else a paper with all tables, none of them too wide."""
    if shutil.which("pdflatex") is None:
        return
    (folder / "paper.tex").write_text(
        _PAPER % "\n".join(rf"\input{{{t}}}\clearpage" for t in tables)
    )
    command = ["pdflatex", "-interaction=batchmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, timeout=120)
    log = (folder / "paper.log").read_text(errors="replace")
    assert done.returncode == 0, log[-2000:]
    wide = [float(pt) for pt in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)]
    assert max(wide, default=0) < 10, log[-2000:]  # a long name in a note


@pytest.mark.full
@pytest.mark.parametrize(("latex", "kind"), [("column", "table"), ("wide", "table*")])
def test_every_table_is_one_float_with_caption_label_and_three_notes(
    tmp_path: Path, latex: str, kind: str
) -> None:
    report = {"latex": latex, "order": ["nobody"], "target": {"value": 0.9}}
    for name in ("lcfl", "ifca", "fedavg", "local"):
        job(tmp_path / "demo" / name, name, config={"report": report})
    folder = make_report(tmp_path / "demo").parent
    tables = sorted(folder.glob("*.tex"))
    assert len(tables) > 8
    for file in tables:
        text = file.read_text()
        assert text.count(rf"\begin{{{kind}}}") == text.count(rf"\end{{{kind}}}") == 1
        assert rf"\label{{tab:{file.stem}}}" in text
        assert r"\caption{" in text
        assert text.count(r"\par\smallskip") <= 3
        assert not re.search(r"[^\x00-\u017f]", text), file
    headline = (folder / "table.tex").read_text()
    assert "No arm here is called so" not in headline
    assert "Bold: the best mean" in headline
    assert "No arm here is called so" in (folder / "table.md").read_text()
    _compiled(tmp_path, tables)


def test_marks_and_wide_tables_compile(tmp_path: Path) -> None:
    table = Table(
        name="wide",
        title="† ▾ · × ≤ ≥ ∞ ✓ ✗ “a” −1 ± 2 → …",
        columns=tuple(f"a long column {i}" for i in range(20)),
        rows=(tuple(Cell(text="97 ▾†", detail="paper 1", pale=True) for _ in range(20)),),
        records=(),
        notes=("one", "two", "three", "four"),
    )
    assert "four" not in table.latex()
    (tmp_path / "wide.tex").write_text(table.latex())
    _compiled(tmp_path, [tmp_path / "wide.tex"])


def test_another_width_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"report\.latex=page is not allowed: column or wide"):
        spec_of({"report": {"latex": "page"}})


def test_a_table_shows_itself_as_a_table() -> None:
    table = Table(name="t", title="T", columns=("arm",), rows=((Cell(text="a"),),), records=())
    assert repr(table) == str(table) == "### T\n\n| arm |\n| --- |\n| a |\n"
