"""A long table of losses that is killed goes on where it was, with the bits of one that is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_toys import made, ragged_shards, starts
from torch import Tensor

from fedclust.core.calls import LossCall
from fedclust.core.verbs import Engine
from fedclust.engines import vmap
from fedclust.helpers.unfinished import Table, unfinished

KINDS = ("fused", "vmap", "loop")
NUM_MODELS = 70
# of each kind most rows at once, so that there are several chunks
FEW = {"fused": {"max_rows": 16}, "vmap": {}, "loop": {}}


def asked_of(kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, LossCall]:
    """Seventy models on as many clients."""
    monkeypatch.setattr(vmap, "_EXAMPLES", 8)
    engine = made(kind, "linear", **FEW[kind])
    return engine, LossCall(starts(engine, NUM_MODELS), ragged_shards((1, 0, 2, 1, 0) * 14))


class KilledError(BaseException):
    """Stands for a signal that no process survives."""


@contextmanager
def kept(folder: Path, patch: pytest.MonkeyPatch, most: int = 10**9) -> Iterator[list[int]]:
    """Keep answers in a folder, and be killed when so many parts have been noted; counts parts."""
    noted: list[int] = []
    own = Table.note

    def note(table: Table, rows: Tensor) -> None:
        if len(noted) == most:
            raise KilledError
        noted.append(len(rows))
        own(table, rows)

    with patch.context() as inside, unfinished.kept_in(folder, 1.0):
        unfinished.every = 0.0
        inside.setattr(Table, "note", note)
        inside.setattr("fedclust.helpers.unfinished._WRITING", 0)
        yield noted


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_killed_process_had_is_not_computed_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, call = asked_of(kind, monkeypatch)
    whole = engine.answer(call)
    with pytest.raises(KilledError), kept(tmp_path, monkeypatch, most=3) as first:
        engine.answer(call)
    assert len(list(tmp_path.iterdir())) == 1
    with kept(tmp_path, monkeypatch) as second:
        again = engine.answer(call)
    assert torch.equal(again, whole)
    assert sum(first) + sum(second) == NUM_MODELS
    with unfinished.kept_in(tmp_path, 1.0):
        unfinished.forget()
    assert not list(tmp_path.iterdir())


def test_another_question_or_a_damaged_file_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, call = asked_of("fused", monkeypatch)
    other = replace(call, models=call.models + 0.01)
    whole, of_other = engine.answer(call), engine.answer(other)
    with pytest.raises(KilledError), kept(tmp_path, monkeypatch, most=3):
        engine.answer(call)
    with kept(tmp_path, monkeypatch) as noted:
        assert torch.equal(engine.answer(other), of_other)
    assert sum(noted) == NUM_MODELS
    for file in tmp_path.iterdir():
        content = bytearray(file.read_bytes())
        content[200] ^= 1
        file.write_bytes(content)
    with kept(tmp_path, monkeypatch) as noted:
        assert torch.equal(engine.answer(call), whole)
    assert sum(noted) == NUM_MODELS


def test_outside_a_job_and_of_few_models_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, call = asked_of("fused", monkeypatch)
    engine.answer(call)
    with kept(tmp_path, monkeypatch):
        engine.answer(replace(call, models=call.models[:4]))
    assert not list(tmp_path.iterdir())
