"""The sizes of an experiment or case stand below `scales` of its file; Hydra finds them as files.

    scales:
      laptop: # 120 clients, 3 seeds
        costs: {hours: 0.5, gigabytes: 1.2} # of one core for all jobs; of memory for the largest
        seeds: 3

`scale=laptop` puts that block over the experiment and below what is typed, as a file
`scaled/experiment/NAME/laptop.yaml` would be: the defaults list of `conf/config.yaml` asks for it.
"""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from fedclust.config import about
from fedclust.config.read import read_config
from fedclust.config.tree import CONF
from fedclust.helpers.errors import require
from fedclust.helpers.files import read_text
from fedclust.helpers.private import (
    FileConfigSource,
    SourcesRegistry,
    create_config_search_path,
    header_of,
    normalised,
)

KEY = "scales"
COSTS = "costs"  # of a block: what was measured of it, for `fedclust list experiment`
VIRTUAL = "scaled"  # the folder that is not there
NONE = "none"  # the choice that sets nothing: Hydra 1.4 puts only texts into `${experiment}/…`
WITH_NONE = ("experiment", "case")  # the groups that have it, without a file


class SizedFiles(FileConfigSource):
    """The files of a config tree without `scales` and `about`, and each block as a file."""

    @staticmethod
    def scheme() -> str:
        """What an entry of the search path begins with."""
        return "sized"

    def is_config(self, config_path: str) -> bool:
        """Whether there is such a file or block."""
        return self._block(config_path) is not None or super().is_config(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        """The block, or the file without its blocks."""
        block = self._block(config_path)
        if block is not None:
            return ConfigResult(
                config=OmegaConf.create(block),
                path=self.full_path(),
                provider=self.provider,
                header={"package": "_global_"},
            )
        file = Path(self.path, normalised(self, config_path))
        if not file.exists():
            return super().load_config(config_path)  # which raises Hydra's error
        stat, is_method = file.stat(), config_path.startswith("algorithm/")
        config, start = pickle.loads(_parsed(file, stat.st_mtime_ns, stat.st_size, is_method))
        return ConfigResult(
            provider=self.provider,
            path=self.full_path(),
            config=config,
            header=header_of(self, start),
        )

    def _block(self, config_path: str) -> dict[str, Any] | None:
        """What `scaled/KIND/NAME/SCALE` or `KIND/none` stands for; None for any other path."""
        parts = Path(normalised(self, config_path)).with_suffix("").parts
        if parts in [(group, NONE) for group in WITH_NONE]:
            return {}
        if len(parts) < 4 or parts[0] != VIRTUAL:
            return None
        file = Path(self.path, *parts[1:-1]).with_suffix(".yaml")
        block = scales_of(file).get(parts[-1])
        return block and {key: value for key, value in block.items() if key != COSTS}


def scales_of(file: Path) -> dict[str, Any]:
    """The blocks of an experiment's or a case's file by scale; ConfigError for anything else."""
    if not file.is_file():
        return {}
    stat = file.stat()
    return _read(file, stat.st_mtime_ns, stat.st_size)


@cache
def _read(file: Path, changed: int, size: int) -> dict[str, Any]:
    del changed, size  # a file that is edited between two runs of a notebook is read anew
    text = read_text(file)
    node = read_config(file) if f"\n{KEY}:" in text else None
    blocks = (node.get(KEY) or {}) if isinstance(node, dict) else {}
    fits = isinstance(blocks, dict) and all(isinstance(one, dict) for one in blocks.values())
    require(fits, f"{file}: {KEY}", blocks, "of every scale the keys that it sets")
    return blocks


@cache
def _parsed(file: Path, changed: int, size: int, is_method: bool) -> bytes:
    """A file without `scales` and `about`, pickled: reading YAML takes ten times as long."""
    del changed, size
    node = read_config(file) or {}
    if isinstance(node, dict):
        node.pop(KEY, None)
        if is_method and about.is_told(node):
            node.pop(about.KEY)
    with file.open(encoding="utf-8") as stream:
        start = stream.read(512)
    return pickle.dumps((OmegaConf.create(node), start))


class _InFront(SearchPathPlugin):
    """Our tree is read through `SizedFiles`, whoever composes."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Called by Hydra for every search path it makes."""
        search_path.prepend("fedclust", address(CONF))


def address(tree: Path) -> str:
    """A config tree as an entry of Hydra's search path."""
    return f"{SizedFiles.scheme()}://{tree}"


def search_path(own: Path | None) -> ConfigSearchPath:
    """Where Hydra looks for files: our tree, then a user's own.

    Raises:
        ConfigError: if a file of the user's has the name of one of ours, which Hydra would read in
            its place.
    """
    path = create_config_search_path(str(CONF))
    if own is not None:
        for name in _choices():
            what = "another name: fedclust has a choice of this one"
            require(not (own / name).is_file(), "--config-dir", own / name, what)
        path.prepend(provider="command-line", path=address(own), anchor="schema")
    return path


@cache
def _choices() -> list[Path]:
    """The files of our groups; a user's search spaces are read before ours of the same name."""
    files = (file.relative_to(CONF) for file in CONF.glob("*/**/*.yaml"))
    return [file for file in files if file.parts[0] != "space"]


def register() -> None:
    """Make Hydra read config trees so; again without effect."""
    SourcesRegistry.instance().register(SizedFiles)
    Plugins.instance().register(_InFront)
