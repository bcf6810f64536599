"""Memory limits of a scan."""

from __future__ import annotations

from typing import Final

MEMORY_BYTES: Final = 512 << 20
"""Memory limit of a scan; a single row group may exceed it."""
AHEAD_BYTES: Final = MEMORY_BYTES // 4
"""Of these, the limit for row groups that threads read ahead."""
BATCH_ROWS: Final = 262_144
"""Maximum rows of a batch."""
BATCH_BYTES: Final = MEMORY_BYTES // 8
"""Maximum bytes of one column in a batch."""
