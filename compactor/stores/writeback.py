"""Has the system write a growing file to disk while it grows, so that little is left for the sync at its end
(the idea of RocksDB's `bytes_per_sync`)."""

from __future__ import annotations

import ctypes
from typing import BinaryIO, Final

from compactor.common.c_library import c_library

_STEP_BYTES: Final = 8 << 20
_SYNC_FILE_RANGE_WRITE: Final = 2


class Writeback:
    """The part of a file that is on its way to disk. Does nothing where the system has no call for it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._written = self._begun = 0

    def add(self, size: int) -> None:
        """Notes that `size` bytes were written, and begins to write back what has come together."""
        self._written += size
        if self._written - self._begun < _STEP_BYTES:
            return
        if (libc := c_library("sync_file_range")) is None:
            return
        self._file.flush()
        libc.sync_file_range(
            self._file.fileno(),
            ctypes.c_int64(self._begun),
            ctypes.c_int64(self._written - self._begun),
            ctypes.c_uint(_SYNC_FILE_RANGE_WRITE),
        )  # only a hint: the sync at the end tells of errors
        self._begun = self._written
