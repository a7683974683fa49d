"""`fedclust predict`: from a folder and a file to a CSV."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from cli.conftest import Cli

RUN = (
    *("run", "dataset=csv", "dataset.path=own.csv", "dataset.label=ill", "dataset.client=site"),
    *("partition=natural", "algorithm=fedavg", "model=linear", "rounds=1", "progress=false"),
    *("seeds=2", "hydra.run.dir=outputs/own"),
)


@pytest.mark.full
def test_a_file_is_predicted_and_written_whole_or_not_at_all(fedclust: Cli) -> None:
    rng = np.random.default_rng(0)
    own = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    own["ill"], own["site"] = rng.integers(2, size=60), np.arange(60) % 3
    own.to_csv("own.csv", index=False)
    fedclust.done(*RUN)
    folder = "outputs/own"
    fedclust.refused("predict", folder, "own.csv", says="seed is needed: one of 0, 1")
    done = fedclust.done("predict", folder, "own.csv", "seed=1")
    said = pd.read_csv(StringIO(done.out))
    assert list(said.columns) == ["row", "client", "model", "by", "sure", "predicted", "p_0", "p_1"]
    assert said["client"].tolist() == own["site"].tolist()
    assert done.err == ""
    own.assign(site="new").to_csv("new.csv", index=False)
    done = fedclust.done("predict", folder, "new.csv", "seed=1", "to=said.csv")
    assert done.out.strip() == "said.csv"
    assert "new is new: it gets the one model that there is" in done.err
    np.testing.assert_allclose(pd.read_csv("said.csv")["p_1"], said["p_1"], atol=1e-12)
    # values in another unit are told, and predicted
    own.assign(a=own["a"].where(own["site"] != 2, 100 * own["a"])).to_csv("unit.csv", index=False)
    told = fedclust.done("predict", folder, "unit.csv", "seed=1").err
    far = own[own["site"] == 2]["a"] * 100
    width = own["a"].max() - own["a"].min()
    is_far = (far - own["a"].max() > width) | (own["a"].min() - far > width)
    assert "2 has values far outside of the job's rows" in told
    assert f"in a ({is_far.sum()} rows, as " in told
    assert f"{own['a'].min():.6g} to {own['a'].max():.6g} in the job)" in told
    assert told.count("\n") == 1
    for wrong, why in (
        ((folder,), "needs a FOLDER and a FILE"),
        ((folder, "none.csv", "seed=1"), "none.csv not found"),
        ((folder, "own.csv", "seed=x"), "seed=x is not allowed"),
        ((folder, "own.csv", "seed=1", "to=none/said.csv"), "to=none/said.csv is not allowed"),
        ((folder, "own.csv", "seed=1", "to=own.csv"), "to=own.csv is not allowed"),
        (("none", "own.csv"), "none is not a folder"),
    ):
        fedclust.refused("predict", *wrong, says=why)
    pd.testing.assert_frame_equal(pd.read_csv("own.csv"), own)
    fedclust.done("predict", folder, "own.csv", "seed=0", "to=said.csv")  # may be written again
    own.assign(a=own["a"].where(own.index != 7, np.inf)).to_csv("odd.csv", index=False)
    fedclust.refused("predict", folder, "odd.csv", "seed=1", says="in column a, row 8: replace it")
    assert "FOLDER" in fedclust.done("predict", "--help").out
