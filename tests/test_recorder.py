"""What a run leaves behind, and that a resumed run leaves the same bytes."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from toys import blank, evaluation_of, federation_of, round_of

from fedclust.core.types import Cost
from fedclust.helpers.errors import ConfigError, RunFolderError
from fedclust.runtime.recorder import Recorder
from fedclust.trackers.none import NoTracker

SEEDS = (0, 3)
CLIENTS = 6


class Memory(NoTracker):
    """A tracker that remembers."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[int, dict[str, float]]]] = []

    def log(self, round: int, values: Mapping[int, Mapping[str, float]]) -> None:  # noqa: A002
        self.seen.append((round, {seed: dict(of_seed) for seed, of_seed in values.items()}))


def evaluate(recorder: Recorder, seed: int, t: int, label: Tensor) -> dict[str, float]:
    rows = [[0] * (i + 1) for i in range(CLIENTS)]
    rnd = round_of(federation_of(blank(), rows, group=torch.arange(CLIENTS) % 2), t, seed)
    count = torch.where(label >= 0, 10, 0)
    correct = (count * 0.1 * (t % 10)).round()
    return recorder.evaluate(rnd, evaluation_of(label, correct, count, count * (0.1 + t), 2))


def label_of(seed: int, t: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(100 * seed + t).integers(0, 2, CLIENTS))


def play(
    recorder: Recorder, rounds: range, commit_at: tuple[int, ...] = ()
) -> dict[int, tuple[dict, dict]]:
    """Rounds of both seeds; returns position and state after every committed round."""
    kept = {}
    for t in rounds:
        for seed in SEEDS:
            if t == 0:
                recorder.cost(seed, t, Cost(models_up=3))
            report = Cost(
                models_down=2,
                models_up=1,
                gradient_steps=5,
                train_loss=1 / 3 + t,
                notes={"discrepancy": 0.1 * t},
            )
            recorder.cost(seed, t, report)
            recorder.seconds(seed, t, 0.5)
            if t % 2 == 0:
                evaluate(recorder, seed, t, label_of(seed, t))
        if t in commit_at:
            kept[t] = (json.loads(json.dumps(recorder.commit())), recorder.state())
    return kept


def started(folder: Path, num_params: int = 10) -> Recorder:
    recorder = Recorder(folder, SEEDS, num_params, NoTracker())
    recorder.start()
    return recorder


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "rounds.csv").open() as file:
        return list(csv.DictReader(file))


def test_costs_of_a_round_add_up_and_bytes_are_four_per_parameter(tmp_path: Path) -> None:
    recorder = started(tmp_path, num_params=7)
    recorder.cost(0, 0, Cost(models_down=1, models_up=2, gradient_steps=3, scalars_up=4))
    recorder.cost(0, 0, Cost(models_down=10, models_up=20, gradient_steps=30, train_loss=0.1))
    recorder.cost(0, 0, Cost(scalars_up=1, forward_passes=6, backward_passes=7))
    recorder.commit()
    values = {row["metric"]: float(row["value"]) for row in rows(tmp_path)}
    assert values == {
        "models_down": 11,
        "models_up": 22,
        "bytes": 4 * 7 * 33,
        "scalars_up": 5,
        "gradient_steps": 33,
        "forward_passes": 6,
        "backward_passes": 7,
        "train_loss": 0.1,
    }


