"""`fedclust example`: an example to start from, written into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedclust.config.tree import EXAMPLES
from fedclust.helpers.errors import ConfigError, did_you_mean, pasted, require


def command(arguments: Sequence[str]) -> None:
    """Write an example into a new folder, which is called like the example unless it is named."""
    known = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())
    if not arguments or len(arguments) > 2:
        raise ConfigError(
            f"fedclust example needs a name, of {', '.join(known)}; the folder to make may follow"
        )
    name, folder = arguments[0], Path(arguments[-1])
    if name not in known:
        meant = did_you_mean(name, known) or f"there are {', '.join(known)}"
        raise ConfigError(f"fedclust has no example {name}: {meant}")
    require(not folder.exists(), "folder", folder, "one that is not there yet")
    for file in (EXAMPLES / name).rglob("*"):  # copytree needs a file system with modes
        if file.is_file() and "__pycache__" not in file.parts:
            copy = folder / file.relative_to(EXAMPLES / name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    choice = next((folder / "algorithm").glob("*.yaml")).stem
    print(f"{folder}: see {folder / 'README.md'}; run it with")
    print(f"  fedclust run --config-dir {pasted(str(folder))} algorithm={choice}")
