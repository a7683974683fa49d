"""fedclust: simulate and compare clustered federated learning, a round of all seeds in one batch."""

__version__ = "0.1.0"
