"""Flushes a file to disk while it grows, so that the final sync is short (as RocksDB's `bytes_per_sync`)."""

from __future__ import annotations

import ctypes
from typing import BinaryIO, Final

from compactor.common.c_library import c_library

_STEP_BYTES: Final = 8 << 20
_SYNC_FILE_RANGE_WRITE: Final = 2


class Writeback:
    """Starts writeback of a file step by step. Does nothing where the system has no call for it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._written = self._begun = 0

    def add(self, size: int) -> None:
        """Counts `size` written bytes, and starts writeback once a step is full."""
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
        )  # only a hint: the final sync reports errors
        self._begun = self._written
