"""fedclust: simulate and compare clustered federated learning, a round of all seeds in one
batch.
"""

import os
import sys

if sys.platform == "win32":  # before anything that Windows lacks is imported
    sys.exit("fedclust: runs on Linux and macOS; on Windows use WSL2")

from fedclust.helpers.errors import UserError
from fedclust.launch.api import Result, load, run, sweep

# PyTorch reads this before its first allocation: large pages make the first touch of a result of
# hundreds of megabytes about five times cheaper
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.1.0"
__all__ = ["Result", "UserError", "__version__", "load", "run", "sweep"]
