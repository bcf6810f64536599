"""What is asked of an ingest, by values. How people write it: `compactor.write.ingest.settings`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import PositiveInt, Strict

from compactor.predicate.skipping.spec import NONE as NO_SKIPS
from compactor.predicate.skipping.spec import SkipSpec
from compactor.rows.policy import RowPolicy, Ttl
from compactor.table.metadata import TimeWindows
from compactor.write.schema_union import OnConflict
from format.writer import SPOOL_MEMORY_BYTES, WriterOptions

BUFFER_BYTES = 256 << 20
"""Rows held for sorting take no more than this: a fragment ends earlier if its rows are heavy."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    rows_per_fragment: PositiveInt = 1_000_000
    writer: WriterOptions = field(default_factory=WriterOptions)
    windows: TimeWindows | None = None
    """Time windows of a new table."""
    rows: RowPolicy | None = None
    """What rows of equal key mean in a new table; None: all stay."""
    ttl: Ttl | None = None
    """How long rows of a new table live."""
    skips: SkipSpec = NO_SKIPS
    """Which columns of a new table have a skip index."""
    not_null: tuple[str, ...] = ()
    """Places in columns of a new table that hold no nulls: paths such as `id` and `tags.element`."""
    on_conflict: Annotated[OnConflict, Strict(False)] = OnConflict.ERROR
    """What is done with a column whose values have no place in the table's type."""
    promotes: tuple[str, ...] = ()
    """Map or struct columns of files that become a column for each of their keys."""
    buffer_bytes: PositiveInt = BUFFER_BYTES
    """Of Arrow data that is sorted into one fragment at most; sorting takes some three times as much."""
    spool_memory_bytes: PositiveInt = SPOOL_MEMORY_BYTES
    """Of encoded columns of the fragment being written; above it, they go to a temporary file."""
