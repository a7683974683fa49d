"""`fedclust list`: what there is, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.errors import HydraException
from omegaconf.errors import ConfigAttributeError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedclust.commands.names import CONF, user_dir, without_user_dir
from fedclust.errors import require

if TYPE_CHECKING:
    from fedclust.commands.times import Work

_HIDDEN = ("hydra", "scaled")


def groups(roots: Sequence[Path] = (CONF,)) -> list[str]:
    """The config groups a user chooses from, in any of the config trees `roots`."""
    named = {
        folder.name
        for root in roots
        for folder in root.iterdir()
        if folder.is_dir() and folder.name not in _HIDDEN and any(folder.rglob("*.yaml"))
    }
    return sorted(named)


def choices(group: str, roots: Sequence[Path] = (CONF,)) -> dict[str, Path]:
    """The file of every choice of a group by name; where two trees have one, Hydra takes the
    first's.
    """
    found: dict[str, Path] = {}
    for root in roots:
        for file in sorted((root / group).rglob("*.yaml")):
            found.setdefault(str(file.relative_to(root / group).with_suffix("")), file)
    return dict(sorted(found.items()))


def num_jobs(file: Path) -> int:
    """Jobs of the sweep that an experiment's file states: the product of its values per key, 1
    without.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    params = OmegaConf.select(OmegaConf.load(file), "hydra.sweeper.params") or {}
    parse = OverridesParser.create().parse_override
    overrides = [parse(f"{key}={value}") for key, value in params.items()]
    return prod(sum(1 for _ in o.sweep_iterator()) for o in overrides if o.is_sweep_override())


def describe(file: Path) -> str:
    """The first comment line of a config file that is not a Hydra directive."""
    for line in file.read_text().splitlines():
        text = line.removeprefix("#").strip()
        if line.startswith("#") and text and not text.startswith("@package"):
            return text
    return ""


def main(arguments: Sequence[str]) -> None:
    """Print the choices of the groups named, or of all; with --config-dir DIR a user's own too.

    Raises:
        ConfigError: if there is no such group or folder.
    """
    own = user_dir(arguments)
    if own is not None:
        require(own.is_dir(), "--config-dir", own, "an existing folder")
    roots = (CONF,) if own is None else (own, CONF)
    named = without_user_dir(arguments)
    for group in named:
        require(
            group in groups(roots), "fedclust list", group, f"one of {', '.join(groups(roots))}"
        )
    console = Console()
    for group in named or groups(roots):
        files = choices(group, roots)
        if group == "experiment" and named:
            with console.status("estimating times"):
                found = experiments(files, own)
            show(console, group, EXPERIMENT_HEADS, found)
            console.print(f"[dim]{ABOUT_TIMES}", soft_wrap=True)
        else:
            show(console, group, ("", ""), [(name, describe(file)) for name, file in files.items()])


def show(console: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for a terminal; elsewhere a line per row, so that grep finds whole ones."""
    if not console.is_terminal:
        print(title)
        wide = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
        for row in (heads, *rows) if any(heads) else rows:
            print(
                "  "
                + "  ".join(
                    cell.ljust(width) for cell, width in zip(row, wide, strict=True)
                ).rstrip()
            )
        return
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        show_header=any(heads),
        header_style="dim",
    )
    for place, head in enumerate(heads):
        first, last = place == 0, place == len(heads) - 1
        table.add_column(
            head,
            style="cyan" if first else "",
            no_wrap=not last,
            overflow="fold",
            justify="left" if first or last else "right",
        )
    for name, *cells in rows:
        table.add_row(f"  {name}", *(Text(cell) for cell in cells))  # a bracket is no markup
    console.print(table)


EXPERIMENT_HEADS = ("experiment", "jobs", "here", "GPU", "laptop", "what")
ABOUT_TIMES = (
    "Estimated times of the full size on this machine and a large GPU, and of scale=laptop here, "
    "good to a "
    "factor of two; the GPU's are assumed, not measured."
)


def experiments(files: Mapping[str, Path], own: Path | None = None) -> list[tuple[str, ...]]:
    """Of every experiment the name, number of jobs, roughly the times it takes, and what it is."""
    from fedclust.commands.times import counted, gpu_rates, in_words, rates_here

    here, gpu, shipped = rates_here(), gpu_rates(), counted()
    rows = []
    for name, file in files.items():
        times = []
        for scale, rates in (("paper", here), ("paper", gpu), ("laptop", here)):
            works = (
                shipped.get((name, scale))
                if file.is_relative_to(CONF)
                else _own_works(name, scale, own)
            )
            times.append(in_words(sum(work.seconds(rates) for work in works)) if works else "")
        rows.append((name, str(num_jobs(file)), *times, describe(file)))
    return rows


def _own_works(name: str, scale: str, own: Path | None) -> list[Work]:
    """The jobs of a user's experiment; none but at full size, or where its data are of unknown
    size.
    """
    from fedclust.commands.times import works

    if scale != "paper":
        return []
    try:
        return works(name, scale, own)
    except (KeyError, ConfigAttributeError, HydraException):
        return []
