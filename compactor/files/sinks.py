"""Sinks for batches, one per file format. The caller opens and closes the file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import pyarrow as pa
from pyarrow import types as pt

from compactor.common.ipc import writing
from compactor.files.kept_types import parquet_schema, plain_schema
from compactor.files.problems import PROBLEMS
from compactor.files.sortedness import sorting_columns, with_sort_schema
from compactor.files.source import sliced
from lsm_fragment.arrays.batches import concat_rows
from lsm_fragment.arrays.cast import as_schema, leaves
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.nested import (
    build_fixed_lists,
    build_list,
    build_struct,
    fixed_items,
    null_mask,
)
from lsm_fragment.arrays.storage import decoded, to_logical, to_storage
from lsm_fragment.arrays.types import contains
from lsm_fragment.keys.sort_schema import SortSchema
from lsm_fragment.threads import ThreadPool

ROW_GROUP_BYTES: Final = 64 << 20
ROW_GROUP_ROWS: Final = 1 << 20
_TEXT_SLICE_BYTES: Final = 4 << 20
_ROWS_FOR_THREADS: Final = 4096
"""Let one thread render fewer rows, since a second one would cost more than it saves."""
_BATCH_ROWS: Final = 16_384
_BATCH_BYTES: Final = 1 << 20
_BLOOM_FALSE_SHARE: Final = 0.01


class FileOutput(Protocol):
    """The file that a sink writes to."""

    def write(self, data: bytes, /) -> Any: ...


class TableSink(ABC):
    """A writer of batches of one schema."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows. Raises one of `PROBLEMS` if the format cannot hold a value."""

    @abstractmethod
    def finish(self) -> None:
        """Writes buffered rows and the footer, if any. Must be the last call before `close`."""

    @abstractmethod
    def close(self) -> None:
        """Releases the output before it is closed. The file is invalid unless `finish` was called."""


