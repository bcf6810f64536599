"""What travels with rows: where each came from, and where documents begin and end.

A row's source and its number there are hidden columns, until an aggregate or a join makes another row of it:
so outputs can say how many different rows reached them, and bad records name their origin. Where a source
declares a correlation key, its text is a third one. A document's beginning and end are batches without rows,
in order among the others: they pass nodes that treat row by row; a merge, sort, aggregate or join makes
one document of all it is given.
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
    """Of a document."""

    is_open: bool
    """Before its first row; else after its last."""
    name: str


def full_schema(schema: pa.Schema, *, has_groups: bool) -> pa.Schema:
    """With the hidden columns at the end."""
    return pa.schema([*schema, *_ORIGIN, *([_GROUP] if has_groups else [])])


def numbered(
    batch: pa.RecordBatch, number: int, row: int, groups: pa.Array | None
) -> pa.RecordBatch:
    """The batch with the hidden columns: rows from `row` on of the node of that number."""
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
    """These columns in place of the batch's, and its hidden ones."""
    kept = [field for field in batch.schema if field.name in HIDDEN_NAMES]
    hidden = [batch.column(field.name) for field in kept]
    return pa.RecordBatch.from_arrays([*columns, *hidden], schema=pa.schema([*schema, *kept]))


def without_hidden(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name not in HIDDEN_NAMES])


def boundary_batch(boundary: Boundary, schema: pa.Schema) -> pa.RecordBatch:
    """schema: of the rows around it."""
    marked = schema.with_metadata({_BOUNDARY: json.dumps(boundary).encode()})
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in marked], schema=marked)


def boundary_of(batch: pa.RecordBatch) -> Boundary | None:
    """None if the batch is rows, however few."""
    if batch.num_rows or _BOUNDARY not in (batch.schema.metadata or {}):
        return None
    return Boundary(*json.loads(batch.schema.metadata[_BOUNDARY]))


def one_document(name: str, batches: Batches, schema: pa.Schema) -> Batches:
    """All rows as one document, whatever they were part of."""
    yield boundary_batch(Boundary(True, name), schema)
    for batch in batches:
        if boundary_of(batch) is None:
            yield batch
    yield boundary_batch(Boundary(False, name), schema)
