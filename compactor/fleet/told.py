"""Who is told what a fleet does beyond merges, of which the listeners of the worker are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compactor.fleet.chores import Ended
from compactor.fleet.state import TableState


class Told(Protocol):
    """Is told what happens, for users, logs and metrics."""

    def joined(self, table: str, entry: str) -> None:
        """Is told that a table was found."""
        ...

    def awaited(self, pattern: str, *, is_awaited: bool) -> None:
        """Is told once that a pattern matches no folder, and once that it does."""
        ...

    def forgotten(self, pattern: str) -> None:
        """Is told that the file has a pattern no more that matched no folder."""
        ...

    def left(self, table: str) -> None:
        """Is told that a table is no longer one of the fleet."""
        ...

    def closed(self, table: str) -> None:
        """Is told that the snapshot of a table at rest is no longer kept."""
        ...

    def reloaded(self, entries: int) -> None:
        """Is told that the file has changed, and counts now."""
        ...

    def warned(self, subject: str, error: Exception, retry_seconds: float) -> None:
        """Is told that something failed that is tried again; the fleet goes on as before."""
        ...

    def ended(self, ended: Ended) -> None:
        """Is told that a vacuum or a publication is over."""
        ...

    def reported(self, states: Sequence[TableState]) -> None:
        """Is told how each table is, now and then."""
        ...
