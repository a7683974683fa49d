"""MLflow: one run per job, one metric per seed."""

from __future__ import annotations

from collections.abc import Mapping

from fedclust.errors import ConfigError
from fedclust.trackers import optional, series


class MLflowTracker:
    """One MLflow run.

    Args:
        experiment: the experiment's name.
        run: the run's name.
        uri: where MLflow stores it, e.g. `sqlite:///mlflow.db` or a server's address; None: its
            default.
    """

    def __init__(self, experiment: str, run: str, uri: str | None = None) -> None:
        self._mlflow = optional("mlflow", "mlflow")
        try:
            self._client = self._mlflow.MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(experiment)
            identity = found.experiment_id if found else self._client.create_experiment(experiment)
            self._run = self._client.create_run(identity, run_name=run).info.run_id
        except self._mlflow.exceptions.MlflowException as error:
            first = " ".join(str(error).split())
            raise ConfigError(
                f"tracker.uri={uri} is not allowed: MLflow cannot store there ({first})"
            ) from error

    def log(self, seed: int, round: int, values: Mapping[str, float]) -> None:  # noqa: A002
        """One request for all metrics of the round."""
        metric = self._mlflow.entities.Metric
        # MLflow refuses "=" in names
        points = [
            metric(series(seed, name).replace("=", "_"), value, 0, round)
            for name, value in values.items()
        ]
        self._client.log_batch(self._run, metrics=points)

    def close(self) -> None:
        """Marks the run as finished."""
        self._client.set_terminated(self._run)
