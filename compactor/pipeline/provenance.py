"""Where a row came from: the source, and its number there, in two hidden columns, until an aggregate or a
join makes another row of it. So outputs can say how many different rows reached them, and bad records name
their origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

Batches = Iterator[pa.RecordBatch]

SOURCE, ROW = "$source", "$row"
HIDDEN: Final = pa.schema([(SOURCE, pa.int32()), (ROW, pa.int64())])


def full_schema(schema: pa.Schema) -> pa.Schema:
    """With the hidden columns at the end."""
    return pa.schema([*schema, *HIDDEN])


def numbered(batch: pa.RecordBatch, number: int, row: int) -> pa.RecordBatch:
    """The batch with the hidden columns: rows from `row` on of the node of that number."""
    count = batch.num_rows
    hidden = [
        pa.repeat(pa.scalar(number, pa.int32()), count),
        pa.array(np.arange(row, row + count)),
    ]
    return pa.RecordBatch.from_arrays([*batch.columns, *hidden], schema=full_schema(batch.schema))


def hidden_of(batch: pa.RecordBatch) -> list[pa.Array]:
    return [batch.column(name) for name in HIDDEN.names]


def without_hidden(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name not in HIDDEN.names])
