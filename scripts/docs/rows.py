"""Tables of the documentation that name every choice of a group: a choice that no row names gets
one, made of what its file says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedclust.config.tree import choices, describe
from fedclust.core.norms import NORMS

ROOT = Path(__file__).resolve().parents[2]
# the page that has the table, by what stands at the head of its first column
TABLES: Mapping[str, str] = {
    "partition": "docs/federations.md",
    "scenario": "docs/federations.md",
    "attack": "docs/how-to/attackers.md",
    "aggregation": "docs/how-to/attackers.md",
    "server": "docs/how-to/servers.md",
    "clock": "docs/how-to/clock.md",
    "compression": "docs/how-to/compression.md",
    "solver": "docs/how-to/solvers.md",
    "norm": "docs/how-to/batch-norm.md",
}
_NONE = "none"  # the choice that is no part at all


def known(group: str) -> dict[str, str]:
    """What there is to choose, with what each choice is."""
    if group == "norm":  # a key, whose words are no files
        return dict.fromkeys(NORMS, "")
    return {name: what_it_is(file) for name, file in choices(group).items() if name != _NONE}


def what_it_is(file: Path) -> str:
    """The first line of a config file without the paper in brackets at its end."""
    return re.sub(r" \([^()]*\d{4}[^()]*\)$", "", describe(file)).replace("|", "\\|")


def unlisted(group: str, text: str) -> list[str]:
    """The choices of a group that no row of its table names."""
    named = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in _rows(group, text))))
    return [name for name in known(group) if name not in named]


def completed(group: str, text: str) -> str:
    """The page with a row for every choice that has none, at the end of the table."""
    rows = list(_rows(group, text))
    columns = rows[-1].replace("\\|", "").count("|") - 1
    for name in reversed(unlisted(group, text)):
        cells = [f"`{name}`", known(group)[name], *[""] * (columns - 2)]
        text = text.replace(rows[-1], f"{rows[-1]}| {' | '.join(cells)} |\n".replace("  ", " "), 1)
    return text


def _rows(group: str, text: str) -> Iterator[str]:
    """The rows of the group's table, with head and line.

    Raises:
        SystemExit: if the page has no such table.
    """
    found = re.search(rf"^\| `?{group}`? \|.*\n(?:\|.*\n)+", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{TABLES[group]} has no table that begins with | {group} |")
    yield from found[0].splitlines(keepends=True)


def main(groups: Sequence[str] = tuple(TABLES)) -> None:
    """Complete the tables."""
    for group in groups:
        page = ROOT / TABLES[group]
        page.write_text(completed(group, page.read_text()))
