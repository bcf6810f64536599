"""Options of an ingest as values; `compactor.write.ingest.settings` defines how users write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import PositiveInt, Strict

from compactor.files.text_options import PLAIN, TextOptions
from compactor.predicate.skipping.spec import NONE as NO_SKIPS
from compactor.predicate.skipping.spec import SkipSpec
from compactor.resources.cores import usable_cores
from compactor.rows.policy import RowPolicy, Ttl
from compactor.settings.properties import Properties, told
from compactor.settings.writers import Reaction
from compactor.table.metadata import TimeWindows
from compactor.write.file_schema import OnConflict
from lsm_fragment.container.spool import SPOOL_MEMORY_BYTES
from lsm_fragment.container.writer import WriterOptions

BUFFER_BYTES = 256 << 20
"""Limit of rows held for sorting, in bytes: a fragment of heavy rows ends earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    rows_per_fragment: PositiveInt | None = None
    """Maximum rows of a fragment; None means the table's property of this name."""
    max_rows_per_row_group: PositiveInt | None = None
    """Maximum rows of a row group; None means the table's property of this name, else `writer.max_rows`."""
    writer: WriterOptions = field(default_factory=WriterOptions)
    windows: TimeWindows | None = None
    """Time windows of a new table."""
    rows: RowPolicy | None = None
    """Row policy of a new table; None keeps all rows."""
    ttl: Ttl | None = None
    """Time to live of a new table's rows."""
    skips: SkipSpec = NO_SKIPS
    """Skip indexes of a new table."""
    not_null: tuple[str, ...] = ()
    """Columns of a new table, or paths into them, that allow no nulls, such as `id` and `tags.element`."""
    on_conflict: Annotated[OnConflict, Strict(False)] = OnConflict.ERROR
    """Treatment of a column whose values do not fit the table's type."""
    text: TextOptions = PLAIN
    """How text files differ from UTF-8 and usual CSV."""
    properties: Mapping[str, str | int | float] = field(default_factory=dict)
    """Properties of a new table. For one that exists they count for this ingest."""
    back_pressure: Annotated[Reaction, Strict(False)] | None = None
    """What to do when compactions lag behind; None means the table's property of this name."""
    promotes: tuple[str, ...] = ()
    """Map or struct columns of files to split into one column per key."""
    buffer_bytes: PositiveInt = BUFFER_BYTES
    """Maximum bytes of Arrow data sorted into one fragment; sorting takes about three times as much
    memory."""
    spool_memory_bytes: PositiveInt = SPOOL_MEMORY_BYTES
    """Maximum bytes of encoded columns in memory; the rest of the fragment goes to a temporary file."""
    threads: PositiveInt = field(default_factory=usable_cores)
    """Number of columns encoded in parallel; each takes about three times its bytes of memory."""

    @property
    def told(self) -> Properties:
        """The properties that were chosen explicitly, to be judged with the table's. Raises `ConfigError`."""
        fields = {
            "rows_per_fragment": self.rows_per_fragment,
            "max_rows_per_row_group": self.max_rows_per_row_group,
            "back_pressure": self.back_pressure,
        }
        chosen = {name: value for name, value in fields.items() if value is not None}
        return told({**dict(told(self.properties)), **chosen})
