"""Tables, figures and one page from the files that runs leave; never trains anything."""

from fedclust.report.terminal import print_summary
from fedclust.report.write import make_report

__all__ = ["make_report", "print_summary"]
