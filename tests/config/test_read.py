from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from fedclust.config.read import read_config, written
from fedclust.config.tree import CONF
from fedclust.helpers.errors import RunFolderError
from fedclust.runtime.folder import RunFolder

_ODD = """
small: 1e-3
date: 2026-01-02
time: 1:30
yes_no: [yes, no, on, true]
text: ["1", '${oc.env:HOME}', '${a.b}', "\\u00e9"]
numbers: [1_000, 0x10, 010, .5, 1., -.inf, .nan]
nothing: [null, ~, ""]
"""


@pytest.mark.full
def test_files_are_read_as_omegaconf_reads_them(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text(_ODD)
    files = [tmp_path / "odd.yaml", *sorted(CONF.glob("*/*.yaml"))]
    assert len(files) > 100
    for file in files:
        right = OmegaConf.to_container(OmegaConf.load(file)) or None
        assert repr(read_config(file)) == repr(right), file  # nan equals nan


@pytest.mark.parametrize(
    "text", ["a: [", "a: b: c", "a: 1\nb: 2\na: 3", "- !!python/object:os.system x", "\t"]
)
def test_a_broken_file_is_no_config(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(yaml.YAMLError):
        read_config(tmp_path / "config.yaml")
    with pytest.raises(RunFolderError, match="is unreadable"):
        RunFolder(tmp_path, {}).check()


def test_a_config_is_written_as_omegaconf_writes_it() -> None:
    shared = [1, {"a": None}]
    config = {
        "numbers": [1, 1.0, 1e-3, 1e16, float("inf"), True],
        "texts": {"a": "1", "b": "true", "c": "1e-3", "d": "é", "e": "a: b # c", "f": "", "g": "~"},
        "lines": "two\nlines",
        "long": "word " * 40,
        "twice": {"one": shared, "two": shared},
        "keys": {1: "one", "1": "text", 2.5: "yes"},
        "empty": {"list": [], "mapping": {}},
        "null": None,
    }
    for _ in range(2):  # the second time what was kept
        assert written(config) == OmegaConf.to_yaml(OmegaConf.create(config))
    assert written({"a": 1}) != written({"a": True}) != written({"a": 1.0})
