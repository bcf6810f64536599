"""Streams the rows of a table in sort order and merges them where fragments overlap.

Rows of row groups that overlap with no others' leave as they were decoded; their sort columns are not even
read unless they are wanted. Between them, a scan uses the key merge of a compaction, but reads all wanted
columns of a window at once, by range requests. A scan does not read what a condition rules out by the log
or by a fragment's footer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import UsageError
from compactor.merge.decoded import STAGE as CHUNKS
from compactor.merge.decoded import DecodedRows
from compactor.merge.key_merge import (
    CopiedRowGroup,
    MergeWindow,
    decided,
    loaded_group,
    merge_keys,
)
from compactor.merge.loaded_rows import LoadedGroup
from compactor.predicate.prune import may_match
from compactor.predicate.tree import And, Predicate, columns_of, conjuncts, matching
from compactor.read.pruning import (
    SkipIndexes,
    bounds_by_keys,
    bounds_by_skip_index,
    overlapping_groups,
    skip_index_of,
)
from compactor.read.read_reports import ScanReport
from compactor.read.row_group_reader import RowGroupReader
from compactor.read.stretches import Part, stretches_of
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from compactor.rows.flags import KEPT, RowRule
from compactor.rows.fold import merged_rows
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from format.arrays import batch_of
from format.gather import gather_arrays
from format.sizes import rows_within
from format.storage import to_logical

_MEMORY_BYTES: Final = 512 << 20
_MIN_SLICE_BYTES: Final = 16 << 10
_BATCH_ROWS: Final = 262_144
_BATCH_BYTES: Final = _MEMORY_BYTES // 8
"""The most bytes of one column in a batch."""
_PLAN: Final = StagePlan(
    1 << 62,  # A reader spills, but is never refused.
    0,
    (
        MemoryStage(
            CHUNKS,
            "decoded rows, a row group for each fragment",
            Buffer.STREAMING,
            _MEMORY_BYTES,
            spill_priority=0,
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns and rows that a scan is to return."""

    schema: pa.Schema
    where: Predicate | None
    """Condition on each stored row; it may rule out row groups before they are read."""
    where_merged: Predicate | None
    """Condition on merged rows; it rules out nothing, since an older row may fail it where the merged row
    does not."""
    rule: RowRule | None
    report: ScanReport
    skips: Mapping[str, SkipIndexes] = field(default_factory=dict)
    """Skip indexes by fragment key."""

    @property
    def columns(self) -> list[str]:
        """Columns to read of each row: those of the result and of the condition on merged rows."""
        asked = [] if self.where_merged is None else columns_of(self.where_merged)
        return list(dict.fromkeys([*self.schema.names, *asked]))


def wanted_rows(
    table: TableMetadata, schema: pa.Schema, where: Predicate | None, report: ScanReport
) -> Wanted:
    rule = rule_of_readers(table)
    if rule is None or where is None:
        return Wanted(schema, where, None, rule, report)
    key = {column.column for column in rule.key}
    of_key = [part for part in conjuncts(where) if key.issuperset(columns_of(part))]
    return Wanted(schema, And(tuple(of_key)) if of_key else None, where, rule, report)


def rule_of_readers(table: TableMetadata) -> RowRule | None:
    """Returns the rule by which readers see rows of one key; None if they see all of them."""
    if not table.rows.merges:
        return None
    return RowRule(table.rows, None, table.schema, table.sort, is_bottom=True, shows=True)


