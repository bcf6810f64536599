"""What uploads hold: parts begun, which spill, and parts being sent, which are bounded together."""

from __future__ import annotations

from typing import Final, Protocol

from compactor.resources.budget import MemoryBudget

PARTS: Final = "parts"
UPLOAD: Final = "upload"


class UploadMemory(Protocol):
    """Where an upload accounts for what it holds. All but `sent` are called by the writing thread."""

    def fill(self, size: int) -> None:
        """So many bytes will be held back until they are a part. May spill others."""
        ...

    def drop(self, size: int) -> None:
        """So many that were held back are not any more."""
        ...

    def send(self, size: int) -> None:
        """So many that were held back are being sent from now on. Waits while too much is."""
        ...

    def sent(self, size: int) -> None:
        """So many that were being sent are gone. Called by any thread."""
        ...


class Unaccounted:
    """For uploads outside of a budget, which bound what they hold by themselves."""

    def fill(self, size: int) -> None: ...

    def drop(self, size: int) -> None: ...

    def send(self, size: int) -> None: ...

    def sent(self, size: int) -> None: ...


class BudgetedUploads:
    """Uploads of one task on its budget."""

    def __init__(self, budget: MemoryBudget, max_sending_bytes: int) -> None:
        """max_sending_bytes: of all uploads together; a single part may be more."""
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
