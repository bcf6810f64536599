"""Positions of deleted rows: one object for each deletion, in it a block of the fragment format for each
fragment that has such rows.

A fragment is never changed. That some of its rows are gone is said by the log, together with where their
positions are; readers leave those rows out, and the next compaction of the fragment does not write them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.errors import DataError
from compactor.stores.base import Store
from compactor.table.entry import Deletion, FragmentEntry
from format.blocks import BlockReader, make_chunk
from format.errors import FormatError
from format.layout import Kind

Positions = npt.NDArray[np.int64]
"""Of rows in a fragment, ascending, each once; shape (deleted rows,)."""

_LEVEL: Final = 3


def write_deletions(
    store: Store, key: str, deleted: Iterable[tuple[FragmentEntry, Positions]]
) -> list[FragmentEntry]:
    """Writes one object; the entries as they are with it. Nothing is visible before they are committed."""
    entries, blocks, offset = [], [], 0
    for entry, positions in deleted:
        block = make_chunk(pa.array(positions), level=_LEVEL).block(Kind.DATA)
        deletion = Deletion(key, offset, len(block), len(positions))
        entries.append((entry, deletion))
        blocks.append(block)
        offset += len(block)
    store.create(key, b"".join(blocks))
    return [replace(entry, deletion=deletion) for entry, deletion in entries]


def read_deletion(store: Store, entry: FragmentEntry) -> Positions:
    """Which rows of a fragment are deleted; none of a fragment without. Raises `DataError`, `StoreError`."""
    deletion = entry.deletion
    if deletion is None:
        return np.empty(0, dtype=np.int64)
    name = f"{store.url}/{deletion.key}"
    data = store.read_range(deletion.key, deletion.offset, deletion.length)
    try:
        block = BlockReader(_Bytes(data), name, offset=deletion.offset).read_block()
        positions: Positions = block.decode(pa.int64()).to_numpy(zero_copy_only=False)
    except FormatError as error:
        raise DataError(f"{error}; the rows deleted of {entry.key} are not known") from error
    is_ascending = bool((np.diff(positions) > 0).all())
    if len(positions) != deletion.rows or not is_ascending or not _inside(positions, entry.rows):
        raise DataError(
            f"{name}: its positions do not fit {entry.key}, of {entry.rows} rows, {deletion.rows} of them "
            "deleted"
        )
    return positions


def _inside(positions: Positions, rows: int) -> bool:
    return not len(positions) or (positions[0] >= 0 and positions[-1] < rows)


class _Bytes:
    """A block in memory as a source."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def read(self, max_bytes: int, /) -> bytes:
        piece, self._data = self._data[:max_bytes], self._data[max_bytes:]
        return bytes(piece)
