"""The data of the job before, for a job of the same sweep that has the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedclust.helpers.distributed import here
from fedclust.runtime.inputs import data_files

if TYPE_CHECKING:
    from fedclust.core.types import Federation

# what decides who owns which examples; files of data count as they look
_DECIDES = (
    "attack",
    "data",
    "dataset",
    "device",
    "features",
    "partition",
    "seeds",
    "task",
    "validation",
    "weights",
)


class SharedData:
    """Keeps the federations of one job: jobs of a sweep often differ in their methods alone.

    Neither processes that a launcher starts nor ranks share any: what one reads, all have to.
    """

    def __init__(self) -> None:
        self._of: dict[str, Any] | None = None
        self._federations: Mapping[int, Federation] | None = None

    def __reduce__(self) -> tuple[type[SharedData], tuple[()]]:
        return SharedData, ()

    def of(self, config: Mapping[str, Any]) -> Mapping[int, Federation] | None:
        """The data of a job by seed; None where they must be made, and then none is kept."""
        from fedclust.models.named import file_of  # and with it PyTorch

        asked = {key: config.get(key) for key in _DECIDES}
        asked |= {"files": data_files(config), "model.weights": file_of(config.get("model"))}
        if self._of != asked:
            self._of, self._federations = asked, None
        return self._federations

    def keep(self, federations: Mapping[int, Federation]) -> None:
        """Keep the data of the job that asked last."""
        if here().size == 1:
            self._federations = federations
