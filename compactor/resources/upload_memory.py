"""Accounts the memory of uploads: begun parts, which spill, and parts being sent, which are bounded
together."""

from __future__ import annotations

from typing import Final, Protocol

from compactor.resources.budget import MemoryBudget

PARTS: Final = "parts"
UPLOAD: Final = "upload"


class UploadMemory(Protocol):
    """The account of an upload's memory. The writing thread calls all but `sent`."""

    def fill(self, size: int) -> None:
        """Charges bytes that are buffered until they fill a part. May spill others."""
        ...

    def drop(self, size: int) -> None:
        """Discharges bytes that were buffered."""
        ...

    def send(self, size: int) -> None:
        """Counts buffered bytes as being sent. Waits while too many are."""
        ...

    def sent(self, size: int) -> None:
        """Discharges bytes that were sent. May be called by any thread."""
        ...


class Unaccounted:
    """The account of uploads outside of a budget, which bound their memory by themselves."""

    def fill(self, size: int) -> None: ...

    def drop(self, size: int) -> None: ...

    def send(self, size: int) -> None: ...

    def sent(self, size: int) -> None: ...


class BudgetedUploads:
    """The account of one task's uploads on its budget."""

    def __init__(self, budget: MemoryBudget, max_sending_bytes: int) -> None:
        """max_sending_bytes: limit of the bytes being sent by all uploads; a single part may exceed it."""
        self._budget = budget
        self._max_sending_bytes = max_sending_bytes
        budget.drains_by_itself(UPLOAD)

    def fill(self, size: int) -> None:
        self._budget.charge(PARTS, size)

    def drop(self, size: int) -> None:
        self._budget.discharge(PARTS, size)

    def send(self, size: int) -> None:
        self._budget.move_when_below(PARTS, UPLOAD, size, self._max_sending_bytes)

    def sent(self, size: int) -> None:
        self._budget.discharge(UPLOAD, size)
