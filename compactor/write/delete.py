"""Deletes rows by a condition. The commit hides them from readers; compactions and a vacuum remove them from
storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from compactor.common.clock import Ids, random_id
from compactor.errors import CommitConflictError
from compactor.predicate.tree import Predicate
from compactor.read.steps import thread_pool_of
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.deletions import write_deletions
from compactor.table.object_names import deletions_key
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.search import FragmentProgress, Search, until_current, with_deletions


@dataclass(slots=True, kw_only=True)
class DeleteReport:
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
    where: Predicate,
    *,
    dry_run: bool = False,
    threads: int = 1,
    skip_quarantined: bool = False,
    ids: Ids = random_id,
    on_progress: FragmentProgress = lambda _done: None,
) -> DeleteReport:
    """Deletes all rows that satisfy the condition, in one commit.

    A row stays if the condition is unknown, as in a comparison with null. Running compactions of the changed
    fragments go on: their commits carry the deletions to the outputs.
    threads: number that search. skip_quarantined: ignores fragments in quarantine, whose matching rows
    reappear on release.
    Raises `FormatError` or `DataError` for damaged fragments, before anything is deleted;
    `CommitConflictError` if fragments change faster than they can be searched.
    """
    with thread_pool_of(threads) as pool:
        search = Search(store, where, pool, on_progress, skip_quarantined=skip_quarantined)
        return until_current(log, partial(_delete, log, search, ids, dry_run=dry_run), "deleted")


def _delete(
    log: CommitLog, search: Search, ids: Ids, snapshot: Snapshot, *, dry_run: bool
) -> DeleteReport:
    store = search.store
    try:
        found = search.look(snapshot)
    except (KeyError, pa.ArrowNotImplementedError) as error:
        raise CommitConflictError(
            f"{store.url}: a column of the condition was dropped, or got another type, meanwhile; "
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
    key = deletions_key(snapshot.version, ids())
    entries = write_deletions(store, key, [(item.entry, item.deleted) for item in found])
    changes = Changes(operation=Operation.DELETE)
    after = log.commit(lambda latest: with_deletions(latest, search, entries, changes))
    report.version, report.waiting = after.version, _waiting(after)
    return report


def _waiting(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(sorted(e.key for e in snapshot.fragments.all() if e.deletion is not None))
