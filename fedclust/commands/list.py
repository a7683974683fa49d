"""`fedclust list`: what there is, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedclust.config.about import about
from fedclust.config.tree import choices, describe, groups
from fedclust.helpers.errors import ConfigError, did_you_mean, require
from fedclust.helpers.prose import say
from fedclust.launch.typed import Typed

_INDENT = "  "
_MIDDLE = 24  # columns of a terminal for what stands between name and description, at most
_LEAST = 30  # columns for a description; with fewer it has lines of its own


def command(arguments: Sequence[str]) -> None:
    """Print the choices of the groups named, or of all; with --config-dir DIR a user's own too."""
    typed = Typed.of(arguments)
    own, named = typed.own, typed.texts
    if own is not None:
        require(own.is_dir(), "--config-dir", own, "there is no such folder")
    known = groups(own)
    for group in named:
        if group not in known:
            meant = did_you_mean(group, known)
            there = f"it has {', '.join(known)}"
            raise ConfigError(f"fedclust list has no group {group}: {meant and meant + ' '}{there}")
    console = Console()
    for group in named or known:
        files = choices(group, own)
        if group == "experiment" and named:
            show(console, group, ("experiment", "jobs", "scale=laptop", "what"), experiments(files))
        elif group == "algorithm" and named:
            show(console, group, ("algorithm", "the server reads", "what"), methods(files))
        else:
            show(console, group, ("", ""), [(name, describe(file)) for name, file in files.items()])


def show(console: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for a terminal; elsewhere a line per row, so that grep finds whole ones."""
    if not console.is_terminal:
        print(title)
        wide = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
        for row in (heads, *rows) if any(heads) else rows:
            print(
                _INDENT
                + "  ".join(
                    cell.ljust(width) for cell, width in zip(row, wide, strict=True)
                ).rstrip()
            )
        return
    width = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads) - 1)]
    width[1:] = [min(one, _MIDDLE) for one in width[1:]]
    if console.width - len(_INDENT) - sum(width) - len(heads) < _LEAST:
        console.print(Text(title, style="bold"))
        for name, *cells, told in rows:
            beside = [
                f"{head}: {cell}" for head, cell in zip(heads[1:], cells, strict=False) if cell
            ]
            say(console, "  ".join([name, *beside]), head=_INDENT, style="cyan")
            say(console, told, head=3 * _INDENT)
        return
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        show_header=any(heads),
        header_style="dim",
    )
    table.add_column(heads[0], style="cyan", no_wrap=True)
    for head, most in zip(heads[1:], width[1:], strict=False):
        table.add_column(head, width=most)
    table.add_column(heads[-1])
    for name, *cells in rows:
        table.add_row(f"{_INDENT}{name}", *map(Text, cells))  # a bracket is no markup
    console.print(table)


def methods(files: Mapping[str, Path]) -> list[tuple[str, str, str]]:
    """Of every method the name, what its server must see by default, and what it is."""
    return [
        (name, str(about(name, file.parents[1]).get("reads", "–")), describe(file))
        for name, file in files.items()
    ]


def experiments(files: Mapping[str, Path]) -> list[tuple[str, ...]]:
    """Of every experiment the name, number of jobs, what the laptop scale costs, and what it is."""
    from fedclust.config.read import read_config
    from fedclust.launch.compose import num_jobs

    rows: list[tuple[str, ...]] = []
    for name, file in files.items():
        node = read_config(file)
        sweeper = ((node or {}).get("hydra") or {}).get("sweeper") or {}
        jobs = str(num_jobs(Typed(()).over(sweeper.get("params") or {})))
        rows.append((name, jobs, laptop_costs(file), describe(file)))
    return rows


def laptop_costs(file: Path) -> str:
    """Hours of one core and memory of an experiment at scale=laptop, "" where nobody says."""
    # here, because Hydra, which it imports, takes as long as all else of `fedclust list`
    from fedclust.launch.scales import COSTS, scales_of

    costs = scales_of(file).get("laptop", {}).get(COSTS)
    if not costs:
        return ""
    given = costs if isinstance(costs, dict) else {}
    hours, memory = given.get("hours"), given.get("gigabytes")
    fits = isinstance(hours, int | float) and isinstance(memory, int | float)
    require(fits, f"{file}: {COSTS}", costs, "two numbers, as in {hours: 0.5, gigabytes: 1.2}")
    return f"{hours:g} h, {memory:g} GB"
