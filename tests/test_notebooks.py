"""The notebooks run from the first cell to the last, as a notebook runs them: in a running event
loop, the value of each cell's last line shown.
"""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import fedclust

FOLDER = Path(__file__).parent.parent / "notebooks"


def code(name: str) -> list[str]:
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def shown(value: object) -> str:
    """What a notebook shows of a value."""
    if isinstance(value, Figure):
        return str(len(value._repr_png_()))  # type: ignore[attr-defined]
    return str(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))


async def executed(cells: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The variables after all cells, and what the cells have shown."""
    space: dict[str, Any] = {"__name__": "__main__"}
    outputs = []
    for cell in cells:
        *before, last = ast.parse(cell).body
        if not isinstance(last, ast.Expr) or cell.rstrip().endswith(";"):
            before.append(last)
        exec(compile(ast.Module(before, []), "cell", "exec"), space)
        if last not in before and isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
            outputs.append("" if value is None else shown(value))
        await asyncio.sleep(0)
    return space, outputs


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.ipynb")), ids=lambda file: file.stem)
def test_a_notebook_is_stored_without_outputs(file: Path) -> None:
    content = json.loads(file.read_text())
    assert content["nbformat"] == 4
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])


@pytest.mark.slow
def test_first_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    space, outputs = asyncio.run(executed(code("first_steps")))
    assert space["groups"].to_numpy().sum() == 16
    assert space["result"].config["seeds"] == [0, 1]
    assert len(space["result"].rounds) == 2 * 10
    assert space["compared"].arms == ["lcfl", "ifca", "fedavg", "local"]
    assert space["again"].arms == space["compared"].arms
    assert any("<table" in text and "fedavg" in text for text in outputs)
    printed = capsys.readouterr().out
    assert r"\begin{tabular}" in printed
    assert "participation=2.0 is not allowed: a fraction in (0, 1]" in printed


@pytest.mark.slow
def test_a_method_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sketched: None
) -> None:
    """With four of its ten rounds."""
    monkeypatch.chdir(tmp_path)
    cells = [
        cell.replace('"rounds": 10', '"rounds": 4').replace("round == 9", "round == 3")
        for cell in code("own_method")
    ]
    space, outputs = asyncio.run(executed(cells))
    assert "count    2.0" in outputs[-1]
    assert space["difference"] == 0
    assert len(space["result"].arms) == 11
    assert space["result"].arms[0] == "sticky"
    assert space["margins"].arms == ["sticky margin=0", "sticky margin=0.1", "sticky margin=0.3"]
    zero = space["margins"].summary.loc[("sticky margin=0", "accuracy"), "last"]
    assert zero == fedclust.load("outputs/check").summary.loc[("ifca", "accuracy"), "last"]
    assert "sticky" not in sys.modules


def test_a_mistake_in_a_notebook_is_one_line() -> None:
    # IPython calls this in place of printing all frames
    with pytest.raises(fedclust.UserError) as caught:
        fedclust.run(participation=2)
    assert caught.value._render_traceback_() == [
        "ConfigError: participation=2.0 is not allowed: a fraction in (0, 1]"
    ]
