"""Streams the rows that came, went and changed between two versions, by the plan of the log.

Each version's rows are read as a scan reads them: rows that came are a scan of the fragments that came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

import pyarrow as pa
from msgspec.structs import replace

from compactor.errors import UsageError, VersionNotFoundError
from compactor.predicate.tree import And, Predicate, columns_of
from compactor.read.change_plan import (
    Change,
    StoredRows,
    VersionChange,
    check_known,
    planned_changes,
)
from compactor.read.merged_changes import MergedChanges, merged_changes
from compactor.read.read_reports import ScanReport
from compactor.read.scan import scan
from compactor.read.scan_pieces import of_fragments
from compactor.read.wanted import scan_schema, stored_schema
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from compactor.table.tags import unix_ms_of
from compactor.table.version import Version
from lsm_fragment.arrays.joining import batch_of

CHANGE: Final = "_change"
VERSION: Final = "_version"


_ADDED: Final = (pa.field(CHANGE, pa.string(), nullable=False),
                 pa.field(VERSION, pa.int64(), nullable=False))  # fmt: skip


def changes_schema(table: TableMetadata, columns: Sequence[str] | None) -> pa.Schema:
    """Returns the schema of changes: the columns, then `_change` and `_version`.

    columns: shown names; None for all. Raises `UsageError` for a column that is unknown, or has one of these
    names.
    """
    schema = scan_schema(table, columns)
    for name in (CHANGE, VERSION):
        if name in schema.names:
            raise UsageError(
                f"column {name!r} has the name of a column that is added to changes: name the others"
            )
    return pa.schema([*schema, *_ADDED], metadata=schema.metadata)


def first_of(log: CommitLog, since: int | str | datetime) -> Snapshot:
    """Returns the version after which changes begin: by number, tag or time.

    0, or a time before the first version, is before all changes. Raises `VersionNotFoundError` if it is not
    kept.
    """
    newest = log.current()
    if isinstance(since, datetime) and newest.oldest <= 1:
        unix_ms = unix_ms_of(since)
        if log.history.newest_not_after(unix_ms, newest) == 0:
            return Snapshot.empty()
    if isinstance(since, int):
        check_since(log, since, newest)
    return Snapshot.empty() if since == 0 else log.named(since)


def versions_between(log: CommitLog, since: Snapshot, until: Snapshot) -> list[Version]:
    """Returns the versions after `since` up to `until`, if all that they need is kept.

    Raises `UsageError` if they are the wrong way round, `VersionNotFoundError` if a vacuum may have taken
    what a version in between needs.
    """
    url = log.store.url
    if since.version > until.version:
        raise UsageError(
            f"{url}: version {since.version}, since which changes are asked for, is later than version "
            f"{until.version}, until which"
        )
    if since.version == until.version:
        return []
    check_since(log, since.version, log.latest)
    return log.history.versions_after(since, until.version)


def check_since(log: CommitLog, version: int, latest: Snapshot) -> None:
    """Raises `VersionNotFoundError` if a vacuum may have taken what changes since a version need, and for a
    number that no version has."""
    if version < 0:
        log.history.check_kept(version, latest)
    first = 0 if latest.oldest <= 1 else latest.oldest
    if version < first:
        raise VersionNotFoundError(
            f"{log.store.url}: a vacuum has taken versions after version {version}, so what they changed is "
            f"gone; the oldest version since which changes can be read is {first}. A tag of a reader keeps "
            "them: `compactor changes --reader NAME`, or option reader of a stream in Spark"
        )


def read_changes(
    store: Store,
    since: Snapshot,
    until: Snapshot,
    versions: Sequence[Version],
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    report: ScanReport | None = None,
    *,
    threads: int = 1,
) -> Iterator[pa.RecordBatch]:
    """Yields the changes of `versions`, in the schema of `until`, version by version.

    Within a version rows that went come before rows that came, each in sort order; merged rows are in the
    order of their keys, that of before in front of that of after. columns, where, report, threads: see
    `scan`. Raises what `scan` and `planned_changes` raise, and for a version whose changes are not known
    before it reads anything.
    """
    for version in versions:
        # First of all, since what was given up is damaged or gone, and rows of earlier versions need it.
        check_known(version)
    table = until.table
    schema = changes_schema(table, columns)
    names = schema.names[: -len(_ADDED)]
    for change in planned_changes(since, versions, table, stored_names(table, names, where)):
        for kinds, batch in changed_rows(
            store, table, change, names, where, report or ScanReport(), threads=threads
        ):
            yield with_kinds(batch, kinds, change.version, schema)


def stored_names(
    table: TableMetadata, names: Sequence[str], where: Predicate | None
) -> frozenset[str]:
    """Returns the stored names of the columns that reading changes takes: those of the result, of the
    condition, and those that order, merge and expire rows.

    names: shown names. where: on stored columns.
    """
    found = {*stored_schema(table, scan_schema(table, names)).names}
    found.update(column.column for column in table.sort)
    if where is not None:
        found.update(columns_of(where))
    if table.ttl is not None:
        found.add(table.ttl.column)
    return frozenset(found)


def changed_rows(
    store: Store,
    table: TableMetadata,
    change: VersionChange,
    names: Sequence[str],
    where: Predicate | None,
    report: ScanReport,
    *,
    threads: int,
) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    """Yields the rows of a planned change, each batch with the kind of every row.

    table: in whose schema rows are read. names: shown names of the columns. where, report, threads: see
    `scan`. Raises what `scan` raises.
    """
    base = replace(Snapshot.empty(), metadata=table)

    def rows(stored: StoredRows, asked: Sequence[str]) -> Iterator[pa.RecordBatch]:
        parts = [part for part in (where, stored.where) if part is not None]
        condition = And(tuple(parts)) if len(parts) > 1 else next(iter(parts), None)
        some = of_fragments(base, stored.fragments)
        return scan(store, some, asked, condition, report, threads=threads, other=stored.other)

    if not change.is_merged:
        return _apart(change, names, rows)
    fields = MergedChanges.of(table, names)
    [gone], [came] = change.gone, change.came
    return merged_changes(rows(gone, fields.asked), rows(came, fields.asked), fields)


def _apart(
    change: VersionChange,
    names: Sequence[str],
    rows: Callable[[StoredRows, Sequence[str]], Iterator[pa.RecordBatch]],
) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    """Yields the batches of rows that went and came, each with the kind of every row."""
    for kind, parts in ((Change.DELETE, change.gone), (Change.INSERT, change.came)):
        for stored in parts:
            for batch in rows(stored, names):
                yield pa.repeat(str(kind), batch.num_rows), batch


def with_kinds(
    batch: pa.RecordBatch, kinds: pa.Array, version: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Returns the rows with `_change` and `_version`. schema: of `changes_schema`."""
    numbers = pa.repeat(pa.scalar(version, pa.int64()), batch.num_rows)
    return batch_of([*batch.columns, kinds, numbers], schema, batch.num_rows)
