"""Reads an input that is a local file in the thread that merges it, a piece at a time.

There is no connection to keep busy, and the system reads files ahead by itself; a thread for each of hundreds
of small files would take longer than reading them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from compactor.resources.budget import MemoryBudget
from compactor.resources.fetch import FETCH_STAGE, ClosableSource


class NearSource:
    """A byte source that holds one piece of a local file. Use it from the thread that charges the budget."""

    def __init__(
        self, open_source: Callable[[], ClosableSource], piece_bytes: int, budget: MemoryBudget
    ) -> None:
        """open_source: called with the first read."""
        self._open_source = open_source
        self._piece_bytes = piece_bytes
        self._budget = budget
        self._source: ClosableSource | None = None
        self._charged = 0
        self._piece = b""
        self._at = 0
        """How many bytes of the piece were read."""
        self.wait_seconds = 0.0
        """Time that `read` spent reading the file."""

    def read(self, max_bytes: int, /) -> bytes:
        """Returns up to `max_bytes` bytes; b"" at the end."""
        start, end = self._at, self._at + max_bytes
        if start == len(self._piece):
            if max_bytes >= self._piece_bytes:
                return self._read(max_bytes)
            self._piece, start, end = self._read(self._piece_bytes), 0, max_bytes
        if end < len(self._piece):
            self._at = end
            return self._piece[start:end]
        data = self._piece[start:]
        self._piece, self._at = b"", 0
        return data

    def close(self) -> None:
        """Closes the file. Idempotent."""
        self._piece, self._at = b"", 0
        self._budget.discharge(FETCH_STAGE, self._charged)
        self._charged = 0
        if self._source is not None:
            self._source.close()

    def _read(self, size: int) -> bytes:
        started = time.perf_counter()
        if self._source is None:
            self._budget.charge(FETCH_STAGE, self._piece_bytes)
            self._charged = self._piece_bytes
            self._source = self._open_source()
        data = self._source.read(size)
        self.wait_seconds += time.perf_counter() - started
        return data
