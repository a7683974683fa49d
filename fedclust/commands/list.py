"""`fedclust list`: what there is, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedclust.commands.names import CONF
from fedclust.errors import require

_HIDDEN = ("hydra", "scaled")


def groups() -> list[str]:
    """The config groups a user chooses from."""
    return sorted(folder.name for folder in CONF.iterdir() if folder.is_dir() and folder.name not in _HIDDEN)


def choices(group: str) -> list[tuple[str, str]]:
    """Name and one-line description of every choice of a group."""
    root = CONF / group
    return [
        (str(file.relative_to(root).with_suffix("")), describe(file)) for file in sorted(root.rglob("*.yaml"))
    ]


def describe(file: Path) -> str:
    """The first comment line of a config file that is not a Hydra directive."""
    for line in file.read_text().splitlines():
        text = line.removeprefix("#").strip()
        if line.startswith("#") and text and not text.startswith("@package"):
            return text
    return ""


def main(arguments: Sequence[str]) -> None:
    """Print the choices of the groups named, or of all.

    Raises:
        ConfigError: if there is no such group.
    """
    for group in arguments:
        require(group in groups(), "fedclust list", group, f"one of {', '.join(groups())}")
    console = Console()
    for group in arguments or groups():
        table = Table(title=group, title_justify="left", title_style="bold", box=None, show_header=False)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for name, description in choices(group):
            table.add_row(f"  {name}", Text(description))  # a bracket is no markup
        console.print(table)
