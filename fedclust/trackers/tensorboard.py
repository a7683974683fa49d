"""TensorBoard: an event folder per seed and one for their mean, which has the config as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedclust.core.tracker import About, Parameter
from fedclust.trackers import mean, optional


class TensorBoardTracker:
    """Event files under `folder/<seed>` and `folder/mean`.

    Args:
        folder: where the event files go; a run that continues adds files, TensorBoard joins them.
    """

    def __init__(self, folder: str) -> None:
        # torch's SummaryWriter is a thin layer on the package `tensorboard`, whose absence it
        # reports
        self._open = optional("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self._folder = Path(folder)
        self._writers: dict[str, Any] = {}
        self._parameters: dict[str, Parameter] = {}

    def begin(self, about: About) -> None:
        """Remembers the config for the end, when its metrics are known."""
        tags = {f"tags.{name}": value for name, value in about.tags.items()}
        self._parameters = {**about.parameters, **tags}

    def log(self, round: int, values: Mapping[int, Mapping[str, float]]) -> None:  # noqa: A002
        """Adds one point per seed and metric, and their mean."""
        self._add("mean", round, mean(values))
        for seed, of_seed in values.items():
            self._add(f"seed={seed}", round, of_seed)

    def _add(self, name: str, step: int, values: Mapping[str, float]) -> None:
        for metric, value in values.items():
            self._writer(name).add_scalar(metric, value, step)

    def _writer(self, name: str) -> Any:
        if name not in self._writers:
            self._writers[name] = self._open(str(self._folder / name))
        return self._writers[name]

    def end(self, summary: Mapping[str, float], report: Callable[[], Path]) -> None:
        """Hyper-parameters with the final numbers; tables as text, figures as images."""
        from matplotlib.image import imread

        writer, folder = self._writer("mean"), report()
        writer.add_hparams(self._parameters, dict(summary), run_name=".")
        for table in sorted(folder.glob("*.md")):
            writer.add_text(f"report/{table.stem}", table.read_text(encoding="utf-8"))
        for figure in sorted((folder / "figures").glob("*.png")):
            writer.add_image(f"report/{figure.stem}", imread(figure), dataformats="HWC")

    def close(self) -> None:
        """Closes the event files."""
        for writer in self._writers.values():
            writer.close()
