"""Published work: printed numbers, claims, and what papers do that is unsound.

The package as a whole is a `fedclust.report.reference.Reference`.
"""

from fedclust.papers.claims import check, claim
from fedclust.papers.protocol import changed
from fedclust.papers.published import lookup, table, thresholds
from fedclust.papers.unsound import switched_on

__all__ = ["changed", "check", "claim", "lookup", "switched_on", "table", "thresholds"]
