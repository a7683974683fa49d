"""fedclust benchmark: archives of a method's jobs, and what is refused of them."""

from __future__ import annotations

import io
import json
import math
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml
from cli.conftest import Cli, put, rounds_of

from fedclust.benchmark import archive, frozen, held_out, verify
from fedclust.commands import COMMANDS
from fedclust.config.versions import ROUNDS
from fedclust.report.reading import job_folders

pytestmark = pytest.mark.full
_OWN = {
    "experiment/benchmark/tiny.yaml": """# @package _global_
# two federations
name: benchmark/tiny
seeds: [0, 1]
rounds: 2
algorithm: {beta: 0.5}
report: {frozen: tiny}
hydra: {mode: MULTIRUN, sweeper: {params: {case: "tiny/turned,tiny/pairs"}}}
""",
    "case/tiny/turned.yaml": """# @package _global_
# four rotations
defaults: [{override /partition: rotated}]
partition: {num_clients: 8, examples_per_client: 20}
report: {case: turned}
""",
    "case/tiny/pairs.yaml": """# @package _global_
# two classes each
defaults: [{override /partition: class_pairs}]
partition: {num_clients: 10, examples_per_client: 20}
report: {case: pairs}
""",
}


@pytest.fixture
def packed(fedclust: Cli, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of a method of one's own in a benchmark of two small federations."""
    shutil.copytree(root / "examples" / "own_algorithm", tmp_path / "mine")
    for name, text in _OWN.items():
        put(tmp_path / "mine" / name, text)
    monkeypatch.setattr(frozen, "VERSIONS", tmp_path)
    experiment = "experiment=benchmark/tiny"
    fedclust.done("run", "--config-dir", "mine", experiment, "algorithm=server_momentum")
    jobs = job_folders(tmp_path / "outputs" / "benchmark" / "tiny")
    federations = {frozen.case_of(job): frozen.facts_of(job) for job in jobs}
    assert sorted(federations) == ["tiny/pairs", "tiny/turned"]
    put(tmp_path / "tiny.json", json.dumps({"rounds": ROUNDS, "federations": federations}))
    frozen.frozen.cache_clear()
    told = ("--contact", "a@b", "--config-dir", "mine", "--version", "tiny")
    fedclust.done("benchmark", "pack", "outputs/benchmark/tiny", "server_momentum", *told)
    return tmp_path / "outputs" / "benchmark" / "server_momentum-tiny.tar.xz"


def _changed(file: Path, name: str, *edit: str) -> None:
    """An archive with one file made anew, by exchanging one text for another."""
    files = archive.unpacked(file)
    (key,) = (one for one in files if one.endswith(name))
    text = files[key].decode()
    assert edit[0] in text
    files[key] = text.replace(*edit, 1).encode()
    file.write_bytes(archive.packed_files(files))


def test_an_archive_says_what_it_is_and_its_numbers_come_out_again(
    fedclust: Cli, packed: Path
) -> None:
    digest = frozen.frozen("tiny").digest
    files = archive.unpacked(packed)
    assert json.loads(files["archive.json"])["digest"] == digest
    assert {"code/server_momentum.py", "code/algorithm/server_momentum.yaml"} <= files.keys()
    shutil.rmtree("mine")  # what verifies has the archive alone
    read = fedclust.done("benchmark", "verify", str(packed))
    assert f"server_momentum, 2 jobs of tiny ({digest})" in read.out
    assert "nothing of it was run" in read.out
    again = fedclust.done("benchmark", "verify", str(packed), "--run")
    assert again.out.count("equal to the digit") == 2
    ran = [frozen.config_of(file.parent) for file in Path("outputs/verified").rglob("config.yaml")]
    assert [one["threads"] for one in ran] == [1, 1], "as those of the archive, which chose none"


@pytest.mark.parametrize(
    ("others", "moved", "is_same"),
    [
        (0.0, 0.4, True),  # seeds that agree: half a point
        (0.0, 0.6, False),
        (1.2, 1.1, True),  # as far as they are apart
        (1.2, 1.3, False),
        (9.0, 1.9, True),  # two points at most
        (9.0, 2.1, False),
        (math.nan, 0.0, True),  # a seed that diverged, both times
    ],
)
def test_rounding_is_no_more_than_seeds_are_apart(
    tmp_path: Path, others: float, moved: float, is_same: bool
) -> None:
    def written(name: str, accuracy: dict[tuple[int, int], float]) -> Path:
        lines = [f"{seed},{t},accuracy,{value}" for (seed, t), value in accuracy.items()]
        (tmp_path / name).mkdir()
        text = "\n".join(["seed,round,metric,value", *lines, "0,1,purity,0.3"])
        (tmp_path / name / "rounds.csv").write_text(text)
        return tmp_path / name

    seen = {(0, 0): 0.5, (1, 0): 0.9, (0, 1): 0.6, (1, 1): 0.6 + others / 100}
    again = {(0, 0): 0.5, (0, 1): 0.6 - moved / 100}
    before = written("before", seen)
    apart, same = verify._apart(before, written("again", again), [0])
    assert apart == pytest.approx(moved)
    assert same == is_same
    diverged = {(1, 1): seen[1, 1], (1, 0): 0.9}
    assert verify._apart(before, written("one", diverged), [1]) == (0.0, True)


def test_a_tuned_job_brings_the_search_that_found_its_settings(fedclust: Cli, packed: Path) -> None:
    own, told = ("--config-dir", "mine"), ("experiment=benchmark/tiny", "algorithm=server_momentum")
    fedclust.done("tune", *own, *told, "trials=2", "tuning_seeds=[1000]", "algorithm.beta=0.5")
    fedclust.done("run", *own, *told, "tuned=outputs/benchmark/tiny-tuning")
    shutil.rmtree("outputs/benchmark/tiny/report", ignore_errors=True)
    for job in Path("outputs/benchmark/tiny").glob("server_momentum*"):
        if "tuned" not in job.name:
            shutil.rmtree(job)
    pack = ("pack", "outputs/benchmark/tiny", "server_momentum", "--contact", "a@b")
    fedclust.done("benchmark", *pack, *own, "--version", "tiny")
    names = [name for name in archive.unpacked(packed) if name.startswith("searches/")]
    assert len([name for name in names if name.endswith("best.yaml")]) == 2
    shutil.rmtree("outputs/benchmark/tiny-tuning")
    again = fedclust.done("benchmark", "verify", str(packed), "--run")
    assert again.out.count("equal to the digit") == 2


def test_the_page_has_a_row_for_an_archive_beside_jobs(
    fedclust: Cli, packed: Path, tmp_path: Path
) -> None:
    """Every number of the row can be had from the files by hand."""
    put(tmp_path / "tiny_natural.json", json.dumps({"rounds": ROUNDS, "federations": {}}))
    frozen.frozen.cache_clear()
    archives = tmp_path / "archives"
    archives.mkdir()
    packed.rename(archives / packed.name)
    jobs = tmp_path / "outputs" / "benchmark" / "tiny"
    for job in jobs.glob("server_momentum*"):
        job.rename(tmp_path / job.name)
    told = ("--config-dir", "mine", "experiment=benchmark/tiny", "num_clusters=4")
    fedclust.done("run", *told, "algorithm=fedavg,local,ifca,oracle", "~algorithm.beta")
    page = ("benchmark", "page", "archives", "outputs/benchmark/tiny", "--version", "tiny")
    made = fedclust.done(*page, "--to", "docs/page.md")
    assert made.out.split() == [
        f"docs/page{name}" for name in (".md", "/data.md", "/scores.csv", "/at_a_glance.png")
    ]
    text = (tmp_path / "docs" / "page.md").read_text()
    line = next(row for row in text.splitlines() if row.startswith("| server_momentum"))
    last = {}
    for job in (*jobs.iterdir(), *tmp_path.glob("server_momentum,*")):
        if (job / "rounds.csv").is_file():
            values = rounds_of(job, "accuracy")
            last[job.name.partition(",")[0], frozen.case_of(job)] = [
                values[seed, 1] for seed in (0, 1)
            ]
    mean = {key: 100 * sum(two) / 2 for key, two in last.items()}
    shares = [
        100 * (mean["server_momentum", case] - mean["fedavg", case]) / gap
        for case in ("tiny/pairs", "tiny/turned")
        if (gap := mean["oracle", case] - mean["fedavg", case]) > 1
    ]
    assert shares
    assert f"| {sum(shares) / len(shares):.0f} | {min(shares):.0f} |".replace("-", "−") in line
    scores = (tmp_path / "docs" / "page" / "scores.csv").read_text()
    value = last["server_momentum", "tiny/turned"][1]
    row = "tiny,number told,tiny/turned,server_momentum,1,accuracy"
    assert f"{row},{100 * value:.6f}" in scores
    # so does a folder whose jobs are of something else
    other = tmp_path / "others" / "job"
    shutil.copytree(next(jobs.glob("ifca*turned*")), other)
    text = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(text.replace("case: tiny/turned", "case: other"))
    beside = (*page[:3], "others", *page[4:], "--to", "other.md")
    fedclust.refused(*beside, says="others: no finished job of tiny or tiny_natural")
    # a job that is not of the benchmark ends it before anything is written
    (tmp_path / "docs" / "page.md").unlink()
    changed = next(jobs.glob("ifca*turned*")) / "config.yaml"
    changed.write_text(changed.read_text().replace("batch_size: ", "batch_size: 1"))
    refused = fedclust(*page, "--to", "docs/page.md")
    assert refused.status == 2
    assert "local work.batch_size" in refused.err
    assert not (tmp_path / "docs" / "page.md").exists()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("turned/config.yaml", "[", "config.yaml cannot be read"),
        ("turned/config.yaml", "[]", "config.yaml is no mapping"),
        ("turned/config.yaml", "choices: 3", "is of , not of server_momentum"),
        ("turned/status.json", "[]", "status.json is no mapping"),
        ("turned/federation.json", "{", "federation.json cannot be read"),
        ("turned/federation.json", "{}", "has no digests of the data"),
    ],
)
def test_a_damaged_file_of_an_archive_is_one_line(
    fedclust: Cli, packed: Path, name: str, text: str, says: str
) -> None:
    files = archive.unpacked(packed)
    (key,) = (one for one in files if one.endswith(name))
    packed.write_bytes(archive.packed_files(files | {key: text.encode()}))
    fedclust.refused("benchmark", "verify", str(packed), says=says)


