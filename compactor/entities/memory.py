"""Limits the memory of an entity merge: refuses one that is too large while it reads, before it gets
killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from compactor.common.message import Message
from compactor.common.setting_keys import MEMORY_LIMIT_BYTES, SHUFFLE_PARTITIONS
from compactor.resources.errors import MemoryLimitError

DEFAULT_MEMORY_BYTES: Final = 4 << 30
"""Default memory limit in one process."""
DEFAULT_TASK_MEMORY_BYTES: Final = 1 << 30
"""Default memory limit of a Spark task."""
COPIES: Final = 7
"""Peak memory as a multiple of the entities' columns: the columns, those being sorted or taken, rule values,
rows being written. Measured; see docs/reference/entity-merge.md."""

Charge = Callable[[int], None]
"""Called with the size of columns held to the end. May raise `MemoryLimitError`."""


class EntityMemory:
    """Counts the column bytes of all datasets of a run."""

    def __init__(self, limit_bytes: int | None) -> None:
        """limit_bytes: None for no limit."""
        self._limit_bytes = limit_bytes
        self.held_bytes = 0

    def charging(self, what: str) -> Charge:
        return self._charging(
            f"{what}: entities read so far take",
            "raise the memory limit, or leave out columns that are not needed",
        )

    def charging_part(self) -> Charge:
        """Returns the charge function of one task."""
        return self._charging(
            "the entities of one task take",
            Message("raise ", MEMORY_LIMIT_BYTES, " or ", SHUFFLE_PARTITIONS),
        )

    def _charging(self, what: str, cure: str) -> Charge:
        def charge(size: int) -> None:
            self.held_bytes += size
            need = self.held_bytes * COPIES
            if self._limit_bytes is not None and need > self._limit_bytes:
                raise MemoryLimitError(
                    f"{what} {self.held_bytes:,} bytes, and merging them about {COPIES} times as much, the "
                    f"limit is {self._limit_bytes:,} bytes: nothing was written; ",
                    cure,
                )

        return charge


def unlimited(_size: int) -> None:
    """A `Charge` without limit."""
