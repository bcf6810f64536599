"""Reads row groups that overlap no other fragment, and returns their rows as decoded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import pyarrow as pa

from compactor.read.limits import BATCH_BYTES, BATCH_ROWS
from compactor.read.row_group_reader import RowGroup, RowGroupReader, WantedRows
from compactor.read.steps import Step
from compactor.read.wanted import Wanted
from lsm_fragment.arrays.joining import batch_of
from lsm_fragment.arrays.sizes import rows_within, take_at_most
from lsm_fragment.arrays.storage import to_logical
from lsm_fragment.threads import ThreadPool

_AT_ONCE_BYTES: Final = BATCH_BYTES
"""Convert row groups up to this size (dictionaries counted in full) ahead of their turn."""


def stored_rows(
    reader: RowGroupReader, start: int, stop: int, wanted: Wanted
) -> Iterator[Step[pa.RecordBatch]]:
    """Yields a step for each row group in [start, stop) that may have wanted rows."""
    for group in reader.wanted_groups(start, stop):
        size = reader.held_bytes(group, wanted.schema.names)
        yield Step(partial(_batches_of_group, reader, group, wanted.schema), size)


def _batches_of_group(
    reader: RowGroupReader, group: RowGroup, schema: pa.Schema, pool: ThreadPool
) -> Iterator[pa.RecordBatch]:
    found = reader.read(group, schema.names, pool)
    if found is None:
        return iter(())
    is_light = take_at_most(found.arrays, _AT_ONCE_BYTES)
    batches = _batches(found, schema, pool, None if is_light else BATCH_BYTES)
    return iter(list(batches)) if is_light else batches


def _batches(
    found: WantedRows, schema: pa.Schema, pool: ThreadPool, max_bytes: int | None
) -> Iterator[pa.RecordBatch]:
    """Yields batches within the limits of a scan. max_bytes: limit of a column; None if it cannot be
    exceeded."""
    start = 0
    while start < found.rows:
        count = min(found.rows - start, BATCH_ROWS)
        if max_bytes is not None:
            rest = [array.slice(start, count) for array in found.arrays]
            count = rows_within(rest, max_bytes)
        columns = pool.each(partial(_logical, start, count), zip(found.arrays, schema, strict=True))
        yield batch_of(columns, schema, count)
        start += count


def _logical(start: int, count: int, column: tuple[pa.Array, pa.Field]) -> pa.Array:
    array, field = column
    return to_logical(array.slice(start, count), field.type)
