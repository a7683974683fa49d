"""Perceptrons in compiled code: all local training of many rows in one call.

A step is some ten microseconds of arithmetic on numbers that fit the cache of a core; as PyTorch's
operations on all rows of a chunk it is a dozen passes over memory. `perceptron.c` says what is
computed, row by row.
"""

from __future__ import annotations

from functools import partial

from fedclust.core.pool import Pool
from fedclust.engines.fused import gpu
from fedclust.engines.fused.native import dense
from fedclust.engines.fused.native.compiled import library
from fedclust.engines.fused.native.rows import as_stored
from fedclust.engines.fused.network import Network

compiled = partial(library, "perceptron")
train_perceptron = partial(dense.train, compiled)  # a model that it `trains`


def trains(network: Network, pool: Pool, frozen: frozenset[str]) -> bool:
    """Whether code is here for a model: a perceptron with hidden layers, all moving, on a CPU."""
    there = as_stored(pool) and not gpu.runs_on(pool.x.device)
    return not frozen and bool(dense.dense_layers(network)) and there and compiled() is not None
