"""Variants of LCFL that are a YAML: FL+HC, k-means on models, and few landmarks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from planted import (
    CLIENTS,
    GROUPS,
    STEPS,
    configured,
    engine_for,
    federation,
    partition_of,
    rounds_of,
    simulate,
)
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans

from fedclust.core.front import Train

ZERO, EVERYBODY = torch.zeros(CLIENTS, dtype=torch.int64), torch.arange(CLIENTS)
NORMS = {"l1": "cityblock", "l2": "euclidean", "cosine": "cosine"}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("linked", ["average", "complete"])
def test_flhc_is_hierarchical_clustering_of_the_updates_of_one_model(
    norm: str, linked: str
) -> None:
    fed = federation(1)
    rounds, clients = rounds_of(fed, 3, participation=0.5), engine_for(fed)
    options = (
        f"algorithm.metric.norm={norm}",
        f"algorithm.method.linkage={linked}",
        "algorithm.warmup.rounds=2",
    )
    algorithm: Any = configured("flhc", *options)
    states, reports = simulate(algorithm, rounds)
    server = states[1].models
    trained = (
        clients.at(rounds[2])
        .train(Train(server, ZERO, EVERYBODY, algorithm.solver, purpose="cover"))
        .params
    )
    apart = pdist((trained - server).numpy().astype(np.float64), NORMS[norm])
    found = fcluster(linkage(apart, linked), 3, "maxclust")
    assert partition_of(states[2].label) == partition_of(torch.from_numpy(found))
    upper = np.triu_indices(CLIENTS, 1)
    np.testing.assert_allclose(
        reports[3].arrays["distance"].numpy()[upper], apart, rtol=1e-4, atol=1e-5
    )


def test_flhc_asks_everybody_once_more() -> None:
    fed = federation()
    _, reports = simulate(configured("flhc", "algorithm.warmup.rounds=1"), rounds_of(fed, 2))
    assert (reports[2].models_down, reports[2].models_up) == (2 * CLIENTS, 2 * CLIENTS)
    assert reports[2].gradient_steps == 2 * CLIENTS * STEPS


def test_kmeans_on_models_is_k_means_of_the_parameters() -> None:
    fed = federation(2)
    rounds, clients = rounds_of(fed, 1), engine_for(fed)
    algorithm: Any = configured("kmeans_models", "num_clusters=4")
    states, reports = simulate(algorithm, rounds)
    start = clients.init(rounds[0].stream("init"), 1)
    one = algorithm.solver.__class__(
        lr=algorithm.solver.lr, batch_size=None, epochs=None, steps=100
    )
    alone = (
        clients.at(rounds[0])
        .train(Train(start, ZERO, EVERYBODY, one, purpose="warmup"))
        .params.double()
        .numpy()
    )
    expected = KMeans(4, n_init=50, random_state=0).fit(alone)
    label = states[0].label.numpy()
    inertia = sum(((alone[label == k] - alone[label == k].mean(0)) ** 2).sum() for k in range(4))
    assert inertia == pytest.approx(expected.inertia_, rel=1e-5)
    assert reports[0].gradient_steps == 100 * CLIENTS
    assert (reports[0].models_down, reports[0].models_up) == (CLIENTS, CLIENTS)


def test_flux_clusters_without_a_number_of_clusters() -> None:
    """Groups that name the regions differently differ in where their classes lie."""
    fed = federation()
    given = ("cluster_metric=descriptor", "cluster_method=dbscan", "num_clusters=auto")
    more = (
        "cluster_metric.directions=6",
        "cluster_method.eps=knee",
        "cluster_method.min_samples=2",
    )
    states, reports = simulate(configured("lcfl", *given, *more), rounds_of(fed))
    label = states[-1].label
    pairs = [(i, j) for i in range(CLIENTS) for j in range(CLIENTS) if label[i] == label[j]]
    assert all(i % GROUPS == j % GROUPS for i, j in pairs)
    assert len(pairs) > CLIENTS
    clustering = next(r for r in reports if "num_clusters_found" in r.notes)
    assert (clustering.floats_up, clustering.scalars_up) == (CLIENTS * 2 * 6 * 4, 0)
