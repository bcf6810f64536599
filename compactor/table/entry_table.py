"""Entries as an Arrow table with a column for each field: what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from compactor.errors import DataError
from compactor.table.entry import STORED, FragmentEntry, check_entry
from lsm_fragment.errors import cause_of

SCHEMA: Final = STORED.schema
MAY_MISS: Final = tuple(STORED.columns_that_may_miss)
"""Columns that are left out where no entry has a value."""
_WITHOUT_NULLS: Final = frozenset(STORED.columns_without_nulls)
_TOGETHER: Final = 64
"""Make at most as many entries where one is asked for."""


class EntryTable:
    """Entries by row number, made when they are asked for, and kept."""

    def __init__(self, table: pa.Table) -> None:
        """table: may lack the columns of `MAY_MISS`.

        Raises `pa.ArrowInvalid` for another schema, or for nulls in a column that has none.
        """
        for name in MAY_MISS:
            if name not in table.column_names:
                field = SCHEMA.field(name)
                table = table.add_column(
                    SCHEMA.get_field_index(name), field, pa.nulls(len(table), field.type)
                )
        if table.schema.remove_metadata() != SCHEMA:
            raise pa.ArrowInvalid(f"its columns are {table.schema.names}")
        for name in SCHEMA.names:
            if name in _WITHOUT_NULLS and table.column(name).null_count:
                raise pa.ArrowInvalid(f"its column {name} has nulls")
        self.table = table
        self._made: dict[int, FragmentEntry] = {}

    @classmethod
    def of(cls, entries: Sequence[FragmentEntry]) -> EntryTable:
        return cls(STORED.to_columns(entries))

    def keys(self) -> list[str]:
        keys: list[str] = self.table.column("key").to_pylist()
        return keys

    def _from(self, row: int) -> list[int]:
        """Returns a row, and those after it if the one before was asked for: made alone, each takes ten times
        as long, and who looks at two of them often looks at all, one by one."""
        if row - 1 not in self._made:
            return [row]
        stop = min(row + _TOGETHER, self.table.num_rows)
        return [after for after in range(row, stop) if after not in self._made]

    def entries(self, rows: Sequence[int]) -> list[FragmentEntry]:
        """Returns the entries of these rows. Raises `DataError` for a damaged one."""
        missing = [row for row in rows if row not in self._made]
        if len(missing) == 1:
            missing = self._from(missing[0])
        if missing:
            part = self.table
            if len(missing) < part.num_rows:
                part = part.take(pa.array(missing, pa.int64()))
            try:
                made = STORED.from_columns(part)
                for entry in made:
                    check_entry(entry)
            except (TypeError, ValueError, AttributeError, RecursionError) as error:
                raise DataError(f"a checkpoint's entry is damaged ({cause_of(error)})") from error
            self._made.update(zip(missing, made, strict=True))
        return [self._made[row] for row in rows]
