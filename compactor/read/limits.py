"""Limits of what a scan holds."""

from __future__ import annotations

from typing import Final

MEMORY_BYTES: Final = 512 << 20
"""The most bytes that a scan holds, unless single row groups take more."""
AHEAD_BYTES: Final = MEMORY_BYTES // 4
"""The part of them for row groups that are read before their turn, where several threads read."""
BATCH_ROWS: Final = 262_144
"""The most rows of a batch."""
BATCH_BYTES: Final = MEMORY_BYTES // 8
"""The most bytes of one column in a batch."""
