"""Weights & Biases: one run per job, one metric per seed, drawn over the round."""

from __future__ import annotations

from collections.abc import Mapping

from fedclust.trackers import optional, series


class WandbTracker:
    """One W&B run.

    Args:
        project: the project's name.
        run: the run's name.
        folder: where W&B keeps its local files.
        mode: online, offline or disabled.
    """

    def __init__(self, project: str, run: str, folder: str, mode: str = "offline") -> None:
        wandb = optional("wandb", "wandb")
        self._run = wandb.init(project=project, name=run, dir=folder, mode=mode)
        self._run.define_metric("*", step_metric="round")

    def log(self, seed: int, round: int, values: Mapping[str, float]) -> None:  # noqa: A002
        """One history row, since seeds of one round come one after the other."""
        self._run.log(
            {"round": round} | {series(seed, name): value for name, value in values.items()}
        )

    def close(self) -> None:
        """Finishes the run."""
        self._run.finish()
