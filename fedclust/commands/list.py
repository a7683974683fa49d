"""`fedclust list`: what there is, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from omegaconf.errors import ConfigAttributeError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedclust.commands.names import CONF, user_dir, without_user_dir
from fedclust.errors import require

_HIDDEN = ("hydra", "scaled")
PAPERS = {"lcfl": "LCFL", "cfl_mgd": "CFL-MGD", "jgl": "JGL", "flexcfl": "FlexCFL"}


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
    """The file of every choice of a group by name; where two trees have one, Hydra takes the first's."""
    found: dict[str, Path] = {}
    for root in roots:
        for file in sorted((root / group).rglob("*.yaml")):
            found.setdefault(str(file.relative_to(root / group).with_suffix("")), file)
    return dict(sorted(found.items()))


def num_jobs(file: Path) -> int:
    """Jobs of the sweep that an experiment's file states: the product of its values per key, 1 without."""
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
        require(group in groups(roots), "fedclust list", group, f"one of {', '.join(groups(roots))}")
    console = Console()
    for group in named or groups(roots):
        if group == "experiment" and named:
            with console.status("estimating times"):
                table = experiments(choices(group, roots))
        else:
            table = Table(title=group, title_justify="left", title_style="bold", box=None, show_header=False)
            table.add_column(style="cyan", no_wrap=True)
            table.add_column(overflow="fold")
            for name, file in choices(group, roots).items():
                table.add_row(f"  {name}", Text(describe(file)))  # a bracket is no markup
        console.print(table)


def experiments(files: Mapping[str, Path]) -> Table:
    """The experiments with their paper, number of jobs and roughly the time they take."""
    from fedclust.commands.times import gpu_rates, in_words, rates_here, works

    here, gpu = rates_here(), gpu_rates()
    table = Table(
        title="experiment",
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="dim",
        caption="times are estimates, good to a factor of two on this machine; those of a GPU are assumed, "
        "not measured",
        caption_justify="left",
    )
    table.add_column("  name", style="cyan", no_wrap=True)
    for head in ("paper", "jobs", "full size here", "on a GPU", "laptop here"):
        table.add_column(head, justify="left" if head == "paper" else "right", no_wrap=True)
    table.add_column("what", overflow="fold")
    for name, file in files.items():
        cells = [f"  {name}", PAPERS.get(name.partition("/")[0], ""), str(num_jobs(file))]
        for scale, rates in (("paper", here), ("paper", gpu), ("laptop", here)):
            there = scale == "paper" or (CONF / "scaled" / name / f"{scale}.yaml").is_file()
            try:
                seconds = sum(work.seconds(rates) for work in works(name, scale)) if there else None
            except (KeyError, ConfigAttributeError):  # data of a user's own, of unknown size
                seconds = None
            cells.append("" if seconds is None else in_words(seconds))
        table.add_row(*cells, Text(describe(file)))
    return table
