"""The how-to pages that go from somebody's files to a figure, typed as they stand but for size."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedclust.__main__ import main
from scripts.docs import links

HOW_TO = links.ROOT / "docs" / "how-to"
Walk = Callable[..., dict[str, Any]]


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """Run a page's commands and Python in an empty folder; what the Python has named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDCLUST_DATA", raising=False)
    monkeypatch.setattr("fedclust.launch.command.report_sweep", lambda *_: None)  # takes half

    def go(page: str, *smaller: str, **replaced: str) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for kind, text in re.findall(
            r"^```(\w*)\n(.*?)^```$", (HOW_TO / page).read_text(), re.M | re.S
        ):
            for old, new in replaced.items():
                text = text.replace(old, new)
            if kind == "python":
                exec(text, names)
            elif not kind:
                for line in text.replace("\\\n", " ").splitlines():
                    words = shlex.split(line, comments=True)
                    assert words[0] == "fedclust"
                    main([*words[1:], *(smaller if words[1] == "run" else ())])
        return names

    return go


@pytest.mark.full
def test_from_a_folder_of_curves_to_a_forecast(walk: Walk) -> None:
    smaller = ("rounds=2", "seeds=1", "threads=1", "progress=false")
    names = walk("forecast.md", *smaller)
    by_hour: pd.DataFrame = names["by_hour"]
    assert by_hour.shape == (24, 3)
    end = names["end"]
    weighted = end.groupby("arm")[["mae", "test_count"]].apply(
        lambda own: (own["mae"] * own["test_count"]).sum() / own["test_count"].sum()
    )
    assert by_hour.mean().to_dict() == pytest.approx(weighted.to_dict())
    assert sorted(end["name"].unique())[:2] == ["household0", "household1"]
    assert Path("by_hour.png").exists()


@pytest.mark.full
def test_from_texts_to_their_perplexity(walk: Walk) -> None:
    smaller = ("rounds=1", "score_every=null", "seeds=1", "threads=1", "progress=false")
    perplexity: pd.DataFrame = walk("text.md", *smaller)["perplexity"]
    assert perplexity.columns.tolist() == ["fedavg", "ifca"]
    assert perplexity.loc[0].between(1, 80).all()


@pytest.mark.full
def test_from_a_network_to_its_features(walk: Walk) -> None:
    quick = {"size: 32": "layer: features.0", "fedavg,ifca": "fedavg"}
    walk("features.md", "rounds=1", "seeds=1", "threads=1", "progress=false", **quick)
    (file,) = Path("data", "features").glob("*.npy")
    assert file.stat().st_size > 1797 * 16 * 4 * 4 * 4  # of every image, once


@pytest.mark.full
def test_from_a_hospitals_table_to_a_figure_of_every_site(walk: Walk, data_root: Path) -> None:
    table = data_root / "natural" / "heart_disease"
    if not table.is_dir():
        pytest.skip(f"no {table}")
    smaller = ("rounds=2", "seeds=2", "threads=1", "progress=false")
    fetched = {"data heart_disease": f"data heart_disease --from {table}"}
    names = walk("hospitals.md", *smaller, **fetched)
    mean: pd.DataFrame = names["mean"]
    assert mean.index.tolist() == ["cleveland", "hungary", "switzerland", "va"]
    assert mean.columns.tolist() == ["fedavg", "ifca", "local"]
    assert mean.loc["cleveland"].between(0.5, 1).all()  # by two rounds
    assert Path("auroc.png").exists()
