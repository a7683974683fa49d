"""MLflow: one run per job, one metric per seed."""

from __future__ import annotations

from collections.abc import Mapping

from fedclust.trackers import optional, series


class MLflowTracker:
    """One MLflow run.

    Args:
        experiment: the experiment's name.
        run: the run's name.
        uri: where MLflow stores it, e.g. `sqlite:///mlflow.db` or a server's address; None: its default.
    """

    def __init__(self, experiment: str, run: str, uri: str | None = None) -> None:
        self._mlflow = optional("mlflow", "mlflow")
        client = self._mlflow.MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(experiment)
        identity = found.experiment_id if found else client.create_experiment(experiment)
        self._client = client
        self._run = client.create_run(identity, run_name=run).info.run_id

    def log(self, seed: int, round: int, values: Mapping[str, float]) -> None:  # noqa: A002
        """Nothing; one request for all metrics of the round."""
        metric = self._mlflow.entities.Metric
        # MLflow refuses "=" in names
        points = [
            metric(series(seed, name).replace("=", "_"), value, 0, round) for name, value in values.items()
        ]
        self._client.log_batch(self._run, metrics=points)

    def close(self) -> None:
        """Nothing; marks the run as finished."""
        self._client.set_terminated(self._run)
