"""The project's public address is written everywhere by one command, and is hidden nowhere."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from scripts.docs import address

SOURCE, SITE = "https://github.com/Some-One/fedclust", "https://some-one.github.io/fedclust/"


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Path:
    for name in ("pyproject.toml", "CITATION.cff"):
        shutil.copy(root / name, tmp_path)
    shutil.copytree(root / "notebooks", tmp_path / "notebooks")
    return tmp_path


def test_one_command_writes_it_everywhere(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "ROOT", checkout)
    before = tomllib.loads((checkout / "pyproject.toml").read_text())
    address.main([f"{SOURCE}.git"])
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    urls = project["project"].pop("urls")
    assert urls["Source"] == SOURCE
    assert urls["Documentation"] == SITE
    assert set(urls) == {"Source", "Documentation", "Changelog", "Issues"}
    before["project"].pop("urls", None)
    assert project == before
    citation = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert (citation["repository-code"], citation["url"]) == (SOURCE, SITE)
    for notebook in (checkout / "notebooks").glob("*.ipynb"):
        title, button, install, *rest = json.loads(notebook.read_text())["cells"]
        assert title["source"][0].startswith("# ")
        place = f"/github/Some-One/fedclust/blob/HEAD/notebooks/{notebook.name}"
        assert place in button["source"][0]
        code = "".join(install["source"])
        ast.parse(code)
        assert f"git+{SOURCE}" in code
        assert len({cell["id"] for cell in (title, button, install, *rest)}) == len(rest) + 3


def test_a_second_time_changes_the_address_only(checkout: Path) -> None:
    files = [file for file in checkout.rglob("*") if file.is_file()]
    address.write(checkout, SOURCE, SITE)
    once = {file: file.read_text() for file in files}
    address.write(checkout, "https://github.com/else/where", "https://else.github.io/where/")
    assert "Some-One" not in "".join(file.read_text() for file in files)
    address.write(checkout, SOURCE, SITE)
    assert {file: file.read_text() for file in files} == once


@pytest.mark.parametrize("given", [[], ["fedclust"], ["https://github.com/only"]])
def test_anything_else_is_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit, match="make address SOURCE="):
        address.main(given)


def test_no_other_address_is_hidden_in_the_sources(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    known = tuple(project.get("urls", {}).values()) or ("no address yet",)
    command = ["git", "-C", str(root), "grep", "-nIE", 'https?://[^ )"\\\\]*fedclust', "--", "."]
    command += [":!docs/results/runs", ":!tests/scripts/test_address.py"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    others = [
        line
        for line in lines
        for found in re.findall(r"https?://[^\s)\"'`]*fedclust[^\s)\"'`]*", line)
        if "//elsewhere/" not in found
        and not found.startswith(known)
        and "//host.example/" not in found
    ]
    assert others == []
