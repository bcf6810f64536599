"""What a scan read, and what it was spared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ScanReport:
    """What a scan read, and what it did not have to; whole once the scan has ended."""

    fragments: int = 0
    fragments_skipped: int = 0
    """By the log alone, never opened."""
    row_groups: int = 0
    """Of the fragments opened."""
    row_groups_skipped: int = 0
    """By statistics: not one byte of their columns was read."""
    rows_read: int = 0
    rows: int = 0
    """That came out."""

    def __str__(self) -> str:
        return (
            f"{self.rows:,} of {self.rows_read:,} rows read; skipped {self.fragments_skipped:,} of "
            f"{self.fragments:,} fragments and {self.row_groups_skipped:,} of {self.row_groups:,} row groups "
            "in the others"
        )
