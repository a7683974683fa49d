"""What a package says of itself fits what is there."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

import fedclust


def test_the_versions_are_one(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert project["version"] == citation["version"] == fedclust.__version__
    assert project["authors"] == [{"name": author["name"]} for author in citation["authors"]]


def test_what_is_to_be_packed_is_there(root: Path) -> None:
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    packed = [*build["targets"]["sdist"]["include"], *build["targets"]["wheel"]["force-include"]]
    assert [name for name in packed if not (root / name.lstrip("/")).exists()] == []
    assert {"/tests", "/docs", "/examples", "/notebooks"} <= set(packed)
    assert (root / "fedclust" / "py.typed").read_text() == ""


def test_an_extra_that_needs_an_older_python_brings_nothing_elsewhere(root: Path) -> None:
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    needs = [Requirement(one) for one in extras["sklearn-extra"]]
    for version, brought in (("3.11", True), ("3.12", False), ("3.13", False)):
        there = {"python_version": version, "python_full_version": f"{version}.0"}
        assert {one.marker is None or one.marker.evaluate(there) for one in needs} == {brought}
    # a dataset or tracker that names an extra in its message finds it
    assert {"hf", "watch", "mlflow", "wandb", "tensorboard"} <= set(extras)


def test_the_public_address_stands_in_one_place(root: Path) -> None:
    """`[project.urls]`; the README of the package, the site and the citation follow."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    urls = project.get("urls", {})
    assert set(urls) in (set(), {"Documentation", "Source", "Changelog", "Issues"})
    assert citation.get("repository-code") == urls.get("Source")
    assert citation.get("url") == urls.get("Documentation")
    assert "http" not in (root / "mkdocs.yml").read_text()
