"""Perceptrons in compiled code: all local training of many rows in one call.

A step is some ten microseconds of arithmetic on numbers that fit the cache of a core; as PyTorch's
operations on all rows of a chunk it is a dozen passes over memory. `perceptron.c` says what is
computed, row by row.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int
from functools import partial

from fedclust.core.pool import Pool
from fedclust.engines.fused import gpu
from fedclust.engines.fused.native import dense
from fedclust.engines.fused.native.compiled import library
from fedclust.engines.fused.native.moments import LawStruct
from fedclust.engines.fused.native.rows import Examples, Rows, as_stored
from fedclust.engines.fused.network import Network


def compiled() -> ctypes.CDLL | None:
    """The compiled code; None where it cannot be compiled."""
    found = library("perceptron", dense.JobStruct, dense.LayerStruct, Rows, Examples, LawStruct)
    if found is not None:
        found.train.argtypes, found.train.restype = (POINTER(dense.JobStruct), c_int), c_int
    return found


def trains(network: Network, pool: Pool, frozen: frozenset[str]) -> bool:
    """Whether a model is a perceptron, all of which moves, on a CPU's examples as they are stored,
    and code that trains it is there. One without a hidden layer is softmax regression, for which
    there is other code.
    """
    there = as_stored(pool) and not gpu.runs_on(pool.x.device)
    return not frozen and bool(dense.dense_layers(network)) and there and compiled() is not None


train_perceptron = partial(dense.train, compiled)  # a model that it `trains`
