"""How a table of a fleet is, for reports."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class State(StrEnum):
    """How a table is."""

    NEW = "new"
    """Its log was not read yet."""
    AWAITED = "awaited"
    """There is no table."""
    AT_REST = "at rest"
    WAITING = "waiting"
    QUIET = "quiet"
    """Merges are due, and no merge begins in its quiet hours."""
    MERGING = "merging"
    FAILING = "failing"
    """Its store or its log could not be read or written; the worker tries again."""


class TableState(Struct, frozen=True, kw_only=True):
    """How one table is, for reports."""

    table: str
    entry: str
    state: State
    version: int
    running: int
    """Merges of this worker."""
    due: int
    """Merges that are due and that no worker has begun."""
    next_bytes: int
    """Stored bytes of the merge that would begin next."""
    waiting_seconds: float
    """Since when a merge has been due without one that began."""
    debt: float
