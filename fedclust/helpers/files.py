"""Files that are either the old ones or the new ones, never half of them; and what tells them
from damaged ones.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from fedclust.helpers.errors import DataError

_HALF = ".fedclust.tmp"  # ends the name of a file that is being written, and of no other
_BLOCK = 1 << 20  # bytes read at once
_LARGEST = 16 << 20  # bytes of a config or a record; those of a job are a thousandth of it
_DEEPEST, _MOST = 100, 100_000  # brackets inside each other, nodes
# of calls that a file system does not have: FUSE, Lustre, NFS, Windows drives in WSL, S3
LACKED = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
_BRACKETS, _ANCHOR = re.compile(rb"[][{}]"), re.compile(rb"(?:^|[\s:,\[{-])&\w", re.MULTILINE)


def atomic_write(path: Path, content: bytes | str) -> None:
    """Nothing; `path` holds `content` afterwards, or what it held before if anything goes wrong.

    The content goes to a temporary file of the same folder, is forced to the disk and renamed, so
    that a reader, a crash or a full disk never leaves half a file. Costs two fsyncs.

    Args:
        path: the file to write; its folder is made if need be.
        content: bytes, or text written as UTF-8.

    Raises:
        OSError: when the folder cannot be written or the disk is full; the old file is still there.
    """
    data = content.encode() if isinstance(content, str) else content
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file of the same folder, which is `path` when the block ends without an error.

    A process that is killed meanwhile leaves the temporary file behind; `is_litter` knows it.

    Raises:
        OSError: naming `path` where the system names the temporary file, which is gone by then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _replacing(path) as temporary:
            yield temporary
    except OSError as error:
        if str(error.filename).endswith(_HALF):
            error.filename, error.filename2 = str(path), None
        raise
    sync_folder(path.parent)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_HALF)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            sync(file.fileno())
        with where_there_is(errno.EPERM):  # some have one mode for all files
            temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def found_below(folder: Path, name: str) -> Path | None:
    """The first file of a name in a folder or below it; None where there is none."""
    return next((file for file in sorted(folder.rglob(name)) if file.is_file()), None)


def regular(path: Path) -> Path:
    """The path of a file of any kind and size that ends: no pipe, no device.

    Raises:
        OSError: naming it.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "is a pipe, a device or a folder", str(path))
    return path


def plain_file(path: Path, what: str, cure: str) -> Path:
    """The path of a file that can be read more than once, and ends.

    Args:
        path: of the file.
        what: begins the message, as in "csv: ".
        cure: what to do instead.

    Raises:
        DataError: there is none, or a folder, or a pipe, whose reader may wait for ever.
    """
    if path.is_file():
        return path
    looks = "is a folder" if path.is_dir() else "not found"
    if path.exists() and not path.is_dir():
        looks = "is a pipe or a device: save what it gives as a file"
    raise DataError(f"{what}{path} {looks}: {cure}")


def harmless(path: Path) -> Path:
    """The path of a small text file, which a reader takes no more time and memory for than it
    looks: no pipe, not large, not deeply nested, no aliases that expand to much more.

    Raises:
        OSError: naming the file.
    """
    looks = regular(path).stat()
    if looks.st_size > _LARGEST:
        raise OSError(errno.EFBIG, f"is larger than {_LARGEST >> 20} MB", str(path))
    text = path.read_bytes()
    if _too_deep(text) or (_ANCHOR.search(text) and _expanded(text) > _MOST):
        raise OSError(errno.EINVAL, "is nested too deeply, or expands to too much", str(path))
    return path


def read_text(path: Path) -> str:
    """The text of a `harmless` file.

    Raises:
        OSError: naming the file, also where it is no UTF-8.
    """
    try:
        return harmless(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OSError(errno.EINVAL, "is no text in UTF-8: save it as such", str(path)) from error


def _too_deep(text: bytes) -> bool:
    """Whether mappings and lists lie in each other more than `_DEEPEST` times.

    Brackets are counted first, which is cheap; those in texts, such as [0, 1), are none.
    """
    import yaml

    most = 0
    for bracket in _BRACKETS.findall(text):
        most += 1 if bracket in b"[{" else -1
        if most > _DEEPEST:
            break
    else:
        return False
    depth = 0
    try:  # events come one by one, however deep they lie
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                return True
    except yaml.YAMLError:
        return True  # as far as it can be told
    return False


def _expanded(text: bytes) -> int:
    """Nodes of a YAML text when every alias is replaced by what it stands for."""
    import yaml

    sizes: dict[int, int] = {}

    def size(node: yaml.Node | None) -> int:
        if node is None or isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = _MOST + 1  # of a node inside itself
            below = chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
            sizes[id(node)] = min(1 + sum(map(size, below)), _MOST + 1)
        return sizes[id(node)]

    try:
        return size(yaml.compose(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return 0  # whoever reads it says what is wrong


def is_litter(path: Path) -> bool:
    """Whether a file is one that `replacing` left when its process was killed."""
    return path.name.startswith(".") and path.name.endswith(_HALF) and path.is_file()


def sync_folder(folder: Path) -> None:
    """The names in `folder` are on the disk afterwards, where the system can promise that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # a system that cannot open folders cannot sync them either
        return
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync(descriptor: int) -> None:
    """What an open file or folder holds is on the disk afterwards, where the file system can
    promise that.

    Raises:
        OSError: when the disk is full or broken.
    """
    with where_there_is():
        os.fsync(descriptor)


@contextmanager
def where_there_is(*more: int) -> Iterator[None]:
    """A precaution that a file system may lack: then the block does nothing.

    Args:
        more: further error numbers by which such a file system says so.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (*LACKED, *more):
            raise


class Sealed(NamedTuple):
    """The first bytes of a file, told by their number and digest; a file may grow behind them.

    Attributes:
        size: bytes.
        digest: of those bytes, see `new_digest`.
    """

    size: int
    digest: str

    def fits(self, path: Path) -> bool:
        """Whether the file still begins with those bytes."""
        return sealed_file(path, self.size) == self


def new_digest() -> hashlib.blake2b:
    """A digest of nothing yet; BLAKE2 is as fast on processors without instructions for SHA."""
    return hashlib.blake2b(digest_size=16)


def sealed_file(path: Path, size: int | None = None) -> Sealed | None:
    """The seal of a file, or of its first `size` bytes; None where it cannot be read."""
    digest, left = new_digest(), size
    count = 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK if left is None else min(_BLOCK, left)):
                digest.update(block)
                count += len(block)
                left = None if left is None else left - len(block)
    except OSError:
        return None
    return Sealed(count, digest.hexdigest())


def sealed_json(content: Mapping[str, Any]) -> str:
    """A mapping as text that ends with its own digest under `seal`."""
    plain = json.loads(json.dumps(content))
    return json.dumps({**plain, "seal": _seal(plain)}, indent=2) + "\n"


def opened_json(text: str | bytes, *keys: str) -> dict[str, Any] | None:
    """What `sealed_json` wrote, without the seal; None where a value has changed.

    Args:
        text: of the file.
        keys: what it has to hold, or it is another file under this name.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.pop("seal", None) != _seal(content):
        return None
    return content if set(keys) <= set(content) else None


def _seal(plain: Mapping[str, Any]) -> str:
    digest = new_digest()
    digest.update(json.dumps(plain, sort_keys=True).encode())
    return digest.hexdigest()


def _umask() -> int:
    """The process's umask, by which results are as readable as any other file."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
