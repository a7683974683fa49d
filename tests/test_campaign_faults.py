"""The campaign of faults tells a wrong result from a right one, and a few of its cases."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_part_of_the_campaign(tmp_path: Path, root: Path) -> None:
    """One of its quick cases of every kind, in a process of its own, since cases fork."""
    program = [sys.executable, str(root / "scripts" / "trust" / "campaign_faults.py"), "--quick"]
    given = ["--of-each", "1", "--workers", "2", "--seconds", "800", "--folder", str(tmp_path)]
    done = subprocess.run(
        [*program, *given],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [
        json.loads(line)
        for file in tmp_path.glob("*.jsonl")
        for line in file.read_text().split("\n")
        if line
    ]
    kinds = Counter(row["part"] for row in rows)
    assert kinds.keys() >= {"kill before an operation", "kill at random", "mistake", "data"}
    assert max(kinds.values()) == 1
    assert Counter(row["end"] for row in rows).keys() <= {"survived", "refused"}


def test_every_way_to_damage_a_file_changes_it(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(root / "scripts" / "trust"))
    from campaign_faults import share, spread, table
    from faults.case import Case
    from faults.damages import damage

    for name, content in (("a.pt", b"0123456789"), ("b.pt", b"abcdefghij")):
        (tmp_path / name).write_bytes(content)
    sizes = {}
    for how in ("flipped", "cut", "emptied", "swapped", "deleted"):
        (tmp_path / "a.pt").write_bytes(b"0123456789")
        damage(tmp_path / "a.pt", how, random.Random(1))
        there = (tmp_path / "a.pt").is_file()
        sizes[how] = len((tmp_path / "a.pt").read_bytes()) if there else None
        assert not there or (tmp_path / "a.pt").read_bytes() != b"0123456789"
    assert (sizes["flipped"], sizes["emptied"], sizes["swapped"], sizes["deleted"]) == (
        10,
        0,
        10,
        None,
    )
    assert (sizes["cut"] or 0) < 10
    rows = [{"part": "x", "end": end} for end in ("survived", "survived", "wrong")]
    rows.append({"part": "y", "end": "crashed"})
    assert table(rows).splitlines()[2:] == [
        "| x | 3 | 2 | 0 | 1 | 0 |",
        "| y | 1 | 0 | 0 | 0 | 1 |",
        "| all | 4 | 2 | 0 | 1 | 1 |",
    ]
    assert [list(share(iter(range(5)), i, 2)) for i in (0, 1)] == [[0, 2, 4], [1, 3]]  # type: ignore[type-var]
    cases = [Case(kind, str(i), lambda _: ("", "")) for kind in "xy" for i in range(5)]
    few = [case.part + case.name for case in spread(iter(cases), 2)]
    assert few == ["x0", "x3", "y0", "y3"]
    assert len(list(spread(iter(cases), 9))) == 10
