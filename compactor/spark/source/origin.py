"""Marks loaded columns with their origin, in column metadata that Spark carries through to writes. Pure.

Spark shows a writer the schema of its rows but not their plan. Columns that pass through unchanged (`select`,
`where`, joins, grouping keys, renames) keep their metadata; computed ones have none.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from pyspark.sql.types import StructField, StructType

from compactor.common.plain_values import plain_dict
from compactor.table.snapshot import Snapshot

_KEY: Final = "fragments"
_ROWS: Final = "fragments_rows"


class LoadedVersion(Struct, frozen=True):
    """The version of a table that was loaded."""

    table: str
    """Address by which the table was loaded, one of possibly several."""
    version: int
    commit_id: str
    """Commit id of the version: unique, so it identifies the table whatever its address."""


class Origin(Struct, frozen=True):
    """The known origin of a column to be written."""

    column: str
    """Column name in the rows."""
    stored: str
    """Column name in the table's storage; never reused."""
    loaded: LoadedVersion


def with_origin(schema: StructType, url: str, snapshot: Snapshot) -> StructType:
    """Adds the origin of each column of the table to the metadata of the schema."""
    stored = snapshot.table.stored_names
    loaded = plain_dict(LoadedVersion(url, snapshot.version, snapshot.commit_id))
    return StructType(
        [
            _noted(field, _KEY, {"stored": stored[field.name], **loaded})
            if field.name in stored
            else field
            for field in schema
        ]
    )


def origins_of(schema: StructType) -> list[Origin]:
    """Returns the origins stated in column metadata."""
    found = []
    for field in schema:
        match (field.metadata or {}).get(_KEY):
            case {
                "stored": str(stored),
                "table": str(table),
                "version": int(version),
                "commit_id": str(commit_id),
            }:
                found.append(Origin(field.name, stored, LoadedVersion(table, version, commit_id)))
    return found


def with_rows(schema: StructType, snapshot: Snapshot) -> StructType:
    """Adds the number of the table's rows to the metadata of the first column, if the log has it: where no
    policy merges rows."""
    if snapshot.table.rows.merges or not len(schema):
        return schema
    first, *others = schema.fields
    return StructType([_noted(first, _ROWS, snapshot.live_rows), *others])


def rows_of(schema: StructType) -> int | None:
    """Returns the number of rows that `with_rows` added, if any."""
    metadata = schema.fields[0].metadata if len(schema) else None
    match (metadata or {}).get(_ROWS):
        case int(rows):
            return rows
        case _:
            return None


def _noted(field: StructField, key: str, value: object) -> StructField:
    metadata = {**(field.metadata or {}), key: value}
    return StructField(field.name, field.dataType, field.nullable, metadata)
