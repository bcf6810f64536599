"""Renames, drops, redacts and reorders columns, and sets properties, in one commit that rewrites no fragment.

Fragments keep their columns' stored names. Old fragments stay readable, and earlier versions of the table
show their own columns. Compactions leave out dropped columns.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from compactor.common.setting_keys import ORDER, RETENTION
from compactor.errors import ConfigError, UsageError
from compactor.files.column_names import flaw_of
from compactor.predicate.skipping.spec import SkipKind, SkipSpec
from compactor.rows.policy import RowKind
from compactor.settings.fields import Seconds
from compactor.settings.model import Settings
from compactor.settings.properties import Value, as_told, changed
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from lsm_fragment.arrays.types import table_type
from lsm_fragment.names import names_text


class Alteration(Struct, frozen=True, kw_only=True):
    """Changes to a table, applied in the order of the fields. Columns are named as shown before the
    change."""

    renames: Mapping[str, str] = field(default_factory=dict)
    drops: Sequence[str] = ()
    redacts: Sequence[str] = ()
    """Columns that lose all values: each is dropped and added again under the same name."""
    order: Sequence[str] = ()
    """Columns to put first, by their new names."""
    skips: Mapping[str, SkipKind | None] = field(default_factory=dict)
    """Skip indexes by the columns' new names; None removes one."""
    skip_bytes: int | None = None
    """New maximum bytes of a skip index per column and row group."""
    properties: Mapping[str, object] = field(default_factory=dict)
    """Values of properties, as `compactor.settings.properties.changed` takes them, and the retention of time
    windows; None unsets one."""


class AlterReport(Struct, frozen=True, kw_only=True):
    """The table after an alteration."""

    version: int
    columns: tuple[str, ...]
    """Names of the columns in order."""
    properties: Mapping[str, Value]
    """The properties that are set, by name."""
    retention_seconds: int | None
    """Time windows that ended longer ago are dropped; None if all are kept, or the table has none."""
    waiting: tuple[str, ...]
    """Keys of the fragments that hold dropped columns until they are compacted."""


def alter_report(after: Snapshot) -> AlterReport:
    """Returns the report on an alteration. after: the snapshot that it committed."""
    retired = set(after.table.retired)
    waiting = (
        entry.key
        for entry in (after.fragments.all() if retired else ())
        if not retired.isdisjoint(entry.columns)
    )
    names, windows = after.table.shown_schema.names, after.table.windows
    return AlterReport(
        version=after.version,
        columns=tuple(names),
        properties=dict(after.table.properties),
        retention_seconds=None if windows is None else windows.retention_seconds,
        waiting=tuple(sorted(waiting)),
    )


def alter_table(log: CommitLog, alteration: Alteration) -> Snapshot:
    """Commits the alteration and returns the new snapshot.

    Raises `UsageError` with the column that does not allow the change, `ConfigError` with the property.
    """

    def prepare(latest: Snapshot) -> Changes:
        return Changes(operation=Operation.ALTER, metadata=altered(latest.table, alteration))

    log.current()
    return log.commit(prepare)


