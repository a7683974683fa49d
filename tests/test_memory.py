"""What becomes of freed memory, and what is said when there is too little."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedclust.helpers.errors import MemoryShort
from fedclust.helpers.memory import readable, short_of_memory
from fedclust.runtime.memory import available, check_fits

PROGRAM = """
import resource, torch
from fedclust.runtime.memory import keep_freed_memory
keep_freed_memory()
torch.ones(16 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(16 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
before = int(open("/proc/self/statm").read().split()[1])
torch.empty(1 << 28).fill_(1)  # a gigabyte
print(int(open("/proc/self/statm").read().split()[1]) - before)
"""


@pytest.mark.slow
def test_large_blocks_are_kept_and_huge_ones_given_back() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    fresh, more = map(int, ran.stdout.split())  # pages
    if platform.libc_ver()[0] == "glibc":
        assert fresh < (16 << 20) * 4 // 4096 // 10
        assert more < (1 << 30) // 4096 // 10
    else:  # nothing to promise, but it must not fail
        assert fresh >= 0


CPU = torch.device("cpu")
SHORT = {
    "torch": (lambda: torch.empty(1 << 55), r": 128 PiB more were needed; lower max_rows"),
    "numpy": (lambda: np.empty(1 << 50), r": 8 PiB more were needed; lower"),
    "python": (lambda: bytearray(1 << 60), r"while testing; lower"),
    "cuda": (
        lambda: fail(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")),
        ": 20 GiB more were needed",
    ),
    "library": (
        lambda: fail(ImportError("x.so: failed to map segment from shared object")),
        "while testing; lower",
    ),
    "c++": (lambda: fail(RuntimeError("std::bad_alloc")), "while testing; lower"),
}


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("kind", SHORT)
def test_every_way_to_run_out_of_memory_is_one_line(kind: str) -> None:
    work, says = SHORT[kind]
    with pytest.raises(MemoryShort, match=says) as error, short_of_memory("testing"):
        work()
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("out of memory while testing")


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes") as error, short_of_memory("testing"):
        fail(RuntimeError("shapes do not fit"))
    assert not isinstance(error.value, MemoryShort)


def test_sizes_are_readable() -> None:
    sizes = (0, 1000, 1023, 1024, 1536 << 20, 3 << 50)
    told = ["0 bytes", "1000 bytes", "1023 bytes", "1 KiB", "1.5 GiB", "3 PiB"]
    assert [readable(size) for size in sizes] == told


def test_what_does_not_fit_is_refused_beforehand() -> None:
    free = available(CPU)
    assert free is not None
    check_fits({"two models": free // 4, "a table": free // 4}, CPU, data=0)
    with pytest.raises(MemoryShort) as short:
        check_fits({"a table": 3 << 20, "two models": 1 << 60, "nobody": 0}, CPU, data=2048)
    before, _, after = str(short.value).partition(", and ")
    assert before == "the job needs at least 1 EiB besides its data of 2 KiB"
    assert " are free (two models: 1 EiB; a table: 3 MiB); lower max_rows" in after


def test_a_limit_of_the_address_space_counts() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:  # noqa: PTH123 - as the shell's ulimit -v reads it
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
    try:
        free = available(CPU)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert free is not None
    assert free <= 64 << 20
