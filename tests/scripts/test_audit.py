"""What docs/results says, read by a second reader, and its sentences on files."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.papers import audit

KEPT = audit.RESULTS


def test_the_auditor_shares_no_code_with_what_it_audits() -> None:
    text = Path(audit.__file__).read_text()
    assert not re.search(r"^\s*(from|import) scripts", text, re.MULTILINE)


@pytest.mark.full
def test_every_number_of_the_pages_follows_from_the_kept_files() -> None:
    wrong, read = audit.problems()
    assert wrong == []
    assert read > 200


@pytest.mark.full
def test_a_number_that_no_run_gives_and_a_wrong_score_are_found(tmp_path: Path) -> None:
    for folder in ("runs/clove", "runs/cfl_gp"):
        shutil.copytree(KEPT / folder, tmp_path / folder)
    for name in ("README.md", "numbers_clove.md", "numbers_cfl_gp.md"):
        text = (KEPT / name).read_text()
        (tmp_path / name).write_text(text.replace("99.83 ± 0.01", "99.82 ± 0.01"))
    wrong, _ = audit.problems(tmp_path)
    assert len(wrong) == 3
    assert "CLoVE: 99.82 ± 0.01 is of no kept run" in wrong[0]
    assert wrong[1].startswith("README.md: the score is")
    assert wrong[2].startswith("README.md: the table of states ends with")


def test_a_state_follows_from_what_a_page_has() -> None:
    """s = 0.1 of three seeds: 0.169 for the mean, 0.497 for one more run."""
    std = f"{0.1 * (2 / 3) ** 0.5:.4f}"
    note = "Reproduced; ours is 0.5 points above the printed one; 3 seeds."
    number = audit.Number("p", "FedAvg", "MNIST", "90.0", "", "90.50", std, True, note)
    assert (number.state, number.seeds) == ("reproduced", 3)
    assert audit.is_right(number)
    assert not audit.is_right(replace(number, ours="90.90"))
    assert not audit.is_right(replace(number, ours="90.40", note="Consistent; 3 seeds."))
    assert audit.is_right(replace(number, ours="91.00", note="Outside; 3 seeds."))
    alone = replace(number, std="", ours="90.9", note="One seed, within a point; one seed.")
    assert audit.is_right(alone)
    assert not audit.is_right(replace(alone, ours="91.1"))


@pytest.mark.parametrize("page", ["flexcfl.md", "jgl.md", "lcfl.md"])
def test_what_a_page_calls_kept_is_kept(page: str) -> None:
    """Every experiment that a page runs has its files, unless the page says that it has not."""
    text = " ".join((KEPT / page).read_text().split())
    (said,) = re.findall(
        r"All runs are at full size(?:, and their files|\. Their files) are kept[^.]*", text
    )
    named = set(re.findall(r"experiment=(\w+/\w+)", text))
    lost = {name for name in named if not (KEPT / "runs" / name / "jobs.csv").is_file()}
    assert lost == set(re.findall(r"experiment=(\w+/\w+)", said))
