"""Scores of predictions, by name, and how they are taken over all examples and over clients."""
