"""fedclust-bench: federations that are frozen, and a method's archive that others can verify."""
