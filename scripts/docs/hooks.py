"""What mkdocs calls while it builds the site; see mkdocs.yml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))  # the package, this folder

from scripts.docs.generated import pages
from scripts.docs.links import for_site, urls
from scripts.docs.nav import filled


def on_config(config: Any) -> Any:
    """Fill the navigation, and state the public addresses where there are any."""
    config.nav = filled(config.nav)
    known = urls()
    config.repo_url = known.get("Source")
    config.site_url = known.get("Documentation") or ""
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of other files."""
    for place, make in pages().items():
        files.append(File.generated(config, place, content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/ lead to the site's own pages."""
    place = page.file.src_uri
    return markdown if page.file.generated_by else for_site(markdown, f"docs/{place}", place)
