"""Reads the bytes of a pipe or device soon after they come."""

from __future__ import annotations

import select
import time
from pathlib import Path
from typing import Final

_MAX_WAIT_SECONDS: Final = 0.1
"""Pass on what has come after this time: rows are seen soon, and those of a fast writer in large blocks."""
_MIN_START: Final = 4
"""Wait for as many bytes at the beginning: a byte order mark, and one more."""


class ArrivingBytes:
    """The bytes of a stream: a read waits for the first byte, and but a moment for those after it."""

    def __init__(self, path: Path) -> None:
        """Waits for a writer, if the path is that of a FIFO."""
        self._file = path.open("rb", buffering=0)
        self._coming = select.poll()
        self._coming.register(self._file, select.POLLIN)
        self._least = _MIN_START
        self._is_ended = False

    def read(self, size: int = -1, /) -> bytes:
        """Returns up to `size` bytes, and none only at the end."""
        if size < 0:
            return self._file.readall()
        data, until = bytearray(), time.monotonic() + _MAX_WAIT_SECONDS
        while len(data) < size and (len(data) < self._least or self._comes_until(until)):
            if self._is_ended or not (piece := self._file.read(size - len(data))):
                self._is_ended = True
                break
            if not data:
                until = time.monotonic() + _MAX_WAIT_SECONDS
            data += piece
        self._least = 1
        return bytes(data)

    def _comes_until(self, until: float) -> bool:
        left = until - time.monotonic()
        return left > 0 and bool(self._coming.poll(left * 1000))

    def close(self) -> None:
        self._file.close()
