"""Steps that two or more methods share; those that nearly all have are in `algorithms.steps`."""
