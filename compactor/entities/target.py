"""The output table of an entity merge: its state at the start of the run, and the final commit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from os import fspath
from typing import Final

import pyarrow as pa
from msgspec.structs import replace

from compactor.entities.breaker import check_gone
from compactor.entities.datasets import Located, check_not_read, locate
from compactor.entities.entities import KEY, REPLACED_AT, UPDATED
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.memo import Memo, from_bytes, to_pieces
from compactor.entities.run import EntityRun
from compactor.entities.spec import EntityMergeSpec
from compactor.entities.state import State, check_columns, check_datasets, numbers_of
from compactor.errors import (
    CommitConflictError,
    DataError,
    ObjectNotFoundError,
    StoreError,
    UsageError,
)
from compactor.rows.policy import RowKind, RowPolicy, Ttl
from compactor.stores.base import MAX_READ_BYTES, Store
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TableMetadata
from compactor.table.numbers import MAX_TTL_SECONDS
from compactor.table.object_names import memo_key
from compactor.table.snapshot import KEEPS_ROWS, Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.ingest import Amend, IngestOptions
from compactor.write.ingest.plan import check_own_folder
from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn

ROW_POLICY: Final = RowPolicy(RowKind.LAST, sequence=UPDATED)
"""Keeps the newest row per id, including deleted and replaced entities, which readers see."""
OPTIONS: Final = IngestOptions(rows=ROW_POLICY, buffer_bytes=64 << 20)
"""Rows come in the order of their keys, so that smaller fragments do not overlap, and take less memory."""
SORT: Final = (
    SortColumn(KEY),
    SortColumn(UPDATED, Order.ASC, Nulls.FIRST),
    SortColumn(REPLACED_AT, Order.NONE),
)
"""The key, the sequence of the row policy, and what a time to live measures."""


class Target:
    """The table of one run. Concurrent compactions may change it, but no other run of a merge."""

    def __init__(
        self, store: Store | None, tombstone_retention_seconds: float | None = None
    ) -> None:
        """store, tombstone_retention_seconds: as of `EntityRun`.

        Raises `UsageError` for a retention that no table can hold.
        """
        given = self._retention_seconds = tombstone_retention_seconds
        if not (given is None or given == math.inf or 1 <= given <= MAX_TTL_SECONDS):
            raise UsageError(
                f"tombstone_retention_seconds: must be a number of 1 to {MAX_TTL_SECONDS}, or inf, not "
                f"{given:g}"
            )
        self.store = store
        self.log = None if store is None else CommitLog(store)
        self.snapshot = Snapshot.empty() if self.log is None else self.log.refresh()
        self.url = "the table" if store is None else store.url
        self.before = State.of(self.snapshot.metadata, self.url)
        self._numbers: tuple[tuple[int, ...], int] = (), 0

    @property
    def first_updated(self) -> int:
        return 0 if self.before is None else self.before.next_updated

    @property
    def numbers(self) -> tuple[int, ...]:
        """The datasets' numbers, once the run has begun."""
        return self._numbers[0]

    @property
    def columns(self) -> pa.Schema:
        """The table's columns by shown name; none without a table."""
        metadata = self.snapshot.metadata
        return pa.schema([]) if metadata is None else metadata.shown_schema

    def begin(self, run: EntityRun) -> tuple[Sequence[Located | None], EntityMergeReport]:
        """Locates the datasets, and reports missing ones.

        Raises `InputError` for a place that holds no dataset, `UsageError` for changes that need a full run.
        """
        spec, folder = run.spec, fspath(run.folder)
        located = locate(spec, folder)
        if self.store is not None:
            check_not_read(spec, folder, located, self.store.url)
            if self.snapshot.metadata is None:
                check_own_folder(self.store.url)
        report = EntityMergeReport(version=self.snapshot.version)
        absent = [d.name for d, at in zip(spec.datasets, located, strict=True) if at is None]
        report.missing_datasets = tuple(absent)
        if self.before is not None and not run.full:
            check_datasets(self.before.datasets, spec.datasets, self.url)
        if self.before is not None:
            check_columns(self.before, self.snapshot.table, self.url, full=run.full)
        self._numbers = numbers_of(self.before, spec.datasets, full=run.full)
        if not spec.ignore_non_existent_datasets:
            report.waiting_for = tuple(name for name in spec.initial_datasets if name in absent)
        if self.before is not None and not report.waiting_for:
            check_gone(self.before, spec.datasets, located, run)
        return located, report

    def written_to(self) -> tuple[Store, CommitLog]:
        """Returns the table's store and log. Raises `UsageError` for a run without a table."""
        if self.store is None or self.log is None:
            raise UsageError(
                "store: None is for a dry run or an explanation: name the store of the table to write"
            )
        return self.store, self.log

    def state_after(self, run: EntityRun, report: EntityMergeReport) -> State:
        spec, before = run.spec, self.before
        names = (dataset.name for dataset in spec.datasets)
        found = tuple(name for name in names if name not in report.missing_datasets)
        lines = (report.summary, *report.lines())
        return State(
            datasets=spec.datasets,
            found=found,
            next_updated=report.next_updated,
            numbers=self._numbers[0],
            next_number=self._numbers[1],
            columns={} if before is None or run.full else before.columns,
            report=lines,
        )

    def amending(self, after: State, columns: Sequence[str], memo: str | None = None) -> Amend:
        """Returns the amendment that stores state `after` with a commit of rows.

        columns: of the rows. memo: key of what the next run has to know of the rows.

        The amendment raises `CommitConflictError` if another run has committed meanwhile.
        """

        def amend(latest: Snapshot, changes: Changes) -> Changes:
            self._check_unchanged(latest)
            table = changes.metadata or latest.table
            metadata = self._retaining(after.put_into(table, columns))
            return Changes(
                operation=changes.operation,
                adds=changes.adds,
                metadata=metadata,
                memo=memo if self._has_rows_of(latest) else None,
            )

        return amend

    def remember(self, after: State) -> int | None:
        """Commits changed dataset names and another retention if there are no rows to write. Returns the
        committed version; None if there is nothing to commit."""
        if self.log is None or self.before is None:
            return None
        table = self.snapshot.table
        if self.before == after and self._retaining(table) == table:
            return None

        def remembering(latest: Snapshot) -> Changes:
            self._check_unchanged(latest)
            metadata = self._retaining(after.put_into(latest.table))
            return Changes(operation=Operation.ALTER, metadata=metadata)

        return self.log.commit(remembering).version

    def remember_rows(self, memo: Memo, spec: EntityMergeSpec, run_id: str) -> str | None:
        """Stores a memo, which counts once a commit names it. Returns its key; None if it is too large."""
        assert self.store is not None, "only a dry run has no table"
        pieces = to_pieces(memo, spec)
        if sum(piece.nbytes for piece in pieces) > MAX_READ_BYTES:
            return None
        key = memo_key(self.snapshot.version, run_id)
        with self.store.start_upload(key) as upload:
            for piece in pieces:
                upload.write(piece)
            upload.complete()
        return key

    def remembered_rows(self, spec: EntityMergeSpec) -> tuple[Memo | None, str | None]:
        """Returns the memo of the last run if these settings made it, and a line if it is damaged."""
        key = self.snapshot.memo
        if self.store is None or key is None:
            return None, None
        place = f"{self.url}/{key}"
        try:
            return from_bytes(self.store.read(key), spec, place), None
        except ObjectNotFoundError:
            return None, f"{place}: is not there, so that all entities were read"
        except DataError as error:
            return None, f"{error}, so that all entities were read"

    def forget(self) -> None:
        """Removes the memo that the last commit has replaced, which no other run needs."""
        if self.store is not None and self.snapshot.memo is not None:
            with suppress(StoreError):  # else a vacuum does it
                self.store.delete(self.snapshot.memo)

    def _retaining(self, metadata: TableMetadata) -> TableMetadata:
        """Returns the metadata with the retention that this run asks for, as the table's time to live."""
        seconds = self._retention_seconds
        if seconds is None:
            return metadata
        if math.isinf(seconds):
            return replace(metadata, ttl=None)
        column = metadata.stored_name(REPLACED_AT)
        assert column is not None, "each table of an entity merge has it"
        return replace(metadata, ttl=Ttl(column, int(seconds)))

    def _has_rows_of(self, latest: Snapshot) -> bool:
        """Returns whether the latest snapshot has the rows that this run has compared with."""
        if self.log is None or latest.version == self.snapshot.version:
            return True
        meanwhile = self.log.history.versions_after(self.snapshot, latest.version)
        return all(version.changes.operation in KEEPS_ROWS for version in meanwhile)

    def _check_unchanged(self, latest: Snapshot) -> None:
        if State.of(latest.metadata, self.url) != self.before:
            happened = "another entity merge wrote to it meanwhile; this one"
        elif self.before and latest.table.stored_names != self.snapshot.table.stored_names:
            happened = "its columns were altered meanwhile; this run"
        else:
            return
        raise CommitConflictError(f"{self.url}: {happened} wrote nothing: run it again")
