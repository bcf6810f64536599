"""A local folder as a store: the embedded default.

Objects appear by link or rename of a complete, synced file, so a crash leaves at most a file in the hidden
folder `.tmp` on the same file system. Keys are paths, so no key can be a folder of another.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from compactor.common.c_library import c_library
from compactor.errors import ObjectChangedError, StoreError, StoreUnreachableError, UsageError
from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import UploadMemory
from compactor.stores.base import (
    ObjectInfo,
    Store,
    StoreTime,
    UnfinishedUpload,
    UploadScope,
    check_size,
)
from compactor.stores.keys import HIDDEN_FOLDER, check_key, check_prefix, is_text
from compactor.stores.local_files import (
    explained,
    link_new,
    make_folder,
    open_regular,
    open_unlinked,
    rename_over,
    walk,
)

_WRITE_BUFFER_BYTES: Final = 64 << 10
_WRITEBACK_BYTES: Final = 8 << 20
_SYNC_FILE_RANGE_WRITE: Final = 2
_ABSENT: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""Errors that mean an absent key: no file, a folder in its place, or a file in place of a parent."""

_TEMPORARY: Final = re.compile("[0-9a-f]{32}")
"""Names of unfinished files; ignore other files in the hidden folder."""

Publish = Callable[[Path, Path], None]
"""Publishes a complete file under its name, by link or rename."""


