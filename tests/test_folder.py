"""The folder of a job: lock, config, checkpoints that are whole or absent."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from refusals import refused

from fedclust.core.client_models import ClientModels
from fedclust.helpers.errors import RunFolderError
from fedclust.helpers.files import atomic_write, sealed_file
from fedclust.report.changed_files import broken
from fedclust.report.runs import Run
from fedclust.runtime.folder import RunFolder, config_hash

CONF = Path(__file__).parents[1] / "conf"
CONFIG = {
    "name": "x",
    "rounds": 3,
    "dataset": {"_target_": "d", "root": "a"},
    "solver": {"lr": 0.1},
}
CPU = torch.device("cpu")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a job's folder is to be."""
    return tmp_path / "run"


def folder(path: Path, **changes: Any) -> RunFolder:
    return RunFolder(path, {**CONFIG, **changes})


@contextmanager
def held(path: Path, **changes: Any) -> Iterator[RunFolder]:
    """The folder, locked by this process meanwhile."""
    run = folder(path, **changes)
    run.acquire({})
    yield run
    run.release()


def contents(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_the_hash_covers_results_and_nothing_else() -> None:
    other_place, other_data = ({"_target_": t, "root": r} for t, r in (("d", "b"), ("e", "a")))
    same = [{"name": "y"}, {"checkpoint_seconds": 3}, {"progress": False}, {"dataset": other_place}]
    for change in same:
        assert config_hash({**CONFIG, **change}) == config_hash(CONFIG)
    for change in ({"rounds": 4}, {"solver": {"lr": 0.2}}, {"dataset": other_data}):
        assert config_hash({**CONFIG, **change}) != config_hash(CONFIG)


def test_a_solver_from_before_an_option_is_that_with_its_default_wherever_it_stands() -> None:
    now = OmegaConf.to_container(OmegaConf.load(CONF / "solver" / "momentum.yaml"))
    assert isinstance(now, dict)
    keys = {"lr", "decay", "batch_size", "epochs", "steps", "momentum", "proximal", "weight_decay"}
    before = {key: now[key] for key in ("_target_", *keys)}

    def hashed(solver: dict[str, object]) -> str:
        return config_hash({**CONFIG, "solver": solver, "algorithm": {"parts": [{"of": solver}]}})

    assert hashed(now) == hashed(before)
    assert hashed({**now, "nesterov": True}) != hashed(before)


def test_what_began_a_job_computes_the_rest(path: Path) -> None:
    assert folder(path, engine="auto").engine() == "auto"
    with suppress(RunFolderError):
        folder(path, engine="auto").acquire({"engine": "loop"})
    assert folder(path, engine="auto").engine() == "loop"
    assert folder(path, engine="vmap").engine() == "vmap"
    (path / "versions.json").write_text('{"engine": "steam"}')
    assert folder(path, engine="auto").engine() == "auto"


def test_a_number_that_was_not_recorded_is_not_found_done(path: Path) -> None:
    folder(path, discrepancy=False).acquire({})
    with pytest.raises(RunFolderError, match=r"was computed without discrepancy=true"):
        folder(path, discrepancy=True).check()


def test_a_config_spelt_otherwise_is_the_same(path: Path) -> None:
    """0 and 0.0 are one rate, and `common` counts where a group has read it."""
    with held(path, solver={"lr": 0.0}, common={"aggregation": "uniform"}) as job:
        job.save(0, {0: {"state": {"n": 3}}}, {"rounds_csv": 12})
    with held(path, solver={"lr": 0}, common={"new": 1}) as same:
        assert same.load(CPU)[0] == 0
    assert same.config["dataset"] == {"_target_": "d", "root": "a"}, "where the files lie stays"
    for other, key in (({"lr": 1e-9}, "lr"), ({"lr": False}, "lr"), ({"lr": 0, "m": 0}, "m")):
        with pytest.raises(RunFolderError, match=rf"another config, by solver\.{key};"):
            folder(path, solver=other, common={}).check()


def test_a_checkpoint_comes_back_bit_by_bit(path: Path) -> None:
    run = folder(path)
    run.acquire({})
    models = torch.randn(3, 5)
    content = {
        "state": {"models": models[1:], "label": torch.tensor([1]), "none": None, "n": 3},
        "failed": None,
    }
    run.save(4, {0: content, 7: content}, {"rounds_csv": 12})
    t, seeds, position = run.load(CPU)
    assert (t, position, sorted(seeds)) == (4, {"rounds_csv": 12}, [0, 7])
    assert torch.equal(seeds[7]["state"]["models"], models[1:])
    assert seeds[0]["state"]["none"] is None
    for t in (5, 9):
        run.save(t, {0: content, 7: content}, {"rounds_csv": 20})
    kept = sorted(p.name for p in (path / "checkpoints").glob("round=*"))
    assert kept == ["round=5", "round=9"]


def test_a_view_is_saved_without_what_it_looks_into(path: Path) -> None:
    run = folder(path)
    run.acquire({})
    run.save(0, {0: {"state": {"row": torch.zeros(1000, 100)[3]}}}, {})
    assert (path / "checkpoints" / "round=0" / "seed=0.pt").stat().st_size < 10_000


def test_what_clients_share_is_saved_once(path: Path) -> None:
    run = folder(path)
    run.acquire({})
    rows = torch.randn(2, 100)
    models = ClientModels.alike(rows[:1], 1000).replaced(torch.tensor([3]), rows[1:])
    run.save(0, {0: {"state": {"local": models}}}, {})
    assert (path / "checkpoints" / "round=0" / "seed=0.pt").stat().st_size < 20_000
    loaded = run.load(CPU)
    assert torch.equal(ClientModels.restored(**loaded[1][0]["state"]["local"]).all(), models.all())


def test_a_half_written_checkpoint_does_not_count(path: Path) -> None:
    run = folder(path)
    run.acquire({})
    run.save(1, {0: {"state": {"x": torch.ones(1)}}}, {"p": 1})
    partial = path / "checkpoints" / "round=2.partial"
    partial.mkdir()
    (partial / "seed=0.pt").write_bytes(b"half")
    whole = path / "checkpoints" / "round=3"
    whole.mkdir()  # renamed, but latest.json was not replaced yet
    loaded = run.load(CPU)
    assert loaded[0] == 1
    run.save(2, {0: {"state": {"x": torch.ones(1)}}}, {"p": 2})
    assert run.load(CPU)[0] == 2  # type: ignore[index]


SEEDS = {seed: {"state": {"x": torch.full((5,), float(seed))}} for seed in (0, 1)}


def saved(path: Path, *rounds: int) -> RunFolder:
    """A folder with checkpoints of some rounds and a results file that grew in each."""
    with held(path) as run:
        for t in rounds:
            (path / "rounds.csv").write_text("a,b\n" * (t + 1))
            seal = sealed_file(path / "rounds.csv")
            run.save(t, SEEDS, {"round": t, "files": {"rounds.csv": seal}})
    return run


def loaded(path: Path) -> tuple[int, list[str]]:
    """The round a new process continues after, and what it remarks."""
    with held(path) as run:
        found = run.load(CPU)
    for seed, content in found[1].items():
        assert content["state"]["x"].tolist() == [float(seed)] * 5
    return found[0], run.remarks


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def swap(folder: Path) -> None:
    one, other = (folder / f"seed={seed}.pt" for seed in (0, 1))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


DAMAGE = {
    "flipped bit": ("seed=0.pt", lambda root: flip(root / "round=3" / "seed=0.pt", 700)),
    "truncated": ("seed=1.pt", lambda root: (root / "round=3/seed=1.pt").write_bytes(b"half")),
    "deleted": ("seed=1.pt is gone", lambda root: (root / "round=3" / "seed=1.pt").unlink()),
    "swapped seeds": ("seed=0.pt", lambda root: swap(root / "round=3")),
    "other numbers": (
        "seed=0.pt",
        lambda root: torch.save(
            {**torch.load(root / "round=3" / "seed=0.pt"), "state": {"x": torch.full((5,), nan)}},
            root / "round=3" / "seed=0.pt",
        ),
    ),
    "results cut short": (
        "rounds.csv is shorter",
        lambda root: (root.parent / "rounds.csv").write_text("a,b\n" * 3),
    ),
    "results edited": ("rounds.csv", lambda root: flip(root.parent / "rounds.csv", 13)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_for_the_older_one(path: Path, damage: str) -> None:
    saved(path, 1, 2, 3)
    assert loaded(path) == (3, [])
    named, do = DAMAGE[damage]
    do(path / "checkpoints")
    t, remarks = loaded(path)
    assert t == 2
    assert len(remarks) == 1
    assert named in remarks[0]
    assert "older checkpoint of round 2" in remarks[0]


@pytest.mark.parametrize("content", ["", "{", "{}", "[1]", '{"round": 9}'])
def test_the_records_of_the_rounds_stand_in_for_latest_json(path: Path, content: str) -> None:
    saved(path, 1, 2)
    (path / "checkpoints" / "latest.json").write_text(content)
    t, remarks = loaded(path)
    assert t == 2
    assert "latest.json is damaged" in remarks[0]


def test_with_both_checkpoints_damaged_nothing_is_overwritten(path: Path) -> None:
    saved(path, 1, 2)
    for t in (1, 2):
        flip(path / "checkpoints" / f"round={t}" / "seed=0.pt", 700)
    before = contents(path)
    run = folder(path)
    newer, older = (rf"round={t}/seed=0\.pt" for t in (2, 1))
    with refused(RunFolderError, f"{newer} is damaged, and the older .* of no use .*{older}"):
        run.acquire({"another": 1})
    assert before == contents(path)


def test_what_cannot_be_read_is_not_gone(path: Path) -> None:
    """A disk that fails for a while must cost no rounds."""
    saved(path, 1, 2)
    for t in (1, 2):
        state = path / "checkpoints" / f"round={t}" / "seed=0.pt"
        state.unlink()
        state.mkdir()
    with pytest.raises(RunFolderError, match=r"round=2/seed=0\.pt cannot be read"):
        folder(path).acquire({})
    assert (path / "checkpoints" / "round=2" / "seed=1.pt").exists()


def test_a_folder_from_a_copy_that_ends_before_its_checkpoints_begins_anew(path: Path) -> None:
    """rounds.csv was copied two rounds before the checkpoints were: nothing there is wrong."""
    saved(path, 1, 2)
    (path / "rounds.csv").write_text("a,b\n")
    run = folder(path)
    assert run.acquire({})
    assert run.load(CPU) is None
    assert run.remarks == [
        f"{path / 'rounds.csv'} is shorter than it was, as in a folder brought back from a copy; "
        "the job begins anew"
    ]
    run.save(0, SEEDS, {"round": 0, "files": {"rounds.csv": sealed_file(path / "rounds.csv")}})
    run.release()
    assert loaded(path) == (0, [])
    assert [p.name for p in path.glob("checkpoints/round=*")] == ["round=0"]


def test_a_checkpoint_of_another_config_is_not_taken(tmp_path: Path, path: Path) -> None:
    saved(path, 1)
    with held(tmp_path / "other", rounds=9):
        shutil.copytree(path / "checkpoints", tmp_path / "other" / "checkpoints")
    with pytest.raises(RunFolderError, match=r"latest\.json is damaged"):
        folder(tmp_path / "other", rounds=9).acquire({})


def test_a_status_changed_by_hand_is_told(path: Path) -> None:
    run = saved(path, 1)
    run.write_status(state="running", rounds_done=2)
    assert run.status == {"state": "running", "rounds_done": 2}
    file = path / "status.json"
    file.write_text(file.read_text().replace("running", "done"))
    assert run.status == {"state": "unknown"}
    assert not run.is_done()
    t, remarks = loaded(path)
    assert t == 1
    assert "status.json is damaged or was changed by hand" in remarks[0]


def done(path: Path) -> RunFolder:
    """A folder of a finished job."""
    run = saved(path, 1)
    for name in ("clients.parquet", "summary.csv"):
        (path / name).write_text(name)
    (path / "rounds.csv").write_text("seed,round,metric,value\n0,0,accuracy,0.5\n")
    run.finish({"state": "done", "rounds_done": 2})
    return run


def test_a_finished_job_is_done_as_long_as_its_results_are_whole(path: Path) -> None:
    done(path)
    assert folder(path).is_done()
    (path / "status.json").unlink()
    assert folder(path).is_done()
    assert folder(path).status == {"state": "done", "rounds_done": 2}
    (path / "summary.csv").write_text("edited")
    run = folder(path)
    assert run.is_done()
    assert run.remarks == [
        f"{path / 'summary.csv'} was damaged, changed by hand or gone, and is written again"
    ]
    assert "accuracy,last,0,0.5" in (path / "summary.csv").read_text()
    flip(path / "rounds.csv", 30)
    run = folder(path)
    assert not run.is_done()
    named = f"{path / 'rounds.csv'} is damaged, changed by hand or gone"
    assert run.remarks == [named]
    with pytest.raises(RunFolderError, match=re.escape(named)):
        run.acquire({})


def test_a_finished_job_tells_of_weights_that_are_damaged(path: Path) -> None:
    done(path)
    file = max(path.glob("checkpoints/round=*")) / "seed=0.pt"
    flip(file, 30)
    run = folder(path)
    assert run.is_done()
    assert run.remarks == [f"{file}, trained weights, is damaged; the results are whole"]


def test_a_finished_job_tells_of_arrays_that_are_gone(path: Path) -> None:
    run = saved(path, 1)
    for name in ("clients.parquet", "summary.csv", "rounds.csv"):
        (path / name).write_text(name)
    (path / "arrays").mkdir()
    for name in "abc":
        (path / "arrays" / f"{name}.npy").write_text(name)
    run.finish({"state": "done", "rounds_done": 2})
    assert folder(path).is_done()
    (path / "arrays" / "b.npy").unlink()
    again = folder(path)
    assert again.is_done()
    assert again.remarks == [f"{path / 'arrays/b.npy'} is gone; the results are whole"]
    shutil.rmtree(path / "arrays")
    assert again.is_done()
    assert again.remarks == [
        f"{path / 'arrays/a.npy'} and 2 files more are gone; the results are whole"
    ]


def test_another_sealed_file_under_a_name_is_damage(path: Path) -> None:
    done(path)
    records = path / "checkpoints"
    (records / "done.json").write_bytes((path / "status.json").read_bytes())
    run = folder(path)
    assert run.is_done()
    assert "done.json is damaged" in run.remarks[0]
    (records / "latest.json").write_bytes((path / "status.json").read_bytes())
    with pytest.raises(RunFolderError, match=r"latest\.json is damaged"):
        folder(path).load(CPU)


def test_a_damaged_seal_of_the_results_is_told(path: Path) -> None:
    done(path)
    flip(path / "checkpoints" / "done.json", 30)
    run = folder(path)
    assert run.is_done()
    assert "done.json is damaged, so the results were not compared" in run.remarks[0]


def test_without_checkpoints_a_job_stays_done(path: Path) -> None:
    done(path)
    shutil.rmtree(path / "checkpoints")
    assert folder(path).is_done()
    (path / "rounds.csv").unlink()
    assert not folder(path).is_done()


def test_a_config_changed_by_hand_is_refused(path: Path) -> None:
    saved(path, 1)
    file = path / "config.yaml"
    file.write_text(file.read_text().replace("lr: 0.1", "lr: 0.2"))
    with pytest.raises(RunFolderError, match=r"config\.yaml was changed by hand"):
        folder(path).acquire({})


def test_a_config_cut_off_is_named_as_damaged(path: Path) -> None:
    saved(path, 1)
    file = path / "config.yaml"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[: len(lines) // 2]))
    with pytest.raises(RunFolderError, match=r"config\.yaml is damaged: its hash"):
        folder(path).acquire({})


def test_files_that_follow_from_the_job_are_written_again(path: Path) -> None:
    saved(path, 1)
    file = path / "config.yaml"
    whole = file.read_text()
    file.write_text(whole.replace("name: x", "name: y"))  # no part of the hash
    _, remarks = loaded(path)
    assert remarks == [f"{file} was damaged, changed by hand or gone, and is written again"]
    assert file.read_text() == whole


def test_other_data_are_refused(path: Path) -> None:
    with held(path) as run:
        run.same_data({"the examples": "a", "the partition of seed 0": "b"})
        run.save(0, SEEDS, {})
    with held(path) as again:
        again.same_data({"the examples": "a", "the partition of seed 0": "b"})
        with pytest.raises(RunFolderError, match=r"data \(the partition of seed 0 changed\)"):
            again.same_data({"the examples": "a", "the partition of seed 0": "c"})


def test_changed_code_that_a_job_uses_is_told(tmp_path: Path, path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "method.py").write_text("import helper")
    (mine / "helper.py").write_text("a = 1")
    config = {**CONFIG, "algorithm": {"_target_": "method.Mine"}}

    def changes() -> tuple[str, ...]:
        run = RunFolder(path, config, mine)
        run.acquire({"compiled": True})
        run.release()
        assert run.changes.means == ""
        return run.changes.files

    assert changes() == ()
    (mine / "unrelated.py").write_text("")
    assert changes() == ()
    (mine / "helper.py").write_text("a = 2")
    assert changes() == ("helper.py",)
    assert changes() == ()
    file = path / "versions.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "user_files": "e8b8"}))
    assert changes() == ()  # an earlier version did not know which files


def test_what_a_kill_left_is_removed(path: Path) -> None:
    run = saved(path, 1)
    left = [".status.json.a.fedclust.tmp", "clients/.part-000000.parquet.x.fedclust.tmp", ".x.tmp"]
    for name in left:
        (run.path / name).parent.mkdir(exist_ok=True)
        (run.path / name).write_text("")
    (run.path / "checkpoints" / "round=2.partial").mkdir()
    assert loaded(run.path) == (1, [])
    assert [name for name in left if (run.path / name).exists()] == [".x.tmp"]
    assert not (run.path / "checkpoints" / "round=2.partial").exists()


def test_two_processes_cannot_write_one_folder(path: Path) -> None:
    first, second = folder(path), folder(path)
    first.acquire({})
    with pytest.raises(RunFolderError, match="another process"):
        second.acquire({})
    first.release()
    second.acquire({})
    second.release()


def test_a_lock_that_comes_late_finds_the_job_done(path: Path) -> None:
    """A second process looked before the first had finished, and got the lock after that."""
    second = folder(path)
    saved(path, 1)
    assert not second.is_done()
    done(path)
    shutil.rmtree(path / "clients", ignore_errors=True)
    before = contents(path)
    assert not second.acquire({})
    assert contents(path) == before
    assert folder(path).is_done()


def test_a_lock_on_a_folder_that_is_gone_is_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process abandons its job between the second's opening of the lock and taking it."""
    first, second = folder(path), folder(path)
    first.acquire({})
    plain = fcntl.flock

    def late(file: Any, how: int) -> None:
        first.abandon()
        first.release()
        plain(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    assert second.acquire({})
    monkeypatch.undo()
    with pytest.raises(RunFolderError, match="another process"):
        folder(path).acquire({})


def test_another_config_is_refused(path: Path) -> None:
    with held(path):
        pass
    with pytest.raises(RunFolderError, match="another config"):
        folder(path, rounds=9).acquire({})


def test_an_abandoned_folder_is_gone_but_never_one_that_was_there(tmp_path: Path) -> None:
    made = folder(tmp_path / "made")
    made.acquire({})
    made.abandon()
    assert not (tmp_path / "made").exists()
    with held(tmp_path / "kept"):
        pass
    again = folder(tmp_path / "kept")
    again.acquire({})
    again.save(0, {0: {"state": {}}}, {})
    again.abandon()
    assert (tmp_path / "kept" / "config.yaml").is_file()


def test_what_somebody_saves_meanwhile_outlives_an_impossible_job(path: Path) -> None:
    path.mkdir()
    for name in (".lock", "multirun.yaml"):  # of whoever
        (path / name).write_text("")
    run = folder(path)
    run.acquire({})
    (path / "thesis.txt").write_text("years of work")
    (path / ".thesis.tmp").write_text("an editor's")
    run.abandon()
    left = [".lock", ".thesis.tmp", "multirun.yaml", "thesis.txt"]
    assert sorted(p.name for p in path.iterdir()) == left


def test_a_folder_with_files_of_somebody_else_is_refused(tmp_path: Path) -> None:
    thesis = tmp_path / "mine" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    run = folder(thesis.parent)
    with pytest.raises(RunFolderError, match=r"mine is not empty \(thesis\.txt\) and holds no job"):
        run.acquire({})
    run.abandon()
    assert [p.name for p in thesis.parent.iterdir()] == ["thesis.txt"]


def test_a_folder_of_a_job_killed_at_once_is_taken(path: Path) -> None:
    path.mkdir()
    for name in (".lock", ".config.yaml.x1.fedclust.tmp"):
        (path / name).write_text("")
    folder(path).acquire({})
    assert sorted(p.name for p in path.iterdir()) == [".lock", "config.yaml", "versions.json"]


def test_a_tracker_may_write_before_the_folder_is_taken(path: Path) -> None:
    run = folder(path)
    run.check()
    (path / "wandb").mkdir(parents=True)
    run.acquire({})
    run.abandon()
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(RunFolderError, match="cannot be written"):
        folder(Path("/proc/fedclust")).acquire({})


def test_what_computed_a_job_before_is_kept(tmp_path: Path) -> None:
    first = {"packages": {"torch": "2.11"}, "compiled": True, "ranks": 1}
    second = {"packages": {"torch": "2.12"}, "compiled": False, "ranks": 2}
    told = []
    for versions in (first, first, {**first, "ranks": 2}, second, second):
        one = folder(tmp_path / "job")
        one.acquire(versions)
        told.append(one.changes)
        one.release()
    assert all(one.files == () for one in told)
    means = [one.means for one in told]
    assert means == ["", "", "", "compiled True → False, torch 2.11 → 2.12", ""]
    written = json.loads((tmp_path / "job" / "versions.json").read_text())
    assert written == {**second, "before": [{**first, "ranks": 2}]}


def test_an_unreadable_account_of_versions_is_replaced(tmp_path: Path) -> None:
    with held(tmp_path / "job"):
        pass
    (tmp_path / "job" / "versions.json").write_text("{")
    one = folder(tmp_path / "job")
    one.acquire({"compiled": True})
    one.release()
    assert json.loads((tmp_path / "job" / "versions.json").read_text()) == {"compiled": True}


def finished(path: Path) -> RunFolder:
    """A finished job whose report was asked for under the title `old`."""
    with held(path, report={"title": "old"}, tags={}) as run:
        for name in ("rounds.csv", "clients.parquet"):
            (path / name).write_text("")
        run.finish({"state": "done"})
    return run


def unfinished(path: Path) -> RunFolder:
    """A job with the same report that was interrupted."""
    with held(path, report={"title": "old"}, tags={}) as run:
        run.save(0, {0: {"state": {}}}, {})
    return run


@pytest.mark.thinned
@pytest.mark.parametrize("killed_at", range(4))
@pytest.mark.parametrize("make", [finished, unfinished])
def test_a_kill_while_a_config_is_renewed_leaves_no_false_seal(
    path: Path,
    make: Callable[[Path], RunFolder],
    killed_at: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = 0
    make(path)

    def write(file: Path, content: str) -> None:
        nonlocal written
        if written == killed_at:
            raise KeyboardInterrupt
        written += 1
        atomic_write(file, content)

    def renew() -> None:
        new = {"report": {"title": "new"}, "tags": {}}
        if make is finished:
            folder(path, **new).renew()
            return
        with held(path, **new) as run:
            run.save(1, {0: {"state": {}}}, {})

    def damaged() -> list[str]:
        return broken(Run(path, {}, {}, {}))

    for module in ("folder", "checkpoints", "versions"):
        monkeypatch.setattr(f"fedclust.runtime.{module}.atomic_write", write)
    with suppress(KeyboardInterrupt):
        renew()
    monkeypatch.undo()
    assert damaged() == []
    renew()
    assert damaged() == []
    (path / "config.yaml").write_text((path / "config.yaml").read_text().replace("new", "mine"))
    assert damaged() == ["config.yaml"]
