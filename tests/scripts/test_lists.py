"""Lists that are made of the files below conf/, and what a new part still lacks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedclust.config.parts import PARTS
from fedclust.config.tree import CONF, choices, describe
from fedclust.core.norms import NORMS, Norm
from scripts.docs import lists, methods, missing, rows

TOLD = ", ".join(f"`{name}`" for name in rows.known("server") if name not in ("adam", "sgd"))
TABLE = f"| `server` | memory | the model moves by |\n|---|---|---|\n| {TOLD} | none | D |\n"


def test_a_choice_without_a_row_gets_one_of_what_its_file_says() -> None:
    page = f"Before.\n\n{TABLE}\nAfter.\n"
    assert rows.unlisted("server", page) == ["adam", "sgd"]
    made = rows.completed("server", page)
    before, new = made.split(TABLE)
    first, second, *rest = new.split("\n")
    assert before == "Before.\n\n"
    assert rest == ["", "After.", ""]
    assert first.startswith("| `adam` | ")
    what = rows.known("server")["sgd"]
    assert what in describe(CONF / "server/sgd.yaml")
    assert "(" not in what  # the paper
    assert second == f"| `sgd` | {what} | |"
    assert first.count("|") == 4
    assert rows.completed("server", made) == made


def test_a_page_without_the_table_is_told() -> None:
    with pytest.raises(SystemExit, match=r"servers\.md has no table that begins with \| server \|"):
        rows.completed("server", "nothing")


@pytest.mark.parametrize("group", rows.TABLES)
def test_every_choice_has_a_row(group: str) -> None:
    """`make lists` writes it."""
    text = (rows.ROOT / rows.TABLES[group]).read_text()
    assert rows.unlisted(group, text) == []
    assert "none" not in rows.known(group)


def test_the_readme_counts_what_there_is() -> None:
    """`make lists` writes it."""
    readme = lists.README.read_text()
    assert lists.counted(readme) == readme
    counts = f"- {len(methods.NAMES)} methods on {len(choices('partition'))} kinds of client"
    assert counts in readme
    assert lists.counted(readme.replace(counts, "- 1 methods on 2 kinds of client")) == readme


def changed_node(monkeypatch: pytest.MonkeyPatch, group: str, name: str, **about: Any) -> None:
    """One file says something else of a method; None for nothing."""
    node = missing._node

    def read(of: str, one: str) -> dict[str, Any]:
        found = node(of, one)
        if (of, one) != (group, name):
            return found
        told = {**found["about"], **about}
        return {**found, "about": {key: told[key] for key in told if told[key] is not None}}

    monkeypatch.setattr(missing, "_node", read)


def test_a_part_without_test_mutant_row_and_changelog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing, "_tests", lambda *_: "ALIEN")
    monkeypatch.setattr(missing, "_unreleased", lambda: "alie without code")
    monkeypatch.setattr(
        missing, "_mistakes", lambda: (("fedclust/updates/attacks.py", "_Z = 1.5"),)
    )
    monkeypatch.setattr(rows, "unlisted", lambda *_: ["alie"])
    assert list(missing.missing("attack", "alie")) == [
        "docs/how-to/attackers.md: a row for attack=alie; `make lists` writes it",
        "tests/algorithms/test_alie.py: a test that names ALIE, or attack=alie",
        "scripts/trust/mutants.yaml: a mistake in ALIE of fedclust/updates/attacks.py that its "
        "test notices",
        "CHANGELOG.md: a line below Unreleased that names `attack=alie`",
    ]
    monkeypatch.setattr(missing, "_tests", lambda *_: "assert sent(ALIE())")
    monkeypatch.setattr(missing, "_unreleased", lambda: "- `attack=alie` is new")
    body = "(honest.mean(0) - z * _deviation(honest))"
    monkeypatch.setattr(missing, "_mistakes", lambda: (("fedclust/updates/attacks.py", body),))
    monkeypatch.setattr(rows, "unlisted", lambda *_: [])
    assert list(missing.missing("attack", "alie")) == []


@pytest.mark.full
def test_a_method_hears_which_line_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    own = missing._node("algorithm", "scaffold")["about"]["look"]
    assert missing._line(missing.free_look()) not in missing._looks()
    changed_node(monkeypatch, "algorithm", "scaffold", look=None, kind="new")
    free = missing.free_look()
    assert free == own  # which is that of the fewest dashes
    file = "conf/algorithm/scaffold.yaml: about"
    assert list(missing._of_method("scaffold")) == [
        f"{file}.look: {missing.KEYS['look']}; free: {free}",
        f"{file}.kind=new is not one of clusters, personal, one model, around any, bound",
    ]
    changed_node(monkeypatch, "algorithm", "scaffold", look=[6, 0], reads="all", kind="one model")
    first, second = missing._of_method("scaffold")
    assert first.startswith(f"{file}.reads=all does not begin with one of nothing, sums, ")
    assert second == f"{file}.look=[6, 0] is that of fedavg; free: {free}"


def test_a_method_that_no_list_has_yet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in (("page.md", "| `fedprox` |"), ("golden.json", '{"fedprox": []}')):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(missing, "ROOT", tmp_path)
    monkeypatch.setattr(methods, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(methods, "GOLDEN", tmp_path / "golden.json")
    monkeypatch.setattr(methods, "COMPARISONS", (tmp_path / "page.md",))
    told = list(missing._of_method("fedavg"))
    assert [row.partition(":")[0] for row in told] == ["docs/methods.md", "page.md", "golden.json"]
    assert all(row.endswith("`make lists` writes it") for row in told)


def test_a_file_that_says_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    node = {"_target_": "fedclust.updates.attacks.ALIE", "share": 0.2, "spread": "evenly"}
    monkeypatch.setattr(missing, "_node", lambda *_: node)
    monkeypatch.setattr(missing, "describe", lambda _: "")
    assert list(missing._of_file("attack", "alie")) == [
        "conf/attack/alie.yaml: the first line is no comment that says what it is",
        "conf/attack/alie.yaml: the option z of the class",
    ]
    node["_target_"] = "fedclust.updates.attacks.Gone"
    said = "conf/attack/alie.yaml: _target_=fedclust.updates.attacks.Gone cannot be imported"
    assert said in list(missing._of_file("attack", "alie"))


@pytest.mark.full
@pytest.mark.parametrize("group", PARTS)
def test_shipped_parts_lack_nothing_but_what_came_before_there_was_a_list(group: str) -> None:
    told = {row for name in choices(group) for row in missing.missing(group, name)}
    # the first two came later than most parts; a search without values of its own is none of it
    aside = ("CHANGELOG.md: ", "scripts/trust/mutants.yaml: ", "conf/space/")
    assert [row for row in sorted(told) if not row.startswith(aside)] == []


def test_new_parts_are_those_that_the_commit_does_not_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def write(file: str, text: str = "") -> None:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(
            ["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True
        )

    metrics = '    "accuracy": Meaning(\n    "purity": _share(\n'
    write("conf/attack/old.yaml")
    write("fedclust/metrics/__init__.py", metrics)
    norms = (f'"{name}": Norm()' for name in NORMS if name != "recalibrate")
    write("fedclust/core/norms.py", f"NORMS = {{{', '.join(norms)}}}\n")
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "old")
    write("conf/server/committed.yaml")
    git("checkout", "-q", "-b", "mine")
    git("add", ".")
    git("commit", "-q", "-m", "new")
    write("conf/attack/untracked.yaml")
    write("conf/experiment/no_part.yaml")
    write("fedclust/metrics/__init__.py", metrics + '    "mine": _share("a", "lower"),\n')
    monkeypatch.setattr(missing, "ROOT", tmp_path)
    parts = [("attack", "untracked"), ("server", "committed"), ("metric", "mine")]
    assert missing.new_parts("main") == [*parts, ("norm", "recalibrate")]
    with pytest.raises(SystemExit, match=r"name the parts, as in attack=mine: fatal: .*gone"):
        missing.new_parts("gone")


@pytest.mark.full
def test_a_row_with_an_empty_cell_and_a_repeated_line_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page, read = "docs/how-to/attackers.md", Path.read_text

    def emptied(file: Path, **how: Any) -> str:
        text = read(file, **how)
        return f"{text}\n| `alie` | x |  |\n" if file.name == "attackers.md" else text

    monkeypatch.setattr(Path, "read_text", emptied)
    monkeypatch.setattr(rows, "unlisted", lambda *_: [])
    told = list(missing.missing("attack", "alie"))
    assert f"{page}: the empty cells in the row of attack=alie" in told
    monkeypatch.setattr(Path, "read_text", read)
    assert missing.stale_mutants() == []
    monkeypatch.setattr(missing, "_mistakes", lambda: (("fedclust/updates/attacks.py", "class "),))
    (line,) = missing.stale_mutants()
    assert line.endswith("times in fedclust/updates/attacks.py, and must be once")


@pytest.mark.parametrize("norm", [{"stay": True, "own_test": False}, {"affine": True}])
def test_a_mode_of_statistics_that_would_do_nothing_is_refused(norm: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="statistics that stay are tested with"):
        Norm(**norm)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("alie", "alie: GROUP=NAME with one of dataset, "),
        ("experiment=x", "experiment=x: GROUP=NAME with one of dataset, "),
        ("metric=acuracy", "metric=acuracy is not one of accuracy, "),
        ("attack=gone", "there is no file conf/attack/gone.yaml"),
    ],
)
def test_a_part_that_is_not_there_is_one_line(word: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        missing.main([word])


@pytest.mark.full
def test_the_status_tells_whether_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(missing, "missing", lambda _, name: ["a: b"] if name == "alie" else [])
    assert missing.main(["attack=alie", "attack=alie"]) == 1
    assert capsys.readouterr().out == "a: b\n"
    assert missing.main(["attack=ipm"]) == 0
    assert capsys.readouterr().out == "nothing is missing of 1 part\n"
