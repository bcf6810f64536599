"""Overwrites rows: deletes those that match a condition, or all, and adds others in the same commit.

The new rows become fragments first. Then the rows to replace are searched, as for a deletion, and one version
deletes them and adds the fragments. After a lost race the search continues with what was committed meanwhile,
so an overwrite takes the place of all matching rows of the preceding version, whoever added them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from compactor.errors import InputError, TableNotFoundError
from compactor.predicate.holding import holding
from compactor.predicate.tree import Predicate, columns_of
from compactor.read.steps import thread_pool_of
from compactor.resources.cores import usable_cores
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.back_pressure import BackPressure
from compactor.write.ingest import Adding, IngestPlan, commit_fragments
from compactor.write.replacing import Replacing
from compactor.write.search import until_current
from lsm_fragment.arrays.storage import to_storage


class Overwrite(Adding):
    """Puts rows in the place of those that match a condition. Used for one ingest."""

    is_whole = True

    def __init__(
        self,
        where: str | None,
        on_progress: Callable[[int], None] = lambda _rows: None,
        *,
        threads: int | None = None,
    ) -> None:
        """where: the rows to replace, which all new rows have to match; None replaces all rows.

        threads: number that search; None means one per core of this process.
        """
        super().__init__(on_progress)
        self._where = where
        self._threads = threads or usable_cores()
        self._bound: tuple[IngestPlan, Predicate] | None = None
        """The condition on the columns of a plan."""

    def admitted(self, log: CommitLog, pressure: BackPressure) -> Snapshot:
        """Waits for nothing if all rows are replaced, because nothing is left to compact then."""
        return log.refresh() if self._where is None else super().admitted(log, pressure)

    def begin(self, log: CommitLog, latest: Snapshot) -> None:
        """Raises `UsageError` for an invalid condition, `TableNotFoundError` for one without a table."""
        if self._where is None:
            return
        if latest.metadata is None:
            raise TableNotFoundError(
                f"{log.store.url}: no table here yet, so no rows match a condition: leave the condition out"
            )
        condition_on(latest.metadata, self._where)

    def _check(self, plan: IngestPlan, path: str, batch: pa.RecordBatch, rows_before: int) -> None:
        """Raises `InputError` for a row that does not match the condition."""
        if self._where is None:
            return
        if self._bound is None or self._bound[0] is not plan:
            self._bound = plan, condition_on(plan.metadata, self._where)
        condition = self._bound[1]
        arrays = {
            name: to_storage(batch.column(name))
            if name in batch.schema.names
            else pa.nulls(batch.num_rows, plan.metadata.schema.field(name).type)
            for name in columns_of(condition)
        }

        def place(row: int) -> str:
            return f"{path}, row {rows_before + row + 1:,}"

        holds = holding(condition, arrays, batch.num_rows, place)
        if holds.true_count < batch.num_rows:
            row = int(np.flatnonzero(~np.asarray(holds))[0])
            raise InputError(
                f"{place(row)}: it does not match {self._where!r}, whose rows are overwritten; nothing was "
                "changed: leave the row out, or widen the condition"
            )

    def commit(
        self, log: CommitLog, snapshot: Snapshot, plan: IngestPlan, entries: list[FragmentEntry]
    ) -> Snapshot:
        """Commits the fragments and the deletion of what they replace.

        Raises what `commit_fragments` and a deletion raise.
        """
        commit = partial(commit_fragments, log, snapshot, plan, entries)
        if self._where is None:
            return commit(amend=self._without_all)
        with thread_pool_of(self._threads) as pool:
            replacing = Replacing(log.store, self._where, Operation.OVERWRITE, pool)

            def attempt(latest: Snapshot) -> Snapshot:
                replacing.find(latest)
                return commit(amend=replacing.amend)

            after = until_current(log, attempt, "overwritten")
            self.replaced_rows = replacing.rows
            return after

    def _without_all(self, latest: Snapshot, changes: Changes) -> Changes:
        all_entries = latest.fragments.all()
        self.replaced_rows = sum(entry.live_rows for entry in all_entries)
        return replace(
            changes,
            operation=Operation.OVERWRITE,
            removes=tuple(entry.key for entry in all_entries),
        )
