"""The data of jobs before, for a job of the same sweep that has the same."""

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
_MOST = 64 << 20  # bytes of the data of earlier jobs


class SharedData:
    """Keeps the federations of jobs: those of a sweep often differ in their methods alone.

    Those of the last job stay until others are asked for. Then they stay as long as all that are
    kept are small, so that jobs of few seeds in turn find theirs again, and large ones are never in
    memory twice. Neither processes that a launcher starts nor ranks share any: what one reads, all
    have to.
    """

    def __init__(self) -> None:
        self._asked = ""
        self._kept: dict[str, Mapping[int, Federation]] = {}  # the last one asked for is the last

    def __reduce__(self) -> tuple[type[SharedData], tuple[()]]:
        return SharedData, ()

    def of(self, config: Mapping[str, Any]) -> Mapping[int, Federation] | None:
        """The data of a job by seed; None where they must be made, and then no large ones stay."""
        from fedclust.models.named import file_of  # and with it PyTorch

        asked = {key: config.get(key) for key in _DECIDES}
        asked |= {"files": data_files(config), "model.weights": file_of(config.get("model"))}
        self._asked = repr(asked)
        found = self._kept.pop(self._asked, None)
        if found is not None:
            self._kept[self._asked] = found
        while found is None and sum(map(_bytes, self._kept.values())) > _MOST:
            del self._kept[next(iter(self._kept))]
        return found

    def keep(self, federations: Mapping[int, Federation]) -> None:
        """Keep the data of the job that asked last."""
        if here().size == 1:
            self._kept[self._asked] = federations


def _bytes(federations: Mapping[int, Federation]) -> int:
    """What the examples of federations of one pool take, and the tables of who owns which."""
    pool = next(iter(federations.values())).pool
    splits = (split for fed in federations.values() for split in fed.splits.values())
    return int(pool.x.nbytes + pool.y.nbytes + sum(split.index.nbytes for split in splits))
