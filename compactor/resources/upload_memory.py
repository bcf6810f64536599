"""Reserves the memory of uploads: begun parts, which spill, and parts being sent, which are bounded
together."""

from __future__ import annotations

from typing import Protocol

from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_stages import PARTS, UPLOAD
from compactor.resources.reservation import Reservation


class SentPart(Protocol):
    """The memory of a part that is being sent."""

    def free(self) -> object:
        """Frees it, once the part was sent. Any thread may."""
        ...


class UploadMemory(Protocol):
    """The memory of uploads. Only the writing thread uses it."""

    def fill(self, size: int) -> None:
        """Reserves bytes that are buffered until they fill a part. May spill others."""
        ...

    def drop(self, size: int) -> None:
        """Frees bytes that were buffered."""
        ...

    def send(self, size: int) -> SentPart:
        """Gives buffered bytes away to be sent. Waits while too many are being sent."""
        ...


class Unaccounted:
    """Uploads outside of a budget, which bound their memory by themselves."""

    def fill(self, size: int) -> None: ...

    def drop(self, size: int) -> None: ...

    def send(self, size: int) -> SentPart:  # noqa: ARG002
        return self

    def free(self) -> None: ...


class BudgetedUploads:
    """The uploads of one task, on its budget."""

    def __init__(self, budget: MemoryBudget, max_sending_bytes: int) -> None:
        """max_sending_bytes: limit of the bytes being sent by all uploads; a single part may exceed it."""
        self._parts = Reservation(budget, PARTS)
        self._max_sending_bytes = max_sending_bytes
        budget.drains_by_itself(UPLOAD)

    def fill(self, size: int) -> None:
        self._parts.grow(size)

    def drop(self, size: int) -> None:
        self._parts.shrink(size)

    def send(self, size: int) -> Reservation:
        part = self._parts.split(size)
        part.transfer(UPLOAD, self._max_sending_bytes)
        return part
