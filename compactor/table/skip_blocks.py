"""Skip indexes on storage: beside the fragments of one attempt an object with, for every fragment and column,
a block of the fragment format; in it a value for each row group, null where none was kept.

The log says where a fragment's blocks are. They are read one by one, when a condition asks for the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Final

import pyarrow as pa

from compactor.errors import DataError
from compactor.predicate.prune import Summary
from compactor.predicate.skipping.summary import summary_of
from compactor.stores.base import Store, check_size
from compactor.table.entry import FragmentEntry
from format.blocks import BlockReader, make_chunk
from format.errors import FormatError
from format.layout import BlockKind

_LEVEL: Final = 1
TYPE: Final = pa.large_binary()


def pack(summaries: Sequence[bytes | None]) -> bytes:
    """Of one column of a fragment, one a row group."""
    return make_chunk(pa.array(summaries, TYPE), level=_LEVEL).block(BlockKind.DATA)


def read_summaries(store: Store, entry: FragmentEntry, column: str) -> list[bytes | None] | None:
    """One a row group; None if the fragment has none of the column. Raises `DataError`, `StoreError`."""
    index = entry.skip_index
    offset, length = (0, 0) if index is None else index.columns.get(column, (0, 0))
    if index is None or not length:
        return None
    name = f"{store.url}/{index.key}"
    check_size(length, name)
    data = store.read_range(index.key, offset, length)
    try:
        block = BlockReader(BytesIO(data), name, offset=offset).read_block(column)
        if block.header.rows != entry.row_groups:
            raise DataError(
                f"{name}: it has {block.header.rows} row groups of {entry.key}, which has {entry.row_groups}"
            )
        summaries: list[bytes | None] = block.decode(TYPE).to_pylist()
    except FormatError as error:
        raise DataError(f"{error}; this is the skip index of {entry.key}") from error
    return summaries


def read_index(
    store: Store, entry: FragmentEntry, column: str, dtype: pa.DataType
) -> list[Summary | None] | None:
    """As `read_summaries`, to be asked for values of a type."""
    summaries = read_summaries(store, entry, column)
    if summaries is None:
        return None
    try:
        return [None if data is None else summary_of(data, dtype) for data in summaries]
    except ValueError as error:
        assert entry.skip_index is not None
        place = f"{store.url}/{entry.skip_index.key}: column {column!r}"
        raise DataError(f"{place}: {error}; this is the skip index of {entry.key}") from error
