"""Tables, figures and one page from the files that runs leave; never trains anything."""

from fedclust.report.terminal import print_summary
from fedclust.report.write import all_contents, make_report

__all__ = ["all_contents", "make_report", "print_summary"]
