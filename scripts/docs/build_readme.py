"""What the build asks: the README for a package index, where no file of the checkout lies beside
it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.docs.links import for_index


class Readme(MetadataHookInterface):
    """Fills in the project's readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Links lead to the public address that `[project.urls]` states as Source, if there is
        one.
        """
        text = (Path(self.root) / "README.md").read_text()
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_index(text, source)}
