"""Datasets that several tests cut."""

import pytest
from fakes import fake

from fedclust.core.types import Dataset


@pytest.fixture(scope="session")
def mnist_sized() -> Dataset:
    """60,000 + 10,000 balanced images of 2x2 pixels."""
    return fake(60_000, 10_000)
