"""Moves rows of batches and tables with columns of any type (decision 66)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment.arrays.buffers import boolean_array
from lsm_fragment.arrays.joining import batch_of, concat_logical
from lsm_fragment.arrays.moves import keep, take
from lsm_fragment.arrays.nested import Places


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def take_rows(batch: pa.RecordBatch, places: Places) -> pa.RecordBatch:
    """Returns the rows at places; a negative place gives a row of nulls."""
    return batch_of([take(a, places) for a in batch.columns], batch.schema, len(places))


def keep_rows(
    batch: pa.RecordBatch, is_kept: npt.NDArray[np.bool_] | pa.BooleanArray
) -> pa.RecordBatch:
    """Returns the rows where `is_kept` is true; it has no nulls."""
    kept = boolean_array(is_kept)
    columns = [keep(array, kept) for array in batch.columns]
    return batch_of(columns, batch.schema, kept.true_count)


def concat_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Joins at least one batch; all have one schema."""
    if len(batches) == 1:
        return batches[0]
    schema = batches[0].schema
    columns = [
        concat_logical([batch.column(place) for batch in batches]) for place in range(len(schema))
    ]
    return batch_of(columns, schema, sum(batch.num_rows for batch in batches))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Returns the rows of a table as one batch."""
    columns = [one_array(column) for column in table.columns]
    return batch_of(columns, table.schema, table.num_rows)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Returns the values of a column as one array."""
    return concat_logical(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
