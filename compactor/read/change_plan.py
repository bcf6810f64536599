"""Plans what each version did to rows, by the log alone. Pure.

The operation of a version says whether its fragments brought other rows. Where rows stand for themselves,
what changed are the rows of fragments that came and went, and those whose deletion bits changed. Where rows
of one key are merged, only the merged rows of before and after tell what changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import pyarrow as pa
from msgspec import Struct, field

from compactor.errors import UsageError
from compactor.predicate.tree import Compare, IsNull, Not, Op, Predicate
from compactor.rows.flags import stored_time
from compactor.rows.policy import Ttl
from compactor.table.entry import FragmentEntry, key_range
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import KEEPS_ROWS, Snapshot
from compactor.table.version import Changes, Lease, Operation, Version
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.arrays.widening import is_stored_as
from lsm_fragment.keys.comparator import ComparableKey

_MAY_EXPIRE_ROWS: Final = frozenset((Operation.COMPACT, Operation.UNDO))
"""Operations that keep all rows, except for those that have expired."""


class Change(StrEnum):
    """What became of a row."""

    INSERT = "insert"
    DELETE = "delete"
    UPDATE_BEFORE = "update_before"
    """The row of a key before it changed."""
    UPDATE_AFTER = "update_after"


class StoredRows(Struct, frozen=True):
    """Live rows of fragments of one version, without those that are also live in another version."""

    fragments: tuple[FragmentEntry, ...]
    other: Mapping[str, FragmentEntry] = field(default_factory=dict)
    """Some of these fragments as they are in the other version, with the rows deleted there, by key."""
    where: Predicate | None = None
    """Condition on stored rows; None for all."""


class VersionChange(Struct, frozen=True):
    """What one version did to rows."""

    version: int
    gone: tuple[StoredRows, ...]
    came: tuple[StoredRows, ...]
    is_merged: bool = False
    """Whether `gone` and `came` are all rows of the changed keys before and after, rather than the changed
    rows."""


def planned_changes(
    since: Snapshot, versions: Iterable[Version], table: TableMetadata, asked: Collection[str]
) -> Iterator[VersionChange]:
    """Yields the changes of the versions after `since` that changed rows. Reads nothing but the log.

    table: the metadata of the last version, in whose schema rows are read. asked: stored names of the columns
    that are read. Raises `UsageError` for a version whose changes are not known, or whose values in these
    columns do not fit that schema or are gone, once it is reached.
    """
    live = {entry.key: entry for entry in since.fragments.all()}
    leases = dict(since.leases)
    lost = _LostColumns(table, asked)
    if since.metadata is not None:
        check_types(since.metadata, table, asked, since.version)
        lost.follow(since.metadata)
    for version in versions:
        changes = version.changes
        if changes.metadata is not None:
            check_types(changes.metadata, table, asked, version.number)
            lost.follow(changes.metadata)
        leases |= {lease.compaction_id: lease for lease in changes.leases}
        ended = [lease for i in changes.ended_leases if (lease := leases.pop(i, None)) is not None]
        may_change = _may_change(changes, table)
        before = dict(live) if may_change and table.rows.merges else {}
        removed = [live.pop(key) for key in changes.removes]
        live.update((entry.key, entry) for entry in changes.adds)
        # An undo ends the leases of all compactions that run, which are not what it undoes.
        ours = ended if changes.operation is Operation.COMPACT else ()
        if changes.operation is Operation.COMPACT:
            lost.compacted(_compactions(removed, changes.adds, ours))
        if not may_change:
            continue
        check_known(version)
        if table.rows.merges:
            planned = [_merged(version.number, table, (removed, before), (changes.adds, live))]
        elif changes.operation in _MAY_EXPIRE_ROWS:
            planned = list(_expired(version, table, removed, ours))
        else:
            planned = [_apart(version.number, removed, changes.adds)]
        for change in planned:
            lost.check(change)
            yield change


def check_known(version: Version) -> None:
    """Raises `UsageError` for a version whose changes are not known."""
    if version.changes.operation is Operation.DROP:
        raise UsageError(
            f"version {version.number} gave up a fragment that was damaged or gone, and what rows it had "
            f"is not known: read changes until version {version.number - 1}, and since version "
            f"{version.number}"
        )


def _may_change(changes: Changes, table: TableMetadata) -> bool:
    if not (changes.adds or changes.removes):
        return False
    if changes.operation in _MAY_EXPIRE_ROWS:
        return table.ttl is not None
    return changes.operation not in KEEPS_ROWS


def check_types(
    then: TableMetadata, table: TableMetadata, asked: Collection[str], version: int
) -> None:
    """Raises `UsageError` if a column had values that its type in `table` may not hold, after a restore.

    asked: stored names of the columns that count.
    """
    for column in then.schema:
        place = table.schema.get_field_index(column.name) if column.name in asked else -1
        if place >= 0 and not is_stored_as(column.type, table.schema.field(place).type):
            raise UsageError(
                f"column {table.shown_name(column.name)!r} was {column.type} in version {version} and is "
                f"{table.schema.field(place).type} in the last version of the changes, as an earlier version "
                f"was restored: read changes until version {version}, and since the restore"
            )


class _LostColumns:
    """Which columns compactions left out while they were dropped, and a restore brought back.

    The rows of `since` have values there, and what a compaction wrote has none. So a change that takes such
    rows would take others than those that `since` and the changes so far have given.
    """

    def __init__(self, table: TableMetadata, asked: Collection[str]) -> None:
        """asked: stored names of the columns that count."""
        self._table = table
        self._asked = frozenset(table.schema.names).intersection(asked)
        self._dropped: frozenset[str] = frozenset()
        """Columns asked for that the version at hand has dropped."""
        self._by_key: dict[str, str] = {}
        """One of these columns for each fragment without their values, by key."""

    def follow(self, metadata: TableMetadata) -> None:
        self._dropped = frozenset(metadata.retired).intersection(self._asked)

    def compacted(
        self, compactions: Iterable[tuple[Sequence[FragmentEntry], Sequence[FragmentEntry]]]
    ) -> None:
        """Takes note of the outputs that lack what their inputs have, or have lost before."""
        if not (self._dropped or self._by_key):
            return
        for inputs, outputs in compactions:
            before = [self._by_key[entry.key] for entry in inputs if entry.key in self._by_key]
            had = {name for entry in inputs for name in self._dropped.intersection(entry.columns)}
            for entry in outputs:
                if gone := [*before, *sorted(had.difference(entry.columns))]:
                    self._by_key[entry.key] = gone[0]

    def check(self, change: VersionChange) -> None:
        """Raises `UsageError` if the change takes rows that have lost values."""
        keys = (entry.key for stored in change.gone for entry in stored.fragments)
        column = next((self._by_key[key] for key in keys if key in self._by_key), None)
        if column is not None:
            raise UsageError(
                f"column {self._table.shown_name(column)!r} was dropped when a compaction rewrote rows that "
                f"version {change.version} takes, and is back as an earlier version was restored; so their "
                f"values are not known: read changes until version {change.version - 1}, and since version "
                f"{change.version - 1}"
            )


def _apart(
    version: int, removed: Sequence[FragmentEntry], added: Sequence[FragmentEntry]
) -> VersionChange:
    """Returns the rows that went and came with fragments, and with deletion bits of fragments that stayed."""
    before = {entry.key: entry for entry in removed}
    after = {entry.key: entry for entry in added}
    return VersionChange(version, _only_in(before, after), _only_in(after, before))


def _only_in(
    some: Mapping[str, FragmentEntry], others: Mapping[str, FragmentEntry]
) -> tuple[StoredRows, ...]:
    changed = tuple(
        entry
        for key, entry in some.items()
        if key not in others or entry.deletion != others[key].deletion
    )
    if not changed:
        return ()
    return (StoredRows(changed, {e.key: others[e.key] for e in changed if e.key in others}),)


# --- rows that expired ---


def _expired(
    version: Version,
    table: TableMetadata,
    removed: Sequence[FragmentEntry],
    ended: Sequence[Lease],
) -> Iterator[VersionChange]:
    """Yields the rows that compactions left out, or that the undoing of one brought back.

    A compaction keeps rows from some time on, and leaves out all before it. So those before the oldest row of
    its outputs are the ones that it left out.
    """
    assert table.ttl is not None, "without a time to live compactions keep all rows"
    gone: list[StoredRows] = []
    came: list[StoredRows] = []
    for inputs, outputs in _compactions(removed, version.changes.adds, ended):
        rows_in, rows_out = (sum(entry.live_rows for entry in side) for side in (inputs, outputs))
        if rows_in > rows_out:
            gone.append(StoredRows(tuple(inputs), where=_before(outputs, table, table.ttl)))
        elif rows_out > rows_in:
            came.append(StoredRows(tuple(outputs), where=_before(inputs, table, table.ttl)))
    if gone or came:
        yield VersionChange(version.number, tuple(gone), tuple(came))


def _compactions(
    removed: Sequence[FragmentEntry], added: Sequence[FragmentEntry], ended: Sequence[Lease]
) -> Iterator[tuple[list[FragmentEntry], list[FragmentEntry]]]:
    """Yields inputs and outputs of each compaction of a version: by its lease, and what no lease tells."""
    left = {entry.key: entry for entry in removed}
    outputs = {entry.key: entry for entry in added}
    for lease in ended:
        ours = [e for e in added if e.run == lease.compaction_id]
        for entry in ours:
            outputs.pop(entry.key, None)
        yield [left.pop(key) for key in lease.inputs if key in left], ours
    if left or outputs:
        yield list(left.values()), list(outputs.values())


def _before(kept: Sequence[FragmentEntry], table: TableMetadata, ttl: Ttl) -> Predicate:
    """Returns the condition of rows older than all rows of `kept`; rows without a time never expire."""
    times = [entry.oldest_unix_ms for entry in kept if entry.oldest_unix_ms is not None]
    if not times:
        return Not(IsNull(ttl.column))
    dtype = storage_type(table.schema.field(ttl.column).type)
    return Compare(ttl.column, Op.LT, pa.scalar(stored_time(min(times), dtype), dtype))


# --- rows merged by key ---


def _merged(
    version: int,
    table: TableMetadata,
    before: tuple[Sequence[FragmentEntry], Mapping[str, FragmentEntry]],
    after: tuple[Sequence[FragmentEntry], Mapping[str, FragmentEntry]],
) -> VersionChange:
    """Returns all fragments of before and after that have keys of the fragments that changed.

    before, after: the fragments that went or came, and all that were live then. A fragment that reaches
    beyond these keys is on both sides, so its other rows are the same on both.
    """
    compare = table.key_comparator()
    reaches = _joined([key_range(entry, compare) for entry in (*before[0], *after[0])])

    def is_near(entry: FragmentEntry) -> bool:
        low, high = key_range(entry, compare)
        return any(lower <= high and low <= upper for lower, upper in reaches)

    gone, came = (tuple(filter(is_near, live.values())) for _, live in (before, after))
    return VersionChange(version, (StoredRows(gone),), (StoredRows(came),), is_merged=True)


def _joined(
    ranges: Iterable[tuple[ComparableKey, ComparableKey]],
) -> list[tuple[ComparableKey, ComparableKey]]:
    """Joins ranges that overlap."""
    joined: list[tuple[ComparableKey, ComparableKey]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined
