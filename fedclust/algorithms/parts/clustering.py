"""One clustering of all clients by what a metric makes of their models."""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.algorithms.steps import clients_with_data
from fedclust.core.front import Clients
from fedclust.core.types import ClientModels, Cost, Round
from fedclust.core.verbs import ClusterMethod, ClusterMetric
from fedclust.helpers.errors import counted, require


def check_size(metric: ClusterMetric, method: ClusterMethod, num_clients: int) -> None:
    """Raise `ConfigError` if there are too few clients; the parts would too, but only later."""
    k, directions = method.num_clusters, metric.num_components
    allowed = f"at most the {num_clients} clients to cluster"
    require(not isinstance(k, int) or k <= num_clients, "num_clusters", k, allowed)
    fits = directions is None or directions <= num_clients
    require(fits, "cluster_metric.num_components", directions, allowed)


def tables_of_pairs(_: object, num_clients: int, note: str = "") -> dict[str, int]:
    """The `tables` of a method: bytes of the distances [C, C] between clients, in float32 as a
    metric gives them, and twice in float64 while a clustering makes them symmetric.
    """
    return {f"distances between {counted(num_clients, 'client')}{note}": 20 * num_clients**2}


def grouped(
    method: ClusterMethod, distance: Tensor, ids: Tensor, rnd: Round
) -> tuple[Tensor, int, Cost]:
    """Labels [M] of `ids` [C] by distances [C, C], else -1; number of clusters; what is noted."""
    found = method(distance, rnd.stream("clustering"))
    num_clusters = int(found.max()) + 1
    label = torch.full_like(rnd.fed.group, -1).index_copy(0, ids, found)
    notes, arrays = {"num_clusters_found": num_clusters}, {"distance": distance}
    return label, num_clusters, Cost(notes=notes, arrays=arrays)


def nearest_members(distance: Tensor, label: Tensor) -> Tensor:
    """The cluster to whose members every newcomer has the least mean distance, [C] int64;
    `distance` is [C, A] to the members of all clusters, of the labels [A], every one used.
    """
    member = torch.nn.functional.one_hot(label).to(distance.dtype)  # [A, K]
    return (distance @ member / member.sum(0)).argmin(1)


def clustered(
    metric: ClusterMetric,
    method: ClusterMethod,
    local: ClientModels,
    server: Tensor,
    clients: Clients,
    rnd: Round,
) -> tuple[Tensor, int, Cost]:
    """Labels [M] of the clients that are there, -1 for the others; number of clusters; cost.

    Models are those of the clients, `local` [M, P], and the server's [1, P]. Numbers of clients
    that send no model are descriptors of their data, and count as floats; those beside models are
    losses.
    """
    ids = clients_with_data(rnd)
    # picking rows copies them: up to 1.5 GB that the usual case can do without
    models = local[ids]
    distance = metric(clients, models, server, ids, rnd)
    label, num_clusters, found = grouped(method, distance, ids, rnd)
    down, up, numbers = metric.transfers(len(ids), rnd.fed.pool.num_classes)
    cost = Cost(
        models_down=down,
        models_up=up,
        floats_up=0 if up else numbers,
        scalars_up=numbers if up else 0,
    )
    return label, num_clusters, cost.plus(found)