class TextSink(TableSink):
    """A sink that renders batches to text, slice by slice, in several threads if it may."""

    def __init__(
        self,
        output: FileOutput,
        header: bytes,
        render: Callable[[pa.RecordBatch], bytes],
        footer: bytes = b"",
        threads: int = 1,
    ) -> None:
        """render: gives the same text of some rows in any thread, if there are several."""
        self._output = output
        self._pool = ThreadPool(threads)
        self._render = render
        self._footer = footer
        output.write(header)

    def write(self, batch: pa.RecordBatch) -> None:
        for piece in sliced(batch, _TEXT_SLICE_BYTES):
            parts = self._pool.threads if piece.num_rows >= _ROWS_FOR_THREADS else 1
            rows = -(-piece.num_rows // parts)
            slices = [piece.slice(start, rows) for start in range(0, piece.num_rows, rows)]
            for text in self._pool.each(self._render, slices):
                self._output.write(text)

    def finish(self) -> None:
        self._output.write(self._footer)

    def close(self) -> None:
        self._pool.close()


class ArrowSink(TableSink):
    """A sink of a zstd-compressed IPC file, which combines small batches.

    It writes dictionaries as plain values and records their types in the file.
    """

    def __init__(
        self, output: FileOutput, schema: pa.Schema, sort: SortSchema | None = None
    ) -> None:
        self._schema = with_sort_schema(plain_schema(schema), sort)
        self._writer = pa.ipc.new_file(output, self._schema, options=writing("zstd"))
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(as_schema(batch, self._schema))
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= _BATCH_ROWS or self._held_bytes >= _BATCH_BYTES:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_batch(concat_rows(self._held))
        self._held, self._held_rows, self._held_bytes = [], 0, 0

    def close(self) -> None:
        self._writer.close()


class ParquetSink(TableSink):
    """A sink of Parquet row groups of up to `row_group_bytes` of Arrow data or 1,048,576 rows.

    The file records how its rows are sorted and their Arrow types, and has an index of its pages. If Parquet
    would lose information, the end of the row group raises `pa.ArrowInvalid` with the column.
    """

    def __init__(
        self,
        output: FileOutput,
        schema: pa.Schema,
        sort: SortSchema | None,
        row_group_bytes: int = ROW_GROUP_BYTES,
        *,
        bloom_values: Mapping[str, int] | None = None,
    ) -> None:
        """bloom_values: the columns that get Bloom filters, with the most values that a row group has."""
        import pyarrow.parquet as pq

        if any(contains(dtype, _is_empty_list) for dtype in schema.types):
            raise pa.ArrowNotImplementedError("lists of size 0 can't be read back")
        self._schema = parquet_schema(with_sort_schema(schema, sort))
        self._row_group_bytes = row_group_bytes
        self._writer = pq.ParquetWriter(
            output,
            self._schema,
            compression="zstd",
            sorting_columns=sorting_columns(schema, sort),
            write_page_index=True,
            bloom_filter_options={
                name: {"ndv": values, "fpp": _BLOOM_FALSE_SHARE}
                for name, values in (bloom_values or {}).items()
            }
            or None,
        )
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        batch = as_schema(batch, self._schema)
        while batch.num_rows:
            piece = batch.slice(0, self._room_rows(batch))
            batch = batch.slice(piece.num_rows)
            self._held.append(piece)
            self._held_rows += piece.num_rows
            self._held_bytes += piece.nbytes
            if self._held_rows >= ROW_GROUP_ROWS or self._held_bytes >= self._row_group_bytes:
                self._end_row_group()

    def finish(self) -> None:
        self._end_row_group()
        self._writer.close()

    def close(self) -> None:
        self._writer.close()

    def _room_rows(self, batch: pa.RecordBatch) -> int:
        bytes_left = self._row_group_bytes - self._held_bytes
        by_bytes = max(1, batch.num_rows * bytes_left // max(1, batch.nbytes))
        return int(min(by_bytes, ROW_GROUP_ROWS - self._held_rows, batch.num_rows))

    def _end_row_group(self) -> None:
        if self._held_rows:
            table = pa.Table.from_batches(self._held, schema=self._schema)
            try:
                self._writer.write_table(_for_parquet(table), row_group_size=self._held_rows)
            except PROBLEMS as error:
                raise pa.ArrowInvalid(f"{_unfit_column(table)}{error}") from error
        self._held, self._held_rows, self._held_bytes = [], 0, 0


class FragmentSink(TableSink):
    """A sink of one fragment; rows must arrive in its sort order."""

    def __init__(
        self, output: FileOutput, schema: pa.Schema, sort: SortSchema, threads: int
    ) -> None:
        # Imported here, since few files are fragments.
        from lsm_fragment.container.writer import FragmentWriter

        self._pool = ThreadPool(threads)
        self._writer = FragmentWriter(output, schema, sort, pool=self._pool)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch)

    def finish(self) -> None:
        self._writer.finish()

    def close(self) -> None:
        self._writer.__exit__(None, None, None)
        self._pool.close()


def _is_empty_list(dtype: pa.DataType) -> bool:
    return bool(pt.is_fixed_size_list(dtype) and dtype.list_size == 0)


def _for_parquet(table: pa.Table) -> pa.Table:
    """Prepares rows for Parquet. Raises `pa.ArrowInvalid` for values that Arrow's writer would lose
    silently."""
    for index, field in enumerate(table.schema):
        if contains(field.type, pt.is_date64):  # Parquet stores days in 32 bits.
            table[index].validate(full=True)
            _check_days(table[index])
        if contains(field.type, _has_required_field):
            chunks = [_without_masked_nulls(chunk) for chunk in table[index].chunks]
            table = table.set_column(index, field, chunks)
    return table


def _check_days(column: pa.ChunkedArray) -> None:
    for chunk in column.chunks:
        for leaf in leaves(to_storage(chunk)):
            if pt.is_date64(leaf.type):
                leaf.cast(pa.date32())


def _has_required_field(dtype: pa.DataType) -> bool:
    return pt.is_struct(dtype) and any(not field.nullable for field in dtype.fields)


def _without_masked_nulls(array: pa.Array, *, is_masked: bool = False) -> pa.Array:
    """Fills nulls of required fields within null structs.

    Arrow's Parquet writer would mistake these for nulls of the field. is_masked: whether the array's own
    nulls are masked by a null struct.
    """
    dtype, mask = array.type, None if is_masked else null_mask(array)
    if isinstance(dtype, pa.BaseExtensionType):
        storage = _without_masked_nulls(array.storage, is_masked=is_masked)
        return pa.ExtensionArray.from_storage(dtype, storage)
    if pt.is_struct(dtype):
        children = []
        for child, field in zip(array.flatten(), dtype.fields, strict=True):
            masked = not field.nullable and child.null_count == array.null_count
            if masked and child.null_count and pt.is_fixed_size_list(field.type):
                raise pa.ArrowInvalid(
                    f"field {field.name!r} is a list of fixed size that can't be null, in a null struct: "
                    "it could not be read back"
                )
            children.append(_without_masked_nulls(child, is_masked=masked))
        return build_struct(dtype, len(array), children, mask)
    if pt.is_fixed_size_list(dtype):
        items = _without_masked_nulls(fixed_items(array))
        return build_fixed_lists(dtype, len(array), items, mask)
    if pt.is_nested(dtype):
        counts, items = list_parts(array)
        return build_list(dtype, counts, _without_masked_nulls(items), mask)
    if mask is not None or array.null_count == 0 or pt.is_null(dtype):
        return array
    if pt.is_dictionary(dtype):
        plain = _without_masked_nulls(to_storage(decoded(array)), is_masked=True)
        return to_logical(plain, dtype)
    return pa.Array.from_buffers(dtype, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _unfit_column(table: pa.Table) -> str:
    """Returns the start of an error message with the first column that cannot be written by itself."""
    import pyarrow.parquet as pq

    for name in table.column_names:
        try:
            pq.write_table(_for_parquet(table.select([name])), pa.MockOutputStream())
        except PROBLEMS:
            return f"column {name!r}: "
    return ""
