"""Reads the wanted rows of one fragment, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from compactor.predicate.prune import may_match
from compactor.predicate.tree import Predicate, columns_of, matching
from compactor.read.fragment_columns import open_fragment, read_columns
from compactor.read.pruning import SkipIndexes, bounds_by_statistics
from compactor.read.read_reports import ScanReport
from compactor.stores.base import Store
from compactor.table.deletions import read_deletion
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from format.footer import RowGroupStats


class RowGroupReader:
    """A reader of one fragment without deleted rows and rows that do not satisfy a condition.

    It skips row groups that statistics rule out. It reads the condition's columns first, and the others only
    for row groups that have wanted rows.
    """

    def __init__(
        self,
        store: Store,
        table: TableMetadata,
        entry: FragmentEntry,
        where: Predicate | None,
        skips: SkipIndexes | None,
        report: ScanReport,
    ) -> None:
        """Raises `FormatError`, `ObjectNotFoundError`, `OvertakenError`."""
        self._reader = open_fragment(store, entry.key, entry.size_bytes)
        self._deleted = read_deletion(store, entry)
        self._schema = table.schema
        self._where = where
        self._skips = skips
        self._report = report

    @property
    def name(self) -> str:
        return self._reader.name

    @property
    def row_groups(self) -> Sequence[RowGroupStats]:
        return self._reader.footer.row_groups

    def has_key_types(self) -> bool:
        """Returns whether keys are stored in the table's types, so that they compare as they are."""
        return all(
            field.type == self._schema.field(field.name).type
            for field in self._reader.footer.key_fields
        )

    def rows_of_groups(
        self, names: Sequence[str], start: int, stop: int
    ) -> Iterator[tuple[list[pa.Array], int]]:
        """Yields columns as storage arrays of the table's types, and the number of rows, at least one.

        start, stop: the first row group to read, and the one after the last.
        """
        groups = self._reader.footer.row_groups
        self._report.row_groups += stop - start
        first_row = sum(group.rows for group in groups[:start])
        for group in range(start, stop):
            rows = groups[group].rows
            if self._is_ruled_out(group):
                self._report.row_groups_skipped += 1
            else:
                found = self._read(group, first_row, rows, names)
                if found is not None:
                    yield found
            first_row += rows

    def _is_ruled_out(self, group: int) -> bool:
        return self._where is not None and not may_match(
            self._where, bounds_by_statistics(self._reader, group, self._schema, self._skips)
        )

    def _read(
        self, group: int, first_row: int, rows: int, names: Sequence[str]
    ) -> tuple[list[pa.Array], int] | None:
        self._report.rows_read += rows
        asked = [] if self._where is None else columns_of(self._where)
        arrays = read_columns(self._reader, group, asked, self._schema)
        keep = self._wanted(arrays, first_row, rows)
        kept = rows if keep is None else keep.true_count
        if not kept:
            return None
        missing = [name for name in dict.fromkeys(names) if name not in arrays]
        arrays |= read_columns(self._reader, group, missing, self._schema)
        chosen = [arrays[name] for name in names]
        return (chosen if kept == rows else [a.filter(keep) for a in chosen]), kept

    def _wanted(
        self, arrays: dict[str, pa.Array], first_row: int, rows: int
    ) -> pa.BooleanArray | None:
        """Returns which rows are wanted: bool of shape (rows,) without nulls; None for all of them."""
        keep = None
        if self._where is not None:
            keep = pc.fill_null(matching(self._where, arrays, rows), False)
        if self._deleted is not None:
            alive = pc.invert(self._deleted.slice(first_row, rows))
            keep = alive if keep is None else pc.and_(keep, alive)
        return keep
