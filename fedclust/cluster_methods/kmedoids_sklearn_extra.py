"""k-medoids of scikit-learn-extra, the package the LCFL code was published with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from torch import Tensor

from fedclust.cluster_methods import Count, as_labels, as_matrix, check_count, cluster, random_state
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.extras import install
from fedclust.helpers.ranges import AtLeastOne, AtLeastTwo, Silhouette
from fedclust.helpers.rng import Stream

Method = Literal["alternate", "pam"]
Start = Literal["heuristic", "k-medoids++", "build", "random"]


def _estimator() -> Any:
    """The class `sklearn_extra.cluster.KMedoids`.

    Raises:
        ConfigError: if it cannot be imported.
    """
    try:
        from sklearn_extra.cluster import KMedoids
    except (
        ImportError,
        ValueError,
        AttributeError,
    ) as error:  # a wheel built for NumPy 1 raises ValueError
        raise ConfigError(
            "cluster_method=kmedoids_sklearn_extra is not allowed: scikit-learn-extra does not "
            "import "
            f"({type(error).__name__}); {install('sklearn-extra')} in an environment of its own, "
            "or use cluster_method=kmedoids"
        ) from error
    return KMedoids


@dataclass(frozen=True, kw_only=True)
class KMedoidsSklearnExtra:
    """k-medoids by `sklearn_extra.cluster.KMedoids`.

    Attributes:
        num_clusters: k, or "auto".
        method: `alternate` or `pam`.
        start: initial medoids: `heuristic`, `k-medoids++`, `build` or `random`.
        max_iter: iterations at most.
        max_clusters, min_silhouette: of auto, see `fedclust.cluster_methods.cluster`.
    """

    num_clusters: Count
    method: Method = "alternate"
    start: Start = "heuristic"
    max_iter: AtLeastOne = 300
    max_clusters: Annotated[AtLeastTwo, OnlyWith("num_clusters", "auto")] = 10
    min_silhouette: Annotated[Silhouette, OnlyWith("num_clusters", "auto")] = 0.25

    def __post_init__(self) -> None:
        check_count(self.num_clusters, self.max_clusters, self.min_silhouette)
        _estimator()

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        """See `fedclust.verbs.ClusterMethod`."""
        matrix, estimator = as_matrix(distance), _estimator()

        def split(k: int) -> Any:
            return estimator(
                n_clusters=k,
                metric="precomputed",
                method=self.method,
                init=self.start,
                max_iter=self.max_iter,
                random_state=random_state(stream),
            ).fit_predict(matrix)

        found = cluster(matrix, self.num_clusters, self.max_clusters, self.min_silhouette, split)
        return as_labels(found, distance)
