"""The reports of scans, exports, verifications, and counts of templates."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from compactor.common.counts import counted


def left_out(fragments: int, rows: int) -> str:
    """Returns what readers were told to leave out, in words; empty if nothing was."""
    if not fragments:
        return ""
    return f"left out {counted(fragments, 'fragment')} in quarantine with {counted(rows, 'row')}"


@dataclass(slots=True, kw_only=True)
class ScanReport:
    """Counts of what a scan read and skipped; complete once the scan has ended."""

    fragments: int = 0
    fragments_skipped: int = 0
    """Fragments that the log or a skip index ruled out; they were not opened."""
    row_groups: int = 0
    """Row groups of the fragments that were opened."""
    row_groups_skipped: int = 0
    """Row groups that statistics ruled out; none of their columns were read."""
    row_groups_ruled_out_by_templates: int = 0
    """Row groups without a wanted row, as templates of strings tell: no variables of these were decompressed,
    and columns that the condition does not have were not read."""
    fragments_left_out: int = 0
    """Fragments in quarantine that may have such rows, and that the scan was told to leave out."""
    rows_left_out: int = 0
    """All rows of these fragments."""
    rows_read: int = 0
    """Rows of the row groups that were not skipped."""
    rows: int = 0
    """Rows that the scan returned."""

    @property
    def left_out(self) -> str:
        """What was left out, in words; empty if nothing was."""
        return left_out(self.fragments_left_out, self.rows_left_out)

    def __str__(self) -> str:
        ruled_out = self.row_groups_ruled_out_by_templates
        also = f"; templates ruled out {counted(ruled_out, 'row group')}" if ruled_out else ""
        return (
            f"{self.rows:,} of {counted(self.rows_read, 'row')} read; skipped {self.fragments_skipped:,} of "
            f"{counted(self.fragments, 'fragment')} and {self.row_groups_skipped:,} of "
            f"{counted(self.row_groups, 'row group')} in the others{also}"
        )


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export to one file."""

    path: str
    version: int
    """Version of the table that was exported."""
    rows: int
    arrow_bytes: int
    """Size of the rows in memory, before the file encodes them."""


@dataclass(slots=True)
class VerifyReport:
    """The result of a verification."""

    version: int
    fragments: int = 0
    rows: int = 0
    bytes_read: int = 0
    faults: list[str] = field(default_factory=list)
    """One line for each fault, which names its place."""

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "ok": not self.faults,
            "fragments": self.fragments,
            "rows": self.rows,
            "bytes_read": self.bytes_read,
            "faults": self.faults,
        }


@dataclass(frozen=True, slots=True)
class TemplateCount:
    """The rows of one template."""

    template: str
    """The text with `<n>` for each number and `<*>` for each other variable. A text that has these itself is
    shown with a backslash before them."""
    rows: int
    """How many rows have it; perhaps more if the report has `other_rows`."""
    share: float
    """The part of all rows that have a text."""
    example: str
    """The text of one of the rows, cut to 1,000 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatesReport:
    """The templates of a column."""

    column: str
    version: int
    rows: int
    """Rows that have a text."""
    nulls: int
    other_rows: int
    """Rows of templates that were rare when there were too many of them. Those that came again later are
    listed, with the rows since then."""
    templates: tuple[TemplateCount, ...]
    """The most frequent first."""
    fragments_left_out: int = 0
    """Fragments in quarantine that were left out."""
    rows_left_out: int = 0
    """All rows of these fragments."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "templates": [asdict(found) for found in self.templates]}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTemplates:
    """The templates of a column in some of the row groups that store it as templates."""

    column: str
    chunks: int
    """Row groups that store the column so, in the fragments that were looked at."""
    chunks_read: int
    """Of these, the ones whose templates were counted, spread over all."""
    rows: int
    """Rows with a text in the row groups read, deleted ones too."""
    all: int
    """Number of different templates in them."""
    templates: tuple[TemplateCount, ...]
    """The most frequent ones. Examples of rare ones may be empty."""
