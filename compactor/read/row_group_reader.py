"""Reads the wanted rows of one fragment, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Final

import pyarrow as pa
from msgspec import Struct

from compactor.predicate.holding import holding
from compactor.predicate.prune import may_match
from compactor.predicate.tree import Predicate, columns_of
from compactor.read.fragment_columns import (
    Column,
    held_bytes,
    open_logged_fragment,
    read_columns,
    rows_of,
)
from compactor.read.pruning import SkipIndexes, bounds_by_statistics
from compactor.read.read_reports import ScanReport
from compactor.read.templated_column import TemplatedColumn
from compactor.stores.base import Store
from compactor.stores.local import is_on_local_disk
from compactor.table.deletions import not_only_in, read_deletion
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from lsm_fragment import compute as pc
from lsm_fragment.container.footer import RowGroupStats
from lsm_fragment.threads import ThreadPool

_COUNTING: Final = Lock()
"""Guards the counters of scan reports."""


class RowGroup(Struct, frozen=True):
    """A row group and its place in the fragment."""

    number: int
    first_row: int
    rows: int


class WantedRows(Struct, frozen=True):
    """Wanted rows of one row group, at least one. Columns are storage arrays of the table's types."""

    arrays: list[pa.Array]
    rows: int


class FoundRows(Struct, frozen=True):
    """Columns of one row group, with a mask of its wanted rows, at least one."""

    columns: dict[str, Column]
    keep: pa.BooleanArray | None
    """Mask of the wanted rows; None for all."""
    rows: int
    """Number of wanted rows."""


class RowGroupReader:
    """Reads the rows of one fragment that are not deleted and satisfy a condition.

    It skips row groups that statistics rule out, reads the condition's columns first, and the others only for
    row groups with wanted rows. Of strings stored as templates, it joins only wanted rows. `read` is
    thread-safe.
    """

    def __init__(
        self,
        store: Store,
        table: TableMetadata,
        entry: FragmentEntry,
        where: Predicate | None,
        skips: SkipIndexes | None,
        report: ScanReport,
        other: FragmentEntry | None = None,
    ) -> None:
        """other: the same fragment in another version, whose live rows are left out, too.

        Raises `FormatError`, `ObjectNotFoundError`, `OvertakenError`.
        """
        self._reader = open_logged_fragment(store, entry)
        self._deleted = read_deletion(store, entry)
        if other is not None:
            self._deleted = not_only_in(self._deleted, read_deletion(store, other), entry.rows)
        self._schema = table.schema
        self._where = where
        self._conditions = [] if where is None else columns_of(where)
        self._skips = skips
        self._report = report
        self._costs_requests = not is_on_local_disk(store)
        self._needed_text = False
        """Whether the last row group needed its variables, if that costs an additional request."""

    @property
    def name(self) -> str:
        return self._reader.name

    @property
    def row_groups(self) -> Sequence[RowGroupStats]:
        return self._reader.footer.row_groups

    def has_key_types(self) -> bool:
        """Returns whether keys are stored in the table's types, so that they compare without conversion."""
        return all(
            field.type == self._schema.field(field.name).type
            for field in self._reader.footer.key_fields
        )

    def wanted_groups(self, start: int, stop: int) -> Iterator[RowGroup]:
        """Yields the row groups that statistics do not rule out. Counts these and the others.

        start, stop: the range of row groups, `stop` excluded.
        """
        groups = self.row_groups
        self._report.row_groups += stop - start
        first_row = sum(group.rows for group in groups[:start])
        for number in range(start, stop):
            rows = groups[number].rows
            if self._is_ruled_out(number):
                self._report.row_groups_skipped += 1
            else:
                self._report.rows_read += rows
                yield RowGroup(number, first_row, rows)
            first_row += rows

    def held_bytes(self, group: RowGroup, names: Sequence[str]) -> int:
        """Estimates the memory of columns of a row group by the footer's statistics."""
        asked = list(dict.fromkeys([*self._conditions, *names]))
        return held_bytes(self._reader, group.number, asked)

    def read(self, group: RowGroup, names: Sequence[str], pool: ThreadPool) -> WantedRows | None:
        """Reads columns of a row group; returns None if it has no wanted rows.

        Raises `FormatError`, `DataError`, `StoreError`.
        """
        found = self.find(group, names, pool)
        if found is None:
            return None
        arrays = pool.each(lambda name: rows_of(found.columns[name], found.keep), names)
        self._note_text(found.columns)
        return WantedRows(arrays, found.rows)

    def find(self, group: RowGroup, names: Sequence[str], pool: ThreadPool) -> FoundRows | None:
        """Returns columns of a row group, unfiltered, and the mask of wanted rows; None without wanted rows.

        Raises what `read` does.
        """
        # If a row group needed its strings, the next one probably does too: read all by one request.
        columns = read_columns(
            self._reader,
            group.number,
            self._conditions,
            self._schema,
            pool,
            needs_text=self._needed_text,
        )
        keep = self._wanted(columns, group)
        self._note_text(columns)
        kept = group.rows if keep is None else keep.true_count
        if not kept:
            return None
        missing = [name for name in dict.fromkeys(names) if name not in columns]
        columns |= read_columns(self._reader, group.number, missing, self._schema, pool)
        return FoundRows(columns, keep if kept < group.rows else None, kept)

    def _note_text(self, columns: dict[str, Column]) -> None:
        if self._costs_requests:
            asked = (columns[name] for name in self._conditions)
            found = (column for column in asked if isinstance(column, TemplatedColumn))
            self._needed_text = any(column.has_variables for column in found)

    def _is_ruled_out(self, number: int) -> bool:
        return self._where is not None and not may_match(
            self._where, bounds_by_statistics(self._reader, number, self._schema, self._skips)
        )

    def _wanted(self, columns: dict[str, Column], group: RowGroup) -> pa.BooleanArray | None:
        """Returns the mask of wanted rows: bool of shape (rows,) without nulls; None for all rows."""
        alive = None
        if self._deleted is not None:
            alive = pc.invert(self._deleted.slice(group.first_row, group.rows))
        if self._where is None:
            return alive
        keep = holding(
            self._where,
            columns,
            group.rows,
            lambda row: f"{self.name}, row {group.first_row + row + 1:,}",
            alive,
        )
        if not keep.true_count:
            self._count_ruled_out(columns)
        return keep if alive is None else pc.and_(keep, alive)

    def _count_ruled_out(self, columns: dict[str, Column]) -> None:
        """Counts a row group without wanted rows, if templates ruled it out."""
        asked = [c for c in columns.values() if isinstance(c, TemplatedColumn) and c.is_evaluated]
        if asked and not any(column.has_variables for column in asked):
            with _COUNTING:
                self._report.row_groups_ruled_out_by_templates += 1
