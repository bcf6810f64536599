"""Divides the rows of a table among tasks that run in any order.

If rows are not merged by key, each fragment is read by itself, large ones in parts. Otherwise overlapping
fragments are read together.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeVar

import pyarrow as pa
from msgspec import Struct, structs

from compactor.predicate.tree import Predicate, columns_of
from compactor.read.pruning import may_have, overlapping_fragments, unless_ruled_out
from compactor.read.read_reports import ScanReport
from compactor.read.row_group_reader import RowGroupReader
from compactor.read.scan import batches, steps_of_overlapping
from compactor.read.steps import Step
from compactor.read.stored_rows import stored_rows
from compactor.read.wanted import Wanted, rule_of_readers, scan_schema, stored_schema, wanted_rows
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot

TASK_BYTES: Final = 128 << 20
"""Decoded bytes that a task reads at most by default, if rows can be divided."""
_WORTH_A_TASK_BYTES: Final = 8 << 20
"""Combine fragments below this decoded size into one task."""
_MIN_SHARED_BYTES: Final = 1 << 20
"""Below this decoded size a task of its own costs more than it saves."""
_OPENING_BYTES: Final = 256 << 10
"""A part counts as if so much of it was read, if it has as much: opening it takes as long."""
_VALUE_BYTES: Final = 8
"""Least size of a value that is read, however small its column is as stored."""
_MIN_SHARE: Final = 1 / 1024
_SAMPLED: Final = 64
"""Fragments whose sizes by column say how much of a table is read: they are texts to be parsed."""
_MAX_PARTS: Final = 100_000
"""Maximum number of parts beyond one per fragment. Larger tables get larger parts, whatever sizes the log
claims."""


class RowGroups(Struct, frozen=True):
    """A range of row groups of a fragment whose rows need no merge."""

    entry: FragmentEntry
    start: int
    stop: int


class OverlappingFragments(Struct, frozen=True):
    """Fragments that share keys with one another and with no others."""

    entries: tuple[FragmentEntry, ...]


Part = RowGroups | OverlappingFragments
_Packed = TypeVar("_Packed")


def tasks_of(
    snapshot: Snapshot,
    where: Predicate | None,
    task_bytes: int,
    report: ScanReport,
    *,
    columns: Sequence[str] | None = None,
    min_tasks: int = 1,
) -> list[tuple[Part, ...]]:
    """Returns tasks in key order; each row that may satisfy the condition is in exactly one of them.

    Tasks decode to about `task_bytes` at most if fragments can be divided, and omit what the log rules out.
    where: on stored columns. report: counts the fragments, and the skipped ones. columns: shown names of
    those that are read; None means all. min_tasks: makes tasks smaller, down to a MiB, to have so many where
    rows can be divided; more tasks are as many or twice as many and so on, as far as fragments allow, so that
    all run until the end.
    """
    share = 1.0 if columns is None else _share_read(snapshot, columns, where)

    def weight(size: int) -> int:
        return max(int(share * size), min(size, _OPENING_BYTES))

    found = [
        (overlapping, may_have(overlapping, snapshot.table, where))
        for overlapping in overlapping_fragments(snapshot)
    ]
    report.fragments += sum(len(overlapping) for overlapping, _ in found)
    report.fragments_skipped += sum(len(overlapping) - len(kept) for overlapping, kept in found)
    kept = [entries for _, entries in found if entries]
    read_bytes = sum(weight(entry.raw_bytes) for entries in kept for entry in entries)
    tasks = 1
    if min_tasks > 1:
        rounds = max(1, -(-read_bytes // (task_bytes * min_tasks)))
        tasks = max(1, min(rounds * min_tasks, -(-read_bytes // _MIN_SHARED_BYTES), _MAX_PARTS))
        task_bytes = min(task_bytes, read_bytes // tasks + 1)
    if rule_of_readers(snapshot.table) is not None:
        merged = (
            (OverlappingFragments(tuple(map(bare, some))), weight(sum(e.raw_bytes for e in some)))
            for some in kept
        )
        return list(packed(merged, task_bytes))
    if tasks > 1:
        return _divided_evenly(
            [(e, max(1, weight(e.raw_bytes))) for entries in kept for e in entries], tasks
        )
    cut_bytes = int(max(task_bytes, read_bytes // _MAX_PARTS) / share)
    parts = (part for entries in kept for part in _apart(entries, cut_bytes))
    return list(packed(((part, weight(size)) for part, size in parts), task_bytes))


def _divided_evenly(
    entries: Sequence[tuple[FragmentEntry, int]], tasks: int
) -> list[tuple[Part, ...]]:
    """Cuts all row groups, end to end, into tasks of one size, as if those of a fragment were equal. A task
    for which a fragment has too few is left out.

    entries: with their decoded sizes in bytes.
    """
    made: list[list[Part]] = [[] for _ in range(tasks)]
    total, before = sum(size for _, size in entries), 0
    for entry, size in entries:
        groups = max(1, entry.row_groups)
        first, last = before * tasks // total, (before + size - 1) * tasks // total
        # In halves of a row group, so that each goes to the task that has its middle.
        cuts = (
            (total * task // tasks - before) * 2 * groups // size
            for task in range(first + 1, last + 1)
        )
        bounds = [0, *((cut + 1) // 2 for cut in cuts), groups]
        for task, (start, stop) in zip(range(first, last + 1), pairwise(bounds), strict=True):
            if stop > start:
                made[task].append(RowGroups(bare(entry), start, stop))
        before += size
    return [tuple(parts) for parts in made if parts]


def _share_read(snapshot: Snapshot, columns: Sequence[str], where: Predicate | None) -> float:
    """Returns how much of the decoded bytes the columns have, with those of the condition and of row rules,
    by the largest fragments; more than nothing."""
    table = snapshot.table
    wanted = wanted_rows(
        table, stored_schema(table, scan_schema(table, columns)), where, ScanReport()
    )
    asked = [] if wanted.where is None else columns_of(wanted.where)
    keys = [] if wanted.rule is None else [column.column for column in table.sort]
    names = {*wanted.columns, *asked, *keys}
    largest = heapq.nlargest(_SAMPLED, snapshot.fragments.all(), key=lambda entry: entry.raw_bytes)
    whole = sum(entry.raw_bytes for entry in largest)
    read = sum(_read_bytes(entry, names) for entry in largest)
    return max(read / whole, _MIN_SHARE) if whole else 1.0


def _read_bytes(entry: FragmentEntry, names: Collection[str]) -> int:
    """Returns the decoded bytes of the columns of a fragment that have these stored names."""
    raw = [sizes.raw for name, sizes in entry.columns.items() if name in names]
    return min(entry.raw_bytes, sum(max(size, _VALUE_BYTES * entry.rows) for size in raw))


def packed(parts: Iterable[tuple[_Packed, int]], task_bytes: int) -> Iterator[tuple[_Packed, ...]]:
    """Packs small neighbours into one task. parts: with their decoded sizes in bytes."""
    waiting: list[_Packed] = []
    size = 0
    for part, weight in parts:
        if waiting and (size >= _WORTH_A_TASK_BYTES or size + weight > task_bytes):
            yield tuple(waiting)
            waiting, size = [], 0
        waiting.append(part)
        size += weight
    if waiting:
        yield tuple(waiting)


def _apart(entries: Sequence[FragmentEntry], task_bytes: int) -> Iterator[tuple[Part, int]]:
    """Yields even ranges of row groups and their sizes, as if all row groups of a fragment were equal."""
    for entry in entries:
        groups = max(1, entry.row_groups)
        count = min(groups, max(1, -(-entry.raw_bytes // task_bytes)))
        bounds = (groups * place // count for place in range(count + 1))
        for start, stop in pairwise(bounds):
            yield RowGroups(bare(entry), start, stop), entry.raw_bytes * (stop - start) // groups


def bare(entry: FragmentEntry) -> FragmentEntry:
    """Drops the column sizes, which no reader needs, since tasks are sent over the network."""
    return structs.replace(entry, columns={})


def read_parts(
    store: Store,
    table: TableMetadata,
    parts: Sequence[Part],
    columns: Sequence[str],
    where: Predicate | None,
    report: ScanReport,
    *,
    threads: int = 1,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a task that satisfy the condition, within the memory limit of a scan.

    columns: shown names. where: on stored columns. threads: number that read and decode.
    Raises what `compactor.read.scan.scan` raises.
    """
    schema = scan_schema(table, columns)
    wanted = wanted_rows(table, stored_schema(table, schema), where, report)
    steps = (step for part in parts for step in _steps_of(store, table, part, wanted))
    return batches(steps, table, schema, report, threads)


def _steps_of(
    store: Store, table: TableMetadata, part: Part, wanted: Wanted
) -> Iterator[Step[pa.RecordBatch]]:
    if isinstance(part, OverlappingFragments):
        wanted.report.fragments += len(part.entries)
        yield from steps_of_overlapping(store, table, part.entries, wanted)
        return
    skips = unless_ruled_out(store, part.entry, table, wanted.where)
    if skips is None:
        wanted.report.row_groups_skipped += part.stop - part.start
        return
    reader = RowGroupReader(store, table, part.entry, wanted.where, skips, wanted.report)
    yield from stored_rows(reader, part.start, part.stop, wanted)
