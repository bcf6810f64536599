"""Local disk for what memory does not hold: one unnamed file, in regions."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from compactor.common.system_errors import cause_and_advice
from compactor.resources.errors import LocalDiskError

_SMALLEST: Final = 4 << 10
_LARGE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Region:
    """A piece of the file. `size` is what was asked for."""

    offset: int
    size: int


class LocalDisk:
    """Regions of a temporary file that has no name, so that it goes with the process whatever happens.

    Thread-safe. Freed regions are used again; regions not written yet take no room. Raises
    `LocalDiskError` when the disk is full or fails.
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
        """In all, whether freed since or not."""

    @property
    def directory(self) -> str:
        try:
            return self._directory or tempfile.gettempdir()
        except OSError:
            return "the folder for temporary files, of which there is none"

    def free_bytes(self) -> int:
        """What the file system has room for. 0 if it can't be told."""
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
        """Puts `data` at byte `at` of the region."""
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
                f"cannot put {view.nbytes:,} bytes aside in {self.directory}: "
                f"{cause_and_advice(error, 'make room there')}, or name another folder by --spool-directory"
            ) from error
        with self._lock:
            self.written_bytes += view.nbytes

    def read(self, region: Region, at: int = 0, size: int | None = None) -> bytes:
        """`size` bytes (by default all) from byte `at` of the region on."""
        left = region.size - at if size is None else size
        position, pieces = region.offset + at, []
        try:
            with self._opened() as file:
                while left:
                    piece = os.pread(file, left, position)
                    if not piece:
                        raise LocalDiskError(f"what was put aside in {self.directory} is not there")
                    pieces.append(piece)
                    position, left = position + len(piece), left - len(piece)
        except OSError as error:
            raise LocalDiskError(
                f"cannot read back what was put aside in {self.directory}: {error.strerror}"
            ) from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Gives the room back; whoever comes later gets an error. Idempotent."""
        with self._lock:
            self._closed = True
            self._lock.wait_for(lambda: not self._in_use)
            file, self._file = self._file, None
        if file is not None:
            os.close(file)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The file's descriptor, which stays valid meanwhile: closed, its number could be another file's."""
        with self._lock:
            if self._closed:
                raise LocalDiskError(
                    "what was put aside is gone: the work that needed it has ended"
                )
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
    """Powers of two, and multiples of 1 MiB: few enough sizes that what is freed fits again."""
    if size >= _LARGE:
        return -(-size // _LARGE) * _LARGE
    return max(_SMALLEST, 1 << (size - 1).bit_length())
