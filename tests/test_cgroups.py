"""What a container or a queue's job may use, from the files that Linux has of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedclust.helpers import cgroups


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    return tmp_path


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_the_least_of_all_groups_above_counts(system: Path) -> None:
    (system / "own").write_text("0::/system.slice/slurm/job_7/step_0\n")
    root = system / "cgroup"
    write(root / "system.slice", memory__max="max\n", memory__stat="anon 9\n", cpu__max="max 100\n")
    write(
        root / "system.slice/slurm/job_7",
        memory__max="1000\n",
        memory__stat="anon 100\nfile 500\nshmem 20\n",
        cpu__max="250000 100000\n",
    )
    write(root / "system.slice/slurm/job_7/step_0", memory__max="5000\n", memory__stat="anon 90\n")
    assert cgroups.memory_left() == 1000 - 100 - 20
    assert cgroups.cpus() == 2.5


def test_a_container_sees_its_own_group_as_the_root(system: Path) -> None:
    (system / "own").write_text("0::/docker/of/the/host\n")
    write(
        system / "cgroup", memory__max="700\n", memory__stat="anon 800\n", cpu__max="50000 100000"
    )
    assert cgroups.memory_left() == 1
    assert cgroups.cpus() == 0.5


def test_the_older_version_has_a_tree_for_each_controller(system: Path) -> None:
    (system / "own").write_text(
        "9:name=systemd:/x\n4:memory:/slurm/uid_0/job_3\n2:cpu,cpuacct:/a\n"
    )
    root = system / "cgroup"
    write(
        root / "memory/slurm/uid_0/job_3",
        memory__limit_in_bytes="2000\n",
        memory__stat="rss 1\ntotal_rss 300\ntotal_shmem 4\n",
    )
    write(
        root / "memory",
        memory__limit_in_bytes="9223372036854771712\n",
        memory__stat="total_rss 5\ntotal_shmem 0\n",
    )
    write(root / "cpu,cpuacct/a", cpu__cfs_quota_us="300000\n", cpu__cfs_period_us="100000\n")
    write(root / "cpu,cpuacct", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert cgroups.memory_left() == 2000 - 304
    assert cgroups.cpus() == 3


def test_without_limits_or_without_linux_nothing_is_said(system: Path) -> None:
    assert cgroups.memory_left() is None
    (system / "own").write_text("0::/\n")
    write(system / "cgroup", memory__max="max\n", memory__stat="anon 1\n", cpu__max="max 100000\n")
    assert cgroups.memory_left() is None
    assert cgroups.cpus() is None
