"""Where the config tree lies: inside an installed package, or beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGED = Path(__file__).parent.parent / "conf"
CONF = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parent.parent.parent / "conf"
