"""Which general engine is taken is measured once, and kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toys import toy_pool
from torch import nn

from fedclust.engines import make_engine, race


def normed() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.RMSNorm(10))


@pytest.fixture
def measured(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, float]]:
    """The rates that are found one after the other; what has been found is taken away."""
    assert not fresh.exists()
    found: list[Mapping[str, float]] = []
    monkeypatch.setattr(race, "_measured", lambda _engines: found.pop(0))
    return found


@pytest.mark.full
def test_the_faster_one_is_taken_and_said(
    measured: list[Mapping[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)  # with one there are no others
    measured += [{"loop": 30.0, "vmap": 25.0}, {"loop": 30.0, "vmap": 31.0}]
    measured += [{"loop": 30.0, "vmap": 300.0}, {"loop": 30.0, "threads": 40.0, "vmap": 35.0}]
    given = ((normed(), toy_pool((1, 8, 8)), rows) for rows in (None, 2, 3, 4))
    taken = [make_engine("auto", *one) for one in given]
    assert [engine.name for engine in taken] == ["loop", "loop", "vmap", "threads"]
    assert taken[0].remark == (
        "engine=loop: the fused engine does not know 2 (RMSNorm); "
        "steps per second here: loop 30 and vmap 25"
    )
    assert not measured


def test_it_is_measured_once(measured: list[Mapping[str, float]], fresh: Path) -> None:
    measured += [{"loop": 1.0, "vmap": 2.0}, {"loop": 2.0, "vmap": 1.0}]
    pool = toy_pool((1, 8, 8))
    assert [make_engine("auto", normed(), pool).name for _ in range(3)] == ["vmap"] * 3
    assert len(measured) == 1
    (file,) = fresh.glob("rates-*.json")
    file.write_text(file.read_text().replace("2.0", "0.5"))  # damaged, so measured again
    assert make_engine("auto", normed(), pool).name == "loop"


@pytest.mark.full
def test_other_circumstances_are_measured_anew(
    measured: list[Mapping[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured += 5 * [{"loop": 1.0, "vmap": 2.0}]
    wider = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.RMSNorm(20), nn.Linear(20, 10))
    given: list[tuple[Any, ...]] = [(normed(), (1, 8, 8)), (wider, (1, 8, 8))]
    given += [(normed(), (64,)), (normed(), (1, 8, 8), 5)]
    for module, shape, *rows in given:
        make_engine("auto", module, toy_pool(shape), *rows)
    assert len(measured) == 1
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    make_engine("auto", normed(), toy_pool((1, 8, 8)))
    assert not measured


def test_rates_are_of_steps(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows at once in twice the time of one are no gain."""
    seconds = {"loop": 0.2, "threads": 0.15, "vmap": 0.1}
    monkeypatch.setattr(
        race, "_seconds", lambda engine, _, rows, _batch: rows * seconds[engine.name]
    )
    assert make_engine("auto", normed(), toy_pool((1, 8, 8))).name == "vmap"
    (file,) = fresh.glob("rates-*.json")
    assert '"loop": 5.0' in file.read_text()
    assert '"vmap": 10.0' in file.read_text()


def test_a_heavy_model_is_measured_on_few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, asked = toy_pool((1, 8, 8)), []

    def seconds(_engine: object, _start: object, rows: int, examples: int) -> float:
        asked.append((rows, examples))
        return 0.05 * rows * examples

    monkeypatch.setattr(race, "_seconds", seconds)
    engines = {name: make_engine(name, normed(), pool) for name in ("loop", "vmap")}
    assert race._measured(engines) == {"loop": 5.0, "vmap": 5.0}  # type: ignore[arg-type]
    assert set(asked) == {(1, 4), (2, 4)}


def test_a_close_race_takes_more_turns_and_its_rows_keep_every_thread_busy(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    asked: list[tuple[str, int]] = []

    def seconds(engine: Any, _start: object, rows: int, _batch: int) -> float:
        """Other programs keep `threads` from a processor until the sixth turn."""
        asked.append((engine.name, rows))
        late = len([name for name, _ in asked if name == "threads"]) > 5
        return rows * {"loop": 0.025, "threads": 0.02 if late else 0.026, "vmap": 0.03}[engine.name]

    monkeypatch.setattr(race, "_seconds", seconds)
    assert make_engine("auto", normed(), toy_pool((1, 8, 8))).name == "threads"
    assert {rows for name, rows in asked if name == "threads"} == {6}
    assert fresh.is_dir()
