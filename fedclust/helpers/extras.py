"""Packages beside this one: how an extra is installed, and a torchvision that does not fit."""

from __future__ import annotations

import json
import sys
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from fedclust.helpers.errors import DataError


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


def of_torchvision(part: str) -> Any:
    """A module of torchvision, such as datasets, whose import takes seconds.

    Raises:
        DataError: it cannot be imported, as one that was built for another PyTorch.
    """
    try:
        return import_module(f"torchvision.{part}")
    except Exception as error:  # its operators say in many ways that they do not fit
        raise DataError(
            f"torchvision cannot be imported ({' '.join(str(error).split())}): install one that "
            "fits PyTorch, both from one source, as in docs/how-to/install.md"
        ) from error
