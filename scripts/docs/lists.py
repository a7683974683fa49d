"""All lists that follow from the files below conf/: rows of tables in docs/, docs/methods.md, the
counts of the README, the comparisons of all methods, and the golden rounds of new ones.

    python -m scripts.docs.lists
"""

from __future__ import annotations

import re

from fedclust.config.tree import choices
from scripts.docs import methods, rows

README = rows.ROOT / "README.md"
_COUNTS = re.compile(r"^- \d+ methods on \d+ kinds of client", re.MULTILINE)


def counted(text: str) -> str:
    """The README with the numbers of methods and partitions."""
    counts = f"- {len(choices('algorithm'))} methods on {len(choices('partition'))} kinds of client"
    return _COUNTS.sub(counts, text)


def main() -> None:
    """Write all of them."""
    README.write_text(counted(README.read_text()))
    rows.main()
    methods.main()


if __name__ == "__main__":
    main()
