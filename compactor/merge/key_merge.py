"""The k-way merge of keys: from row groups of sort columns to the order of all rows.

Each step takes, of every input, the rows that no unread row can precede, and sorts them at once: a
stable sort of concatenated sorted runs is a merge, vectorised. The frontier up to which rows may be
taken is the least of the keys that lie a share of a batch ahead in each input, so that a step never
takes more rows than a batch.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.merge.decoded import DecodedRows
from format.arrays import concat_storage
from format.errors import OrderError
from format.keys import Bound, KeyComparator, key_at
from format.ordering import first_disorder, order_words, same_as_previous, stable_order
from format.schema import SortSchema

ComparableKey = tuple[Any, ...]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LoadedGroup:
    """A row group whose sort columns were loaded."""

    rows: int
    first_key: Bound
    last_key: Bound


class KeySource(Protocol):
    """Sort columns of one sorted input, row group by row group."""

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> DecodedRows:
        """Sort columns loaded and not taken yet, as storage arrays."""
        ...

    def load_keys(self) -> LoadedGroup | None:
        """Loads the next row group into `keys`; None after the last."""
        ...

    def row_bytes(self, group_rows: int) -> int:
        """What a row of a row group of so many rows weighs in the heaviest column."""
        ...


@dataclass(frozen=True, slots=True)
class MergeWindow:
    """A stretch of merged rows, following all earlier windows."""

    keys: list[pa.Array]
    """Sort columns in output order."""
    inputs: npt.NDArray[np.uint16]
    """Which input each row comes from; each input's rows are taken in their order. Shape (rows,)."""
    starts_key: npt.NDArray[np.bool_]
    """Whether the row's key differs from the row's before it, across windows too. Shape (rows,)."""
    row_bytes: I64
    """What each row weighs in the heaviest column, by the inputs' statistics. Shape (rows,)."""

    @property
    def rows(self) -> int:
        return len(self.inputs)


def merge_keys(
    sources: Sequence[KeySource], compare: KeyComparator, sort: SortSchema, batch_rows: int
) -> Iterator[MergeWindow]:
    """Windows of all rows in sort order; equal keys by input, then by position.

    batch_rows: of a window, at most; or a row an input, if that is more. It changes no row's place.
    Raises `OrderError` for an input that is not sorted.
    """
    buffers = [_KeyBuffer(source, compare) for source in sources]
    last_key: ComparableKey | None = None
    while True:
        buffers = [buffer for buffer in buffers if buffer.fill(1)]
        if not buffers:
            return
        share = max(1, batch_rows // len(buffers))
        for buffer in buffers:
            buffer.fill(share)
        taken = _take_up_to_frontier(buffers, share)
        window = _order_window(taken, sort, {id(source): i for i, source in enumerate(sources)})
        for part in taken:
            part.source.keys.settle()
        last = compare.key(key_at(window.keys, window.rows - 1))
        if last_key is not None:
            window.starts_key[0] = compare.key(key_at(window.keys, 0)) != last_key
        last_key = last
        yield window


@dataclass(frozen=True, slots=True)
class _Taken:
    """Rows of one input, next to each other."""

    source: KeySource
    pieces: list[list[pa.Array]]
    row_bytes: I64

    @property
    def rows(self) -> int:
        return len(self.row_bytes)


def _take_up_to_frontier(buffers: Sequence[_KeyBuffer], share: int) -> list[_Taken]:
    probes = [
        (buffer.key_at(share - 1), i)
        for i, buffer in enumerate(buffers)
        if not buffer.is_exhausted or buffer.rows > share
    ]
    if not probes:
        return [buffer.take(buffer.rows) for buffer in buffers]
    frontier, owner = min(probes)
    # Of equal keys, those of `owner` up to its probe come after all of earlier inputs and before those of
    # later ones.
    counts = [
        share if i == owner else buffer.count_until(frontier, share, inclusive=i < owner)
        for i, buffer in enumerate(buffers)
    ]
    return [b.take(count) for b, count in zip(buffers, counts, strict=True) if count]


def _order_window(
    taken: Sequence[_Taken], sort: SortSchema, numbers: dict[int, int]
) -> MergeWindow:
    columns = [
        concat_storage([piece[index] for part in taken for piece in part.pieces])
        for index in range(len(sort))
    ]
    words = order_words(columns, sort)
    counts = [part.rows for part in taken]
    start = 0
    for part, count in zip(taken, counts, strict=True):
        if first_disorder([word[start : start + count] for word in words]) is not None:
            raise OrderError(f"{part.source.name}: its rows are not sorted")
        start += count
    which = np.array([numbers[id(part.source)] for part in taken], dtype=np.uint16)
    inputs = np.repeat(which, counts)
    row_bytes = np.concatenate([part.row_bytes for part in taken])
    if len(taken) > 1:
        order = stable_order(words)
        positions = pa.array(order)
        columns = [column.take(positions) for column in columns]
        words = [word[order] for word in words]
        inputs, row_bytes = inputs[order], row_bytes[order]
    return MergeWindow(columns, inputs, ~same_as_previous(words), row_bytes)


class _KeyBuffer:
    """Loaded and not yet merged keys of one input."""

    def __init__(self, source: KeySource, compare: KeyComparator) -> None:
        self._source = source
        self._compare = compare
        self._groups: deque[tuple[int, int]] = deque()
        """Rows not taken of each row group loaded, and what one of them weighs."""
        self._last_key: ComparableKey = ()
        """Of the rows loaded."""
        self.is_exhausted = False

    @property
    def rows(self) -> int:
        return self._source.keys.rows

    def fill(self, rows: int) -> bool:
        """Loads until so many rows are there, or all that are left; whether there are any."""
        while self.rows < rows and not self.is_exhausted:
            group = self._source.load_keys()
            if group is None:
                self.is_exhausted = True
                break
            if self._last_key and self._compare.key(group.first_key) < self._last_key:
                raise OrderError(f"{self._source.name}: its row groups are not sorted")
            self._last_key = self._compare.key(group.last_key)
            self._groups.append((group.rows, self._source.row_bytes(group.rows)))
        return self.rows > 0

    def key_at(self, row: int) -> ComparableKey:
        """The key of one of the rows loaded."""
        for piece in self._source.keys.peek(row + 1):
            if row < len(piece[0]):
                return self._key(piece, row)
            row -= len(piece[0])
        raise IndexError(row)

    def count_until(self, frontier: ComparableKey, most: int, *, inclusive: bool) -> int:
        """How many of the first `most` rows come before `frontier`, or are it if `inclusive`."""
        find = bisect.bisect_right if inclusive else bisect.bisect_left
        count = 0
        for piece in self._source.keys.peek(most):
            rows = len(piece[0])
            last = self._key(piece, rows - 1)
            if last < frontier or (inclusive and last == frontier):
                count += rows
                continue
            return count + find(range(rows), frontier, key=lambda row: self._key(piece, row))
        return count

    def take(self, rows: int) -> _Taken:
        pieces = self._source.keys.take(rows)
        weights, counts = [], []
        while rows:
            left, weight = self._groups.popleft()
            count = min(rows, left)
            weights.append(weight)
            counts.append(count)
            rows -= count
            if count < left:
                self._groups.appendleft((left - count, weight))
        row_bytes = np.repeat(np.array(weights, dtype=np.int64), counts)
        return _Taken(self._source, pieces, row_bytes)

    def _key(self, piece: list[pa.Array], row: int) -> ComparableKey:
        return self._compare.key(key_at(piece, row))
