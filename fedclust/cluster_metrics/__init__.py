"""Dissimilarities of clients, one file each, as `fedclust.verbs.ClusterMetric` asks for them."""
