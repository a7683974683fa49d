"""Statistics of a comparison: pure functions on arrays, which know nothing of files or reports."""
