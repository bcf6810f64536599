"""Searches fragments for the rows that a change deletes, and commits their bits.

A search reads only the columns of its condition, fragment by fragment, and caches what it found. After a lost
race it continues with the fragments committed meanwhile, so that the change covers all rows of the preceding
version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
from msgspec import structs
from msgspec.structs import replace

from compactor.errors import CommitConflictError
from compactor.predicate.holding import holding
from compactor.predicate.prune import may_match
from compactor.predicate.tree import Predicate, columns_of
from compactor.read.fragment_columns import held_bytes, open_logged_fragment, read_columns
from compactor.read.limits import AHEAD_BYTES
from compactor.read.pruning import (
    SkipIndexes,
    bounds_by_statistics,
    unless_ruled_out,
    without_unreadable,
)
from compactor.read.read_reports import ScanReport
from compactor.read.steps import Step, in_order
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.damage import damage_explained
from compactor.table.deletions import Deleted, read_deletion
from compactor.table.entry import Deletion, FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes
from compactor.write.delete_merged import rows_behind
from lsm_fragment import compute as pc
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.threads import ThreadPool

_MAX_TRIES: Final = 50
FragmentProgress = Callable[[int], None]
"""Called with the number of fragments searched so far."""
T = TypeVar("T")


class StaleSearchError(Exception):
    """Fragments were added or changed since the search."""


def until_current(log: CommitLog, attempt: Callable[[Snapshot], T], done: str) -> T:
    """Returns the result of an attempt on the newest snapshot; repeats it while that raises
    `StaleSearchError`.

    done: names the change in the error. Raises `CommitConflictError` if fragments change faster than they can
    be searched.
    """
    for _ in range(_MAX_TRIES):
        try:
            return attempt(log.current())
        except StaleSearchError:
            continue
    raise CommitConflictError(
        f"{log.store.url}: fragments were added or changed {_MAX_TRIES} times during the search; nothing was "
        f"{done}: try again with fewer concurrent writers"
    )


def with_deletions(
    latest: Snapshot, search: Search, entries: list[FragmentEntry], changes: Changes
) -> Changes:
    """Adds deletions to the changes of a commit.

    entries: the fragments with matching rows, with their deletions. Raises `StaleSearchError` if the latest
    snapshot has fragments that were not searched in their current state.
    """
    keys = {entry.key for entry in entries}
    if not search.knows(latest) or not all(key in latest.fragments for key in keys):
        raise StaleSearchError
    # Trivial moves may have changed the level of some fragments since the search.
    deleted = (structs.replace(latest.fragments[e.key], deletion=e.deletion) for e in entries)
    return replace(
        changes,
        adds=(*changes.adds, *deleted),
        removes=(*changes.removes, *(entry.key for entry in entries)),
    )


class Search:
    """A search for matching rows, which caches its findings by fragment."""

    def __init__(
        self,
        store: Store,
        where: Predicate,
        pool: ThreadPool,
        on_progress: FragmentProgress,
        *,
        skip_missing: bool,
    ) -> None:
        self.store = store
        self._skip_missing = skip_missing
        self.left_out = ScanReport()
        """Counts of the fragments left out by the last `look`."""
        self._where = where
        self._pool = pool
        self._on_progress = on_progress
        self._found: dict[_Identity, MatchedRows | None] = {}
        self.opened = 0

    def knows(self, snapshot: Snapshot) -> bool:
        """Returns whether all fragments of the snapshot were searched in their current state."""
        searched = self._to_search(snapshot, ScanReport())
        return all(_identity(entry) in self._found for entry in searched.fragments.all())

    def _to_search(self, snapshot: Snapshot, left_out: ScanReport) -> Snapshot:
        if not self._skip_missing:
            return snapshot
        return without_unreadable(self.store, snapshot, self._where, left_out)

    @damage_explained()
    def look(self, snapshot: Snapshot) -> list[MatchedRows]:
        """Returns the fragments with rows to delete, ordered by object key."""
        self.left_out = ScanReport()
        snapshot = self._to_search(snapshot, self.left_out)
        entries = sorted(snapshot.fragments.all(), key=lambda entry: entry.key)
        if snapshot.table.rows.merges:
            self._look_at_merged(snapshot)
        unknown = [entry for entry in entries if _identity(entry) not in self._found]
        steps = (
            Step(partial(self._look_at, entry, snapshot.table), entry.raw_bytes)
            for entry in unknown
        )
        done = len(entries) - len(unknown)
        self._on_progress(done)
        for seen in in_order(steps, self._pool, AHEAD_BYTES):
            self._found[_identity(seen.entry)] = seen.matched
            self.opened += seen.is_opened
            done += 1
            self._on_progress(done)
        found = (self._found[_identity(entry)] for entry in entries)
        return [f._replace(entry=e) for e, f in zip(entries, found, strict=True) if f is not None]

    def _look_at_merged(self, snapshot: Snapshot) -> None:
        """Searches all fragments again: if rows are merged, no fragment can be decided alone."""
        if self.knows(snapshot):
            return
        self._found = {_identity(entry): None for entry in snapshot.fragments.all()}
        self.opened = 0
        for entry, bits, merged_rows in rows_behind(self.store, snapshot, self._where, self._pool):
            self.opened += 1
            if bits.true_count:
                before = read_deletion(self.store, entry)
                deleted = bits if before is None else pc.or_(bits, before)
                self._found[_identity(entry)] = MatchedRows(
                    entry, bits.true_count, merged_rows, deleted
                )
            self._on_progress(self.opened)

    def _look_at(
        self, entry: FragmentEntry, table: TableMetadata, pool: ThreadPool
    ) -> Iterator[_Seen]:
        skips = unless_ruled_out(self.store, entry, table, self._where)
        if skips is None:
            return iter([_Seen(entry, False, None)])
        reader = open_logged_fragment(self.store, entry)
        before = read_deletion(self.store, entry)
        needed = columns_of(self._where)
        firsts = accumulate((group.rows for group in reader.footer.row_groups), initial=0)
        steps = (
            Step(
                partial(self._matches, reader, group, first_row, skips, before, table.schema),
                held_bytes(reader, group, needed),
            )
            for group, first_row in zip(range(reader.row_groups), firsts, strict=False)
        )
        pieces = in_order(steps, pool, AHEAD_BYTES)
        matched: Deleted = pa.concat_arrays([pa.array([], pa.bool_()), *pieces])
        new = matched if before is None else pc.and_not(matched, before)
        rows = new.true_count
        if not rows:
            return iter([_Seen(entry, True, None)])
        deleted = matched if before is None else pc.or_(matched, before)
        return iter([_Seen(entry, True, MatchedRows(entry, rows, rows, deleted))])

    def _matches(
        self,
        reader: FragmentReader,
        group: int,
        first_row: int,
        skips: SkipIndexes,
        before: Deleted | None,
        schema: pa.Schema,
        pool: ThreadPool,
    ) -> Iterator[Deleted]:
        """Returns the mask of a row group's matching rows."""
        rows = reader.footer.row_groups[group].rows
        if not may_match(self._where, bounds_by_statistics(reader, group, schema, skips)):
            return iter([pa.repeat(False, rows)])
        needed = columns_of(self._where)
        arrays = read_columns(reader, group, needed, schema, pool, needs_text=False)
        alive = None if before is None else pc.invert(before.slice(first_row, rows))

        def place(row: int) -> str:
            return f"{reader.name}, row {first_row + row + 1:,}"

        return iter([holding(self._where, arrays, rows, place, alive)])


class _Seen(NamedTuple):
    """The result of searching one fragment."""

    entry: FragmentEntry
    is_opened: bool
    matched: MatchedRows | None


class MatchedRows(NamedTuple):
    entry: FragmentEntry
    new_rows: int
    """Matching stored rows that were not deleted before."""
    shown_rows: int
    """Rows that readers no longer see; fewer if the table merges rows of a key."""
    deleted: Deleted
    """All deleted rows of the fragment, old and new."""


_Identity = tuple[str, Deletion | None]


def _identity(entry: FragmentEntry) -> _Identity:
    """Returns the identity of a fragment's live rows, which does not depend on its level."""
    return entry.key, entry.deletion
