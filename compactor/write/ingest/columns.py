"""Maps the columns of new rows to a table's stored names and types. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from compactor.errors import InputError
from compactor.rows.policy import RowFunction, RowKind, RowPolicy, with_result_types
from compactor.table.metadata import TableMetadata
from compactor.write.file_schema import OnConflict, conflicting, split_name


class StoredNames:
    """The mapping from a file's columns to stored names."""

    def __init__(
        self,
        table: TableMetadata | None,
        file: pa.Schema,
        path: str,
        on_conflict: OnConflict,
    ) -> None:
        self.new: tuple[tuple[str, str], ...] = ()
        """Shown names of new columns by stored name, if the two differ."""
        splits = {}
        if table is not None and on_conflict is OnConflict.SPLIT:
            in_table = with_result_types(file, table.rows)
            conflicts = conflicting(table.shown_schema, in_table, fixed_shown(table))
            order = {table.shown_name(column.column) for column in table.sort}
            splits = {
                name: split_name(name, dtype) for name, dtype in conflicts if name not in order
            }
        self._is_same = table is None or not (table.names or table.retired or splits)
        self.stored = self.shown = file
        if table is None or self._is_same:
            return
        file = self._renamed(file, {name: splits.get(name, name) for name in file.names})
        self.shown = file
        if len(set(file.names)) < len(file.names):
            raise InputError(f"{path}: two columns have the same name: rename one")
        there = table.stored_names
        stored = {name: there.get(name) for name in file.names}
        added: dict[str, str] = {}
        for name, known in stored.items():
            if known is None:
                taken = [*added.values(), *(n for n in stored.values() if n is not None)]
                added[name] = table.new_stored_name(name, taken)
        self.new = tuple((new, shown) for shown, new in added.items() if new != shown)
        self.stored = self._renamed(file, {**stored, **added})

    @staticmethod
    def _renamed(schema: pa.Schema, names: Mapping[str, str | None]) -> pa.Schema:
        return pa.schema([f.with_name(names[f.name]) for f in schema], schema.metadata)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self._is_same else batch.rename_columns(self.stored.names)


def fixed_columns(table: TableMetadata) -> dict[str, str]:
    """Returns the stored names of sort columns and aggregated columns, whose values must not change, and
    their kinds."""
    chosen = (RowFunction.LAST, RowFunction.FIRST)
    computed = (name for name, function in table.rows.aggregates if function not in chosen)
    fixed = dict.fromkeys(computed, "aggregated column")
    return fixed | dict.fromkeys((column.column for column in table.sort), "sort column")


def fixed_shown(table: TableMetadata) -> set[str]:
    return {table.shown_name(name) for name in fixed_columns(table)}


def schema_to_read(table: TableMetadata) -> pa.Schema:
    """Returns the schema to read a file by, without counted columns, which may have any type."""
    return pa.schema(
        [
            field.with_name(table.shown_name(field.name))
            for field in table.schema
            if table.rows.kind is not RowKind.AGGREGATE
            or table.rows.function(field.name) is not RowFunction.COUNT
        ]
    )


def counted_columns(rows: RowPolicy) -> list[str]:
    """Returns the stored names of the columns whose values are counted."""
    return [name for name, function in rows.aggregates if function is RowFunction.COUNT]


def with_counts(batch: pa.RecordBatch, rows: RowPolicy) -> pa.RecordBatch:
    """Replaces values of counted columns by one, and nulls by zero. A column that is missing has no value."""
    for name in counted_columns(rows):
        place, field = batch.schema.get_field_index(name), pa.field(name, pa.int64())
        if place < 0:
            zeros = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
            batch = batch.append_column(field, zeros)
        else:
            ones = batch.column(place).is_valid().cast(pa.int64())
            batch = batch.set_column(place, field, ones)
    return batch
