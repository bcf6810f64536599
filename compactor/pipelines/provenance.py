"""Tracks the origin of rows, and document boundaries.

Hidden columns carry each row's source and row number until an aggregate or join creates new rows. Outputs use
them to count distinct source rows, and bad records to name their origin. A third hidden column holds the
correlation key as text, if a source declares one. Empty batches among the others mark where a document begins
and ends. Row-by-row nodes pass them through; a merge, sort, aggregate or join makes its whole input one
document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.batches import no_rows
from lsm_fragment.arrays.buffers import integer_array

Batches = Iterator[pa.RecordBatch]

SOURCE, ROW, GROUP = "$source", "$row", "$group"
HIDDEN_NAMES: Final = (SOURCE, ROW, GROUP)
_ORIGIN: Final = (pa.field(SOURCE, pa.int32()), pa.field(ROW, pa.int64()))
_GROUP: Final = pa.field(GROUP, pa.string())
_BOUNDARY: Final = b"lsm-compactor.boundary"


class Boundary(NamedTuple):
    """The start or end of a document."""

    is_open: bool
    """True for the start, before the first row; False for the end, after the last."""
    name: str


def full_schema(schema: pa.Schema, *, has_groups: bool) -> pa.Schema:
    """Appends the hidden columns to the schema."""
    return pa.schema([*schema, *_ORIGIN, *([_GROUP] if has_groups else [])])


def numbered(
    batch: pa.RecordBatch, number: int, row: int, groups: pa.Array | None
) -> pa.RecordBatch:
    """Adds the hidden columns: rows `row` and following of node `number`."""
    rows = integer_array(np.arange(row, row + batch.num_rows))
    return placed(batch, number, rows, groups)


def placed(
    batch: pa.RecordBatch, number: int, rows: pa.Array, groups: pa.Array | None
) -> pa.RecordBatch:
    hidden = [pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows), rows]
    if groups is not None:
        hidden.append(groups)
    schema = full_schema(batch.schema, has_groups=groups is not None)
    return pa.RecordBatch.from_arrays([*batch.columns, *hidden], schema=schema)


def with_columns(
    batch: pa.RecordBatch, columns: list[pa.Array], schema: pa.Schema
) -> pa.RecordBatch:
    """Returns a batch of these columns and the hidden columns of `batch`."""
    kept = [field for field in batch.schema if field.name in HIDDEN_NAMES]
    hidden = [batch.column(field.name) for field in kept]
    return pa.RecordBatch.from_arrays([*columns, *hidden], schema=pa.schema([*schema, *kept]))


def is_coded(column: pa.Array, field: pa.Field) -> bool:
    """Returns whether a column has codes of values of the field's type, as a reader of Parquet may give."""
    return bool(pt.is_dictionary(column.type) and column.type.value_type == field.type)


def without_hidden(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name not in HIDDEN_NAMES])


def boundary_batch(boundary: Boundary, schema: pa.Schema) -> pa.RecordBatch:
    """Returns an empty batch that marks a boundary. schema: schema of the surrounding rows."""
    marked = schema.with_metadata({_BOUNDARY: json.dumps(boundary).encode()})
    return no_rows(marked)


def boundary_of(batch: pa.RecordBatch) -> Boundary | None:
    """Returns the boundary that a batch marks; None for a batch of rows."""
    if batch.num_rows or _BOUNDARY not in (batch.schema.metadata or {}):
        return None
    return Boundary(*json.loads(batch.schema.metadata[_BOUNDARY]))


def one_document(name: str, batches: Batches, schema: pa.Schema) -> Batches:
    """Yields all rows as a single document."""
    yield boundary_batch(Boundary(True, name), schema)
    for batch in batches:
        if boundary_of(batch) is None:
            yield batch
    yield boundary_batch(Boundary(False, name), schema)
