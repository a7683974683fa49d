"""What tests of datasets share."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _drawn_anew(request: pytest.FixtureRequest) -> None:
    """A test draws the same numbers whichever ran before it: the `RNG` of its file begins anew."""
    if (rng := getattr(request.module, "RNG", None)) is not None:
        rng.bit_generator.state = np.random.default_rng(0).bit_generator.state
