"""What a package says of itself fits what is there."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution, requires
from pathlib import Path

import yaml
from packaging.requirements import Requirement

import fedclust

COPYLEFT = ("GPL", "General Public License", "EUPL", "SSPL")


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


def test_what_a_repository_shows_fits_what_is_there(root: Path) -> None:
    """Workflows run the parts of .ci/run, forms can be read, and an image has all it is made of."""
    workflows, forms = (
        {
            file.name: yaml.safe_load(file.read_text())
            for file in (root / ".github" / name).iterdir()
        }
        for name in ("workflows", "ISSUE_TEMPLATE")
    )
    for name, flow in workflows.items():
        assert flow["permissions"], name  # no more than is stated
        for job in flow["jobs"].values():
            assert {"runs-on", "timeout-minutes", "steps"} <= set(job), name
            assert all(("uses" in step) != ("run" in step) for step in job["steps"]), name
    jobs = workflows["tests.yml"]["jobs"]
    python = jobs["fast"]["strategy"]["matrix"]["python"]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    known = [one.rpartition(" ")[2] for one in project["classifiers"] if ":: 3." in one]
    assert python == known
    parts = set(jobs["all"]["strategy"]["matrix"]["part"]) | {"test"}
    makefile = (root / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    called = re.findall(r"make [^#\n]*", (root / ".ci" / "run").read_text())
    assert parts == {word for line in called for word in line.split()} & targets
    attributes = {"label", "description", "placeholder", "value", "render", "options"}
    for name in ("bug.yml", "method.yml", "benchmark.yml"):
        # a comma in an unquoted description would begin another key
        assert all(set(one["attributes"]) <= attributes for one in forms[name]["body"]), name
        asked = [one for one in forms[name]["body"] if one["type"] in ("input", "textarea")]
        assert asked
        assert all(one["validations"]["required"] for one in asked)
    (label,) = forms["benchmark.yml"]["labels"]
    assert f"'{label}'" in workflows["benchmark.yml"]["jobs"]["verify"]["if"]
    (uv,) = re.findall(r"^UV_VERSION := (.*)$", makefile, re.M)
    assert f" uv=={uv} " in (root / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.*)$", (root / "Dockerfile").read_text(), re.M)
    sources = {word for line in copied for word in line.split()[:-1]}
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]
    needed = {*build["build"]["targets"]["wheel"]["force-include"], "fedclust", "README.md"}
    assert needed <= sources
    shown = (root / ".dockerignore").read_text().split()
    assert {f"!{source}" for source in sources} <= set(shown)


def test_nothing_that_must_be_installed_is_copyleft() -> None:
    known, left = {"fedclust"}, ["fedclust"]
    while left:
        for text in requires(left.pop()) or ():
            one = Requirement(text)
            name = one.name.lower()
            if name not in known and (one.marker is None or one.marker.evaluate({"extra": ""})):
                known.add(name)
                left.append(name)
    assert {"torch", "hydra-core", "scikit-learn"} <= known
    for name in known:
        about = distribution(name).metadata
        said = [about.get("License-Expression") or "", *(about.get_all("Classifier") or ())]
        said += (about.get("License") or "").splitlines()[:1]
        lesser = [line for line in said if not any(word in line for word in COPYLEFT)]
        assert lesser == said, name


def test_the_page_about_decisions_names_every_dependency(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    told = (root / "docs" / "decisions.md").read_text().partition("\n## Dependencies")[2]
    table = [line.split("|")[1] for line in told.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`([\w-]+)`", " ".join(table)))
    assert named == {Requirement(one).name for one in project["dependencies"]}
