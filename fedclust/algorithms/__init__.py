"""Methods, one file each; `steps`, `parts` and `layers` hold what several methods share."""
