"""Which files a job reads: the code of its parts, and data that its config names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedclust.runtime.inputs import code_of, data_files


def test_code_is_what_parts_are_made_of_and_what_that_imports(tmp_path: Path) -> None:
    files = {
        "method.py": "import helper\nfrom pack.inner import x\nimport torch, json\n",
        "helper.py": "def f():\n    from pack import late\n",
        "pack/__init__.py": "",
        "pack/inner.py": "from . import beside\nfrom .missing import y\n",
        "pack/beside.py": "import method\n",
        "pack/late.py": "a mistake",
        "bare/part.py": "from .....above import x\n",
        "unused.py": "import method",
        "fedclust/verbs.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    config = {
        "algorithm": {"_target_": "method.Mine", "base": {"_target_": "bare.part.Base"}},
        "solver": {"_target_": "fedclust.verbs.Solver"},
        "note": "unused.Mine",
    }
    used = code_of(config, tmp_path)
    assert list(used) == sorted(files.keys() - {"unused.py", "fedclust/verbs.py"})
    (tmp_path / "pack" / "late.py").write_text("another mistake")
    now = code_of(config, tmp_path)
    assert {name for name in used if used[name] != now[name]} == {"pack/late.py"}
    assert code_of({"algorithm": {"_target_": "nowhere.Mine"}}, tmp_path) == {}


def test_data_files_are_told_by_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images" / "train").mkdir(parents=True)
    for name in ("a.npz", "images/train/1.png", "other"):
        (tmp_path / name).write_bytes(b"1")
    config = {
        "dataset": {"path": "a.npz", "root": "images", "label": "", "long": "x" * 5000},
        "partition": {"path": "gone.csv", "base": {"path": str(tmp_path / "images")}},
        "model": {"path": "other"},
    }
    before = data_files(config)
    assert sorted(before) == ["dataset.path", "partition.base.path"]
    os.utime("a.npz", ns=(0, 5))
    (tmp_path / "images" / "train" / "2.png").touch()
    after = data_files(config)
    assert all(after[key] != before[key] for key in before)
    assert data_files(config) == after
