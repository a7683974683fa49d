"""Names that would run, and folders that cannot be read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_up import job, plain
from refusals import refused

from fedclust.commands import report as command
from fedclust.helpers.errors import DataError, RunFolderError
from fedclust.helpers.files import sealed_file, sealed_json
from fedclust.launch.sweep import notes, report_sweep
from fedclust.papers.reports import all_contents, contents, make_report
from fedclust.report.reading import read_run
from fedclust.report.table import Cell, Table

EVIL = (r"\input{/etc/passwd}", "<script>alert(1)</script>", '=HYPERLINK("http://x")', "a|b\n# c")


def evil_table() -> Table:
    return Table(
        name="table",
        title=EVIL[0],
        columns=("arm", EVIL[1]),
        rows=tuple((Cell(text=name), Cell(text="1", detail=name)) for name in EVIL),
        records=tuple({"arm": name, "=1+1": -1.5} for name in EVIL),
        notes=(EVIL[0], EVIL[1]),
    )


def test_latex_shows_names_and_runs_none() -> None:
    text = evil_table().latex()
    assert r"\input" not in text
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    assert text.count("\n# c") == 0
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_markdown_shows_names_and_keeps_its_cells() -> None:
    text = evil_table().markdown()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert r"| a\|b \# c | 1 (a\|b \# c) |" in text
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 2 + len(EVIL)


def test_csv_holds_no_formula_and_leaves_numbers_alone() -> None:
    lines = evil_table().csv().splitlines()
    assert lines[0] == "arm,'=1+1"
    assert lines[3] == '"\'=HYPERLINK(""http://x"")",-1.5'
    assert lines[4] == "a|b # c,-1.5"


def test_html_shows_names_and_runs_none() -> None:
    text = evil_table().html()
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_report_of_evil_names_is_made(tmp_path: Path) -> None:
    for i, name in enumerate((*EVIL, "$x$ \\frac{")):
        plain(tmp_path / str(i), [[0.5], [0.6]], name)
    page = make_report(tmp_path).read_text()
    assert "<script>alert" not in page
    for ending in ("md", "tex", "csv"):
        text = (tmp_path / "report" / f"table.{ending}").read_text()
        assert r"\input{" not in text.replace(r"\\input", "") or ending == "csv"
    assert len(contents(tmp_path).arms) == 5


DAMAGE: dict[str, tuple[str, bytes | None]] = {
    "config: gone": ("config.yaml", None),
    "config: empty mapping": ("config.yaml", b"{}\n"),
    "config: a list": ("config.yaml", b"- 1\n"),
    "config: broken": ("config.yaml", b"a: [1"),
    "config: choices": ("config.yaml", b"choices: 3\n"),
    "config: tags": ("config.yaml", b"{choices: {}, tags: x}\n"),
    "config: scores": ("config.yaml", b"{choices: {}, scores: 3}\n"),
    "config: partition": ("config.yaml", b"{choices: {}, partition: .nan}\n"),
    "config: bytes": ("config.yaml", b"\xff\xfe\x00\x01"),
    "rounds: a word": ("rounds.csv", b"seed,round,metric,value\n0,0,accuracy,high\n"),
    "rounds: bytes": ("rounds.csv", b"\x00\xff\n\x80\n"),
    "rounds: columns": ("rounds.csv", b"a,b\n1,2\n"),
    "clients: half": ("clients.parquet", b"PAR1"),
    "clients: empty": ("clients.parquet", b""),
    "federation: empty mapping": ("federation.json", b"{}"),
    "federation: keys": ("federation.json", b'{"parameters": 1, "seeds": {"0": {}}}'),
    "federation: half": ("federation.json", b'{"param'),
    "array: half": ("arrays/seed=0/distance.npy", b"\x93NUMPY"),
    "array: empty": ("arrays/seed=0/distance.npy", b""),
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    job(folder / "good", "fedavg", seeds=(0,), rounds=2)
    job(folder / "bad", "lcfl", seeds=(0,), rounds=4)
    return folder


@pytest.fixture
def folder(tmp_path: Path, two: Path) -> Path:
    """A good and a bad job, to be damaged."""
    return Path(shutil.copytree(two, tmp_path / "demo"))


@pytest.mark.thinned
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_job_is_named_and_the_others_are_reported(folder: Path, kind: str) -> None:
    name, content = DAMAGE[kind]
    (folder / "bad" / name).unlink() if content is None else (folder / "bad" / name).write_bytes(
        content
    )
    (report,) = all_contents(folder)
    assert [arm.label for arm in report.arms] == ["fedavg"]
    (banner,) = report.banners
    assert banner.startswith(f"bad is left out: {folder / 'bad' / name} cannot be read (")
    assert "\n" not in banner


ODD_ABOUT = {
    "repeated": ("x", [None], 10**400),
    "trivial": (3, [1], {"accuracy": [1]}),
}


@pytest.mark.parametrize("name", ODD_ABOUT)
def test_what_a_federation_says_of_a_seed_is_of_its_kind(folder: Path, name: str) -> None:
    file = folder / "bad" / "federation.json"
    spread = dict.fromkeys(("total", "mean", "std", "min", "max"), 1)
    seed = {"examples": {"0": [2]}, "clients": 2, "groups": 1, "train": spread, "test": spread}
    for value in ODD_ABOUT[name]:
        content = {"parameters": 1, "seeds": {"0": {**seed, name: value}}}
        file.write_text(json.dumps(content))
        with pytest.raises(DataError, match=r"federation\.json cannot be read \("):
            read_run(folder / "bad")
    file.write_text(json.dumps({"parameters": 1, "seeds": {"0": seed}}))
    assert read_run(folder / "bad").federation["seeds"]["0"] == seed


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("sweep.json", '{"jobs": [{"folder": "a\\u0000b", "error": ""}]}'),
        ("multirun.yaml", "hydra: {overrides: {task: 3}}"),
        ("multirun.yaml", "hydra: {overrides: {task: {a: 1}}}"),
    ],
)
def test_what_a_sweep_says_of_itself_loses_no_numbers(
    folder: Path, name: str, content: str
) -> None:
    (folder / name).write_text(content)
    assert make_report(folder).is_file()


@pytest.mark.parametrize(
    "content", ["{", "[]", "3", '{"seeds": [1]}', '{"seeds": {"x": "ok"}}', '{"remarks": NaN}']
)
def test_a_status_that_cannot_be_read_loses_no_numbers(folder: Path, content: str) -> None:
    (folder / "bad" / "status.json").write_text(content)
    (folder / "bad" / "versions.json").write_text(content)
    (report,) = all_contents(folder)
    assert len(report.arms) == 2
    assert report.banners == [
        "lcfl is not finished (unknown: status.json cannot be read, 4 of 4 rounds)"
    ]


@pytest.mark.full
def test_flipped_bytes_are_named_or_change_nothing_but_numbers(tmp_path: Path, two: Path) -> None:
    draw = np.random.default_rng(0)
    left_out = 0
    for i in range(40):
        folder = Path(shutil.copytree(two, tmp_path / str(i)))
        file = folder / "bad" / ("clients.parquet", "rounds.csv", "config.yaml")[i % 3]
        content = bytearray(file.read_bytes())
        for place in draw.integers(0, len(content), 5):
            content[place] ^= int(draw.integers(1, 256))
        file.write_bytes(bytes(content))
        reports = all_contents(folder)
        (labels,) = {tuple(sorted(arm.algorithm for arm in one.arms)) for one in reports[:1]}
        assert "fedavg" in labels
        left_out += any("is left out" in banner for one in reports for banner in one.banners)
    assert left_out > 20


@pytest.mark.full
@pytest.mark.parametrize("content", [None, b"", b"\x00\xff", b"seed,round,metric,value\n"])
def test_a_job_that_has_lost_its_rounds_is_not_one_that_has_yet_to_begin(
    folder: Path, content: bytes | None
) -> None:
    rounds = folder / "bad" / "rounds.csv"
    seal = sealed_file(rounds)
    rounds.unlink()
    if content is not None:
        rounds.write_bytes(content)
    lost = "bad has lost its results: rounds.csv is damaged or gone; delete the folder, run again"
    status = folder / "bad" / "status.json"
    status.write_text('{"state": "done", "rounds_done": 4}')
    assert all_contents(folder)[0].banners == [lost]
    status.unlink()
    assert all_contents(folder)[0].banners == ["bad has no results yet"]
    (folder / "bad" / "checkpoints").mkdir()
    latest = folder / "bad" / "checkpoints" / "latest.json"
    latest.write_text(sealed_json({"files": {"rounds.csv": seal}}))
    assert all_contents(folder)[0].banners == [lost]
    with pytest.raises(RunFolderError, match=r"rounds\.csv is damaged"):
        all_contents(folder / "bad")


def test_only_damaged_jobs_are_one_line(folder: Path) -> None:
    for name in ("good", "bad"):
        (folder / name / "config.yaml").write_text("{}")
    with refused(RunFolderError, "holds no job with results") as caught:
        all_contents(folder)
    assert str(folder / "good" / "config.yaml") in str(caught.value)


def test_a_report_that_fails_ends_a_sweep_with_status_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "report").write_text("in the way")
    with notes() as noted:
        report_sweep(folder, noted)
        ((line, status),) = noted.not_run().items()
    assert status == 1
    assert line.startswith(f"no report of {folder}: ")
    assert line in capsys.readouterr().err.replace("\n", "")


def test_the_command_makes_the_other_reports(
    folder: Path, tmp_path: Path, two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_the_way = Path(shutil.copytree(two / "good", tmp_path / "job"))
    (in_the_way / "report").write_text("")
    with pytest.raises(RunFolderError, match="nowhere; nothing was made"):
        command.command([str(folder), str(tmp_path / "nowhere")])
    assert not (folder / "report" / "report.html").exists()
    with pytest.raises(SystemExit) as ended:
        command.command([str(in_the_way), str(folder)])
    assert ended.value.code == 1
    assert (folder / "report" / "report.html").is_file()
    said = capsys.readouterr().err
    assert f"no report of {in_the_way}" in said
