"""Returns freed memory to the system, so that the resident set follows the reserved memory."""

from __future__ import annotations

import time
from typing import Final

import pyarrow as pa

from compactor.common.heap import give_free_pages_back
from compactor.resources.resident import resident_bytes

_LOOK_SECONDS: Final = 0.03
_LOOK_SLACKS: Final = 4
"""Look after this many times the slack was charged, too: each time the slack was costs a pipeline a tenth of
its time, in page faults on memory just returned, and saves hardly more."""


def trim() -> None:
    """Returns the memory that is free inside the heaps now."""
    if (pool := pa.default_memory_pool()).backend_name != "system":
        pool.release_unused()
    give_free_pages_back()


class Trimmer:
    """Trims the heaps when the resident set has grown past a threshold and beyond the memory in use."""

    def __init__(self, threshold_bytes: int, slack_bytes: int) -> None:
        self._threshold_bytes = threshold_bytes
        self._slack_bytes = slack_bytes
        self._base_bytes = resident_bytes()
        self._next_look = 0.0
        self._charged_bytes = 0
        """Charged since the last look."""
        self._has_helped = True
        """Whether the last trim returned memory: what others hold stays, whatever is trimmed."""

    def look(self, used_bytes: int, charged_bytes: int) -> None:
        """Trims if needed. Call it for each charge: looks about thirty times a second, and after some
        `slack_bytes` were charged, which may pass through the heaps much faster.

        used_bytes: memory reserved now, in addition to what was in use when this object was created.
        charged_bytes: about to be reserved.
        """
        now = time.monotonic()
        self._charged_bytes += charged_bytes
        is_much = self._charged_bytes >= _LOOK_SLACKS * self._slack_bytes
        if now < self._next_look and not (is_much and self._has_helped):
            return
        self._next_look = now + _LOOK_SECONDS
        self._charged_bytes = 0
        grown = resident_bytes() - self._base_bytes
        if grown > self._threshold_bytes and grown - used_bytes > self._slack_bytes:
            trim()
            trimmed = self._base_bytes + grown - resident_bytes()
            self._has_helped = trimmed > self._slack_bytes // 2
