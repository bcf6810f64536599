"""Options of an ingest as values. `compactor.write.ingest.settings` defines how users write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import PositiveInt, Strict

from compactor.predicate.skipping.spec import NONE as NO_SKIPS
from compactor.predicate.skipping.spec import SkipSpec
from compactor.resources.cores import usable_cores
from compactor.rows.policy import RowPolicy, Ttl
from compactor.table.metadata import TimeWindows
from compactor.write.schema_union import OnConflict
from lsm_fragment.container.spool import SPOOL_MEMORY_BYTES
from lsm_fragment.container.writer import WriterOptions

BUFFER_BYTES = 256 << 20
"""Limit of the rows held for sorting: a fragment ends earlier if its rows are heavy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    rows_per_fragment: PositiveInt = 1_000_000
    writer: WriterOptions = field(default_factory=WriterOptions)
    windows: TimeWindows | None = None
    """Time windows of a new table."""
    rows: RowPolicy | None = None
    """Row policy of a new table; None keeps all rows of equal key."""
    ttl: Ttl | None = None
    """How long rows of a new table live."""
    skips: SkipSpec = NO_SKIPS
    """Skip indexes of a new table."""
    not_null: tuple[str, ...] = ()
    """Paths in columns of a new table that allow no nulls, such as `id` and `tags.element`."""
    on_conflict: Annotated[OnConflict, Strict(False)] = OnConflict.ERROR
    """What happens to a column whose values do not fit the table's type."""
    promotes: tuple[str, ...] = ()
    """Map or struct columns of files that become one column for each of their keys."""
    buffer_bytes: PositiveInt = BUFFER_BYTES
    """Limit of Arrow data sorted into one fragment, in bytes; sorting takes about three times as much."""
    spool_memory_bytes: PositiveInt = SPOOL_MEMORY_BYTES
    """Limit of the encoded columns of the fragment being written that stay in memory, in bytes; the rest goes
    to a temporary file."""
    threads: PositiveInt = field(default_factory=usable_cores)
    """How many columns of a row group are encoded at a time; each takes about three times its bytes."""
