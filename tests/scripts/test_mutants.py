"""Mutants of a small package: killed, alive, stale; and the list of the real ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from scripts.trust.mutants import LIST, ROOT, Mutant, main, mutated, one_in, read_list, shared_out

SOURCE = "def half(x):\n    return x / 2\n\n\ndef third(x):\n    return x / 3\n"
TESTS = "from fedclust import half\n\n\ndef test_half():\n    assert half(5) == 2.5\n"
KILLED = {"before": "x / 2", "after": "x // 2"}
ALIVE = {"before": "x / 3", "after": "x // 3"}  # no test looks at it


def checkout(folder: Path, *changes: dict[str, str]) -> list[str]:
    """A package with two functions and a test of one, and a list; the arguments that name it."""
    for name, text in {"fedclust/__init__.py": SOURCE, "tests/test_half.py": TESTS}.items():
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    rows = [
        {"why": "whole numbers", "file": "fedclust/__init__.py", "tests": "test_half.py"} | change
        for change in changes
    ]
    (folder / "list.yaml").write_text(yaml.safe_dump(rows))
    return ["--list", str(folder / "list.yaml"), "--jobs", "1"]


@pytest.mark.slow  # starts tests of its own
@pytest.mark.parametrize(
    ("changes", "status", "share"),
    [([KILLED], 0, "1 of 1 mutants killed: 100.0%"), ([KILLED, ALIVE], 1, "1 of 2")],
)
def test_a_mutant_that_nobody_kills_is_status_one(
    changes: Sequence[dict[str, str]],
    status: int,
    share: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(checkout(tmp_path, *changes), root=tmp_path) == status
    said = capsys.readouterr().out
    assert share in said
    assert ("'x // 3'\n  not noticed by tests/test_half.py" in said) == (status == 1)
    assert (tmp_path / "fedclust/__init__.py").read_text() == SOURCE, "the checkout stays as it is"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"before": "x / 4", "after": "x"}, "occurs 0 times in fedclust/__init__.py"),
        ({"before": "return", "after": "yield"}, "occurs 2 times in fedclust/__init__.py"),
        ({"before": "x / 3", "after": "x / 3"}, "must occur once and change"),
        ({**KILLED, "file": "fedclust/gone.py"}, "occurs 0 times in fedclust/gone.py"),
    ],
)
def test_a_stale_mutant_is_status_two(
    change: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(checkout(tmp_path, KILLED, change), root=tmp_path) == 2
    assert said in capsys.readouterr().out


@pytest.mark.slow  # starts tests of its own
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({**KILLED, "tests": "test_half.py::test_gone"}, "without any mutant"),
        ({"before": "x / 2", "after": "x /"}, "cannot be run"),
    ],
)
def test_tests_that_cannot_tell_are_status_two(
    change: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(checkout(tmp_path, change), root=tmp_path) == 2
    assert said in capsys.readouterr().out


def test_words_choose_mutants_by_file_and_reason(tmp_path: Path) -> None:
    arguments = checkout(tmp_path, KILLED, {**ALIVE, "why": "a third"})
    path = Path(arguments[1])
    assert [m.why for m in read_list(path, ["third"])] == ["a third"]
    assert len(read_list(path, ["__init__"])) == 2
    assert main([*arguments, "nothing"], root=tmp_path) == 2


def test_tests_are_shared_out_file_by_file() -> None:
    def mutant(*tests: str) -> Mutant:
        return Mutant(why="", file="", before="", after="", tests=tests)

    named = [mutant("b.py::2", "a.py::1"), mutant("b.py::2"), mutant("b.py::1", "c.py")]
    assert shared_out(named, 2) == [("a.py::1", "c.py"), ("b.py::1", "b.py::2")]
    assert shared_out(named[1:2], 2) == [("b.py::2",)]


def test_one_in_so_many_changes_with_the_code_alone(tmp_path: Path) -> None:
    def mutant(number: int) -> Mutant:
        return Mutant(why=str(number), file="half.py", before="", after="", tests=())

    mutants = [mutant(number) for number in range(21)]
    drawn = []
    for text in ("x / 2", "x / 2", "x // 2", "2 * x"):
        (tmp_path / "half.py").write_text(text)
        drawn.append(one_in(mutants, 5, tmp_path))
        assert len(set(drawn[-1])) == 5
        assert set(drawn[-1]) <= set(mutants)
    assert drawn[0] == drawn[1]
    assert not drawn[0] == drawn[2] == drawn[3]
    assert one_in(mutants, 1, tmp_path) == mutants


@pytest.mark.full
def test_no_mutant_of_the_list_is_stale() -> None:
    """Every text occurs once, and every test is there."""
    listed = read_list(LIST)
    assert len(listed) >= 150
    assert len({(m.file, m.before, m.after) for m in listed}) == len(listed)
    for mutant in listed:
        assert mutated(mutant, ROOT) != (ROOT / mutant.file).read_text()
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text(), test
    assert {Path(m.file).parts[1] for m in listed} >= {"algorithms", "partitions", "scenarios"}


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute or two of two free cores
def test_mutants_of_the_list_are_killed() -> None:
    """One in forty, others after every change of the code; `make mutants` tries all. In a process
    of its own, which forks before anything has made a thread.
    """
    program = [sys.executable, str(ROOT / "scripts" / "trust" / "mutants.py"), "--one-in", "40"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mutants killed: " in done.stdout
