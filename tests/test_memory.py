"""Freed memory stays in the process."""

from __future__ import annotations

import platform
import subprocess
import sys

PROGRAM = """
import resource, torch
from fedclust.memory import keep_freed_memory
keep_freed_memory()
torch.ones(16 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(16 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_a_second_block_of_the_same_size_costs_no_fresh_pages() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    pages = (16 << 20) * 4 // 4096
    if platform.libc_ver()[0] == "glibc":
        assert int(ran.stdout) < pages // 10
    else:  # nothing to promise, but it must not fail
        assert int(ran.stdout) >= 0