def altered(table: TableMetadata, change: Alteration) -> TableMetadata:
    """Returns the metadata after the alteration. Pure. Raises `UsageError`."""
    stored = {
        name: _stored(table, name) for name in [*change.renames, *change.drops, *change.redacts]
    }
    if not (stored or change.order or change.skips or change.skip_bytes or change.properties):
        raise UsageError(
            "nothing to change: name a column to rename, drop, redact or put first, or a property to set"
        )
    for name in change.renames:
        if name in change.drops:
            raise UsageError(
                f"column {name!r} is both to be renamed and to be dropped: name it once"
            )
    gone = [stored[name] for name in [*change.drops, *change.redacts]]
    if len(set(gone)) < len(gone):
        raise UsageError("a column is named twice among those to drop or redact")
    for name in [*change.drops, *change.redacts]:
        _check_droppable(table, stored[name], name)
    names = dict(table.names)
    for old, new in change.renames.items():
        if not new:
            raise UsageError(f"column {old!r}: its new name is empty")
        if (flaw := flaw_of(new)) is not None:
            raise UsageError(f"column {old!r}: its new name {new!r} {flaw}")
        names[stored[old]] = new
    fields = []
    retired = list(table.retired)
    fresh: dict[str, str | None] = {}
    """New stored name of each dropped or redacted column; None for a dropped one."""
    for column in table.schema:
        if column.name not in gone:
            fields.append(column)
            continue
        retired.append(column.name)
        fresh[column.name] = None
        shown = names.pop(column.name, column.name)
        if column.name in [stored[name] for name in change.redacts]:
            taken = [name for name in fresh.values() if name is not None]
            stored_name = fresh[column.name] = table.new_stored_name(shown, taken)
            fields.append(pa.field(stored_name, table_type(column.type)))
            names[stored_name] = shown
    kept = [(fresh.get(s, s), kind) for s, kind in table.skips.columns]
    skips = tuple((stored, kind) for stored, kind in kept if stored is not None)
    names = {s: shown for s, shown in names.items() if s != shown}
    result = replace(
        table,
        schema=pa.schema(fields, metadata=table.schema.metadata),
        names=tuple(names.items()),
        retired=tuple(retired),
        redacted=(*table.redacted, *(stored[name] for name in change.redacts)),
        skips=dataclasses.replace(table.skips, columns=skips),
    )
    result = _with_properties(_with_skips(result, change), change.properties)
    for name, count in Counter(result.shown_schema.names).items():
        if count > 1:
            raise UsageError(f"two columns would be called {name!r}")
    return _ordered(result, change.order)


def _with_properties(table: TableMetadata, changes: Mapping[str, object]) -> TableMetadata:
    """Sets properties, and the retention, which belongs to the table's time windows."""
    rest: dict[str, Any] = dict(changes)
    windows = table.windows
    if RETENTION in rest:
        if windows is None:
            raise ConfigError(
                "retention: the table has no time windows to drop; how long versions are kept is the "
                "property retain_seconds"
            )
        given = as_told(_Retention, [("retention", rest.pop(RETENTION))]).retention
        windows = dataclasses.replace(
            windows, retention_seconds=None if given is None else int(given)
        )
    return replace(table, windows=windows, properties=changed(table.properties, rest))


class _Retention(Settings):
    retention: Seconds | None


def _with_skips(table: TableMetadata, change: Alteration) -> TableMetadata:
    kinds = dict(table.skips.columns)
    for shown, kind in change.skips.items():
        kinds.pop(_stored(table, shown), None)
        if kind is not None:
            kinds[_stored(table, shown)] = kind
    size = change.skip_bytes or table.skips.bytes_per_row_group
    return table.with_skips(SkipSpec(tuple(kinds.items()), size))


def _ordered(table: TableMetadata, order: Sequence[str]) -> TableMetadata:
    first = [_stored(table, name) for name in order]
    if len(set(first)) < len(first):
        raise UsageError(ORDER, " names a column twice")
    rest = [name for name in table.schema.names if name not in first]
    schema = pa.schema(
        [table.schema.field(name) for name in [*first, *rest]], table.schema.metadata
    )
    return replace(table, schema=schema)


def _stored(table: TableMetadata, shown: str) -> str:
    name = table.stored_name(shown)
    if name is None:
        raise UsageError(
            f"no column {shown!r}; columns are: {names_text(table.shown_schema.names)}"
        )
    return name


def _check_droppable(table: TableMetadata, stored: str, shown: str) -> None:
    if stored in {column.column for column in table.sort}:
        raise UsageError(
            f"column {shown!r} is part of the sort schema or of the row policy; it cannot be dropped or "
            "redacted: create another table without it"
        )
    if table.rows.kind is RowKind.AGGREGATE and stored in dict(table.rows.aggregates):
        raise UsageError(f"column {shown!r} is aggregated; it cannot be dropped or redacted")
    if stored in table.needed_columns:
        raise UsageError(
            f"column {shown!r} is needed by the next run of the entity merge that writes the table; it "
            "cannot be dropped or redacted: merge into another table"
        )
