"""What becomes of freed memory."""

from __future__ import annotations

import platform
import subprocess
import sys

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
