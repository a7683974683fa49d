"""How the optional packages of an extra are installed, as a line that can be pasted."""

from __future__ import annotations

import json
import sys
from importlib import metadata, util
from pathlib import Path
from urllib.parse import unquote, urlparse


def install(extra: str) -> str:
    """The command that adds an extra to this environment, with the folder of a checkout."""
    try:
        said = metadata.distribution("fedclust").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        said = None
    about = json.loads(said) if said else {}
    url = urlparse(about.get("url", ""))
    sources = Path(unquote(url.path))
    if url.scheme != "file" or not sources.exists():
        return f"pip install 'fedclust[{extra}]'"
    pip = f"{sys.executable} -m pip install"
    if util.find_spec("pip") is None:
        pip = f"uv pip install --python {sys.executable}"
    editable = "-e " if about.get("dir_info", {}).get("editable") else ""
    return f"{pip} {editable}'{sources}[{extra}]'"
