"""Rows of a table for tasks that need them in no order: fragments whose rows stand for themselves are read
one by one, in parts if they are large; those whose rows of one key have to be merged, together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from compactor.predicate.prune import may_match
from compactor.predicate.tree import Predicate
from compactor.read.pruning import (
    bounds_by_keys,
    bounds_by_skip_index,
    overlapping_groups,
    skip_index_of,
)
from compactor.read.report import ScanReport
from compactor.read.row_group_reader import RowGroupReader
from compactor.read.scan import rule_of_readers, scan, scan_schema, wanted_rows
from compactor.read.scan_pieces import of_fragments
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.fragments import FragmentMap
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from format.arrays import batch_of
from format.storage import to_logical

_WORTH_A_TASK_BYTES: Final = 8 << 20
"""Decoded: smaller fragments share a task."""
_MOST_PARTS: Final = 100_000
"""Besides one a fragment: of more the parts are larger, however much the log says there is."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Some row groups of a fragment, all of whose rows stand for themselves."""

    entry: FragmentEntry
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class OverlappingFragments:
    """Fragments that share keys with one another and with no others."""

    entries: tuple[FragmentEntry, ...]


Part = RowGroups | OverlappingFragments


def tasks_of(
    snapshot: Snapshot, where: Predicate | None, task_bytes: int, report: ScanReport
) -> list[tuple[Part, ...]]:
    """Every row that may fulfil the condition in one task, tasks of about `task_bytes` decoded at most where
    that can be divided, in key order. What the log rules out is in none.

    where: of columns as they are stored. report: counts fragments, and those left out.
    """
    is_merged = rule_of_readers(snapshot.table) is not None
    cut_bytes = None if is_merged else max(task_bytes, _raw_bytes(snapshot) // _MOST_PARTS)
    weighed = _weighed(snapshot, where, cut_bytes, report)
    return list(_packed(weighed, task_bytes))


def _raw_bytes(snapshot: Snapshot) -> int:
    return sum(entry.raw_bytes for entry in snapshot.fragments.all())


def _weighed(
    snapshot: Snapshot, where: Predicate | None, cut_bytes: int | None, report: ScanReport
) -> Iterator[tuple[Part, int]]:
    """Parts and their decoded sizes. cut_bytes: None where rows have to be merged."""
    for group in overlapping_groups(snapshot):
        entries = _not_ruled_out(snapshot.table, group, where)
        report.fragments += len(group)
        report.fragments_skipped += len(group) - len(entries)
        if cut_bytes is not None:
            yield from _apart(entries, cut_bytes)
        elif entries:
            yield (
                OverlappingFragments(tuple(map(_bare, entries))),
                sum(entry.raw_bytes for entry in entries),
            )


def _packed(parts: Iterator[tuple[Part, int]], task_bytes: int) -> Iterator[tuple[Part, ...]]:
    """Small neighbours together."""
    waiting: list[Part] = []
    size = 0
    for part, weight in parts:
        if waiting and (size >= _WORTH_A_TASK_BYTES or size + weight > task_bytes):
            yield tuple(waiting)
            waiting, size = [], 0
        waiting.append(part)
        size += weight
    if waiting:
        yield tuple(waiting)


def _not_ruled_out(
    table: TableMetadata, group: Sequence[FragmentEntry], where: Predicate | None
) -> Sequence[FragmentEntry]:
    if where is None:
        return group
    # Of rows that are merged, only what is said of their key rules out fragments one by one.
    safe = wanted_rows(table, table.schema, where, ScanReport()).where
    return [e for e in group if safe is None or may_match(safe, bounds_by_keys(e, table))]


def _apart(entries: Sequence[FragmentEntry], task_bytes: int) -> Iterator[tuple[Part, int]]:
    """Even numbers of row groups, and what they weigh if all of a fragment weigh the same."""
    for entry in entries:
        groups = max(1, entry.row_groups)
        count = min(groups, max(1, -(-entry.raw_bytes // task_bytes)))
        bounds = (groups * place // count for place in range(count + 1))
        for start, stop in pairwise(bounds):
            yield RowGroups(_bare(entry), start, stop), entry.raw_bytes * (stop - start) // groups


def _bare(entry: FragmentEntry) -> FragmentEntry:
    """Without sizes of columns, which no reader asks for: tasks are sent over the wire."""
    return replace(entry, columns={})


def read_parts(
    store: Store,
    table: TableMetadata,
    parts: Sequence[Part],
    columns: Sequence[str],
    where: Predicate | None,
    report: ScanReport,
) -> Iterator[pa.RecordBatch]:
    """Rows of a task: `columns`, as they are shown, of rows that fulfil the condition on stored ones.

    Holds a row group at a time, or what a scan holds. Raises as `compactor.read.scan.scan`.
    """
    for part in parts:
        if isinstance(part, OverlappingFragments):
            empty = Snapshot(1, table, FragmentMap())
            yield from scan(store, of_fragments(empty, part.entries), columns, where, report)
        else:
            yield from _read_row_groups(store, table, part, columns, where, report)


def _read_row_groups(
    store: Store,
    table: TableMetadata,
    part: RowGroups,
    columns: Sequence[str],
    where: Predicate | None,
    report: ScanReport,
) -> Iterator[pa.RecordBatch]:
    schema = scan_schema(table, columns)
    stored = [str(table.stored_name(name)) for name in schema.names]
    entry = part.entry
    skips = {} if where is None else skip_index_of(store, entry, table, where)
    by_keys = bounds_by_keys(entry, table)
    if where is not None and not may_match(where, bounds_by_skip_index(skips, by_keys)):
        report.row_groups_skipped += part.stop - part.start
        return
    groups = part.start, part.stop
    reader = RowGroupReader(store, table, entry, where, skips, report, groups)
    for arrays, rows in reader.rows_of_groups(stored):
        report.rows += rows
        columns_shown = [to_logical(a, f.type) for a, f in zip(arrays, schema, strict=True)]
        yield batch_of(columns_shown, schema, rows)