def test_rows_are_sorted_and_keep_every_bit(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    play(recorder, range(4))
    recorder.commit()
    found = rows(tmp_path)
    keys = [(int(r["round"]), int(r["seed"]), r["metric"]) for r in found]
    assert keys == sorted(keys)
    loss = {
        (int(r["seed"]), int(r["round"])): float(r["value"])
        for r in found
        if r["metric"] == "train_loss"
    }
    assert loss[3, 2] == 1 / 3 + 2


def test_an_unknown_training_loss_is_absent_and_an_unknown_note_is_refused(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    recorder.cost(0, 0, Cost())
    recorder.commit()
    assert "train_loss" not in {row["metric"] for row in rows(tmp_path)}
    with pytest.raises(ConfigError, match="metric=surprise is not allowed"):
        recorder.cost(0, 1, Cost(notes={"surprise": 1.0}))


def test_churn_counts_clients_served_at_both_evaluations(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    first = evaluate(recorder, 0, 0, torch.tensor([0, 0, 1, 1, -1, 0]))
    second = evaluate(recorder, 0, 1, torch.tensor([0, 1, 1, -1, 1, 0]))
    other = evaluate(recorder, 3, 1, torch.tensor([0, 0, 0, 0, 0, 0]))
    assert "churn" not in first
    assert second["churn"] == 0.25
    assert "churn" not in other
    anew = evaluate(recorder, 3, 2, torch.tensor([2, 2, 2, 2, 1, 2]))  # cluster 0 is 2 now
    assert anew["churn"] == pytest.approx(1 / 6)


def test_arrays_lie_beside_the_run(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    recorder.cost(3, 0, Cost(arrays={"distance": torch.eye(3)}))
    assert np.array_equal(
        np.load(tmp_path / "arrays" / "seed=3" / "distance.npy"), np.eye(3, dtype=np.float32)
    )


def test_clients_parquet_holds_every_client_of_every_evaluation(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    play(recorder, range(5), commit_at=(1, 2))
    recorder.finish()
    table = pd.read_parquet(tmp_path / "clients.parquet")
    assert list(table.columns) == [
        *("seed", "round", "client", "group", "label"),
        *("train_count", "test_count", "loss_sum", "correct"),
    ]
    assert len(table) == 3 * len(SEEDS) * CLIENTS
    assert table[["round", "seed", "client"]].apply(tuple, axis=1).is_monotonic_increasing
    one = table[(table["seed"] == 3) & (table["round"] == 2)]
    assert one["label"].tolist() == label_of(3, 2).tolist()
    assert one["train_count"].tolist() == [1, 2, 3, 4, 5, 6]
    assert one["correct"].tolist() == [2] * CLIENTS
    assert one["loss_sum"].tolist() == [pytest.approx(21.0)] * CLIENTS


def test_summary_has_last_and_best_in_the_metrics_own_direction(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    play(recorder, range(13))
    recorder.finish()
    table = pd.read_csv(tmp_path / "summary.csv").set_index(["metric", "value", "seed"])["number"]
    assert table["accuracy", "last", "0"] == 0.2
    assert table["accuracy", "best", "0"] == 0.8
    assert table["test_loss", "best", "3"] == pytest.approx(0.1)
    assert table["train_loss", "last", "mean"] == 1 / 3 + 12
    assert table["train_loss", "last", "n"] == 2
    purity = [table["purity", "last", str(seed)] for seed in SEEDS]
    assert table["purity", "last", "std"] == pytest.approx(np.std(purity))


@pytest.mark.thinned
@pytest.mark.parametrize("cut", [0, 1, 4, 6])
@pytest.mark.parametrize("beyond", [0, 1, 3])
def test_a_resumed_run_ends_with_the_same_bytes(tmp_path: Path, cut: int, beyond: int) -> None:
    whole = started(tmp_path / "whole")
    play(whole, range(8), commit_at=(7,))
    whole.finish()

    killed = started(tmp_path / "cut")
    position, state = play(killed, range(cut + 1), commit_at=(cut,))[cut]
    play(killed, range(cut + 1, cut + 1 + beyond), commit_at=(cut + 2,))  # dies without closing
    resumed = Recorder(tmp_path / "cut", SEEDS, 10, NoTracker())
    resumed.resume(position, state)
    play(resumed, range(cut + 1, 8), commit_at=(cut + 1,))
    resumed.finish()

    for name in ("rounds.csv", "clients.parquet", "summary.csv"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), (
            name
        )


def test_a_run_killed_while_it_finished_can_finish_again(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    position, state = play(recorder, range(6), commit_at=(2, 5))[2]
    recorder.finish()  # leaves the parts, which go when the job is known to be done
    whole = {
        n: (tmp_path / n).read_bytes() for n in ("rounds.csv", "clients.parquet", "summary.csv")
    }
    again = Recorder(tmp_path, SEEDS, 10, NoTracker())
    again.resume(position, state)
    play(again, range(3, 6), commit_at=(5,))
    again.finish()
    assert {n: (tmp_path / n).read_bytes() for n in whole} == whole


def test_a_folder_that_lost_results_is_not_continued(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    position, state = play(recorder, range(3), commit_at=(2,))[2]
    (tmp_path / "rounds.csv").write_text("seed,round,metric,value\n")
    with pytest.raises(RunFolderError, match=r"cannot be continued"):
        Recorder(tmp_path, SEEDS, 10, NoTracker()).resume(position, state)


def test_what_was_committed_is_sealed(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    kept = play(recorder, range(5), commit_at=(1, 4))
    for t, ends in ((1, 2), (4, 5)):
        position = kept[t][0]
        assert set(position["files"]) == {
            "rounds.csv",
            *(f"clients/{name}" for name in position["parts"]),
        }
        size, digest = position["files"]["rounds.csv"]
        head = (tmp_path / "rounds.csv").read_bytes()[:size]
        assert hashlib.blake2b(head, digest_size=16).hexdigest() == digest
        assert {line.split(",")[1] for line in head.decode().splitlines()[1:]} == set(
            map(str, range(ends))
        )
        for name in position["parts"]:
            content = (tmp_path / "clients" / name).read_bytes()
            sealed = [len(content), hashlib.blake2b(content, digest_size=16).hexdigest()]
            assert position["files"][f"clients/{name}"] == sealed
    assert len(kept[4][0]["parts"]) == 2


@pytest.mark.parametrize(
    ("name", "replaced"),
    [("rounds.csv", False), ("rounds.csv", True), ("clients/part-000000.parquet", False)],
)
def test_a_file_deleted_or_replaced_while_the_job_runs_is_noticed(
    tmp_path: Path, name: str, replaced: bool
) -> None:
    recorder = started(tmp_path)
    play(recorder, range(2), commit_at=(1,))
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    if replaced:
        (tmp_path / name).write_bytes(content)
    play(recorder, range(2, 4))
    with pytest.raises(RunFolderError, match=f"{name} was deleted or replaced while"):
        recorder.commit()


def test_starting_removes_what_an_earlier_try_left(tmp_path: Path) -> None:
    first = started(tmp_path)
    play(first, range(3), commit_at=(0, 2))
    again = started(tmp_path)
    assert rows(tmp_path) == []
    assert not (tmp_path / "clients").exists()
    play(again, range(1))
    again.finish()
    assert len(pd.read_parquet(tmp_path / "clients.parquet")) == len(SEEDS) * CLIENTS


def test_memory_does_not_grow_with_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedclust.runtime.recorder.ROW_GROUP", 3 * CLIENTS * len(SEEDS))
    recorder = started(tmp_path)
    play(recorder, range(41))  # never committed
    assert len(recorder._pending) <= 1
    assert len(recorder._clients) <= 3 * len(SEEDS) + len(SEEDS)
    assert len(list((tmp_path / "clients").glob("part-*.parquet"))) >= 5
    recorder.finish()
    assert len(pd.read_parquet(tmp_path / "clients.parquet")) == 21 * len(SEEDS) * CLIENTS


def test_the_tracker_gets_every_number_once(tmp_path: Path) -> None:
    tracker = Memory()
    recorder = Recorder(tmp_path, SEEDS, 10, tracker)
    recorder.start()
    play(recorder, range(3), commit_at=(1,))
    recorder.finish()
    recorder.close()
    assert [(t, tuple(values)) for t, values in tracker.seen] == [(t, SEEDS) for t in range(3)]
    flat = {
        (s, t, m): v
        for t, values in tracker.seen
        for s, of_seed in values.items()
        for m, v in of_seed.items()
    }
    written = {
        (int(r["seed"]), int(r["round"]), r["metric"]): float(r["value"]) for r in rows(tmp_path)
    }
    assert flat == written


def test_latest_is_the_mean_of_the_seeds_still_running(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    recorder.cost(0, 0, Cost(train_loss=1.0))
    recorder.cost(3, 0, Cost(train_loss=3.0))
    assert recorder.latest()["train_loss"] == 2.0
    recorder.seconds(0, 0, 7.0)
    assert (recorder.latest()["train_loss"], recorder.latest()["seconds"]) == (2.0, 7.0)
    recorder.cost(3, 1, Cost(train_loss=5.0))
    assert recorder.latest()["train_loss"] == 5.0
    assert "seconds" not in recorder.latest()  # a value of the round before


def test_what_was_recorded_survives_an_early_stop(tmp_path: Path) -> None:
    recorder = started(tmp_path)
    play(recorder, range(2))
    recorder.close()
    assert {row["round"] for row in rows(tmp_path)} == {"0", "1"}
