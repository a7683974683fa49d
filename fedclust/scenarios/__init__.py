"""Who joins, who is sampled and what shifts: one file per scenario, blind to the algorithm."""