class LocalStore:
    """Objects as files under `root`, which the first write creates. Picklable."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root).absolute()

    @property
    def url(self) -> str:
        return str(self._root)

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> LocalStream:
        path = self._path(key)
        with explained(path, absent=_ABSENT):
            stream = LocalStream(path, start)
        if if_match is not None and stream.etag != if_match:
            stream.close()
            raise ObjectChangedError(f"{path}: the file was replaced while it was read")
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
        path = self._path(key)
        with explained(path, absent=_ABSENT), os.fdopen(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            check_size(size, str(path))
            return file.read(size)

    def head(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with explained(path, absent=_ABSENT):
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError
        return _info(key, status)

    def create(self, key: str, data: bytes) -> ObjectInfo:
        with self._upload(key, link_new) as upload:
            upload.write(data)
            return upload.complete()

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> LocalUpload:  # noqa: ARG002
        return self._upload(key, rename_over)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        with explained(self._root):
            if self._root.is_file():
                raise NotADirectoryError
        # All matches are in the folder named by the prefix.
        base = prefix[: prefix.rfind("/") + 1]
        for key, status in walk(self._root / base, base, prefix, start_after or ""):
            yield _info(key, status)

    def folders(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        base = self._root / prefix
        with (
            explained(base),
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(base) as entries,
        ):
            names = sorted(entry.name for entry in entries if entry.is_dir())
            yield from (name for name in names if name != HIDDEN_FOLDER and is_text(name))

    def within(self, path: str) -> LocalStore:
        return LocalStore(self._root / check_key(path) if path else self._root)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with explained(path), contextlib.suppress(*_ABSENT):
            path.unlink()

    def time(self) -> StoreTime | None:
        """Returns the timestamp of a new file, which a file server takes from its own clock."""
        name = uuid.uuid4().hex
        try:
            with open_unlinked(self._root / HIDDEN_FOLDER) as folder:
                if folder is None:
                    return None
                file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=folder)
                try:
                    made_ns = os.fstat(file).st_mtime_ns
                finally:
                    os.close(file)
                    os.unlink(name, dir_fd=folder)
        except OSError:
            return None
        return StoreTime(made_ns // 1_000_000, is_independent=False)

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        hidden = self._root / HIDDEN_FOLDER
        with explained(hidden), open_unlinked(hidden) as folder:
            if folder is None:
                return
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if _TEMPORARY.fullmatch(entry.name))
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield UnfinishedUpload(name, status.st_mtime)

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        if not _TEMPORARY.fullmatch(upload.token):
            raise UsageError(f"{upload.token!r} is not the token of an unfinished upload")
        hidden = self._root / HIDDEN_FOLDER
        with (
            explained(hidden / upload.token),
            open_unlinked(hidden) as folder,
            contextlib.suppress(FileNotFoundError),
        ):
            if folder is not None:
                os.unlink(upload.token, dir_fd=folder)

    def _upload(self, key: str, publish: Publish) -> LocalUpload:
        path, hidden = self._path(key), self._root / HIDDEN_FOLDER
        with explained(path):
            if hidden.is_symlink():
                raise StoreError(
                    f"{hidden}: it is a link, but unfinished files belong into a folder beside the "
                    "finished ones: remove the link"
                )
            make_folder(hidden)
            return LocalUpload(key, path, hidden / uuid.uuid4().hex, publish)

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)


class LocalStream:
    """A forward read of a file. Closes it after the last byte, since a merge opens hundreds at once."""

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._file = os.fdopen(open_regular(path), "rb", buffering=0)
        status = os.fstat(self._file.fileno())
        self.etag = _etag(status)
        self.size_bytes = max(0, status.st_size - start)
        self._left = self.size_bytes
        self._file.seek(start)

    def read(self, max_bytes: int) -> bytes:
        with explained(self._path):
            data = self._file.read(min(max_bytes, self._left)) if self._left else b""
        if self._left and not data:
            raise StoreUnreachableError(f"{self._path}: the file got shorter while it was read")
        self._left -= len(data)
        if not self._left:
            self._file.close()
        return data

    def read_up_to(self, length: int) -> bytes:
        """Reads `length` bytes, fewer only at the end."""
        pieces = []
        while length and (piece := self.read(length)):
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self._file.close()


class LocalUpload(UploadScope):
    """A temporary file that `complete` publishes as the object."""

    max_buffered_bytes = _WRITE_BUFFER_BYTES

    def __init__(self, key: str, path: Path, temporary: Path, publish: Publish) -> None:
        self._key, self._path, self._temporary = key, path, temporary
        self._publish = publish
        self._file = temporary.open("xb", buffering=_WRITE_BUFFER_BYTES)
        self._writeback = _Writeback(self._file)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with explained(self._path):
            self._writeback.add(self._file.write(data))

    def spill(self, disk: LocalDisk) -> None:
        """Does nothing: the data is on disk already."""

    def complete(self) -> ObjectInfo:
        with explained(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            status = os.fstat(self._file.fileno())
            self._file.close()
            make_folder(self._path.parent)
            self._publish_unless_discarded()
        return _info(self._key, status)

    def _publish_unless_discarded(self) -> None:
        try:
            self._publish(self._temporary, self._path)
        except FileNotFoundError:
            raise StoreError(
                f"{self._path}: the unfinished file was removed meanwhile, perhaps by a vacuum: try "
                "again"
            ) from None

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with explained(self._path):
            self._temporary.unlink(missing_ok=True)


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, _etag(status), status.st_mtime)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"


def is_on_local_disk(store: Store) -> bool:
    """Returns whether objects are local files, which cost no request to read again."""
    return isinstance(store, LocalStore)


class _Writeback:
    """Flushes a file to disk while it grows, so that the final sync is short (as RocksDB's `bytes_per_sync`).

    Does nothing where the system has no call for it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._written = self._begun = 0

    def add(self, size: int) -> None:
        """Counts `size` written bytes, and starts writeback once a step is full."""
        self._written += size
        if self._written - self._begun < _WRITEBACK_BYTES:
            return
        if (libc := c_library("sync_file_range")) is None:
            return
        self._file.flush()
        libc.sync_file_range(
            self._file.fileno(),
            ctypes.c_int64(self._begun),
            ctypes.c_int64(self._written - self._begun),
            ctypes.c_uint(_SYNC_FILE_RANGE_WRITE),
        )  # only a hint: the final sync reports errors
        self._begun = self._written
