"""Reads an input that is a local file in the thread that merges it.

There is no connection to keep busy, and the system reads files ahead by itself; a thread for each of hundreds
of small files would take longer than reading them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from compactor.resources.budget import MemoryBudget
from compactor.resources.fetch import ClosableSource
from compactor.resources.merge_stages import FETCH
from compactor.resources.reservation import Reservation


class NearSource:
    """A byte source of a local file. Use it from the thread that reserves memory.

    Its reader must read `piece_bytes` at a time, which stay reserved from the first read on.
    """

    def __init__(
        self, open_source: Callable[[], ClosableSource], piece_bytes: int, budget: MemoryBudget
    ) -> None:
        """open_source: called with the first read."""
        self.piece_bytes = piece_bytes
        self._open_source = open_source
        self._memory = Reservation(budget, FETCH)
        self._source: ClosableSource | None = None
        self.wait_seconds = 0.0
        """Time that `read` took."""

    def read(self, max_bytes: int, /) -> bytes:
        """Returns up to `max_bytes` bytes; b"" at the end."""
        started = time.perf_counter()
        data = (self._source or self._opened()).read(max_bytes)
        self.wait_seconds += time.perf_counter() - started
        return data

    def close(self) -> None:
        """Closes the file. Idempotent."""
        self._memory.free()
        if self._source is not None:
            self._source.close()

    def _opened(self) -> ClosableSource:
        self._memory.grow(self.piece_bytes)
        self._source = self._open_source()
        return self._source
