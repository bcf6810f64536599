"""What a run of `publish` did."""

from __future__ import annotations

from msgspec import Struct


class PublishReport(Struct, frozen=True, kw_only=True):
    """What a run of `publish` did."""

    version: int
    """The version of the table that the lake has now."""
    files: int
    """Number of its files."""
    rows: int
    """Number of its rows."""
    added: int
    """Number of files that came; those of a run that ended early need not be written again."""
    removed: int
    """Number of files that went."""
    bytes_added: int
