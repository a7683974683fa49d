"""The interfaces of `fedclust.core.verbs` under the path that parts of your own import."""

from fedclust.core.front import Clients
from fedclust.core.verbs import (
    Algorithm,
    ClusterMethod,
    ClusterMetric,
    Engine,
    Method,
    Partition,
    Scenario,
)

__all__ = [
    "Algorithm",
    "Clients",
    "ClusterMethod",
    "ClusterMetric",
    "Engine",
    "Method",
    "Partition",
    "Scenario",
]
