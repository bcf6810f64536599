"""Rules out fragments and row groups by key ranges, statistics and skip indexes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from msgspec.structs import replace

from compactor.errors import DataError, ObjectNotFoundError
from compactor.planner.tree import all_items, components
from compactor.predicate.prune import ALL_NULL, UNKNOWN, Bounds, BoundsOf, Summary, may_match
from compactor.predicate.skipping.summary import AnyOf
from compactor.predicate.tree import Predicate, columns_of
from compactor.read.read_reports import ScanReport
from compactor.read.skip_indexes import read_index
from compactor.read.wanted import wanted_rows
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.missing import unreadable
from compactor.table.snapshot import Snapshot
from lsm_fragment.arrays.widening import converted_value
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.keys.sort_schema import Order


def bounds_by_keys(entry: FragmentEntry, table: TableMetadata) -> BoundsOf:
    """Returns the bounds of the first sort column, from the fragment's entry in the log."""
    first = table.sort[0]
    low, high = entry.first_key[:1], entry.last_key[:1]
    if first.order is Order.DESC:
        low, high = high, low
    is_known = bool(low and high) and low[0] is not None and high[0] is not None
    known = Bounds(low[0], high[0], may_be_null=False) if is_known else UNKNOWN
    return lambda column: known if column == first.column else UNKNOWN


SkipIndexes = Mapping[str, list[Summary | None]]
"""Summaries of a fragment's row groups by column; None for a row group without one."""


def skip_index_of(
    store: Store, entry: FragmentEntry, table: TableMetadata, where: Predicate
) -> SkipIndexes:
    """Reads a fragment's skip indexes of the columns in a condition."""
    found: dict[str, list[Summary | None]] = {}
    indexed = {name for name, _ in table.skips.columns}
    for column in columns_of(where) if entry.skip_index is not None else ():
        if column not in indexed:
            continue
        try:
            summaries = read_index(store, entry, column, table.schema.field(column).type)
        except (DataError, ObjectNotFoundError):
            continue  # Without the index a scan only reads more; `verify` reports the damage.
        if summaries is not None:
            found[column] = summaries
    return found


def unless_ruled_out(
    store: Store, entry: FragmentEntry, table: TableMetadata, where: Predicate | None
) -> SkipIndexes | None:
    """Returns a fragment's skip indexes; None if they or its keys rule it out. Does not open it.

    where: on stored columns; None for all rows.
    """
    if where is None:
        return {}
    known = bounds_by_keys(entry, table)
    if not may_match(where, known):
        return None
    skips = skip_index_of(store, entry, table, where)
    return skips if may_match(where, bounds_by_skip_index(skips, known)) else None


def bounds_by_skip_index(skips: SkipIndexes, known: BoundsOf) -> BoundsOf:
    """Returns the bounds of a whole fragment without opening it. known: its bounds by keys."""

    def bounds(column: str) -> Bounds:
        parts = skips.get(column, [None])
        summaries = [part for part in parts if part is not None]
        if len(summaries) < len(parts):
            return known(column)
        return replace(known(column), summary=AnyOf(summaries))

    return bounds


def bounds_by_statistics(
    reader: FragmentReader, group: int, table: pa.Schema, skips: SkipIndexes | None = None
) -> BoundsOf:
    """Returns the bounds of a row group from footer and skip index, in the table's types."""
    footer = reader.footer
    rows = footer.row_groups[group].rows

    def summary(column: str) -> Summary | None:
        return skips[column][group] if skips and column in skips else None

    def bounds(column: str) -> Bounds:
        field, chunks = footer.field(column), footer.chunks(column)
        if field is None or not chunks:
            return ALL_NULL
        chunk = chunks[group]
        types = field.type, table.field(column).type
        low, high = (converted_value(value, *types) for value in (chunk.min, chunk.max))
        return Bounds(low, high, chunk.null_count > 0, chunk.null_count < rows, summary(column))

    return bounds


def may_have(
    entries: Sequence[FragmentEntry], table: TableMetadata, where: Predicate | None
) -> Sequence[FragmentEntry]:
    """Returns the fragments that the log does not rule out. where: on stored columns; None for all rows."""
    # If rows are merged, only conditions on the key may rule out a single fragment.
    safe = wanted_rows(table, table.schema, where, ScanReport()).where
    return [e for e in entries if safe is None or may_match(safe, bounds_by_keys(e, table))]


def without_unreadable(
    store: Store, snapshot: Snapshot, where: Predicate | None, report: ScanReport
) -> Snapshot:
    """Removes the fragments that are in quarantine or gone from a snapshot.

    where: on stored columns; None for all rows. report: counts the removed fragments that may have such rows.
    Lists the table's data; raises `StoreError`.
    """
    left_out = [snapshot.fragments[key] for key in unreadable(store, snapshot)]
    wanted = may_have(left_out, snapshot.table, where)
    report.fragments_left_out += len(wanted)
    report.rows_left_out += sum(entry.live_rows for entry in wanted)
    return snapshot.without(entry.key for entry in left_out)


def overlapping_fragments(snapshot: Snapshot) -> Iterator[list[FragmentEntry]]:
    """Yields the sets of fragments with overlapping keys, in key order; each set oldest first."""
    for items in components(all_items(snapshot)):
        yield sorted((item.entry for item in items), key=lambda entry: entry.age)
