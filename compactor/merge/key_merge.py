"""The k-way merge of keys: from row groups of sort columns to the order of all rows.

Each step takes, of every input, the rows that no unread row can precede, and sorts them at once: a
stable sort of concatenated sorted runs is a merge, vectorised. The frontier up to which rows may be
taken is the least of the inputs' last loaded keys. Two row groups of keys an input are kept loaded, so
that a step consumes about one of each rather than one of all.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from format.arrays import concat_storage
from format.errors import OrderError
from format.keys import KeyComparator, key_at
from format.ordering import first_disorder, order_words, same_as_previous, stable_order
from format.schema import SortSchema

_LOADED_GROUPS: Final = 2

ComparableKey = tuple[Any, ...]


class KeySource(Protocol):
    """Sort columns of one sorted input, row group by row group."""

    @property
    def name(self) -> str: ...

    def next_keys(self) -> list[pa.Array] | None:
        """The next row group's sort columns as storage arrays; None after the last."""
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

    @property
    def rows(self) -> int:
        return len(self.inputs)


def merge_keys(
    sources: Sequence[KeySource], compare: KeyComparator, sort: SortSchema
) -> Iterator[MergeWindow]:
    """Windows of all rows in sort order; equal keys by input, then by position.

    Raises `OrderError` for an input that is not sorted. Holds `_LOADED_GROUPS` row groups of keys an input.
    """
    buffers = [_KeyBuffer(source, compare) for source in sources]
    last_key: ComparableKey | None = None
    while True:
        for buffer in buffers:
            buffer.fill()
        taken = _take_up_to_frontier(buffers)
        if not taken:
            return
        window = _order_window(buffers, taken, sort)
        last = compare.key(key_at(window.keys, window.rows - 1))
        if last_key is not None:
            window.starts_key[0] = compare.key(key_at(window.keys, 0)) != last_key
        last_key = last
        yield window


_Taken = list[tuple[int, list[list[pa.Array]]]]
"""(input, pieces of its sort columns), inputs ascending."""


def _take_up_to_frontier(buffers: Sequence[_KeyBuffer]) -> _Taken:
    unfinished = [(b.last_key, i) for i, b in enumerate(buffers) if not b.is_exhausted]
    if not unfinished:
        return [(i, pieces) for i, b in enumerate(buffers) if (pieces := b.take_all())]
    frontier, owner = min(unfinished)
    # Rows equal to the frontier may still follow in `owner`: they come before those of later
    # inputs, and after those of earlier ones.
    return [
        (i, pieces)
        for i, b in enumerate(buffers)
        if (pieces := b.take_until(frontier, inclusive=i <= owner))
    ]


def _order_window(buffers: Sequence[_KeyBuffer], taken: _Taken, sort: SortSchema) -> MergeWindow:
    columns = [
        concat_storage([piece[index] for _, pieces in taken for piece in pieces])
        for index in range(len(sort))
    ]
    words = order_words(columns, sort)
    counts = [sum(len(piece[0]) for piece in pieces) for _, pieces in taken]
    start = 0
    for (index, _), count in zip(taken, counts, strict=True):
        if first_disorder([word[start : start + count] for word in words]) is not None:
            raise OrderError(f"{buffers[index].name}: its rows are not sorted")
        start += count
    inputs = np.repeat(np.array([index for index, _ in taken], dtype=np.uint16), counts)
    if len(taken) > 1:
        order = stable_order(words)
        positions = pa.array(order)
        columns = [column.take(positions) for column in columns]
        words = [word[order] for word in words]
        inputs = inputs[order]
    starts_key = ~same_as_previous(words)
    return MergeWindow(columns, inputs, starts_key)


class _KeyBuffer:
    """Loaded and not yet merged keys of one input."""

    def __init__(self, source: KeySource, compare: KeyComparator) -> None:
        self._source = source
        self._compare = compare
        self._pieces: deque[list[pa.Array]] = deque()
        self.last_key: ComparableKey = ()
        self.is_exhausted = False

    @property
    def name(self) -> str:
        return self._source.name

    def fill(self) -> None:
        while not self.is_exhausted and len(self._pieces) < _LOADED_GROUPS:
            piece = self._source.next_keys()
            if piece is None:
                self.is_exhausted = True
                return
            if self.last_key and self._key(piece, 0) < self.last_key:
                raise OrderError(f"{self.name}: its row groups are not sorted")
            self.last_key = self._key(piece, len(piece[0]) - 1)
            self._pieces.append(piece)

    def take_all(self) -> list[list[pa.Array]]:
        pieces = list(self._pieces)
        self._pieces.clear()
        return pieces

    def take_until(self, frontier: ComparableKey, *, inclusive: bool) -> list[list[pa.Array]]:
        """Removes and returns the rows before `frontier`, or up to it if `inclusive`."""
        taken = []
        while self._pieces:
            piece = self._pieces[0]
            count = self._count_until(piece, frontier, inclusive=inclusive)
            if count:
                taken.append([column.slice(0, count) for column in piece])
            if count < len(piece[0]):
                self._pieces[0] = [column.slice(count) for column in piece]
                break
            self._pieces.popleft()
        return taken

    def _count_until(
        self, piece: list[pa.Array], frontier: ComparableKey, *, inclusive: bool
    ) -> int:
        rows = len(piece[0])
        last, first = self._key(piece, rows - 1), self._key(piece, 0)
        if last < frontier or (inclusive and last == frontier):
            return rows
        if first > frontier or (not inclusive and first == frontier):
            return 0
        find = bisect.bisect_right if inclusive else bisect.bisect_left
        return find(range(rows), frontier, key=lambda row: self._key(piece, row))

    def _key(self, piece: list[pa.Array], row: int) -> ComparableKey:
        return self._compare.key(key_at(piece, row))
