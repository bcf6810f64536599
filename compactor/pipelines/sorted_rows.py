"""Reads one sorted side of a join chunk by chunk, and ranks the keys of both sides so that whole arrays
compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.buffer import BatchBuffer
from compactor.resources.budget import MemoryBudget
from compactor.resources.reservation import Reservation
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import concat_rows, no_rows
from lsm_fragment.arrays.joining import concat_storage
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.keys.normalised import same_as_previous, sort_keys, stable_order
from lsm_fragment.keys.sort_schema import SortSchema

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Batches = Iterator[pa.RecordBatch]

CHUNK_ROWS: Final = 65_536
"""Maximum rows that a join compares or emits at a time."""
_CHUNK_DIVISOR: Final = 32
"""A chunk takes at most 1/32 of the soft limit."""
_WORK_COPIES: Final = 2
"""Copies of a chunk in memory: its batches, and their concatenation."""
_IN_HAND: Final = 2
"""Chunks that a join works on at a time."""
_ROW_BYTES: Final = 96
"""Bytes of keys, ranks and positions per row of a chunk."""


class Room(Struct, frozen=True):
    """The memory of a join."""

    budget: MemoryBudget
    stage: str
    new_buffer: Callable[[pa.Schema], BatchBuffer]
    """Makes a buffer that the stage can spill."""

    @property
    def chunk_bytes(self) -> int:
        return max(1, self.budget.soft_bytes // _CHUNK_DIVISOR)

    def working(self) -> Reservation:
        """Reserves the chunks in use: rows being joined and rows being emitted."""
        return Reservation(self.budget, self.stage, _IN_HAND * self.chunk_bytes)

    def rows_of(self, row_bytes: float) -> int:
        """Returns the rows of this size in a chunk."""
        return BatchSize(CHUNK_ROWS, self.chunk_bytes).rows_of(row_bytes)


def key_arrays(batch: pa.RecordBatch, names: Sequence[str]) -> list[pa.Array]:
    return [plain(to_storage(batch.column(name))) for name in names]


def known_rows(columns: Sequence[pa.Array], rows: int) -> Flags:
    """Returns which rows are neither null nor NaN, and so can match. Shape (rows,)."""
    known = np.ones(rows, dtype=np.bool_)
    for column in columns:
        known &= np.asarray(column.is_valid())
        known &= ~nan_rows(column)
    return known


def nan_rows(column: pa.Array) -> Flags:
    """Returns which values are NaN. Shape (rows,)."""
    if not pt.is_floating(column.type):
        return np.zeros(len(column), dtype=np.bool_)
    flags = pc.fill_null(pc.is_nan(column), False).to_numpy(zero_copy_only=False)
    return flags.astype(np.bool_)  # type: ignore[no-any-return]


def common_ranks(sets: Sequence[Sequence[pa.Array]], sort: SortSchema) -> list[I64]:
    """Ranks the rows of all sets together; equal keys get equal ranks. Returns one array per set.

    sets: key columns per set, as plain storage arrays.
    """
    if not sets[0]:
        return [np.zeros(0, dtype=np.int64) for _ in sets]
    columns = [concat_storage(list(parts)) for parts in zip(*sets, strict=True)]
    if not len(columns[0]):
        return [np.zeros(0, dtype=np.int64) for _ in sets]
    keys = sort_keys(columns, sort)
    order = stable_order(keys)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(~same_as_previous(keys, order))
    return np.split(ranks, np.cumsum([len(columns[0]) for columns in sets])[:-1])


class SortedRows:
    """A reader of sorted batches that holds one chunk in memory."""

    def __init__(
        self, batches: Batches, schema: pa.Schema, keys: Sequence[str], sort: SortSchema, room: Room
    ) -> None:
        """sort: sort direction per key; its column names are ignored."""
        self.schema = schema
        self._batches = batches
        self._names = list(keys)
        self.sort = sort
        self.room = room
        self._rest: pa.RecordBatch | None = None
        """Rest of a batch larger than a chunk."""
        self._memory = Reservation(room.budget, room.stage)
        self.rows: pa.RecordBatch = no_rows(schema)
        self.keys: list[pa.Array] = key_arrays(self.rows, self._names)
        """Key columns of `rows`, as plain storage arrays."""

    def fill(self) -> bool:
        """Reads a chunk if none is left. Returns False at the end."""
        if not self.rows.num_rows:
            self.close()
            pieces, rows, size = [], 0, 0
            while piece := self._next_piece(rows, size):
                pieces.append(piece)
                rows, size = rows + piece.num_rows, size + piece.nbytes
                self._memory.grow(_WORK_COPIES * piece.nbytes + _ROW_BYTES * piece.num_rows)
            if pieces:
                self._set(concat_rows(pieces))
        return bool(self.rows.num_rows)

    def take(self, count: int) -> pa.RecordBatch:
        """Takes the first `count` rows; they stay charged until the next read."""
        taken = self.rows.slice(0, count)
        self.rows = self.rows.slice(count)
        self.keys = [key.slice(count) for key in self.keys]
        return taken

    def take_through(self, key: Sequence[pa.Array]) -> Batches:
        """Yields all rows up to and including this key, in pieces.

        Each piece stays charged until the next one is requested. key: one-row key columns.
        """
        while self.fill():
            ours, theirs = common_ranks([self.keys, key], self.sort)
            count = int(np.searchsorted(ours, theirs[0], "right"))
            is_all = count == len(ours)
            if count:
                yield self.take(count)
            if not is_all:
                return

    def close(self) -> None:
        self._memory.free()

    def _set(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self.keys = key_arrays(rows, self._names)

    def _next_piece(self, rows: int, size: int) -> pa.RecordBatch | None:
        """Returns the next rows that fit into a chunk beside these; None if none fit or at the end."""
        while self._rest is None or not self._rest.num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return None
        row_bytes = self._rest.nbytes / self._rest.num_rows
        count = min(CHUNK_ROWS - rows, int((self.room.chunk_bytes - size) / max(1.0, row_bytes)))
        if rows and count <= 0:
            return None
        piece = self._rest.slice(0, max(1, count))
        self._rest = self._rest.slice(piece.num_rows)
        return piece
