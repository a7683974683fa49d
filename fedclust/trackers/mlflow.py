"""MLflow: one run per job, with the config as parameters and the report as artifacts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedclust.core.tracker import About
from fedclust.helpers.errors import ConfigError
from fedclust.trackers import curves, optional

_MOST_METRICS, _MOST_PARAMETERS = 1000, 100  # in one request
_LONGEST = 5000  # characters of a parameter


class MLflowTracker:
    """One MLflow run.

    Args:
        run: the run's name; None: that of the job's folder.
        uri: where MLflow stores it, e.g. `sqlite:///mlflow.db` or a server's address; None: its
            default.
    """

    def __init__(self, experiment: str, run: str | None = None, uri: str | None = None) -> None:
        self._mlflow = optional("mlflow", "mlflow")
        self._experiment, self._name, self._uri = experiment, run, uri
        self._client: Any = None
        self._run = ""
        self._is_done = False

    def begin(self, about: About) -> None:
        """A new run with its parameters and tags, or the one of a job that is continued."""
        try:
            self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
            self._run, goes_on = about.run(lambda: self._created(about))
            if goes_on:
                self._client.update_run(self._run, status="RUNNING")
                return
            parameter = self._mlflow.entities.Param
            values = about.parameters.items()
            # MLflow refuses many characters in names
            params = [parameter(_plain(name), str(value)[:_LONGEST]) for name, value in values]
            self._in_batches("params", params, _MOST_PARAMETERS)
        except self._mlflow.exceptions.MlflowException as error:
            first = " ".join(str(error).split())
            raise ConfigError(
                f"tracker.uri={self._uri} is not allowed: MLflow cannot store there ({first})"
            ) from error

    def _created(self, about: About) -> str:
        """The identity of a new run."""
        known = self._client.get_experiment_by_name(self._experiment)
        new = self._client.create_experiment
        identity = known.experiment_id if known else new(self._experiment)
        tags = {_plain(name): value for name, value in about.tags.items()}
        tags["fedclust.folder"] = str(about.folder.resolve())
        name = self._name or about.folder.name
        return str(self._client.create_run(identity, run_name=name, tags=tags).info.run_id)

    def log(self, round: int, values: Mapping[int, Mapping[str, float]]) -> None:  # noqa: A002
        """All metrics of the round, with the mean over seeds."""
        self._log(curves(values), round)

    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        metric, now = self._mlflow.entities.Metric, int(1000 * time.time())
        points = [metric(_plain(name), value, now, step) for name, value in numbers.items()]
        self._in_batches("metrics", points, _MOST_METRICS)

    def _in_batches(self, kind: str, values: Sequence[Any], most: int) -> None:
        for start in range(0, len(values), most):
            self._client.log_batch(self._run, **{kind: values[start : start + most]})

    def end(self, summary: Mapping[str, float], report: Callable[[], Path]) -> None:
        """Final numbers as metrics, the report below the artifact path `report`."""
        self._is_done = True
        self._log(summary, 0)
        self._client.log_artifacts(self._run, str(report()), "report")

    def close(self) -> None:
        """Marks the run as finished, or as failed where the job is not done."""
        if self._run:
            status = "FINISHED" if self._is_done else "FAILED"
            self._client.set_terminated(self._run, status=status)


def _plain(name: str) -> str:
    """A name as MLflow takes it: letters, digits and a few signs."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)
