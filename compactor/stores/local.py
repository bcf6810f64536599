"""A local folder as a store: the embedded default.

Objects appear by link or rename of a finished, synced file, so a crash leaves at most an invisible
file in the hidden `.tmp` folder. Keys are paths, so a key cannot also be another key's folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compactor.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
)
from compactor.stores.base import AbortOnError, ObjectInfo
from compactor.stores.keys import check_key

_TEMPORARY: Final = ".tmp"
_WRITE_BUFFER_BYTES: Final = 1 << 20


class LocalStore:
    """Objects as files under `root`, which is created with the first object. Picklable."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root).absolute()

    @property
    def url(self) -> str:
        return str(self._root)

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> LocalStream:
        with _explained(self._path(key)):
            stream = LocalStream(self._path(key), start)
        if if_match is not None and stream.etag != if_match:
            stream.close()
            raise ObjectChangedError(f"{self._path(key)}: the file was replaced while it was read")
        return stream

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        stream = self.open_stream(key, start=start, if_match=if_match)
        try:
            return stream.read_up_to(length)
        finally:
            stream.close()

    def read(self, key: str) -> bytes:
        with _explained(self._path(key)):
            return self._path(key).read_bytes()

    def head(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with _explained(path):
            status = path.stat()
            if not path.is_file():
                raise ObjectNotFoundError(f"{path}: it is a folder, not an object")
        return _info(key, status)

    def create(self, key: str, data: bytes) -> ObjectInfo:
        path = self._path(key)
        with _explained(path):
            temporary = self._temporary(path)
            try:
                with temporary.open("xb") as file:
                    file.write(data)
                    _sync(file.fileno())
                try:
                    os.link(temporary, path)
                except FileExistsError:
                    raise ObjectExistsError(f"{path}: it exists already") from None
                _sync_folder(path.parent)
            finally:
                temporary.unlink(missing_ok=True)
            return _info(key, path.stat())

    def start_upload(self, key: str) -> LocalUpload:
        path = self._path(key)
        with _explained(path):
            return LocalUpload(key, path, self._temporary(path))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        # Only the folder that the prefix names can hold matches.
        folder = prefix.rpartition("/")[0]
        top = self._root / folder if folder else self._root
        if folder and not top.is_dir():
            return
        yield from _walk(top, f"{folder}/" if folder else "", prefix, start_after)

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            with _explained(path):
                path.unlink(missing_ok=True)
        except ObjectNotFoundError:
            return

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _temporary(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = self._root / _TEMPORARY
        folder.mkdir(exist_ok=True)
        return folder / uuid.uuid4().hex


class LocalStream:
    """A file read forward."""

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._file = path.open("rb", buffering=0)
        status = os.fstat(self._file.fileno())
        self.etag = _etag(status)
        self.size_bytes = max(0, status.st_size - start)
        self._left = self.size_bytes
        self._file.seek(start)

    def read(self, max_bytes: int) -> bytes:
        with _explained(self._path):
            data = self._file.read(min(max_bytes, self._left)) if self._left else b""
        if self._left and not data:
            raise StoreUnreachableError(f"{self._path}: the file got shorter while it was read")
        self._left -= len(data)
        return data

    def read_up_to(self, length: int) -> bytes:
        """`length` bytes, fewer only at the end."""
        pieces = []
        while length and (piece := self.read(length)):
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self._file.close()


class LocalUpload(AbortOnError):
    """A temporary file that becomes the object by renaming."""

    max_buffered_bytes = _WRITE_BUFFER_BYTES

    def __init__(self, key: str, path: Path, temporary: Path) -> None:
        self._key, self._path, self._temporary = key, path, temporary
        self._file = temporary.open("xb", buffering=_WRITE_BUFFER_BYTES)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with _explained(self._path):
            self._file.write(data)

    def complete(self) -> ObjectInfo:
        with _explained(self._path):
            self._file.flush()
            _sync(self._file.fileno())
            self._file.close()
            self._temporary.replace(self._path)
            _sync_folder(self._path.parent)
            return _info(self._key, self._path.stat())

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


def _walk(folder: Path, base: str, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
    """Objects below `folder` whose keys begin with `base`, in byte order of key."""
    try:
        with _explained(folder), os.scandir(folder) as entries:
            # A folder sorts as its name with a slash, which is how its keys go on.
            names = sorted(
                (f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries),
                key=os.fsencode,
            )
    except ObjectNotFoundError:
        return
    for name in names:
        key = base + name
        if key == f"{_TEMPORARY}/" or not (key.startswith(prefix) or prefix.startswith(key)):
            continue
        after = start_after.encode() if start_after is not None else b""
        if name.endswith("/"):
            if key.encode() > after or after.startswith(key.encode()):
                yield from _walk(folder / name[:-1], key, prefix, start_after)
        elif key.startswith(prefix) and key.encode() > after:
            try:
                yield _info(key, (folder / name).stat())
            except FileNotFoundError:
                continue  # deleted since the folder was read


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, _etag(status), status.st_mtime)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"


def _sync(descriptor: int) -> None:
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns OSErrors into store errors that name the path, the cause and what to do."""
    try:
        yield
    except FileNotFoundError:
        raise ObjectNotFoundError(f"{path}: no such file") from None
    except PermissionError:
        raise PermissionDeniedError(
            f"{path}: permission denied: check owner and mode of the folder"
        ) from None
    except (IsADirectoryError, NotADirectoryError, FileExistsError):
        raise StoreError(
            f"{path}: a file is where a folder belongs, or the other way round: choose another folder"
        ) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"{path}: no space left on the device: free some and retry") from None
        if error.errno == errno.EROFS:
            raise PermissionDeniedError(f"{path}: the file system is read-only") from None
        raise StoreError(f"{path}: {error.strerror or error}") from error
