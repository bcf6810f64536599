"""Says how the rows of an ingest join a table: they are appended, unless a subclass does otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from compactor.write.back_pressure import BackPressure
from compactor.write.ingest.commit import Amend, commit_fragments, unchanged
from compactor.write.ingest.plan import IngestPlan


class Adding:
    """Appends rows. Used for one ingest."""

    is_whole = False
    """Whether all files have to be added in one commit."""

    def __init__(
        self,
        on_progress: Callable[[int], None] = lambda _rows: None,
        *,
        amend: Amend = unchanged,
    ) -> None:
        """on_progress: called with the number of rows read so far. amend: as for `commit_fragments`."""
        self._on_progress = on_progress
        self._amend = amend
        self._rows = 0
        self.replaced_rows = 0
        """Number of rows that the commit deleted."""

    def admitted(self, log: CommitLog, pressure: BackPressure) -> Snapshot:
        """Returns the newest snapshot, once compactions have caught up so far that rows may be added.

        Raises what `BackPressure.admit` raises.
        """
        return pressure.admit(log)

    def begin(self, log: CommitLog, latest: Snapshot) -> None:
        """Is called before rows are read. Raises `UsageError`, `TableError` if the table forbids it."""

    def take(self, plan: IngestPlan, path: str, batch: pa.RecordBatch, rows_before: int) -> None:
        """Checks rows before they are written. batch: under stored names. rows_before: of the same file.

        Raises `InputError`.
        """
        self._check(plan, path, batch, rows_before)
        self._rows += batch.num_rows
        self._on_progress(self._rows)

    def _check(
        self, plan: IngestPlan, path: str, batch: pa.RecordBatch, rows_before: int
    ) -> None: ...

    def commit(
        self, log: CommitLog, snapshot: Snapshot, plan: IngestPlan, entries: list[FragmentEntry]
    ) -> Snapshot:
        """Commits the fragments, as `commit_fragments` does."""
        return commit_fragments(log, snapshot, plan, entries, amend=self._amend)
