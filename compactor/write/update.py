"""Updates rows: deletes those that match a condition, and adds their changed copies in the same commit.

The rows are read by a scan, changed and written as level-0 fragments in bounded memory. Only their bits are
deleted. If rows of a key are merged, the merged row is changed, and takes the place of all stored rows of its
key. After a lost race the update begins again with the newest version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.common.clock import random_id
from compactor.errors import DataError
from compactor.files.read import DEFAULT_BATCH_BYTES
from compactor.files.source import FileBatches
from compactor.predicate.tree import Predicate
from compactor.read.scan import scan
from compactor.read.steps import thread_pool_of
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Operation
from compactor.write.ingest import IngestOptions, IngestPlan, commit_fragments, plan_ingest
from compactor.write.ingest.conformed import conformed_rows
from compactor.write.ingest.fragments import FragmentsOfFiles
from compactor.write.replacing import Replacing
from compactor.write.search import StaleSearchError, until_current
from lsm_fragment.threads import ThreadPool

if TYPE_CHECKING:
    from compactor.write.assignments import Assignment

NAME: Final = "updated rows"
"""Stands for the path in errors."""


class UpdateReport(Struct, frozen=True, kw_only=True):
    """The result of an update, or of its dry run."""

    version: int
    """The committed version, or the searched one if nothing was updated."""
    rows: int = 0
    """Rows updated."""
    replaced_rows: int = 0
    """Stored rows that were deleted: more than `rows` if the table merges rows of a key."""
    fragments: int = 0
    """Fragments written."""
    bytes_written: int = 0


def update_rows(
    store: Store,
    log: CommitLog,
    where: str,
    given: Mapping[str, Any],
    *,
    dry_run: bool,
    threads: int,
    on_progress: Callable[[int, int], None],
    on_search: Callable[[int, int], None] = lambda _done, _all: None,
) -> UpdateReport:
    """Updates all rows that satisfy the condition, in one commit.

    given: as for `bound_assignments`. dry_run: computes the new rows and writes nothing. threads: number that
    search and read. on_progress: called with the number of rows changed so far, and of those found.
    on_search: called with the number of fragments searched so far, and of all.
    Raises `UsageError` for an invalid condition or assignment, `DataError` and `InputError` for a new value
    that its column can't take, and what deletions raise; then nothing is updated.
    """
    with thread_pool_of(threads) as pool:
        update = _Update(store, log, where, given, pool, on_progress, on_search)
        return until_current(log, update.dry_run if dry_run else update.attempt, "updated")


class _Update:
    def __init__(
        self,
        store: Store,
        log: CommitLog,
        where: str,
        given: Mapping[str, Any],
        pool: ThreadPool,
        on_progress: Callable[[int, int], None],
        on_search: Callable[[int, int], None],
    ) -> None:
        self._store, self._log, self._given = store, log, given
        self._pool, self._on_progress, self._on_search = pool, on_progress, on_search
        self._fragments = 0
        self._replacing = Replacing(
            store, where, Operation.UPDATE, pool, on_progress=self._told_of_search
        )

    def dry_run(self, snapshot: Snapshot) -> UpdateReport:
        file, plan = self._begin(snapshot)
        rows = sum(batch.num_rows for batch in conformed_rows(file, plan, self._told))
        return UpdateReport(version=snapshot.version, rows=rows, replaced_rows=self._replacing.rows)

    def attempt(self, snapshot: Snapshot) -> UpdateReport:
        """Updates the rows of a snapshot. Raises `StaleSearchError` if it is no longer the newest one."""
        file, plan = self._begin(snapshot)
        found = self._replacing.rows
        if not found:
            return UpdateReport(version=snapshot.version)
        fragments = FragmentsOfFiles(
            self._store, plan, random_id(), pool=self._pool, on_rows=self._told
        )
        with closing(fragments):
            fragments.add(file)
            written = fragments.finish()
        if written.rows != found and not snapshot.table.rows.merges:
            raise DataError(
                f"{self._store.url}: {found:,} rows match the condition and {written.rows:,} were read; "
                "nothing was updated: report it, with the output of `compactor --version`"
            )
        self._replacing.find(snapshot)
        try:
            after = commit_fragments(
                self._log, snapshot, plan, written.entries, amend=self._replacing.amend
            )
        except StaleSearchError:
            fragments.discard()
            raise
        return UpdateReport(
            version=after.version,
            rows=written.rows,
            replaced_rows=found,
            fragments=len(written.entries),
            bytes_written=fragments.bytes_written,
        )

    def _begin(self, snapshot: Snapshot) -> tuple[FileBatches, IngestPlan]:
        """Binds condition and assignments to a snapshot and finds the rows."""
        # Imported here, since most programs update nothing.
        from compactor.write.assignments import bound_assignments

        assignments = bound_assignments(snapshot.table, self._given)
        self._fragments = len(snapshot.fragments)
        self._replacing.count(snapshot)
        file = _ChangedRows(
            self._store, snapshot, self._replacing.where, assignments, self._pool.threads
        )
        options = IngestOptions(threads=self._pool.threads)
        plan = plan_ingest(self._log, snapshot, file.schema, NAME, None, options)
        return file, replace(plan, has_counts=True)

    def _told(self, _path: str, batch: pa.RecordBatch, rows_before: int) -> None:
        self._on_progress(rows_before + batch.num_rows, self._replacing.shown_rows)

    def _told_of_search(self, done: int) -> None:
        self._on_search(done, self._fragments)


class _ChangedRows(FileBatches):
    """The changed copies of the rows that match a condition, as a file."""

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        where: Predicate,
        assignments: Sequence[Assignment],
        threads: int,
    ) -> None:
        self.path = NAME
        self.schema = snapshot.table.shown_schema
        self._batch_bytes = DEFAULT_BATCH_BYTES
        self._store = store
        self._snapshot = snapshot
        self._where = where
        self._assignments = assignments
        self._scan_threads = threads

    def _reading(self) -> AbstractContextManager[None]:
        return nullcontext()  # errors are those of the table

    def _batches(self) -> Iterator[pa.RecordBatch]:
        from compactor.write.assignments import changed

        table = self._snapshot.table
        for batch in scan(
            self._store, self._snapshot, None, self._where, threads=self._scan_threads
        ):
            yield changed(batch, self._assignments, table)
