"""Write the project's public address everywhere: python -m scripts.docs.address SOURCE [SITE].

`[project.urls]` of pyproject.toml is where it stands; the README of a package, the site and its
links follow from there. The citation repeats it, and so do the notebooks, which get a button that
opens them in Colab and a cell that installs fedclust there.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from scripts.docs.links import ROOT

_COLAB = "https://colab.research.google.com"
_NAME = "fedclust-address"  # of the two cells that this file writes


def write(root: Path, source: str, site: str) -> None:
    """Write the address of the sources and that of the site into a checkout."""
    project = root / "pyproject.toml"
    text = re.sub(r"\[project\.urls\]\n(?:\w+ = .*\n)*\n", "", project.read_text())
    urls = {
        "Documentation": site,
        "Source": source,
        "Changelog": f"{source}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{source}/issues",
    }
    rows = "".join(f'{name} = "{address}"\n' for name, address in urls.items())
    before, after = text.split("[project.scripts]", 1)
    project.write_text(f"{before}[project.urls]\n{rows}\n[project.scripts]{after}")
    citation = root / "CITATION.cff"
    kept = re.sub(r"^(?:repository-code|url): .*\n", "", citation.read_text(), flags=re.MULTILINE)
    citation.write_text(f"{kept}repository-code: {source}\nurl: {site}\n")
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        content = json.loads(notebook.read_text())
        cells = [cell for cell in content["cells"] if not cell["id"].startswith(_NAME)]
        content["cells"] = [cells[0], *_opening(notebook.name, source), *cells[1:]]
        notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _opening(name: str, source: str) -> list[dict[str, Any]]:
    """The button, and the cell that installs fedclust where it is missing."""
    place = f"{source.removeprefix('https://github.com/')}/blob/HEAD/notebooks/{name}"
    button = f"[![Open in Colab]({_COLAB}/assets/colab-badge.svg)]({_COLAB}/github/{place})"
    code = f"""# in Colab: installs fedclust; elsewhere nothing happens where it is installed
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("fedclust") is None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "git+{source}"]
    subprocess.run(command, check=True)"""
    shared: dict[str, Any] = {"metadata": {}}
    install = {"cell_type": "code", "execution_count": None, "outputs": []}
    return [
        {"cell_type": "markdown", "id": f"{_NAME}-button", **shared, "source": [button]},
        {"id": f"{_NAME}-install", **install, **shared, "source": code.splitlines(keepends=True)},
    ]


def main(arguments: list[str]) -> None:
    """Write the addresses that are given."""
    found = [one.rstrip("/").removesuffix(".git") for one in arguments]
    known = r"https://github\.com/[\w.-]+/[\w.-]+"
    if not 1 <= len(found) <= 2 or not re.fullmatch(known, found[0]):
        raise SystemExit("make address SOURCE=https://github.com/OWNER/NAME [SITE=https://…]")
    owner, name = found[0].split("/")[-2:]
    write(ROOT, found[0], f"{(found[1:] or [f'https://{owner.lower()}.github.io/{name}'])[0]}/")


if __name__ == "__main__":
    main(sys.argv[1:])
