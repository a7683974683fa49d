"""Rare searches for cyclic garbage: while a command starts, never in rounds."""

from __future__ import annotations

import gc

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
