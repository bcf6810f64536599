"""Tracks where rows came from, and where documents begin and end.

Hidden columns carry a row's source and its number there until an aggregate or a join makes new rows. So
outputs can count the distinct rows that reached them, and bad records name their origin. Where a source
declares a correlation key, the key's text is a third hidden column. Batches without rows mark where a
document begins and ends, in order among the other batches. They pass through nodes that work row by row; a
merge, sort, aggregate or join makes one document of all its input.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

Batches = Iterator[pa.RecordBatch]

SOURCE, ROW, GROUP = "$source", "$row", "$group"
HIDDEN_NAMES: Final = (SOURCE, ROW, GROUP)
_ORIGIN: Final = (pa.field(SOURCE, pa.int32()), pa.field(ROW, pa.int64()))
_GROUP: Final = pa.field(GROUP, pa.string())
_BOUNDARY: Final = b"lsm-compactor.boundary"


class Boundary(NamedTuple):
    """The beginning or the end of a document."""

    is_open: bool
    """Whether this is the beginning, before the first row; otherwise the end, after the last."""
    name: str


def full_schema(schema: pa.Schema, *, has_groups: bool) -> pa.Schema:
    """Returns the schema with the hidden columns at the end."""
    return pa.schema([*schema, *_ORIGIN, *([_GROUP] if has_groups else [])])


def numbered(
    batch: pa.RecordBatch, number: int, row: int, groups: pa.Array | None
) -> pa.RecordBatch:
    """Returns the batch with hidden columns: its rows are those from `row` on of node `number`."""
    rows = pa.array(np.arange(row, row + batch.num_rows))
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


def without_hidden(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name not in HIDDEN_NAMES])


def boundary_batch(boundary: Boundary, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the batch without rows that marks a boundary. schema: that of the rows around it."""
    marked = schema.with_metadata({_BOUNDARY: json.dumps(boundary).encode()})
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in marked], schema=marked)


def boundary_of(batch: pa.RecordBatch) -> Boundary | None:
    """Returns the boundary that a batch marks; None if the batch holds rows, however few."""
    if batch.num_rows or _BOUNDARY not in (batch.schema.metadata or {}):
        return None
    return Boundary(*json.loads(batch.schema.metadata[_BOUNDARY]))


def one_document(name: str, batches: Batches, schema: pa.Schema) -> Batches:
    """Yields all rows as one document, whichever documents they belonged to."""
    yield boundary_batch(Boundary(True, name), schema)
    for batch in batches:
        if boundary_of(batch) is None:
            yield batch
    yield boundary_batch(Boundary(False, name), schema)
