"""Reads skip indexes: objects beside fragments, with one block per fragment and column.

The log has the place of a fragment's blocks; each is read only if a condition names its column.
"""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa

from compactor.common.counts import counted
from compactor.errors import DataError
from compactor.predicate.prune import Summary
from compactor.predicate.skipping.packed import NO_BLOCK, TYPE
from compactor.predicate.skipping.summary import summary_of
from compactor.stores.base import Store, check_size
from compactor.table.entry import FragmentEntry
from lsm_fragment.blocks.layout import checksum64
from lsm_fragment.container.block_reader import BlockReader
from lsm_fragment.errors import FormatError


def read_summaries(store: Store, entry: FragmentEntry, column: str) -> list[bytes | None] | None:
    """Returns one summary per row group; None without an index. Raises `DataError`, `StoreError`."""
    index = entry.skip_index
    place = NO_BLOCK if index is None else index.columns.get(column, NO_BLOCK)
    if index is None or not place.length:
        return None
    name = f"{store.url}/{index.key}"
    check_size(place.length, name)
    data = store.read_range(index.key, place.offset, place.length)
    try:
        block = BlockReader(BytesIO(data), name, offset=place.offset).read_block(column)
        if block.header.rows != entry.row_groups:
            raise DataError(
                f"{name}: it is for {counted(block.header.rows, 'row group')}, but {entry.key} has "
                f"{entry.row_groups:,}"
            )
        if checksum64(data) != place.hash:
            raise DataError(
                f"{name}: the log has the hash of another skip index of {entry.key} and column {column!r}"
            )
        summaries: list[bytes | None] = block.decode(TYPE).to_pylist()
    except FormatError as error:
        raise DataError(f"{error}; this is the skip index of {entry.key}") from error
    return summaries


def read_index(
    store: Store, entry: FragmentEntry, column: str, dtype: pa.DataType
) -> list[Summary | None] | None:
    """Like `read_summaries`, parsed for values of a type."""
    summaries = read_summaries(store, entry, column)
    if summaries is None:
        return None
    try:
        return [None if data is None else summary_of(data, dtype) for data in summaries]
    except ValueError as error:
        assert entry.skip_index is not None
        place = f"{store.url}/{entry.skip_index.key}: column {column!r}"
        raise DataError(f"{place}: {error}; this is the skip index of {entry.key}") from error
