"""Dissimilarities of clients, one file each.

Each is a frozen dataclass that does what `fedclust.verbs.ClusterMetric` asks for.
"""
