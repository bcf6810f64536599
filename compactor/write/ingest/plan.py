"""Plans an ingest: the table's metadata and the schema of new fragments, before any row is read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.common.setting_keys import NOT_NULL, ROW_POLICY, SORT_BY, TIME_COLUMN, TTL
from compactor.common.table_folder import table_around
from compactor.errors import InputError, TableNotFoundError, UsageError
from compactor.files.column_names import check_names
from compactor.rows.policy import APPEND, check_policy, sort_with_policy, with_result_types
from compactor.settings.fragments import FragmentSettings
from compactor.settings.properties import beside, tuned
from compactor.settings.units import duration_text
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TableMetadata, TimeWindows
from compactor.table.not_null import not_null_paths, with_not_null
from compactor.table.snapshot import Snapshot
from compactor.table.windows import check_windows
from compactor.write.file_schema import merged_schema, require_columns
from compactor.write.ingest.columns import StoredNames, counted_columns, fixed_columns
from compactor.write.ingest.options import IngestOptions
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import SortSchema, check_sort_schema, ordering
from lsm_fragment.names import quoted


class IngestPlan(Struct, frozen=True, kw_only=True):
    """Metadata and fragment schema for rows of one schema. Picklable, so that other processes can write
    fragments without a snapshot."""

    path: str
    """Path of the file, for errors."""
    metadata: TableMetadata
    schema: pa.Schema
    """Schema of the fragments."""
    names: StoredNames
    base_version: int
    options: IngestOptions
    rows_per_fragment: int
    has_counts: bool = False
    """Whether values of counted columns are counts of rows that were in the table before."""


def plan_ingest(
    log: CommitLog,
    snapshot: Snapshot,
    schema: pa.Schema,
    path: str,
    sort: SortSchema | None,
    options: IngestOptions,
) -> IngestPlan:
    """Returns the plan for a file of this schema. Raises what `ingest_file` raises."""
    if snapshot.metadata is None:
        log.check_not_lost()
        check_own_folder(log.store.url)
    names = StoredNames(snapshot.metadata, schema, path, options.on_conflict)
    told = options.told
    metadata = _metadata(snapshot, names, sort, options, log.store, path)
    sizes = tuned(FragmentSettings(), beside(metadata.properties, told))
    if snapshot.metadata is None:
        metadata = replace(metadata, properties=told)
    options = dataclasses.replace(options, writer=sizes.writer_options(options.writer))
    known = () if snapshot.metadata is None else snapshot.metadata.schema.names
    shown = zip(metadata.schema.names, metadata.shown_schema, strict=True)
    check_names(pa.schema([field for stored, field in shown if stored not in known]), path)
    # Columns that the file lacks are omitted from its fragments, header included. But no values count 0.
    sorted_by = [column.column for column in metadata.sort]
    present = {*names.stored.names, *sorted_by, *counted_columns(metadata.rows)}
    stored = pa.schema([field for field in metadata.schema if field.name in present])
    for field in metadata.schema:
        if not (field.nullable or field.name in names.stored.names):
            raise InputError(
                f"{path}: column {metadata.shown_name(field.name)!r} is missing, and the table allows no "
                "nulls in it: add it"
            )
    return IngestPlan(
        path=path,
        metadata=metadata,
        schema=stored,
        names=names,
        base_version=snapshot.version,
        options=options,
        rows_per_fragment=sizes.rows_per_fragment,
    )


def check_own_folder(url: str) -> None:
    """Raises `UsageError` for a new table inside another one, whose vacuums and checks meet its files."""
    if "://" not in url and (table := table_around(Path(url).resolve())) is not None:
        raise UsageError(f"{url}: is inside the table at {table}: name a folder outside of it")


def _metadata(
    snapshot: Snapshot,
    names: StoredNames,
    sort: SortSchema | None,
    options: IngestOptions,
    store: Store,
    path: str,
) -> TableMetadata:
    windows, file = options.windows, names.stored
    if snapshot.metadata is None:
        if sort is None:
            raise TableNotFoundError(
                f"{store.url}: no table here yet: name its sort schema to create it by ",
                SORT_BY,
                ", such as service,host,timestamp:desc",
            )
        rows = options.rows or APPEND
        schema = with_result_types(merged_schema(None, file, path), rows)
        if rows.delete_marker is not None and rows.delete_marker not in schema.names:
            schema = schema.append(pa.field(rows.delete_marker, pa.bool_()))
        schema = with_not_null(schema, options.not_null)
        full = sort_with_policy(sort, rows, options.ttl)
        check_policy(rows, options.ttl, schema, full)
        try:
            check_sort_schema(schema, full)
        except SchemaError as error:
            raise UsageError(SORT_BY, f": {error}") from error
        if windows is not None:
            check_windows(windows, schema, rows.key_columns(full))
        metadata = TableMetadata(
            schema=schema, sort=full, windows=windows, rows=rows, ttl=options.ttl
        )
        return metadata.with_skips(options.skips)
    _check_options(snapshot.metadata, options)
    if sort is not None:
        sort = tuple(
            replace(c, column=snapshot.metadata.stored_name(c.column) or c.column) for c in sort
        )
        sort = sort_with_policy(sort, snapshot.metadata.rows, snapshot.metadata.ttl)
    if sort is not None and sort != snapshot.metadata.sort:
        raise UsageError(
            SORT_BY,
            f": the table is sorted by {', '.join(map(str, snapshot.metadata.sort))}; "
            "leave the option out, or create another table",
        )
    known = snapshot.metadata
    if windows is not None and windows != known.windows:
        raise UsageError(
            TIME_COLUMN,
            f": the table has {_windows_text(known.windows)}; leave the option out, or create another "
            "table",
        )
    required = [known.shown_name(column.column) for column in ordering(known.sort)]
    require_columns(names.shown, required, path)
    file = with_result_types(file, known.rows)
    shown = known.names + names.new
    schema = merged_schema(
        known.schema, file, path, fixed_columns(known), options.on_conflict, dict(shown)
    )
    return replace(known, schema=schema, names=shown)


def _windows_text(windows: TimeWindows | None) -> str:
    if windows is None:
        return "no time windows"
    return f"windows of {duration_text(windows.window_seconds)} by {quoted(windows.column)}"


def _check_options(known: TableMetadata, options: IngestOptions) -> None:
    """Raises `UsageError` if the options contradict the table's properties."""
    if options.rows is not None and options.rows != known.shown_rows:
        raise UsageError(
            ROW_POLICY,
            f": the table has {known.shown_rows}; leave the options out, or create another table",
        )
    has = not_null_paths(known.shown_schema)
    if options.not_null and set(options.not_null) != set(has):
        raise UsageError(
            NOT_NULL,
            f": the table has {', '.join(has) or 'none'}; leave the option out, or create another "
            "table",
        )
    ttl = known.ttl and dataclasses.replace(known.ttl, column=known.shown_name(known.ttl.column))
    if options.ttl is not None and options.ttl != ttl:
        raise UsageError(
            TTL, f": the table has {ttl or 'none'}; leave the options out, or create another table"
        )
