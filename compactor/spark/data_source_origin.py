"""Where rows come from, told by the metadata of columns, which Spark carries from what was loaded to what is
written. Pure.

A writer is not told what the plan of its rows reads, but gets their schema. A column that goes through
unchanged (`select`, `where`, joins, grouping by it, another name) keeps its metadata; one that is computed
has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructField, StructType

_KEY: Final = "fragments"


@dataclass(frozen=True, slots=True)
class Base:
    """The newest version whose rows a job knows of: none later may be lost by it."""

    version: int
    meaning: str
    """Ends "since version 3, "."""
    remedy: str


def with_origin(schema: StructType, url: str, version: int) -> StructType:
    """With columns that know the table and version they were loaded from."""
    mark = {_KEY: {"table": url, "version": version}}
    return StructType([StructField(f.name, f.dataType, f.nullable, mark) for f in schema])


def origin_of(schema: StructType, url: str) -> Base | None:
    """The oldest version of the table from which a column comes; None if none is known to."""
    found = []
    for field in schema:
        match (field.metadata or {}).get(_KEY):
            case {"table": table, "version": int(version)} if table == url:
                found.append((version, field.name))
    if not found:
        return None
    version, name = min(found, key=lambda each: each[0])
    return Base(
        version,
        f"from which column {name!r} was loaded",
        "load the table again, or, if those rows are to go too, name the newest version by option "
        "base_version",
    )
