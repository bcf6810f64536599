"""Deletes rows by a condition. The commit hides them from readers; compactions and a vacuum remove them from
storage.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from compactor.read.steps import thread_pool_of
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.replacing import Replacing
from compactor.write.search import FragmentProgress, until_current


class DeleteReport(Struct, kw_only=True):
    """The result of a deletion, or of its dry run."""

    version: int
    """The committed version, or the searched one if nothing was deleted."""
    rows: int = 0
    """Rows that readers no longer see; one per key if the table merges rows of a key."""
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
    where: str,
    *,
    dry_run: bool = False,
    threads: int = 1,
    skip_missing: bool = False,
    on_progress: FragmentProgress = lambda _done: None,
) -> DeleteReport:
    """Deletes all rows that satisfy the condition, in one commit.

    A row stays if the condition is unknown, as in a comparison with null. Running compactions of the changed
    fragments go on: their commits carry the deletions to the outputs.
    where: a text on shown names, which is bound again when the table's columns have changed meanwhile.
    threads: number that search. skip_missing: ignores fragments that are gone or in quarantine,
    whose matching rows reappear once they are restored or released.
    Raises `UsageError` for an invalid condition; `FormatError` or `DataError` for damaged fragments, before
    anything is deleted; `CommitConflictError` if fragments change faster than they can be searched.
    """
    with thread_pool_of(threads) as pool:
        replacing = Replacing(
            store,
            where,
            Operation.DELETE,
            pool,
            on_progress=on_progress,
            skip_missing=skip_missing,
        )

        def attempt(snapshot: Snapshot) -> DeleteReport:
            if dry_run:
                replacing.count(snapshot)
                return _report_of(replacing, snapshot)
            replacing.find(snapshot)
            if not replacing.fragments:
                return _report_of(replacing, snapshot)
            deletion = partial(replacing.amend, changes=Changes(operation=Operation.DELETE))
            return _report_of(replacing, log.commit(deletion))

        return until_current(log, attempt, "deleted")


def _report_of(replacing: Replacing, snapshot: Snapshot) -> DeleteReport:
    search = replacing.search
    return DeleteReport(
        version=snapshot.version,
        rows=replacing.shown_rows,
        fragments=replacing.fragments,
        fragments_read=search.opened,
        waiting=_waiting(snapshot),
        fragments_left_out=search.left_out.fragments_left_out,
        rows_left_out=search.left_out.rows_left_out,
    )


def _waiting(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(sorted(e.key for e in snapshot.fragments.all() if e.deletion is not None))
