"""Limits what a merge holds, so that one that is too large is refused while it reads, and not killed
later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from compactor.common.message import Message
from compactor.common.setting_keys import MEMORY_LIMIT_BYTES, SHUFFLE_PARTITIONS
from compactor.resources.errors import MemoryLimitError

DEFAULT_MEMORY_BYTES: Final = 4 << 30
"""The memory limit of a merge in one process, if the user sets none."""
DEFAULT_TASK_MEMORY_BYTES: Final = 1 << 30
"""The memory limit of a task on Spark, if the user sets none."""
COPIES: Final = 7
"""How often the entities' columns are in memory: themselves, those being sorted or taken, values of rules,
rows being written. Measured; see docs/reference/entity-merge.md."""

Charge = Callable[[int], None]
"""Takes the bytes of columns that will be held to the end. May raise `MemoryLimitError`."""


class EntityMemory:
    """A counter of the bytes of all datasets' columns in one run."""

    def __init__(self, limit_bytes: int | None) -> None:
        """limit_bytes: None for no limit."""
        self._limit_bytes = limit_bytes
        self.held_bytes = 0

    def charging(self, what: str) -> Charge:
        return self._charging(
            f"{what}: entities read so far take",
            "raise the memory limit, or leave out columns that nobody needs",
        )

    def charging_part(self) -> Charge:
        """Returns the charge for the entities of one task."""
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
    """Allows everything; a `Charge`."""