def _edited(file: Path, edit: Callable[[list[str]], list[str]], *, clients: bool = True) -> None:
    """An archive with other lines of every rounds.csv, and the clients' numbers or not."""
    files = {n: c for n, c in archive.unpacked(file).items() if clients or "clients" not in n}
    for name in [one for one in files if one.endswith("rounds.csv")]:
        files[name] = ("\n".join(edit(files[name].decode().splitlines())) + "\n").encode()
    file.write_bytes(archive.packed_files(files))


def _risen(value: str) -> Callable[[list[str]], list[str]]:
    """Every accuracy is this one."""

    def edit(rows: list[str]) -> list[str]:
        return [f"{row.rpartition(',')[0]},{value}" if ",accuracy," in row else row for row in rows]

    return edit


def _without_the_end(rows: list[str]) -> list[str]:
    return [row for row in rows if not row.startswith("1,1,accuracy,")]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (_risen("0.99"), "has an accuracy of 99 % in round"),
        (_risen("1.5"), "a value of accuracy that is not between 0 and 1"),
        (_risen("nan"), "seed 0 has no accuracy in the last round, 2"),
        (_without_the_end, "seed 1 has no accuracy in the last round, 2"),
        (lambda rows: [*rows, *rows[1:]], "has a value of accuracy twice"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(
    fedclust: Cli, packed: Path, edit: Callable[[list[str]], list[str]], says: str
) -> None:
    _edited(packed, edit)
    fedclust.refused("benchmark", "verify", str(packed), says=says)


def test_a_score_without_the_hardest_clients_is_refused(fedclust: Cli, packed: Path) -> None:
    files = archive.unpacked(packed)
    for name in [one for one in files if one.endswith("clients.parquet")]:
        rows = pd.read_parquet(io.BytesIO(files[name]))
        rows.loc[rows["client"] == 0, ["label", "test_count", "correct"]] = [-1, 0, 0]
        files[name] = rows.to_parquet()
    packed.write_bytes(archive.packed_files(files))
    says = "seed 0 leaves 1 client without a model in the last round"
    fedclust.refused("benchmark", "verify", str(packed), says=says)


def test_numbers_that_do_not_come_out_are_refused(fedclust: Cli, packed: Path) -> None:
    _edited(packed, _risen("0.99"), clients=False)
    fedclust.done("benchmark", "verify", str(packed))
    told = fedclust("benchmark", "verify", str(packed), "--run")
    assert told.status == 2
    assert "points apart, not the same" in told.out
    assert "was not reproduced" in told.err


def test_an_archive_has_the_code_that_its_jobs_ran(fedclust: Cli, packed: Path) -> None:
    files = archive.unpacked(packed)
    bare = {name: content for name, content in files.items() if not name.startswith("code/")}
    packed.write_bytes(archive.packed_files(bare))
    fedclust.refused("benchmark", "verify", str(packed), says="and its code is not there")
    code = "code/server_momentum.py"
    packed.write_bytes(archive.packed_files(files | {code: files[code] + b"# changed"}))
    fedclust.refused("benchmark", "verify", str(packed), says="ran with another server_momentum.py")
    told = ("benchmark", "pack", "outputs/benchmark/tiny", "server_momentum", "--contact", "a@b")
    fedclust.refused(*told, "--version", "tiny", says="--config-dir names its folder")


def test_a_method_without_jobs_is_not_packed(fedclust: Cli, packed: Path) -> None:
    told = ("--contact", "a@b", "--config-dir", "mine", "--version", "tiny")
    pack = ("benchmark", "pack", "outputs/benchmark/tiny", "server_momentun", *told)
    fedclust.refused(*pack, says="did you mean server_momentum?")


def test_a_rate_that_no_search_has_found_is_refused(fedclust: Cli, packed: Path) -> None:
    _changed(packed, "turned/config.yaml", "overrides:\n", "overrides:\n- solver.lr=0.5\n")
    fedclust.refused("benchmark", "verify", str(packed), says="solver.lr=0.5 was typed")


@pytest.mark.parametrize(
    ("name", "before", "after", "says"),
    [
        ("archive.json", '"digest": "', '"digest": "0', "and here it has"),
        ("turned/config.yaml", "rounds: 2", "rounds: 3", "setting.rounds is 3, and 2 in tiny"),
        ("turned/config.yaml", "epochs: 5", "epochs: 9", "setting.local work.epochs is 9"),
        ("turned/federation.json", '"the examples": "', '"the examples": "0', "data.the examples"),
        ("turned/versions.json", f'"rounds": {ROUNDS}', '"rounds": 99', "rounds are of version 99"),
        ("turned/config.yaml", "algorithm: server_momentum", "algorithm: ifca", "is of ifca"),
        ("turned/status.json", '"done"', '"running"', "is not done"),
        ("turned/status.json", '"ok"', '"the loss is nan"', "one of its seeds has failed"),
    ],
)
def test_an_archive_of_another_benchmark_is_refused(
    fedclust: Cli, packed: Path, name: str, before: str, after: str, says: str
) -> None:
    _changed(packed, name, before, after)
    fedclust.refused("benchmark", "verify", str(packed), says=says)


def test_what_is_behind_the_end_or_twice_in_an_archive_is_refused(
    fedclust: Cli, packed: Path
) -> None:
    whole = packed.read_bytes()
    packed.write_bytes(whole + b"more")
    fedclust.refused("benchmark", "verify", str(packed), says="has 4 bytes behind its end")
    packed.write_bytes(whole[:-40])
    fedclust.refused("benchmark", "verify", str(packed), says="it ends too early")
    packed.write_bytes(whole)
    files = archive.unpacked(packed)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz") as bad:
        for name, content in [*files.items(), *files.items()]:
            head = tarfile.TarInfo(name)
            head.size = len(content)
            bad.addfile(head, io.BytesIO(content))
    packed.write_bytes(made.getvalue())
    fedclust.refused("benchmark", "verify", str(packed), says="or one of them twice")


def test_a_method_has_one_job_in_a_federation_and_track(fedclust: Cli, packed: Path) -> None:
    files = archive.unpacked(packed)
    more = {n.replace("turned/", "turned2/"): c for n, c in files.items() if "turned/" in n}
    packed.write_bytes(archive.packed_files(files | more))
    fedclust.refused("benchmark", "verify", str(packed), says="a method has one job there")
    head = json.loads(files["archive.json"])
    text = json.dumps(head | {"contact": "<b>me</b>"}).encode()
    packed.write_bytes(archive.packed_files(files | {"archive.json": text}))
    fedclust.refused("benchmark", "verify", str(packed), says="has a contact that is not")


@pytest.mark.parametrize("name", ["code/../../x.py", "/x.py", "jobs/a/x.pt", "x", "code/x.pkl"])
def test_a_file_that_no_archive_has_is_refused(fedclust: Cli, tmp_path: Path, name: str) -> None:
    (tmp_path / "bad.tar.xz").write_bytes(archive.packed_files({name: b"", "archive.json": b"{}"}))
    fedclust.refused("benchmark", "verify", "bad.tar.xz", says="which no archive may hold")


def test_a_link_and_what_is_no_archive_are_refused(fedclust: Cli, tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz") as bad:
        link = tarfile.TarInfo("code/x.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        bad.addfile(link)
    put(tmp_path / "text.tar.xz", "no archive")
    (tmp_path / "link.tar.xz").write_bytes(made.getvalue())
    fedclust.refused("benchmark", "verify", "link.tar.xz", says="which no archive may hold")
    fedclust.refused("benchmark", "verify", "text.tar.xz", says="is no archive")
    fedclust.refused("benchmark", "verify", "gone.tar.xz", says="there is no file gone.tar.xz")
    fedclust.refused("benchmark", "verify", says="the following arguments are required: archive")
    fedclust.refused("benchmark", says="are required: pack, verify, page or draw")


def test_the_help_names_every_command(fedclust: Cli) -> None:
    shown = fedclust.done("--help").out
    assert [name for name in COMMANDS if f"\n  fedclust {name} " not in shown] == []
    of_a_part = " ".join(fedclust.done("benchmark", "pack", "--help").out.split())
    assert "--contact CONTACT whom to write to about it" in of_a_part
    assert "draw write six federations" in " ".join(fedclust.done("benchmark", "-h").out.split())


def test_keys_that_are_not_the_methods_are_not_run(fedclust: Cli, packed: Path) -> None:
    for case in ("turned", "pairs"):
        _changed(packed, f"{case}/config.yaml", "overrides:\n", "overrides:\n- dataset.path=/x\n")
    fedclust.refused("benchmark", "verify", str(packed), "--run", says="dataset.path=/x is not an")


def test_a_missing_federation_and_a_job_of_another_are_not_packed(
    fedclust: Cli, packed: Path, tmp_path: Path
) -> None:
    pack = ("benchmark", "pack", "outputs/benchmark/tiny", "server_momentum", "--contact", "a@b")
    tiny = ("--version", "tiny")
    fedclust.refused(*pack, "--version", "v0", says="there is no benchmark v0: there are tiny")
    put(tmp_path / "other.json", json.dumps({"rounds": ROUNDS, "federations": {}}))
    says = "has jobs of tiny: --version tiny packs them"
    fedclust.refused(*pack, "--version", "other", says=says)
    page = ("benchmark", "page", "outputs/benchmark/tiny", *tiny, "--to", "page.md")
    fedclust.refused(*page, says="--version tiny has no page: nothing is ranked in it")
    (turned,) = (tmp_path / "outputs" / "benchmark" / "tiny").glob("*turned*")
    text = (turned / "config.yaml").read_text()
    put(turned / "config.yaml", text.replace("participation: 1.0", "participation: 0.5", 1))
    fedclust.refused(*pack, *tiny, says="setting.participation is 0.5, and 1.0 in tiny")
    shutil.rmtree(turned)
    fedclust.refused(
        *pack, *tiny, says="no finished job of algorithm=server_momentum in tiny/turne"
    )
    assert packed.is_file()


def test_a_seed_draws_six_federations_of_six_kinds(fedclust: Cli, tmp_path: Path) -> None:
    drawn = fedclust.done("benchmark", "draw", "a secret", "drawn")
    assert held_out.digest_of("a secret") in drawn.out
    files = sorted((tmp_path / "drawn" / "case" / "held_out").iterdir())
    assert {file.stem.partition("_")[2] for file in files} == set(held_out.KINDS)
    assert held_out.draw("a secret") == held_out.draw("a secret") != held_out.draw("another")
    for seed in range(200):
        for case in held_out.draw(str(seed)).values():
            assert 2 <= case["num_clusters"] <= 8
            shares = case["partition"].get("assignment", "balanced")
            assert shares == "balanced" or abs(sum(shares) - 1) < 1e-9
            assert shares == "balanced" or len(shares) == case["num_clusters"]
    fedclust.refused("benchmark", "draw", "a", "drawn", says="one that is not there yet")


@pytest.mark.slow
@pytest.mark.parametrize("kind", held_out.KINDS)
def test_a_drawn_federation_has_the_groups_that_an_oracle_needs(
    fedclust: Cli, tmp_path: Path, data_root: Path, kind: str
) -> None:
    """Its true groups have the drawn shares, and to know them is worth something."""
    cases = held_out.draw("sound", {"mnist": 10}, (24, 32))
    ((name, case),) = [(n, c) for n, c in cases.items() if n.endswith(kind)]
    put(tmp_path / f"own/case/held_out/{name}.yaml", f"# @package _global_\n{yaml.dump(case)}")
    told = ("--config-dir", "own", f"case=held_out/{name}", f"data.root={data_root}", "seeds=1")
    for method in ("oracle", "fedavg"):
        fedclust.done("run", *told, f"algorithm={method}", "rounds=16", f"name={method}")
    oracle, fedavg = (
        rounds_of(tmp_path / "outputs" / m, "accuracy").iloc[-1] for m in ("oracle", "fedavg")
    )
    groups = rounds_of(tmp_path / "outputs" / "oracle", "num_clusters").iloc[0]
    assert groups == case["num_clusters"]
    assert oracle > fedavg + (0.02 if kind not in ("corruption", "drift") else -0.1)
