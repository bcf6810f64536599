"""Where rows come from, told by the metadata of columns, which Spark carries from what was loaded to what is
written. Pure.

A writer is not told what the plan of its rows reads, but gets their schema. A column that goes through
unchanged (`select`, `where`, joins, grouping by it, another name) keeps its metadata; one that is computed
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
    """A version of a table, as it was loaded."""

    table: str
    """Its address then: the table may have others."""
    version: int
    commit_id: str
    """Of the version. No two commits have the same, so it tells tables apart whatever their addresses."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a column of rows to be written is known to come from."""

    column: str
    """As the rows have it."""
    stored: str
    """Under which name the table stores it: that never becomes another column's."""
    loaded: LoadedVersion


def with_origin(schema: StructType, url: str, snapshot: Snapshot) -> StructType:
    """schema: of columns of the table, which then know where they were loaded from."""
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
    """Of the columns of which it is known."""
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
