"""Divides planned changes among tasks that run in any order. Pure.

Fragments that came or went are read apart. Where rows of one key are merged, what was there before and after
is compared for each set of fragments that share keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from compactor.read.change_plan import StoredRows, VersionChange
from compactor.read.pruning import overlapping_fragments
from compactor.read.scan_pieces import of_fragments
from compactor.read.scan_tasks import bare, packed
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot


def bytes_of(change: VersionChange) -> int:
    """Returns the decoded bytes that reading a change takes, at most."""
    return sum(
        entry.raw_bytes for stored in (*change.gone, *change.came) for entry in stored.fragments
    )


def tasks_of_changes(
    changes: Iterable[VersionChange], table: TableMetadata, task_bytes: int
) -> list[tuple[VersionChange, ...]]:
    """Returns tasks of about `task_bytes` decoded bytes; each changed row is in exactly one of them.

    table: the metadata by which the changes were planned.
    """
    parts = (part for change in changes for part in _parts_of(change, table))
    return list(packed(((_bare(part), bytes_of(part)) for part in parts), task_bytes))


def _parts_of(change: VersionChange, table: TableMetadata) -> Iterator[VersionChange]:
    if change.is_merged:
        yield from _by_keys(change, table)
        return
    for stored in change.gone:
        for one in _by_fragment(stored):
            yield VersionChange(change.version, (one,), ())
    for stored in change.came:
        for one in _by_fragment(stored):
            yield VersionChange(change.version, (), (one,))


def _by_fragment(stored: StoredRows) -> Iterator[StoredRows]:
    for entry in stored.fragments:
        other = stored.other.get(entry.key)
        others = {} if other is None else {entry.key: other}
        yield StoredRows((entry,), others, stored.where)


def _by_keys(change: VersionChange, table: TableMetadata) -> Iterator[VersionChange]:
    """Yields the parts of a change of merged rows that share no keys."""
    [gone], [came] = change.gone, change.came
    either = {entry.key: entry for entry in (*gone.fragments, *came.fragments)}
    base = replace(Snapshot.empty(), metadata=table)
    for overlapping in overlapping_fragments(of_fragments(base, list(either.values()))):
        keys = {entry.key for entry in overlapping}
        yield replace(
            change,
            gone=(StoredRows(_of_keys(gone.fragments, keys)),),
            came=(StoredRows(_of_keys(came.fragments, keys)),),
        )


def _of_keys(fragments: Sequence[FragmentEntry], keys: set[str]) -> tuple[FragmentEntry, ...]:
    return tuple(entry for entry in fragments if entry.key in keys)


def _bare(change: VersionChange) -> VersionChange:
    """Drops the column sizes, as `bare` does."""
    gone, came = (
        tuple(
            StoredRows(
                tuple(map(bare, stored.fragments)),
                {key: bare(entry) for key, entry in stored.other.items()},
                stored.where,
            )
            for stored in side
        )
        for side in (change.gone, change.came)
    )
    return replace(change, gone=gone, came=came)
