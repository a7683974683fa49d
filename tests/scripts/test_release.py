"""What `make release` refuses, and in which order it does the rest."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

# in place of uv and of the test of the wheel: they note how they are called
NOTE = '#!/bin/sh\necho "{name} $*{more}" >> "$NOTES"\n'
HEADED = "# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-12-01)\n"


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Path:
    """A repository of a version 0.2.0 with the script, all of it committed."""
    scripts = tmp_path / "project/scripts/trust"
    scripts.mkdir(parents=True)
    shutil.copy(root / "scripts/trust/release.sh", scripts)
    (scripts / "test_wheel.sh").write_text(NOTE.format(name="wheel", more="$PYTHON"))
    project = tmp_path / "project"
    (project / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (project / "CHANGELOG.md").write_text(HEADED)
    (project / ".gitignore").write_text("dist\n")
    uv = tmp_path / "uv"
    uv.write_text(NOTE.format(name="uv", more=""))
    uv.chmod(0o755)
    git(project, "init", "--quiet")
    git(project, "add", "-A")
    git(project, "commit", "--quiet", "-m", "all")
    return project


def release(project: Path) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The script, and how it called the others."""
    notes = project.parent / "notes"
    around = {**os.environ, "UV": str(project.parent / "uv"), "NOTES": str(notes)}
    around |= {"PYTHONS": "3.11 3.13"}
    command = ["bash", "scripts/trust/release.sh"]
    done = subprocess.run(command, cwd=project, env=around, capture_output=True, text=True)
    return done, notes.read_text().splitlines() if notes.exists() else []


def test_it_builds_checks_and_tries_every_python(project: Path) -> None:
    done, calls = release(project)
    assert done.returncode == 0, done.stderr
    assert [call.split()[:3] for call in calls[:2]] == [
        ["uv", "build", "--quiet"],
        ["uv", "tool", "run"],
    ]
    assert "twine check --strict" in calls[1]
    assert calls[2:] == ["wheel 3.11", "wheel 3.13"]
    assert "git tag v0.2.0" in done.stdout
    assert f"{project.parent / 'uv'} publish dist/*" in done.stdout
    assert not any("publish" in call or "upload" in call for call in calls)


def test_changes_that_are_not_committed_are_refused(project: Path) -> None:
    (project / "CHANGELOG.md").write_text(f"{HEADED}more\n")
    done, calls = release(project)
    assert (done.returncode, calls) == (2, [])
    assert done.stderr == "release: the working tree has changes that are not committed\n"


@pytest.mark.parametrize("heading", ["## Unreleased", "## 0.2.0.1", "## 0x2.0", "### 0.2.0"])
def test_a_version_without_a_heading_is_refused(project: Path, heading: str) -> None:
    (project / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
    git(project, "commit", "--quiet", "-am", "heading")
    done, calls = release(project)
    assert (done.returncode, calls) == (2, [])
    assert done.stderr.count("\n") == 1
    assert 'no heading "## 0.2.0"' in done.stderr


def test_the_version_of_an_older_tag_is_refused(project: Path) -> None:
    git(project, "tag", "v0.2.0")
    assert release(project)[0].returncode == 0
    git(project, "commit", "--quiet", "--allow-empty", "-m", "later")
    done, _ = release(project)
    assert done.returncode == 2
    assert "v0.2.0 is another commit" in done.stderr
