"""Whether the paths meant for a GPU are right and fast on this machine, by one command.

`make carried` puts packages into .carried for a machine without a network; they come last, so that
what is installed there is taken first.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / ".carried"))
