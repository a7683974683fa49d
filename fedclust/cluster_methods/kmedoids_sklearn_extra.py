"""k-medoids of scikit-learn-extra, the package the LCFL code was published with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fedclust.cluster_methods import CountOrAuto, Floats, Split, random_state
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.extras import install
from fedclust.helpers.ranges import AtLeastOne
from fedclust.helpers.rng import Stream

Method = Literal["alternate", "pam"]
Start = Literal["heuristic", "k-medoids++", "build", "random"]


def _estimator() -> Any:
    """The class `sklearn_extra.cluster.KMedoids`."""
    try:
        from sklearn_extra.cluster import KMedoids
    except (ImportError, ValueError, AttributeError) as error:  # ValueError: built for NumPy 1
        raise ConfigError(
            "cluster_method=kmedoids_sklearn_extra is not allowed: scikit-learn-extra does not "
            f"import ({type(error).__name__}); {install('sklearn-extra')} in an environment of its "
            "own, or use cluster_method=kmedoids"
        ) from error
    return KMedoids


@dataclass(frozen=True, kw_only=True)
class KMedoidsSklearnExtra(CountOrAuto):
    """k-medoids by `sklearn_extra.cluster.KMedoids`."""

    method: Method = "alternate"  # `alternate` or `pam`
    start: Start = "heuristic"  # initial medoids: `heuristic`, `k-medoids++`, `build` or `random`
    max_iter: AtLeastOne = 300  # iterations at most

    def __post_init__(self) -> None:
        super().__post_init__()
        _estimator()

    def split(self, distance: Floats, stream: Stream) -> Split:
        estimator = _estimator()
        return lambda k: estimator(
            n_clusters=k,
            metric="precomputed",
            method=self.method,
            init=self.start,
            max_iter=self.max_iter,
            random_state=random_state(stream),
        ).fit_predict(distance)
