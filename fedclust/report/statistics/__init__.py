"""Statistics of a comparison: pure functions on arrays, which know nothing of files or reports.

`paired` compares two methods seed by seed, `ranks` many methods over federations, `aggregates` sums
up all runs of a method, `fairness` looks at single clients.
"""
