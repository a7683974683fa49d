"""Weights & Biases: one run per job, grouped by sweep, with the config and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedclust.core.tracker import About
from fedclust.trackers import curves, optional

_LONGEST = 64  # letters of a tag


class WandbTracker:
    """One W&B run.

    Args:
        project: the project's name.
        folder: where W&B keeps its local files.
        run: the run's name; None: that of the job's folder.
        group: what the runs of a sweep have in common.
        mode: online, offline or disabled.
    """

    def __init__(
        self,
        project: str,
        folder: str,
        run: str | None = None,
        group: str | None = None,
        mode: str = "offline",
    ) -> None:
        self._wandb = optional("wandb", "wandb")
        self._given = {"project": project, "group": group, "dir": folder, "mode": mode}
        self._name = run
        self._run: Any = None
        self._is_done = False

    def begin(self, about: About) -> None:
        """A new run with the config, or the one of a job that is continued."""
        identity, _ = about.run(lambda: uuid4().hex[:12])
        tags = [f"{name}={value}" for name, value in about.tags.items()]
        left_out = ("hash", "overrides", "tracker")
        self._run = self._wandb.init(
            **self._given,
            id=identity,
            resume="allow",
            name=self._name or about.folder.name,
            tags=[one for one in tags if len(one) <= _LONGEST],
            notes="\n".join(one for one in tags if len(one) > _LONGEST) or None,
            config={key: value for key, value in about.config.items() if key not in left_out},
        )
        self._run.define_metric("*", step_metric="round")

    def log(self, round: int, values: Mapping[int, Mapping[str, float]]) -> None:  # noqa: A002
        """One history row: the mean over seeds, and every seed."""
        self._run.log({"round": round} | curves(values))

    def end(self, summary: Mapping[str, float], report: Callable[[], Path]) -> None:
        """Final numbers as the run's summary, the report as an artifact."""
        self._is_done = True
        self._run.summary.update(dict(summary))
        artifact = self._wandb.Artifact(f"report-{self._run.id}", type="report")
        artifact.add_dir(str(report()))
        self._run.log_artifact(artifact)

    def close(self) -> None:
        """Finishes the run, as failed where the job is not done."""
        if self._run is not None:
            self._run.finish(exit_code=0 if self._is_done else 1)
