"""Commits the fragments of an ingest as one version of the table."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from msgspec import structs
from msgspec.structs import replace

from compactor.errors import InputError, TableExistsError
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.not_null import not_null_paths
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.file_schema import OnConflict, merged_schema
from compactor.write.ingest.columns import fixed_columns
from compactor.write.ingest.fitting import FittingCheck
from compactor.write.ingest.plan import IngestPlan
from lsm_fragment.arrays.widening import is_stored_as

Amend = Callable[[Snapshot, Changes], Changes]
"""A hook that is called on each try with the newest snapshot and the changes, and returns the changes to
commit. An exception prevents the commit."""


def unchanged(_latest: Snapshot, changes: Changes) -> Changes:
    return changes


def commit_fragments(
    log: CommitLog,
    snapshot: Snapshot,
    plan: IngestPlan,
    entries: list[FragmentEntry],
    *,
    amend: Amend = unchanged,
) -> Snapshot:
    """Commits all entries at once and returns the new snapshot; equal keys keep the order of the entries.

    snapshot: as passed to `plan_ingest`. amend: modifies the changes before the commit. Raises `InputError`
    if a column's type has changed since the file was read, or becomes one that cannot hold a stored value.
    """
    on_conflict = plan.options.on_conflict
    fitting = FittingCheck(log.store, plan.path)

    def prepare(latest: Snapshot) -> Changes:
        changes = _changes(latest, snapshot, plan.metadata, entries, plan.path, on_conflict)
        changes = amend(latest, changes)
        table = changes.metadata or latest.table
        if latest.metadata is not None and latest.metadata.schema != table.schema:
            gone = set(changes.removes).difference(entry.key for entry in changes.adds)
            stay = (entry for entry in latest.fragments.all() if entry.key not in gone)
            fitting.check_live(stay, latest.metadata, table)
        fitting.check_own(entries, plan.metadata, table)
        return changes

    return log.commit(prepare)


def _changes(
    latest: Snapshot,
    planned_on: Snapshot,
    metadata: TableMetadata,
    entries: list[FragmentEntry],
    path: str,
    on_conflict: OnConflict,
) -> Changes:
    if latest.metadata is None or planned_on.metadata is None:
        if latest.version != planned_on.version:
            is_same = replace(latest.table, schema=metadata.schema, remembered=()) == metadata
            if not is_same or not_null_paths(latest.table.schema) != not_null_paths(
                metadata.schema
            ):
                raise TableExistsError(
                    f"{path}: the table was created meanwhile with another sort schema, row policy, other "
                    "time windows or other columns without nulls; nothing was added: ingest the file again "
                    "with the options of that table"
                )
            metadata = _united(latest.table, metadata, path, on_conflict)
    elif latest.metadata != planned_on.metadata:
        metadata = _united(latest.table, metadata, path, on_conflict)
    number = latest.version + 1
    aged = tuple(structs.replace(e, sequence=(number, index)) for index, e in enumerate(entries))
    changed = latest.metadata is None or latest.metadata != metadata
    return Changes(operation=Operation.INGEST, adds=aged, metadata=metadata if changed else None)


def _united(
    latest: TableMetadata, ours: TableMetadata, path: str, on_conflict: OnConflict
) -> TableMetadata:
    """Adds our new columns and wider types to the latest metadata.

    Raises `InputError` if another writer gave one of our columns a type that cannot hold our values.
    """
    # A column dropped meanwhile stays dropped, as if our rows had been committed before.
    written = pa.schema([field for field in ours.schema if field.name not in latest.retired])
    names, new = dict(latest.names), {*written.names}.difference(latest.schema.names)
    names.update((s, n) for s, n in ours.names if s in new)
    schema = merged_schema(latest.schema, written, path, fixed_columns(latest), on_conflict, names)
    shown = [names.get(name, name) for name in schema.names]
    if len(set(shown)) < len(shown):
        raise InputError(
            f"{path}: columns of the table were renamed meanwhile to names of new columns of the file; "
            "nothing was added: ingest the file again"
        )
    for column in written:
        if not is_stored_as(column.type, schema.field(column.name).type):
            raise InputError(
                f"{path}: column {names.get(column.name, column.name)!r} was added meanwhile as "
                f"{schema.field(column.name).type}, here it is {column.type}; nothing was added: ingest "
                "the file again"
            )
    return replace(latest, schema=schema, names=tuple(names.items()))
