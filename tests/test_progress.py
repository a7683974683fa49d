"""The times to come, from the times measured."""

from __future__ import annotations

import pytest

from fedclust.runtime.progress import Sweep


@pytest.mark.parametrize(
    ("sweep", "job", "left", "said"),
    [
        (Sweep(left=2, mean_seconds=None), 30.0, 10.0, "70 s"),
        (Sweep(left=2, mean_seconds=300.0), 30.0, 10.0, "10 min"),
        (Sweep(left=7, mean_seconds=3600.0), 30.0, 1800.0, "8 h"),
        (Sweep(left=70, mean_seconds=3600.0), 30.0, 0.0, "3 d"),
        (Sweep(left=1, mean_seconds=0.01), 0.02, 0.0, "1 s"),
    ],
)
def test_a_sweep_ends_after_this_job_and_the_others(
    sweep: Sweep, job: float, left: float, said: str
) -> None:
    assert sweep.end(job, left) == f"all done in about {said}"
