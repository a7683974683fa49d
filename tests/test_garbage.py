"""Rare searches for cyclic garbage: while a command starts, never in rounds, none at its end."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from fedclust.helpers.garbage import searched_as_usual, searched_rarely


def test_thresholds_come_back() -> None:
    usual = gc.get_threshold()
    searched_as_usual()  # by itself nothing
    assert gc.get_threshold() == usual
    with searched_rarely():
        assert gc.get_threshold()[0] > 10 * usual[0]
        with searched_rarely():  # a command within a command
            searched_as_usual()
        searched_as_usual()
        assert gc.get_threshold() == usual
    with pytest.raises(KeyError), searched_rarely():
        raise KeyError
    assert gc.get_threshold() == usual


def test_what_is_there_as_python_exits_is_not_searched() -> None:
    # what is registered first is called last
    program = (
        "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count(), end=''));"
        "from fedclust.__main__ import main; main(['list', 'engine']); main(['list', 'engine'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    frozen = int(done.stdout.rpartition("\n")[2])
    assert frozen > 10_000
