"""Jobs of a sweep that run at once are dealt out over the GPUs there are."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import torch

from fedclust.launch import launchers
from fedclust.launch.sweep import Notes

LOCAL = "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher"


def test_every_job_gets_the_gpu_with_the_fewest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dealt = partial(launchers.dealt_gpu, locks=tmp_path / "gpus")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with ExitStack() as all_jobs:
        first = ExitStack()
        got = [first.enter_context(dealt("auto"))]
        got += [all_jobs.enter_context(dealt("auto")) for _ in range(2)]
        assert got == ["cuda:0", "cuda:1", "cuda:2"]
        assert all_jobs.enter_context(dealt("auto")) == "cuda:0"  # a second job there
        first.close()
        assert all_jobs.enter_context(dealt("auto")) == "cuda:0"  # a job has ended
        assert all_jobs.enter_context(dealt("auto")) == "cuda:1"
        assert all_jobs.enter_context(dealt("auto")) == "cuda:2"
    with dealt("auto") as device:
        assert device == "cuda:0"


@pytest.mark.parametrize(("count", "device"), [(1, "auto"), (0, "auto"), (3, "cpu"), (3, "cuda:2")])
def test_there_is_nothing_to_deal(
    monkeypatch: pytest.MonkeyPatch, count: int, device: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with (
        launchers.dealt_gpu(device, tmp_path) as one,
        launchers.dealt_gpu(device, tmp_path) as other,
    ):
        assert (one, other) == (device, device)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seen", ["2,3", None])
def test_submitit_local_sees_what_the_sweep_saw(
    monkeypatch: pytest.MonkeyPatch, seen: str | None
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    there = launchers.visible_gpus()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as submitit leaves it
    launchers.see_gpus_again(
        {"_target_": LOCAL, "gpus_per_node": 1}, there
    )  # asked for, so left alone
    assert launchers.os.environ["CUDA_VISIBLE_DEVICES"] == ""
    launchers.see_gpus_again(
        {"_target_": LOCAL.replace("Local", "Slurm"), "gpus_per_node": None}, there
    )
    assert launchers.os.environ["CUDA_VISIBLE_DEVICES"] == ""
    launchers.see_gpus_again({"_target_": LOCAL, "gpus_per_node": None}, there)
    assert launchers.os.environ.get("CUDA_VISIBLE_DEVICES") == seen


def test_a_job_goes_on_where_its_notes_have_gone(tmp_path: Path) -> None:
    gone = Notes(tmp_path / "gone")
    gone.add_not_run(2, "a line")
    gone.add_ended(1)
    assert gone.not_run() == {}
    assert gone.lines("ended") == []
