"""Streams the rows of a table in sort order, merging where fragments overlap.

Row groups that overlap no other are returned as decoded; their sort columns are read only if wanted. A scan
skips what the log, skip indexes or footers rule out. With several threads it reads and decodes row groups in
parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from compactor.predicate.tree import Predicate
from compactor.read.limits import AHEAD_BYTES
from compactor.read.merged_rows import merged_rows
from compactor.read.pruning import overlapping_fragments, unless_ruled_out
from compactor.read.read_reports import ScanReport
from compactor.read.row_group_reader import RowGroupReader
from compactor.read.steps import Step, in_order, thread_pool_of
from compactor.read.stored_rows import stored_rows
from compactor.read.stretches import Part, stretches_of, whole_fragments
from compactor.read.wanted import Wanted, scan_schema, stored_schema, wanted_rows
from compactor.stores.base import Store
from compactor.table.damage import damage_explained
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot

_NONE: Final[Mapping[str, FragmentEntry]] = MappingProxyType({})


def scan(
    store: Store,
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    report: ScanReport | None = None,
    *,
    limit: int | None = None,
    threads: int = 1,
    other: Mapping[str, FragmentEntry] = _NONE,
) -> Iterator[pa.RecordBatch]:
    """Yields rows of a snapshot in sort order.

    columns: shown names; None for all. where: a condition on stored columns (`condition_on`); None for all
    rows. report: counts reads and skips. limit: maximum number of rows, after which nothing more is read.
    threads: number that read and decode; batches do not depend on it. other: fragments by key as they are in
    another version, whose live rows are left out.
    Raises `UsageError` for an unknown column, `FormatError` for damaged fragments.
    """
    table = snapshot.table
    schema = scan_schema(table, columns)
    report = report or ScanReport()
    wanted = wanted_rows(table, stored_schema(table, schema), where, report, limit)
    wanted.report.fragments += len(snapshot.fragments)
    steps = (
        step
        for entries in overlapping_fragments(snapshot)
        for step in steps_of_overlapping(store, table, entries, wanted, other)
    )
    return batches(steps, table, schema, wanted.report, threads, limit)


def batches(
    steps: Iterator[Step[pa.RecordBatch]],
    table: TableMetadata,
    schema: pa.Schema,
    report: ScanReport,
    threads: int,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the steps in order, and counts them. schema: with shown names."""
    if limit == 0:
        return
    left = limit
    with damage_explained(), thread_pool_of(threads) as pool:
        for read in in_order(steps, pool, AHEAD_BYTES):
            # Arrow takes no length beyond 63 bits.
            batch = read if left is None else read.slice(0, min(left, read.num_rows))
            if not batch.num_rows:
                continue
            report.rows += batch.num_rows
            yield batch.rename_columns(schema.names) if table.names else batch
            if left is not None and (left := left - batch.num_rows) == 0:
                return


def steps_of_overlapping(
    store: Store,
    table: TableMetadata,
    entries: Sequence[FragmentEntry],
    wanted: Wanted,
    other: Mapping[str, FragmentEntry] = _NONE,
) -> Iterator[Step[pa.RecordBatch]]:
    """Yields the steps that read overlapping fragments in key order.

    entries: oldest first. other: see `scan`. Merges only the stretches that overlap. Counts the skipped
    fragments and the contents of the others.
    """
    readers = []
    for entry in entries:
        skips = unless_ruled_out(store, entry, table, wanted.where)
        if skips is None:
            wanted.report.fragments_skipped += 1
        else:
            reader = RowGroupReader(
                store, table, entry, wanted.where, skips, wanted.report, other.get(entry.key)
            )
            readers.append(reader)
    for parts in _stretches(table, readers):
        if len(parts) == 1 and wanted.rule is None:
            [part] = parts
            yield from stored_rows(readers[part.fragment], part.start, part.stop, wanted)
        else:
            yield Step(partial(merged_rows, table, readers, parts, wanted), None)


def _stretches(table: TableMetadata, readers: Sequence[RowGroupReader]) -> Iterator[list[Part]]:
    if not readers:
        return iter(())
    fragments = [reader.row_groups for reader in readers]
    if len(readers) == 1 or not all(reader.has_key_types() for reader in readers):
        return iter([whole_fragments(fragments)])
    return stretches_of(fragments, table.key_comparator())
