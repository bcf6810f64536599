"""Entries as an Arrow table with a column for each field: what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from compactor.errors import DataError
from compactor.table.entry import Deletion, FragmentEntry, LazyColumns, SkipIndex, check_entry
from compactor.table.json_text import from_json_text, to_json_text
from lsm_fragment.container.footer import ColumnBytes
from lsm_fragment.errors import cause_of
from lsm_fragment.keys.bounds import Bound

SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("level", pa.int32()),
        ("run", pa.string()),
        ("sequence_version", pa.int64()),
        ("sequence_position", pa.int64()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("row_hash", pa.uint64()),
        ("first_key", pa.string()),
        ("last_key", pa.string()),
        ("row_groups", pa.int64()),
        ("peak_chunk_bytes", pa.int64()),
        ("peak_row_bytes", pa.int64()),
        ("columns", pa.string()),
        ("window", pa.int64()),
        ("deletion", pa.string()),
        ("tombstones", pa.int64()),
        ("oldest_unix_ms", pa.int64()),
        ("skip_index", pa.string()),
    ]
)
MAY_MISS: Final = ("deletion", "tombstones", "oldest_unix_ms", "skip_index")
"""Columns that are left out where no entry has a value."""
_MAY_BE_NULL: Final = (*MAY_MISS, "window")


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
            if name not in _MAY_BE_NULL and table.column(name).null_count:
                raise pa.ArrowInvalid(f"its column {name} has nulls")
        self.table = table
        self._made: dict[int, FragmentEntry] = {}

    @classmethod
    def of(cls, entries: Sequence[FragmentEntry]) -> EntryTable:
        columns: dict[str, list[Any]] = {
            "key": [e.key for e in entries],
            "level": [e.level for e in entries],
            "run": [e.run for e in entries],
            "sequence_version": [e.sequence[0] for e in entries],
            "sequence_position": [e.sequence[1] for e in entries],
            "rows": [e.rows for e in entries],
            "size_bytes": [e.size_bytes for e in entries],
            "row_hash": [e.row_hash for e in entries],
            "first_key": [to_json_text(e.first_key) for e in entries],
            "last_key": [to_json_text(e.last_key) for e in entries],
            "row_groups": [e.row_groups for e in entries],
            "peak_chunk_bytes": [e.peak_chunk_bytes for e in entries],
            "peak_row_bytes": [e.peak_row_bytes for e in entries],
            "columns": [_columns_text(e) for e in entries],
            "window": [e.window for e in entries],
            "deletion": [
                to_json_text(e.deletion.to_json()) if e.deletion else None for e in entries
            ],
            "tombstones": [e.tombstones or None for e in entries],
            "oldest_unix_ms": [e.oldest_unix_ms for e in entries],
            "skip_index": [
                to_json_text(e.skip_index.to_json()) if e.skip_index else None for e in entries
            ],
        }
        return cls(pa.table(columns, schema=SCHEMA))

    def keys(self) -> list[str]:
        keys: list[str] = self.table.column("key").to_pylist()
        return keys

    def entries(self, rows: Sequence[int]) -> list[FragmentEntry]:
        """Returns the entries of these rows. Raises `DataError` for a damaged one."""
        missing = [row for row in rows if row not in self._made]
        if missing:
            part = self.table
            if len(missing) < part.num_rows:
                part = part.take(pa.array(missing, pa.int64()))
            try:
                made = _entries(part)
                for entry in made:
                    check_entry(entry)
            except (TypeError, ValueError, AttributeError, RecursionError) as error:
                raise DataError(f"a checkpoint's entry is damaged ({cause_of(error)})") from error
            self._made.update(zip(missing, made, strict=True))
        return [self._made[row] for row in rows]


def _bound(text: str) -> Bound:
    bound = from_json_text(text)
    if not isinstance(bound, list):
        raise ValueError("a key bound is not a list")
    return tuple(bound)


def _entries(table: pa.Table) -> list[FragmentEntry]:
    columns = [table.column(name).to_pylist() for name in SCHEMA.names]
    return [
        FragmentEntry(
            key=key,
            level=level,
            run=run,
            sequence=(version, position),
            rows=count,
            size_bytes=size_bytes,
            row_hash=row_hash,
            first_key=_bound(first_key),
            last_key=_bound(last_key),
            row_groups=row_groups,
            peak_chunk_bytes=peak_chunk_bytes,
            peak_row_bytes=peak_row_bytes,
            columns=LazyColumns(text),
            window=window,
            deletion=Deletion.from_json(from_json_text(deletion)) if deletion else None,
            tombstones=tombstones or 0,
            oldest_unix_ms=oldest_unix_ms,
            skip_index=SkipIndex.from_json(from_json_text(skip_index)) if skip_index else None,
        )
        for (
            key,
            level,
            run,
            version,
            position,
            count,
            size_bytes,
            row_hash,
            first_key,
            last_key,
            row_groups,
            peak_chunk_bytes,
            peak_row_bytes,
            text,
            window,
            deletion,
            tombstones,
            oldest_unix_ms,
            skip_index,
        ) in zip(*columns, strict=True)
    ]


def _columns_text(entry: FragmentEntry) -> str:
    if isinstance(entry.columns, LazyColumns):
        return entry.columns.text
    return to_json_text({name: list(ColumnBytes(*sizes)) for name, sizes in entry.columns.items()})
