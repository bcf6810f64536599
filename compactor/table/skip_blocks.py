"""Skip indexes on storage: one object beside the fragments of an attempt.

For each fragment and column it holds a block of the fragment format, with a value for each row group, null
where none was kept. The log says where a fragment's blocks are; each is read when a condition asks for its
column.
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
    """Returns the block of one column of a fragment. summaries: one for each row group."""
    return make_chunk(pa.array(summaries, TYPE), level=_LEVEL).block(BlockKind.DATA)


def read_summaries(store: Store, entry: FragmentEntry, column: str) -> list[bytes | None] | None:
    """Returns one summary per row group; None without an index. Raises `DataError`, `StoreError`."""
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
                f"{name}: it is for {block.header.rows} row groups, but {entry.key} has {entry.row_groups}"
            )
        summaries: list[bytes | None] = block.decode(TYPE).to_pylist()
    except FormatError as error:
        raise DataError(f"{error}; this is the skip index of {entry.key}") from error
    return summaries


def read_index(
    store: Store, entry: FragmentEntry, column: str, dtype: pa.DataType
) -> list[Summary | None] | None:
    """Returns what `read_summaries` does, parsed for values of a type. Raises as it does."""
    summaries = read_summaries(store, entry, column)
    if summaries is None:
        return None
    try:
        return [None if data is None else summary_of(data, dtype) for data in summaries]
    except ValueError as error:
        assert entry.skip_index is not None
        place = f"{store.url}/{entry.skip_index.key}: column {column!r}"
        raise DataError(f"{place}: {error}; this is the skip index of {entry.key}") from error
