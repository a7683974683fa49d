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


def frozen_at_exit(before: str) -> int:
    # what is registered first is called last
    program = (
        f"{before}\nimport atexit, gc\n"
        "atexit.register(lambda: print(gc.get_freeze_count(), end=''))\n"
        "from fedclust.__main__ import main; main(['list', 'model']); main(['list', 'model'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.stderr
    return int(done.stdout.rpartition("\n")[2])


@pytest.mark.full
def test_what_is_there_as_python_exits_is_not_searched() -> None:
    assert frozen_at_exit("") > 10_000
    # whose modules say what was not freed
    assert frozen_at_exit("kept = type('nb_meta', (type,), {'__module__': 'nanobind'})") == 0
