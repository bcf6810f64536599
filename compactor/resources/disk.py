"""Spills to local disk: one unnamed file, divided into regions."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from compactor.common.counts import counted
from compactor.common.setting_keys import SPOOL_DIRECTORY
from compactor.common.system_errors import cause_and_advice
from compactor.resources.errors import LocalDiskError

_SMALLEST: Final = 4 << 10
_LARGE: Final = 1 << 20


class Region(Struct, frozen=True):
    """A piece of the file. `size` is the requested size."""

    offset: int
    size: int


class LocalDisk:
    """A temporary file without a name, which disappears with the process, divided into regions.

    Thread-safe. Released regions are reused; unwritten regions take no space. Raises `LocalDiskError` when
    the disk is full or fails.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        self._file: int | None = None
        self._end = 0
        self._free: dict[int, list[int]] = {}
        self._in_use = 0
        self._closed = False
        self._lock = threading.Condition()
        self.written_bytes = 0
        """Bytes written so far, including regions released since."""

    @property
    def directory(self) -> str:
        try:
            return self._directory or tempfile.gettempdir()
        except OSError:
            return "the folder for temporary files, of which there is none"

    def free_bytes(self) -> int:
        """Returns the free bytes of the file system; 0 if unknown."""
        try:
            status = os.statvfs(self.directory)
        except OSError:
            return 0
        return status.f_bavail * status.f_frsize

    def allocate(self, size: int) -> Region:
        room = _rounded(size)
        with self._lock:
            free = self._free.get(room)
            if free:
                return Region(free.pop(), size)
            offset, self._end = self._end, self._end + room
        return Region(offset, size)

    def release(self, region: Region) -> None:
        with self._lock:
            self._free.setdefault(_rounded(region.size), []).append(region.offset)

    def write(self, region: Region, data: bytes | bytearray | memoryview, at: int = 0) -> None:
        """Writes `data` at byte `at` of the region. Raises `LocalDiskError`."""
        view = memoryview(data).cast("B")
        assert at + view.nbytes <= region.size
        position, left = region.offset + at, view
        try:
            with self._opened() as file:
                while left:
                    count = os.pwrite(file, left, position)
                    position, left = position + count, left[count:]
        except OSError as error:
            raise LocalDiskError(
                f"cannot spill {counted(view.nbytes, 'byte')} to {self.directory}: "
                f"{cause_and_advice(error, 'make room there')}, or name another folder by ",
                SPOOL_DIRECTORY,
            ) from error
        with self._lock:
            self.written_bytes += view.nbytes

    def read(self, region: Region, at: int = 0, size: int | None = None) -> bytes:
        """Returns `size` bytes (by default all) from byte `at` of the region on. Raises `LocalDiskError`."""
        left = region.size - at if size is None else size
        position, pieces = region.offset + at, []
        try:
            with self._opened() as file:
                while left:
                    piece = os.pread(file, left, position)
                    if not piece:
                        raise LocalDiskError(f"data spilled to {self.directory} is missing")
                    pieces.append(piece)
                    position, left = position + len(piece), left - len(piece)
        except OSError as error:
            raise LocalDiskError(
                f"cannot read back data spilled to {self.directory}: {error.strerror}"
            ) from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Frees the disk space; later reads and writes raise `LocalDiskError`. Idempotent."""
        with self._lock:
            self._closed = True
            self._lock.wait_for(lambda: not self._in_use)
            file, self._file = self._file, None
        if file is not None:
            os.close(file)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Yields the open descriptor of the file, which no other file can get meanwhile."""
        with self._lock:
            if self._closed:
                raise LocalDiskError("spilled data is gone: the work that needed it has ended")
            if self._file is None:
                with tempfile.TemporaryFile(dir=self._directory) as named:
                    self._file = os.dup(named.fileno())
            self._in_use += 1
            file = self._file
        try:
            yield file
        finally:
            with self._lock:
                self._in_use -= 1
                self._lock.notify_all()


def _rounded(size: int) -> int:
    """Rounds a size up to a power of two, or a multiple of 1 MiB, so that released regions fit again."""
    if size >= _LARGE:
        return -(-size // _LARGE) * _LARGE
    return max(_SMALLEST, 1 << (size - 1).bit_length())
