"""The reports of scans, exports, verifications, and counts of templates."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict


def left_out(fragments: int, rows: int) -> str:
    """Describes the fragments in quarantine that a reader left out; empty if there were none."""
    if not fragments:
        return ""
    return f"left out {counted(fragments, 'fragment')}, gone or in quarantine, with {counted(rows, 'row')}"


class ScanReport(Struct, kw_only=True):
    """Counts of what a scan read and skipped; complete once the scan has ended."""

    fragments: int = 0
    fragments_skipped: int = 0
    """Fragments ruled out by the log or a skip index, without opening them."""
    row_groups: int = 0
    """Row groups of the opened fragments."""
    row_groups_skipped: int = 0
    """Row groups ruled out by statistics, without reading any column."""
    row_groups_ruled_out_by_templates: int = 0
    """Row groups ruled out by templates, without decompressing variables or reading columns outside the
    condition."""
    fragments_left_out: int = 0
    """Fragments in quarantine that may have matching rows, left out as requested."""
    rows_left_out: int = 0
    """Rows of these fragments, matching or not."""
    rows_read: int = 0
    """Rows of the row groups that were not skipped."""
    rows: int = 0
    """Rows returned."""

    @property
    def left_out(self) -> str:
        """Describes the fragments left out; empty if there were none."""
        return left_out(self.fragments_left_out, self.rows_left_out)

    def __str__(self) -> str:
        ruled_out = self.row_groups_ruled_out_by_templates
        also = f"; templates ruled out {counted(ruled_out, 'row group')}" if ruled_out else ""
        return (
            f"{self.rows:,} of {counted(self.rows_read, 'row')} read; skipped {self.fragments_skipped:,} of "
            f"{counted(self.fragments, 'fragment')} and {self.row_groups_skipped:,} of "
            f"{counted(self.row_groups, 'row group')} in the others{also}"
        )


class ExportReport(Struct, frozen=True):
    """The result of an export to one file."""

    path: str
    version: int
    """The exported version of the table."""
    rows: int
    arrow_bytes: int
    """Size of the rows in memory, before encoding."""


class AgainstReport(Struct, kw_only=True):
    """What happened to rows since an earlier version, by the log."""

    version: int
    """The earlier version."""
    rows_before: int
    rows_after: int = 0
    proved: int = 0
    """Versions of compactions that kept number and hash of all rows."""
    counted: int = 0
    """Versions of compactions with the right number of rows, whose hashes can't be compared: deleted rows
    left the storage, or columns were dropped or converted."""
    appended: int = 0
    deleted: int = 0
    """Rows that deletions by a condition removed."""
    left_out: int = 0
    """Rows that compactions left out by the row policy or the time to live."""
    others: list[str] = field(default_factory=list)
    """Versions that say that they changed rows or columns otherwise, such as a restore."""

    def __str__(self) -> str:
        also = f"; first otherwise changed by {self.others[0]}" if self.others else ""
        return (
            f"since version {self.version}: {self.rows_before:,} rows then, {self.rows_after:,} now, "
            f"{self.appended:,} appended, {self.deleted:,} deleted, {self.left_out:,} left out by the row "
            f"policy or the time to live; compactions kept all rows {counted(self.proved, 'time')} by their "
            f"hash, {self.counted:,} by their number{also}"
        )


class VerifyReport(Struct, kw_only=True):
    """The result of a verification."""

    version: int
    fragments: int = 0
    rows: int = 0
    bytes_read: int = 0
    faults: list[str] = field(default_factory=list)
    """One line per fault, with its place."""
    against: AgainstReport | None = None
    """The comparison with an earlier version, if one was named."""

    def to_json(self) -> dict[str, Any]:
        compared = {} if self.against is None else {"against": plain_dict(self.against)}
        return {
            "version": self.version,
            "ok": not self.faults,
            "fragments": self.fragments,
            "rows": self.rows,
            "bytes_read": self.bytes_read,
            "faults": self.faults,
            **compared,
        }


class TemplateCount(Struct, frozen=True):
    """The rows of one template."""

    template: str
    """The text with `<n>` for each number and `<*>` for each other variable; a backslash escapes these marks
    in the text itself."""
    rows: int
    """Number of rows with this template; a lower bound if the report has `other_rows`."""
    share: float
    """Fraction of all non-null rows."""
    example: str
    """The text of one row, cut to 1,000 characters."""


class TemplatesReport(Struct, frozen=True, kw_only=True):
    """The templates of a column."""

    column: str
    version: int
    rows: int
    """Non-null rows."""
    nulls: int
    other_rows: int
    """Rows of rare templates, dropped when there were too many. A template that recurred later is listed,
    with the rows since then."""
    templates: tuple[TemplateCount, ...]
    """Most frequent first."""
    fragments_left_out: int = 0
    """Fragments in quarantine that were left out."""
    rows_left_out: int = 0
    """Rows of these fragments."""

    def to_json(self) -> dict[str, Any]:
        return {**plain_dict(self), "templates": [plain_dict(found) for found in self.templates]}


class StoredTemplates(Struct, frozen=True, kw_only=True):
    """The templates of a column in some of the row groups that store it as templates."""

    column: str
    chunks: int
    """Row groups that store the column as templates, in the sampled fragments."""
    chunks_read: int
    """Row groups whose templates were counted, an even sample of `chunks`."""
    rows: int
    """Non-null rows in the row groups read, deleted ones included."""
    all: int
    """Number of distinct templates in them."""
    templates: tuple[TemplateCount, ...]
    """The most frequent templates. Examples of rare ones may be empty."""
