"""Marks loaded columns with their origin, in column metadata that Spark carries to what is written. Pure.

Spark does not tell a writer what the plan of its rows reads, but gives it their schema. A column that passes
through unchanged (`select`, `where`, joins, grouping by it, a new name) keeps its metadata; a computed one
has none.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql.types import StructField, StructType

from compactor.table.snapshot import Snapshot

_KEY: Final = "fragments"


@dataclass(frozen=True, slots=True)
class LoadedVersion:
    """The version of a table that was loaded."""

    table: str
    """Address by which the table was loaded; it may have others."""
    version: int
    commit_id: str
    """Commit id of the version; unique, so it tells tables apart whatever their addresses."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The known origin of a column of rows to be written."""

    column: str
    """Name of the column in the rows."""
    stored: str
    """Name under which the table stores it; no other column ever gets that name."""
    loaded: LoadedVersion


def with_origin(schema: StructType, url: str, snapshot: Snapshot) -> StructType:
    """Returns the schema of loaded columns with the origin of each in its metadata."""
    loaded = asdict(LoadedVersion(url, snapshot.version, snapshot.commit_id))
    return StructType(
        [
            StructField(
                field.name,
                field.dataType,
                field.nullable,
                {_KEY: {"stored": snapshot.table.stored_name(field.name), **loaded}},
            )
            for field in schema
        ]
    )


def origins_of(schema: StructType) -> list[Origin]:
    """Returns the origins of the columns whose metadata state one."""
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
