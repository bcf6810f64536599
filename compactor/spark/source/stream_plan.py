"""Plans what a batch of a stream reads, by the log alone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from compactor.errors import UsageError
from compactor.read.change_plan import StoredRows, VersionChange, check_types
from compactor.read.change_tasks import bytes_of
from compactor.read.pruning import overlapping_fragments
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import KEEPS_ROWS, Snapshot
from compactor.table.version import Operation, Version

_ONLY_EXPIRES: Final = frozenset((Operation.EXPIRE, Operation.UNDO))
"""Operations, besides `KEEPS_ROWS`, by which only rows past their time go or come back."""


def appended_rows(
    since: Snapshot,
    versions: Iterable[Version],
    table: TableMetadata,
    asked: Collection[str],
    *,
    skips_others: bool,
    url: str,
) -> Iterator[VersionChange]:
    """Yields the rows that each version appended. Rows that expire are left out.

    skips_others: passes versions over that delete or replace rows. table, asked: see `planned_changes`.
    url: the table's address. Raises `UsageError` for such a version without that, once it is reached.
    """
    if since.metadata is not None:
        check_types(since.metadata, table, asked, since.version)
    for version in versions:
        changes = version.changes
        if changes.metadata is not None:
            check_types(changes.metadata, table, asked, version.number)
        if changes.operation is Operation.INGEST:
            if changes.adds:
                yield VersionChange(version.number, (), (StoredRows(changes.adds),))
        elif changes.operation not in KEEPS_ROWS | _ONLY_EXPIRES and not skips_others:
            raise UsageError(
                f"{url}: version {version.number} ({changes.operation}) deletes or replaces rows, which a "
                "stream of appended rows does not show: read all changes by option changes=true, or pass "
                "such versions over by skip_change_commits=true"
            )


def taken(
    changes: Iterable[VersionChange], max_bytes: int | None
) -> tuple[tuple[VersionChange, ...], bool]:
    """Takes changes for one batch, at least one; returns also whether it took all.

    max_bytes: decoded bytes that a batch may have, if it has more than one version. A version that cannot be
    read ends the batch before it, and raises `UsageError` if it is the first.
    """
    chosen: list[VersionChange] = []
    size = 0
    try:
        for change in changes:
            size += bytes_of(change)
            if chosen and max_bytes is not None and size > max_bytes:
                return tuple(chosen), False
            chosen.append(change)
    except UsageError:
        if not chosen:
            raise
        return tuple(chosen), False
    return tuple(chosen), True


def parts_of(snapshot: Snapshot) -> list[tuple[FragmentEntry, ...]]:
    """Divides a snapshot into the smallest parts that may be read in different batches.

    The parts and their order are always the same for a version: offsets count them.
    """
    together = map(tuple, overlapping_fragments(snapshot))
    if snapshot.table.rows.merges:
        return list(together)
    return [(entry,) for entries in together for entry in entries]


def end_of(
    parts: Sequence[tuple[FragmentEntry, ...]], start: int, max_bytes: int | None
) -> int | None:
    """Returns before which part a batch ends that begins with part `start`; None if it takes the last one."""
    size = 0
    for place in range(start, len(parts)):
        size += sum(entry.raw_bytes for entry in parts[place])
        if place > start and max_bytes is not None and size > max_bytes:
            return place
    return None
