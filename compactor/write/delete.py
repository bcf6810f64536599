"""Deletes rows by a condition. The commit hides them from readers; compactions and a vacuum remove them from
storage.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
from msgspec import Struct

from compactor.common.clock import random_id
from compactor.errors import CommitConflictError
from compactor.predicate.tree import Predicate
from compactor.read.steps import thread_pool_of
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.deletions import write_deletions
from compactor.table.entry import FragmentEntry
from compactor.table.object_names import deletions_key
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.replacing import columns_of_text
from compactor.write.search import (
    FragmentProgress,
    Search,
    StaleSearchError,
    until_current,
    with_deletions,
)
from lsm_fragment.threads import ThreadPool


class DeleteReport(Struct, kw_only=True):
    """The result of a deletion, or of its dry run."""

    version: int
    """The committed version, or the searched one if nothing was deleted."""
    rows: int = 0
    fragments: int = 0
    """Fragments with matching rows."""
    fragments_read: int = 0
    """Fragments opened."""
    waiting: tuple[str, ...] = ()
    """Keys of the fragments that hold deleted rows until they are compacted."""
    fragments_left_out: int = 0
    """Fragments in quarantine that may have matching rows, left out as requested."""
    rows_left_out: int = 0
    """Rows of these fragments, matching or not."""


def delete_rows(
    store: Store,
    log: CommitLog,
    where: str | Predicate,
    *,
    dry_run: bool = False,
    threads: int = 1,
    skip_missing: bool = False,
    on_progress: FragmentProgress = lambda _done: None,
) -> DeleteReport:
    """Deletes all rows that satisfy the condition, in one commit.

    A row stays if the condition is unknown, as in a comparison with null. Running compactions of the changed
    fragments go on: their commits carry the deletions to the outputs.
    where: a text is on shown names, and is bound again when the table's columns have changed meanwhile.
    threads: number that search. skip_missing: ignores fragments that are gone or in quarantine,
    whose matching rows reappear once they are restored or released.
    Raises `UsageError` for an invalid condition; `FormatError` or `DataError` for damaged fragments, before
    anything is deleted; `CommitConflictError` if fragments change faster than they can be searched.
    """
    with thread_pool_of(threads) as pool:
        deletion = _Deletion(store, log, where, pool, on_progress, skip_missing)
        return until_current(log, partial(deletion.attempt, dry_run=dry_run), "deleted")


class _Deletion:
    def __init__(
        self,
        store: Store,
        log: CommitLog,
        where: str | Predicate,
        pool: ThreadPool,
        on_progress: FragmentProgress,
        skip_missing: bool,
    ) -> None:
        self._store, self._log, self._where = store, log, where
        self._new_search = partial(
            Search,
            store,
            pool=pool,
            on_progress=on_progress,
            skip_missing=skip_missing,
        )
        self._bound_to: tuple[Any, ...] = ()
        self._search: Search

    def attempt(self, snapshot: Snapshot, *, dry_run: bool) -> DeleteReport:
        """Deletes the rows of a snapshot. Raises `StaleSearchError` if it is no longer the newest one."""
        self._bind(snapshot)
        search = self._search
        try:
            found = search.look(snapshot)
        except (KeyError, pa.ArrowNotImplementedError) as error:
            raise CommitConflictError(
                f"{self._store.url}: a column of the condition was dropped, or got another type, meanwhile; "
                "nothing was deleted: look at the columns there are, and try again"
            ) from error
        report = DeleteReport(version=snapshot.version, fragments_read=search.opened)
        report.rows = sum(item.new_rows for item in found)
        report.fragments = len(found)
        report.waiting = _waiting(snapshot)
        report.fragments_left_out = search.left_out.fragments_left_out
        report.rows_left_out = search.left_out.rows_left_out
        if dry_run or not found:
            return report
        key = deletions_key(snapshot.version, random_id())
        bits = [(item.entry, item.deleted) for item in found]
        entries = write_deletions(self._store, key, bits)
        after = self._log.commit(partial(self._changes, entries))
        report.version, report.waiting = after.version, _waiting(after)
        return report

    def _bind(self, snapshot: Snapshot) -> None:
        if not isinstance(self._where, str):
            if not self._bound_to:
                self._search = self._new_search(self._where)
                self._bound_to = (self._where,)
        elif self._bound_to != columns_of_text(snapshot.table):
            self._bound_to = columns_of_text(snapshot.table)
            self._search = self._new_search(condition_on(snapshot.table, self._where))

    def _changes(self, entries: list[FragmentEntry], latest: Snapshot) -> Changes:
        """Raises `StaleSearchError` where the latest snapshot has rows that were not searched as they are."""
        if isinstance(self._where, str) and self._bound_to != columns_of_text(latest.table):
            raise StaleSearchError
        return with_deletions(latest, self._search, entries, Changes(operation=Operation.DELETE))


def _waiting(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(sorted(e.key for e in snapshot.fragments.all() if e.deletion is not None))