def scan(
    store: Store,
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    report: ScanReport | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields rows of a snapshot in sort order.

    columns: shown names; None for all. where: a condition on stored columns (`condition_on`); None for all
    rows. report: counts what is read and skipped.
    Raises `UsageError` for a column that the table does not have, `FormatError` for damaged fragments.
    """
    table = snapshot.table
    schema = scan_schema(table, columns)
    wanted = wanted_rows(table, _stored(table, schema), where, report or ScanReport())
    where = wanted.where
    wanted.report.fragments += len(snapshot.fragments)
    for by_age in overlapping_groups(snapshot):
        fragments = len(by_age)
        skips: dict[str, SkipIndexes] = {}
        if where is not None:
            by_age = [entry for entry in by_age if may_match(where, bounds_by_keys(entry, table))]
            skips = {entry.key: skip_index_of(store, entry, table, where) for entry in by_age}
            by_age = [
                entry
                for entry in by_age
                if may_match(
                    where, bounds_by_skip_index(skips[entry.key], bounds_by_keys(entry, table))
                )
            ]
        wanted.report.fragments_skipped += fragments - len(by_age)
        if by_age:
            for batch in _rows_of_group(store, table, by_age, replace(wanted, skips=skips)):
                yield batch.rename_columns(schema.names) if table.names else batch


def scan_schema(table: TableMetadata, columns: Sequence[str] | None) -> pa.Schema:
    """Returns the schema of a scan with shown names. Raises `UsageError` for an unknown column."""
    schema = table.shown_schema
    if columns is None:
        return schema
    for name in columns:
        if name not in schema.names:
            raise UsageError(f"no column {name!r}; columns are: {', '.join(schema.names[:50])}")
    return pa.schema([schema.field(name) for name in columns])


def _stored(table: TableMetadata, shown: pa.Schema) -> pa.Schema:
    """Returns the schema with the names under which columns are stored."""
    if not table.names:
        return shown
    return pa.schema([field.with_name(table.stored_name(field.name)) for field in shown])


def _rows_of_group(
    store: Store, table: TableMetadata, group: Sequence[FragmentEntry], wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of overlapping fragments in order; merges only those that are between others' rows."""
    readers = readers_of(store, table, group, wanted)
    for parts in _stretches(table, readers):
        if len(parts) == 1 and wanted.rule is None:
            batches = _as_stored(readers[parts[0].fragment], parts[0], wanted)
        else:
            batches = _merged(table, readers, parts, wanted)
        for batch in batches:
            if batch.num_rows:
                wanted.report.rows += batch.num_rows
                yield batch


def readers_of(
    store: Store, table: TableMetadata, group: Sequence[FragmentEntry], wanted: Wanted
) -> list[RowGroupReader]:
    return [
        RowGroupReader(
            store, table, entry, wanted.where, wanted.skips.get(entry.key), wanted.report
        )
        for entry in group
    ]


def whole_fragments(readers: Sequence[RowGroupReader]) -> list[Part]:
    return [Part(place, 0, len(reader.row_groups)) for place, reader in enumerate(readers)]


def _stretches(table: TableMetadata, readers: Sequence[RowGroupReader]) -> Iterator[list[Part]]:
    if len(readers) == 1 or not all(reader.has_key_types() for reader in readers):
        return iter([whole_fragments(readers)])
    return stretches_of([reader.row_groups for reader in readers], table.key_comparator())


def _as_stored(reader: RowGroupReader, part: Part, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Yields rows that no other fragment has any between, in batches as the merge's: by rows and by bytes."""
    for arrays, rows in reader.rows_of_groups(wanted.schema.names, part.start, part.stop):
        start = 0
        while start < rows:
            rest = [array.slice(start) for array in arrays]
            within = rows_within(rest, _BATCH_BYTES) if rest else rows
            count = min(rows - start, _BATCH_ROWS, within)
            columns = [
                to_logical(array.slice(0, count), field.type)
                for array, field in zip(rest, wanted.schema, strict=True)
            ]
            yield batch_of(columns, wanted.schema, count)
            start += count


def _merged(
    table: TableMetadata, readers: Sequence[RowGroupReader], parts: Sequence[Part], wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    for sources, window in merged_windows(table, readers, parts, wanted):
        yield _batch(sources, window, wanted)


def merged_windows(
    table: TableMetadata, readers: Sequence[RowGroupReader], parts: Sequence[Part], wanted: Wanted
) -> Iterator[tuple[Sequence[_ScanInput], MergeWindow]]:
    """Yields windows of the parts' merged rows with the row rule's decisions.

    The caller takes the columns of each window from the sources, one for each part.
    """
    with closing(LocalDisk()) as disk:
        budget = MemoryBudget(_PLAN, soft_bytes=_MEMORY_BYTES)
        slice_bytes = max(_MIN_SLICE_BYTES, _MEMORY_BYTES // 16 // len(parts))
        sources = [
            _ScanInput(
                readers[part.fragment],
                part,
                table,
                wanted,
                lambda: DecodedRows(budget, disk, slice_bytes),
            )
            for part in parts
        ]
        budget.spill_by(CHUNKS, lambda _: sum(source.spill() for source in sources))
        for window in merge_keys(
            sources, table.comparator(), table.sort, _BATCH_ROWS, _BATCH_BYTES, wanted.rule
        ):
            rows = window.as_window() if isinstance(window, CopiedRowGroup) else window
            yield sources, decided(rows, wanted.rule)[0]


def _batch(sources: Sequence[_ScanInput], window: MergeWindow, wanted: Wanted) -> pa.RecordBatch:
    arrays, rows = columns_of_window(sources, window, wanted)
    if wanted.where_merged is not None:
        holds = pc.fill_null(matching(wanted.where_merged, arrays, rows), False)
        rows = holds.true_count
        arrays = {name: array.filter(holds) for name, array in arrays.items()}
    columns = [to_logical(arrays[f.name], f.type) for f in wanted.schema]
    return batch_of(columns, wanted.schema, rows)


def columns_of_window(
    sources: Sequence[_ScanInput], window: MergeWindow, wanted: Wanted
) -> tuple[dict[str, pa.Array], int]:
    """Returns the wanted columns of a window's rows, ordered and merged, and the number of rows."""
    counts = np.bincount(window.inputs, minlength=len(sources))
    taken = [source.take(n) for source, n in zip(sources, counts.tolist(), strict=True)]
    flags = window.flags
    arrays = {}
    for index, name in enumerate(wanted.columns):
        pieces = [[piece[index] for piece in of_source] for of_source in taken]
        array = gather_arrays(pieces, window.inputs)
        arrays[name] = array if flags is None else merged_rows(array, flags, name, wanted.rule)
    for source in sources:
        source.settle()
    return arrays, window.rows if flags is None else int(np.count_nonzero(flags & KEPT))


class _ScanInput:
    """A `KeySource` that also returns the other columns of the merged rows."""

    def __init__(
        self,
        reader: RowGroupReader,
        part: Part,
        table: TableMetadata,
        wanted: Wanted,
        new_rows: Callable[[], DecodedRows],
    ) -> None:
        self._sort_names = [column.column for column in table.sort]
        self._has_columns = bool(wanted.columns)
        self.name = reader.name
        self._groups = reader.rows_of_groups(
            [*self._sort_names, *wanted.columns], part.start, part.stop
        )
        self.keys = new_rows()
        self._rows = new_rows()

    def load_keys(self) -> LoadedGroup | None:
        """Loads the next row group that has wanted rows; returns None after the last."""
        found = next(self._groups, None)
        if found is None:
            return None
        arrays, _ = found
        keys = arrays[: len(self._sort_names)]
        if self._has_columns:
            self._rows.push(arrays[len(keys) :])
        loaded = loaded_group(keys)
        self.keys.push(keys)
        return loaded

    def row_bytes(self, group_rows: int) -> int:  # noqa: ARG002 - A scan writes no row groups.
        return 0

    def take(self, rows: int) -> list[list[pa.Array]]:
        """Returns the next `rows` rows in pieces, each a list of all columns."""
        return self._rows.take(rows) if self._has_columns else []

    def settle(self) -> None:
        self._rows.settle()

    def spill(self) -> int:
        return self.keys.spill() + self._rows.spill()
