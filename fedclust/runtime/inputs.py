"""Digests of files that a config names: a user's own code, and files of data."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from fedclust.helpers.files import new_digest, sealed_file

_DATA = ("dataset", "partition", "features", "weights")  # the parts that read files of data


def code_of(config: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Digests of the Python files in a folder that a job uses, by their paths in it.

    Counted are modules that a `_target_` names and those of the folder they import, unexecuted.
    """
    files: dict[str, Path] = {}
    left = [str(value).rpartition(".")[0] for key, value in _entries(config) if key == "_target_"]
    while left:
        for module, file in _files_of(left.pop(), folder):
            if module not in files:
                files[module] = file
                left += _imported(file, module)
    seals = {str(file.relative_to(folder)): sealed_file(file) for file in files.values()}
    return {name: seal.digest[:16] for name, seal in sorted(seals.items()) if seal}


def data_files(config: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the sizes and times of change of the files of data that a config names, by key.

    Counted is any path of a file at `weights`, `model.weights` or below `dataset`, `partition` or
    `features`, and of a folder at a `path`. It takes a system call per file: after another
    digest one has to read.
    """
    named = [
        (key, value) for part in _DATA for key, value in _entries(config.get(part), part) if value
    ]
    named += [one for one in _entries(config.get("model"), "model") if one[0] == "model.weights"]
    looks = {key: _looks(Path(value), key.endswith(".path")) for key, value in named}
    return {key: digest for key, digest in looks.items() if digest}


def _entries(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text below a node, with its key; `_target_` by that name alone."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            inner = str(name) if name == "_target_" or not key else f"{key}.{name}"
            yield from _entries(value, inner)
    elif isinstance(node, list):
        for place, value in enumerate(node):
            yield from _entries(value, f"{key}[{place}]")
    elif isinstance(node, str):
        yield key, node


def _looks(path: Path, may_be_folder: bool) -> str:
    """Digest of the name, size and time of change of a file, or of a folder's files; "" if none."""
    digest, files = new_digest(), list[Path]()
    with suppress(OSError):  # gone since it was listed, or no path at all
        if path.is_file():
            files = [path]
        elif may_be_folder:
            files = sorted(Path(at, name) for at, _, names in os.walk(path) for name in names)
        for file in files:
            stat = file.stat()
            name = file.relative_to(path)
            text = f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\0"
            digest.update(os.fsencode(text))  # names need not be UTF-8
    return digest.hexdigest() if files else ""


def _files_of(module: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The module and the packages around it, as far as the folder has files of them."""
    parts = module.split(".")
    if parts[0] == "fedclust":  # the package itself, where the folder is its checkout
        return
    for end in range(1, len(parts) + 1):
        name, stem = ".".join(parts[:end]), folder.joinpath(*parts[:end])
        for file in (stem / "__init__.py", stem.with_suffix(".py")):
            if file.is_file():
                yield name, file
                break


def _imported(file: Path, module: str) -> Iterator[str]:
    """The modules that a file may import; what it takes out of one may be a module, too."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # it cannot be imported either
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                with suppress(ImportError):  # above the package
                    base = resolve_name("." * node.level + base, package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
