"""What a caller has set in PyTorch, NumPy and Matplotlib for the whole process changes no result,
and is as it was afterwards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

import fedclust
from fedclust.helpers.ambient import as_libraries_begin
from fedclust.report import style
from fedclust.report.arms import Arm
from fedclust.report.federations import called, unwritten
from fedclust.report.figures import save
from fedclust.report.runs import Run

JOB: dict[str, Any] = {
    **{"partition": "rotated", "partition.num_clients": 8, "partition.examples_per_client": 20},
    **{"model": "mlp", "model.hidden": [8], "solver.epochs": 1, "rounds": 1},
    **{"device": "cpu", "threads": 1, "progress": False},
}


@contextmanager
def _set(set_it: Callable[[Any], object], value: Any, before: Any) -> Iterator[None]:
    set_it(value)
    try:
        yield
    finally:
        set_it(before)


@contextmanager
def _errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


SWITCHES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "dtype": lambda: _set(torch.set_default_dtype, torch.float64, torch.float32),
    "default device": lambda: _set(torch.set_default_device, "meta", None),
    "device": lambda: torch.device("meta"),
    "inference mode": torch.inference_mode,
    "no grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "deterministic": lambda: _set(torch.use_deterministic_algorithms, True, False),
    "precision": lambda: _set(torch.set_float32_matmul_precision, "medium", "highest"),
    "errors of NumPy": lambda: np.errstate(all="raise"),
    "warnings": _errors,
}


def _standing() -> tuple[Any, ...]:
    """What the switches have set."""
    products = (torch.backends.mkldnn.matmul, torch.backends.cuda.matmul)
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_float32_matmul_precision(),
        [product.fp32_precision for product in products],
        np.geterr(),
    )


def _numbers(engine: str, name: str) -> pd.DataFrame:
    rounds = fedclust.run(JOB, algorithm="ifca", engine=engine, name=name).rounds
    return rounds.drop(columns="seconds")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], pd.DataFrame]:
    """The numbers of a job on an engine with nothing set."""
    known: dict[str, pd.DataFrame] = {}

    def of(engine: str) -> pd.DataFrame:
        if engine not in known:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(tmp_path_factory.mktemp(engine))
                known[engine] = _numbers(engine, "plain")
        return known[engine]

    return of


@pytest.mark.full
@pytest.mark.parametrize("engine", ["fused", "vmap", "loop"])
@pytest.mark.parametrize("switch", SWITCHES)
def test_the_same_bits_whatever_is_set(
    switch: str,
    engine: str,
    plain: Callable[[str], pd.DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    want = plain(engine)
    monkeypatch.chdir(tmp_path)
    with SWITCHES[switch]():
        before = _standing()
        found = _numbers(engine, "switched")
        assert _standing() == before
    pd.testing.assert_frame_equal(found, want, check_exact=True)


@pytest.mark.full
def test_a_module_that_sets_the_dtype_where_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own"
    (own / "model").mkdir(parents=True)
    (own / "mine.py").write_text(
        "import torch\n\ntorch.set_default_dtype(torch.float64)\n\n\n"
        "class Mine(torch.nn.Module):\n"
        "    def __init__(self, in_shape, num_classes):\n"
        "        super().__init__()\n"
        "        self.last = torch.nn.Linear(64, 10)\n\n"
        "    def forward(self, x):\n"
        "        return self.last(x.flatten(1))\n"
    )
    (own / "model" / "mine.yaml").write_text("_target_: mine.Mine\n")
    job = {key: value for key, value in JOB.items() if not key.startswith("model")}
    result = fedclust.run(job, model="mine", engine="loop", config_dir=own)
    assert result.rounds["accuracy"].notna().all()
    assert torch.get_default_dtype() == torch.float32


def test_an_error_puts_all_back() -> None:
    with torch.inference_mode():
        before = _standing()
        with pytest.raises(KeyError), as_libraries_begin():
            raise KeyError
        assert _standing() == before


def _figure() -> Figure:
    figure = Figure(figsize=(2, 2))
    figure.subplots().set_title("two $ and 100 % of it $")
    return figure


@pytest.mark.full
def test_a_users_settings_of_matplotlib_change_no_figure(tmp_path: Path) -> None:
    with style.looked():
        want = save(tmp_path, "plain", "", _figure()).png
    users = {"text.usetex": True, "axes.facecolor": "red", "axes.titlesize": 30, "font.size": 20}
    with mpl.rc_context(users):  # type: ignore[arg-type]
        with style.looked():
            found = save(tmp_path, "users", "", _figure()).png
        assert mpl.rcParams["text.usetex"]
        assert mpl.rcParams["font.size"] == 20
    assert found == want


def test_names_that_no_font_can_write_are_numbers_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arm(*classes: str) -> Arm:
        made = Arm(Run(tmp_path, {}, {}, {}), "a", "")
        made.run.__dict__["federation"] = {"seeds": {"0": {"names": {"classes": [*classes]}}}}
        return made

    monkeypatch.setattr(style, "_fonts", lambda *_: ("DejaVu Sans",))
    style.can_write.cache_clear()
    odd = "健康", "病気"
    assert called(arm(*odd), "classes") == {}
    assert called(arm("größer", "Δ"), "classes") == {0: "größer", 1: "Δ"}
    (line,) = unwritten([arm("no", "yes"), arm(*odd), arm(*odd)])
    assert line.startswith(f"no installed font has the letters of {odd[0]}, {odd[1]}: ")
    assert unwritten([arm("no", "yes")]) == []
    style.can_write.cache_clear()


def test_an_installed_font_is_used_for_letters_that_ours_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mpl.rc_context({"font.family": ["STIXGeneral", "not installed"]}), style.looked():
        assert mpl.rcParams["font.family"][:2] == ["DejaVu Sans", "STIXGeneral"]
        assert "not installed" not in mpl.rcParams["font.family"]
    monkeypatch.setattr(style, "_OTHER_FONTS", ("DejaVu Serif", "nowhere"))
    style._fonts.cache_clear()
    assert style._fonts() == ("DejaVu Sans", "DejaVu Serif")
    style._fonts.cache_clear()


@pytest.mark.full
@pytest.mark.filterwarnings("error")
def test_missing_letters_give_no_warnings(tmp_path: Path) -> None:
    with style.looked():
        figure = Figure(figsize=(2, 2))
        figure.subplots().set_title("健康 病気")
        save(tmp_path, "one", "", figure)
