"""The configs of a sweep's jobs, each composed once."""

from __future__ import annotations

import pickle
import zlib
from pathlib import Path

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import DictConfig, OmegaConf

from fedclust.launch.launchers import is_basic
from fedclust.launch.scales import search_path


class SweepLoader(ConfigLoaderImpl):
    """What composes the configs of jobs, each once where the jobs run in this process.

    Hydra composes every job to see whether it can be, and again to run it: two to three tenths of
    a second each time. Here the first config is kept until the job is started, so that a file that
    changes during a sweep changes none of its jobs.

    Args:
        own: the folder given with --config-dir.
    """

    def __init__(self, own: Path | None) -> None:
        super().__init__(config_search_path=search_path(own))
        self._kept: dict[tuple[str, ...], bytes] = {}  # compressed: objects of a config take 1 MB

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        """The config of one job of a sweep; the second time the one of before."""
        job = tuple(sweep_overrides)
        if (kept := self._kept.pop(job, None)) is not None:
            config: DictConfig = pickle.loads(zlib.decompress(kept))
        else:
            config = super().load_sweep_config(master_config, sweep_overrides)
            if is_basic(master_config.hydra.launcher):  # others compose where they run
                self._kept[job] = zlib.compress(pickle.dumps(config), level=1)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config
