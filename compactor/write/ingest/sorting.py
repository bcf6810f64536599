"""Sorts the rows of a fragment and merges those of one key. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from compactor.rows.flags import COUNTS, KEPT, RowRule
from compactor.rows.fold import merged_rows
from format.arrays import concat_storage
from format.ordering import key_columns, same_as_previous, sort_keys, stable_order
from format.schema import SortSchema
from format.storage import to_logical, to_storage

_SORTED_BATCH_ROWS = 16_384


def sorted_batches(
    batches: list[pa.RecordBatch], schema: pa.Schema, sort: SortSchema, rule: RowRule
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of all batches in stable sort order, `_SORTED_BATCH_ROWS` at a time.

    Merges rows of one key if the rule says so.
    """
    arrays = {
        name: concat_storage([to_storage(batch.column(name)) for batch in batches])
        for name in schema.names
    }
    keys = key_columns([arrays[column.column] for column in sort], sort)
    # Rows that came in order, as from a sorted file, need neither a sort nor a copy.
    order = None if keys.first_disorder() is None else stable_order(keys.keys())
    rows = len(arrays[sort[0].column])
    if rule.merges:
        positions = pa.array(np.arange(rows) if order is None else order)
        arrays.update(_merged(arrays, positions, sort, rule))
        order, rows = None, len(arrays[sort[0].column])
    for start in range(0, rows, _SORTED_BATCH_ROWS):
        if order is None:
            batch = {f.name: arrays[f.name].slice(start, _SORTED_BATCH_ROWS) for f in schema}
        else:
            positions = pa.array(order[start : start + _SORTED_BATCH_ROWS])
            batch = {f.name: arrays[f.name].take(positions) for f in schema}
        columns = [to_logical(batch[f.name], f.type) for f in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _merged(
    arrays: Mapping[str, pa.Array], order: pa.Array, sort: SortSchema, rule: RowRule
) -> Iterator[tuple[str, pa.Array]]:
    """Yields each column by name, in order, with one row for each key."""
    keys = [arrays[column.column].take(order) for column in sort]
    starts = ~same_as_previous(sort_keys(keys, rule.key))
    decision = rule.decide(keys, starts)
    # A row that is alone in its key still needs the duplicates removed from its sets.
    flags = np.full(len(order), KEPT | COUNTS, np.uint8) if decision is None else decision.flags
    for name, array in list(arrays.items()):
        yield name, merged_rows(array.take(order), flags, name, rule)
