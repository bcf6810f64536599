"""Sorts the rows of a fragment and merges those of one key. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.rows.flags import COUNTS, KEPT, RowRule
from compactor.rows.fold import FoldError, merged_rows
from compactor.table.key_text import with_key
from compactor.table.metadata import TableMetadata
from format.arrays import concat_storage
from format.ordering import key_columns, same_as_previous, sort_keys, stable_order
from format.schema import SortSchema
from format.storage import to_storage

Columns = Mapping[str, pa.Array]
_TAKEN_ROWS: Final = 16_384
"""Rows that are put in order at a time, since the copies take memory."""


def sorted_columns(
    batches: list[pa.RecordBatch], schema: pa.Schema, table: TableMetadata, rule: RowRule
) -> Iterator[Columns]:
    """Yields the rows of all batches in stable sort order, some at a time, as storage arrays by column name.

    Merges rows of one key if the rule says so. Raises `FoldError` for a sum that does not fit.
    """
    sort = table.sort
    pieces = [{n: to_storage(batch.column(n)) for n in schema.names} for batch in batches]
    if not rule.merges and _are_sorted(pieces, sort):
        # Rows that came in order, as from a sorted file, need neither a sort nor a copy.
        yield from pieces
        return
    arrays = {name: concat_storage([piece[name] for piece in pieces]) for name in schema.names}
    del pieces
    order = pa.array(stable_order(sort_keys([arrays[column.column] for column in sort], sort)))
    if rule.merges:
        yield dict(_merged(arrays, order, table, rule))
        return
    for start in range(0, len(order), _TAKEN_ROWS):
        positions = order.slice(start, _TAKEN_ROWS)
        yield {name: array.take(positions) for name, array in arrays.items()}


def _are_sorted(pieces: Sequence[Columns], sort: SortSchema) -> bool:
    keys = [key_columns([piece[column.column] for column in sort], sort) for piece in pieces]
    return all(columns.first_disorder() is None for columns in keys) and all(
        one.key(one.rows - 1) <= other.key(0) for one, other in itertools.pairwise(keys)
    )


def _merged(
    arrays: Columns, order: pa.Array, table: TableMetadata, rule: RowRule
) -> Iterator[tuple[str, pa.Array]]:
    """Yields each column by name, in order, with one row for each key."""
    keys = [arrays[column.column].take(order) for column in table.sort]
    starts = ~same_as_previous(sort_keys(keys, rule.key))
    decision = rule.decide(keys, starts)
    # A row that is alone in its key still needs the duplicates removed from its sets.
    flags = np.full(len(order), KEPT | COUNTS, np.uint8) if decision is None else decision.flags
    for name, array in list(arrays.items()):
        try:
            yield name, merged_rows(array.take(order), flags, name, rule)
        except FoldError as error:
            raise with_key(error, keys, table) from None
