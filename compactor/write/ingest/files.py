"""Ingests files as level-0 fragments: read, conform, sort, write, commit. Each file is one commit."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from compactor.common.clock import Ids, random_id
from compactor.errors import InputError
from compactor.files.names import FileFormat, kind_of
from compactor.files.promote import PromotedBatches
from compactor.files.read import DEFAULT_BATCH_BYTES, open_table_file
from compactor.files.source import FileBatches
from compactor.rows.policy import APPEND, RowPolicy
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from compactor.write.ingest.columns import fixed_shown, schema_to_read
from compactor.write.ingest.commit import Amend, as_they_are, commit_fragments
from compactor.write.ingest.fragments import ByteProgress, write_fragments
from compactor.write.ingest.options import IngestOptions
from compactor.write.ingest.plan import plan_ingest
from compactor.write.schema_union import OnConflict, conflicting, same_kind
from format.schema import SortSchema

_PARQUET_BATCH_BYTES: Final = 32 << 20
"""Bytes of a Parquet file that are decoded at a time. All rows of a fragment are held for sorting anyway, and
larger batches have fewer row groups that go on in the next batch, for which rows are copied."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result of ingesting one file."""

    path: str
    version: int
    rows: int
    """Rows that were read."""
    superseded_rows: int
    """Rows that the table's row policy left out, for others of their key in the same fragment."""
    fragments: int
    bytes_written: int
    sort_of_file: SortSchema | None = None
    """Sort schema of a new table, if it was taken from the file's metadata."""
    not_promoted: tuple[str, ...] = ()
    """Columns that were to be promoted and that the file does not have."""


def ingest_file(
    store: Store,
    log: CommitLog,
    path: str,
    sort: SortSchema | None,
    options: IngestOptions,
    *,
    ids: Ids = random_id,
    on_progress: ByteProgress = lambda _done, _total: None,
) -> IngestReport:
    """Adds a file's rows to the table; creates the table if there is none.

    A new table is sorted by `sort`, or as the metadata of a Parquet, Arrow or fragment file say. Nothing is
    visible before the file's one commit. Raises `InputError` if the file cannot be read or does not fit,
    `TableNotFoundError` without a table and a sort schema, `UsageError` for a sort other than the table's.
    """
    snapshot = log.refresh()
    known = None if snapshot.metadata is None else schema_to_read(snapshot.metadata)

    def open_file() -> FileBatches:
        return _open(path, known, snapshot.metadata, options)

    def ingested(file: FileBatches) -> IngestReport:
        return ingest_batches(
            store, log, snapshot, file, sort, options, ids=ids, on_progress=on_progress
        )

    if not options.promotes:
        with open_file() as file:
            return ingested(file)
    with PromotedBatches(open_file, options.promotes) as promoted:
        return replace(ingested(promoted), not_promoted=promoted.absent)


def _open(
    path: str, known: pa.Schema | None, table: TableMetadata | None, options: IngestOptions
) -> FileBatches:
    """Opens a file with the table's types for the columns whose values fit them."""
    kind = kind_of(path)
    is_parquet = kind is not None and kind.format is FileFormat.PARQUET
    open_as = partial(
        open_table_file,
        path,
        batch_bytes=_PARQUET_BATCH_BYTES if is_parquet else DEFAULT_BATCH_BYTES,
        keeps_codes=not options.promotes,
    )
    if known is None or table is None or options.on_conflict is OnConflict.ERROR:
        return open_as(known)
    try:
        return open_as(known)
    except InputError:
        with open_table_file(path) as file:
            conflicts = conflicting(known, file.schema, fixed_shown(table))
        if not conflicts:
            raise
    # Columns of another kind cannot be read as the table's type; for those of the same kind, try.
    other_kind = {n for n, t in conflicts if not same_kind(t, known.field(n).type)}
    try:
        return open_as(pa.schema([f for f in known if f.name not in other_kind]))
    except InputError:
        return open_as(pa.schema([f for f in known if f.name not in dict(conflicts)]))


def ingest_batches(
    store: Store,
    log: CommitLog,
    snapshot: Snapshot,
    file: FileBatches,
    sort: SortSchema | None,
    options: IngestOptions,
    *,
    ids: Ids = random_id,
    on_progress: ByteProgress = lambda _done, _total: None,
    amend: Amend = as_they_are,
) -> IngestReport:
    """Does what `ingest_file` does, for batches that were opened with the snapshot's schema."""
    sort_of_file = None
    if sort is None and snapshot.metadata is None:
        sort_of_file = _sort_of(file, options.rows or APPEND)
    plan = plan_ingest(log, snapshot, file.schema, file.path, sort or sort_of_file, options)
    written = write_fragments(store, plan, file, ids(), on_progress=on_progress)
    after = commit_fragments(log, snapshot, plan, written.entries, amend=amend)
    kept = sum(entry.rows for entry in written.entries)
    return IngestReport(
        file.path,
        after.version,
        written.rows,
        written.rows - kept,
        len(written.entries),
        sum(entry.size_bytes for entry in written.entries),
        sort_of_file,
    )


def _sort_of(file: FileBatches, rows: RowPolicy) -> SortSchema | None:
    """Returns the sort schema that the file states, up to the sequence column, which the policy adds."""
    said = itertools.takewhile(lambda column: column.column != rows.sequence, file.sort or ())
    return tuple(said) or None
