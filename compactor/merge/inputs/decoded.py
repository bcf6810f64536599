"""Holds decoded rows of one input that were not taken yet, in memory or in slices on local disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field
from pyarrow import types as pt

from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk, Region
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.reservation import Pins, Reservation
from lsm_fragment.arrays.joining import without_unused
from lsm_fragment.arrays.sizes import cumulative_bytes, max_row_bytes, spans_within
from lsm_fragment.arrays.templated import coded_templates, numbers_of, templated, texts_of
from lsm_fragment.arrays.types import is_templated, is_worded
from lsm_fragment.arrays.worded import expanded
from lsm_fragment.gather.pieces import GatherArray, Span
from lsm_fragment.keys.normalised import KeyColumns, KeyLayout


class _InMemory(Struct, kw_only=True):
    arrays: list[pa.Array]
    memory: Reservation
    """Pinned while its rows are borrowed."""
    stop: int
    """The rows of the arrays."""
    position: int = 0
    gathered: list[GatherArray] | None = None
    """The arrays in the form in which rows are gathered, once some are."""
    keys: KeyColumns | None = None
    """The arrays in the form in which keys are made, once some are."""
    heaviest_bytes: int | None = None
    """The bytes of the heaviest row in any column, once they are needed."""

    @property
    def rows(self) -> int:
        return self.stop - self.position

    def may_spill(self, slice_bytes: int) -> bool:
        """Returns whether to spill it would free more than `slice_bytes`."""
        return self.memory.size > slice_bytes and self.rows > 0 and not self.memory.is_pinned


class BorrowedRows(NamedTuple):
    """Consecutive rows that their queue still has, or had when they were borrowed."""

    part: _InMemory
    start: int
    rows: int

    def arrays(self) -> list[pa.Array]:
        return [array.slice(self.start, self.rows) for array in self.part.arrays]

    def span(self) -> Span:
        """Returns the rows to be gathered."""
        if self.part.gathered is None:
            self.part.gathered = [GatherArray(array) for array in self.part.arrays]
        return Span(self.part.gathered, self.start, self.rows)


class TakenRows(NamedTuple):
    """Rows of one column that have left their queue, with their memory."""

    array: pa.Array
    memory: Reservation


class _OnDisk(Struct):
    region: Region
    rows: int
    columns: list[_StoredColumn]


class _StoredColumn(Struct):
    batches: list[tuple[pa.Schema, int]] = field(default_factory=list)
    """Schema and length of the values, or of codes and dictionary."""


class KeyRows(NamedTuple):
    """Consecutive rows for which keys are made."""

    keys: KeyColumns
    arrays: Sequence[pa.Array]
    start: int
    """Their place in `keys` and `arrays`, which may have others before and after them."""
    rows: int


class DecodedRows:
    """A queue of row groups of several columns, taken from the front some rows at a time.

    Rows that do not fit below the soft limit when they come go to disk at once; rows in memory can be spilled
    later. Dictionary-coded columns stay dictionary-coded, so that encoders see the same arrays.
    """

    def __init__(
        self, budget: MemoryBudget, disk: LocalDisk, slice_bytes: int, reserve_bytes: int = 0
    ) -> None:
        """reserve_bytes: part of the limit that stays free for rows that were taken, which cannot be
        spilled."""
        self._reserve_bytes = reserve_bytes
        self._budget = budget
        self._disk = disk
        self._slice_bytes = slice_bytes
        self._parts: deque[_InMemory | _OnDisk] = deque()
        self._is_loading = False
        self.rows = 0
        """Number of rows not taken yet."""
        self.taken = 0
        """Number of rows taken."""

    def push(self, arrays: list[pa.Array], *, to_disk: bool = False) -> None:
        """Adds a row group. arrays: one for each column. to_disk: whatever memory is free."""
        size = sum(array.get_total_buffer_size() for array in arrays)
        memory = None if to_disk else self.room_for(size)
        self.rows += len(arrays[0])
        if memory is None:
            self._parts.extend(self._to_disk(arrays))
            return
        self._parts.append(_InMemory(arrays=arrays, memory=memory, stop=len(arrays[0])))

    def room_for(self, size: int) -> Reservation | None:
        """Returns memory for decoded rows, or for what makes them; None if they go to disk as they come."""
        fits = size <= self._slice_bytes or self._budget.has_room_at_last(size, self._reserve_bytes)
        return Reservation(self._budget, CHUNKS, size) if fits else None

    def heaviest_bytes(self) -> int | None:
        """Returns an upper bound of the bytes of a row in any column; None if some rows are on disk."""
        most = 0
        for part in self._parts:
            if isinstance(part, _OnDisk):
                return None
            if part.heaviest_bytes is None:
                part.heaviest_bytes = max(map(max_row_bytes, part.arrays))
            most = max(most, part.heaviest_bytes)
        return most

    def peek(self, skip: int, rows: int) -> Iterator[list[pa.Array]]:
        """Yields at most `rows` rows from number `skip` on, in pieces, without removing them. Loads a piece
        when the caller asks for it; no row may be taken meanwhile."""
        for index, part in enumerate(self._parts):
            if rows <= 0:
                break
            if skip >= part.rows:
                skip -= part.rows
                continue
            held = self._in_memory(index)
            piece = [array.slice(held.position + skip, rows) for array in held.arrays]
            skip = 0
            rows -= len(piece[0])
            yield piece

    def key_rows(self, skip: int, layout: KeyLayout) -> KeyRows:
        """Returns the row number `skip` and those that follow it in memory, without removing them; no row may
        be taken meanwhile. layout: always the same."""
        index = 0
        while skip >= self._parts[index].rows:
            skip -= self._parts[index].rows
            index += 1
        part = self._in_memory(index)
        keys = part.keys or KeyColumns(part.arrays, layout)
        if not keys.has_copies:  # for which no memory is reserved
            part.keys = keys
        return KeyRows(keys, part.arrays, part.position + skip, part.rows - skip)

    def take(self, rows: int, pins: Pins) -> list[list[pa.Array]]:
        """Removes the first `rows` rows and returns them in pieces, whose memory it pins."""
        pieces = []
        while rows:
            part = self._in_memory(0)
            count = min(rows, part.rows)
            pieces.append([array.slice(part.position, count) for array in part.arrays])
            pins.add(part.memory)
            self._pass(part, count)
            rows -= count
        return pieces

    def borrow(self, skip: int, rows: int, pins: Pins) -> list[BorrowedRows]:
        """Returns `rows` rows from number `skip` on, without removing them, and pins their memory: until it
        is unpinned, they do not spill."""
        found: list[BorrowedRows] = []
        index = 0
        while rows:
            left = self._parts[index].rows - skip
            if left > 0:
                part, count = self._in_memory(index), min(rows, left)
                found.append(BorrowedRows(part, part.position + skip, count))
                pins.add(part.memory)
                rows -= count
            skip = max(0, -left)
            index += 1
        return found

    def drop(self, rows: int) -> None:
        """Removes the first `rows` rows; what is pinned of them stays in memory."""
        while rows:
            part = self._parts[0]
            if isinstance(part, _OnDisk) and part.rows <= rows:
                self._disk.release(part.region)
                self._parts.popleft()
                count = part.rows
                self._count(count)
            else:
                part = self._in_memory(0)
                count = min(rows, part.rows)
                self._pass(part, count)
            rows -= count

    def take_part(self) -> TakenRows:
        """Removes the first part of the only column; none of its rows may have been taken."""
        part = self._in_memory(0)
        self._parts.popleft()
        self._count(part.rows)
        return TakenRows(part.arrays[0], part.memory)

    def pass_on(self, array: pa.Array) -> TakenRows:
        """Adds rows of the only column where there are none, and removes the first part as `take_part`
        does."""
        size = array.get_total_buffer_size()
        if (memory := self.room_for(size)) is None:
            self.push([array], to_disk=True)
            return self.take_part()
        return TakenRows(array, memory)

    def put_back(self, array: pa.Array) -> None:
        """Puts rows of the only column before all others, on disk."""
        self._parts.extendleft(reversed(self._to_disk([array])))
        self._count(-len(array))

    def _pass(self, part: _InMemory, count: int) -> None:
        """Goes on to the row after the first `count` ones of the first part."""
        part.position += count
        self._count(count)
        if not part.rows:
            self._parts.popleft()

    def _count(self, taken: int) -> None:
        self.rows -= taken
        self.taken += taken

    @property
    def spillable_bytes(self) -> int:
        return sum(
            part.memory.size
            for part in self._parts
            if isinstance(part, _InMemory) and part.may_spill(self._slice_bytes)
        )

    def spill(self, first_rows: int | None = None) -> int:
        """Moves rows whose memory is not pinned to disk. Returns how many bytes that frees.

        first_rows: moves small slices, too, and so many rows apart from those behind them, so that they come
        back without others.
        """
        if self._is_loading:
            return 0
        freed, left = 0, first_rows or 0
        min_bytes = self._slice_bytes if first_rows is None else 0
        parts: deque[_InMemory | _OnDisk] = deque()
        for index, part in enumerate(self._parts):
            held = self._in_memory(index) if 0 < left < part.rows else part
            first, left = max(0, min(left, held.rows)), left - held.rows
            if isinstance(held, _InMemory) and held.may_spill(min_bytes):
                for start, stop in pairwise(sorted({0, first, held.rows})):
                    rows = (held.position + start, stop - start)
                    parts.extend(self._to_disk([array.slice(*rows) for array in held.arrays]))
                freed += held.memory.free()
            else:
                parts.append(held)
        self._parts = parts
        return freed

    def clear(self) -> None:
        """Drops all rows."""
        for part in self._parts:
            if isinstance(part, _InMemory):
                part.memory.free()
            else:
                self._disk.release(part.region)
        self._parts.clear()
        self.rows = 0

    def _in_memory(self, index: int) -> _InMemory:
        part = self._parts[index]
        if isinstance(part, _OnDisk):
            arrays = _restore(self._disk.read(part.region), part)
            size = sum(array.nbytes for array in arrays)
            self._is_loading = True  # nothing may spill here, or parts would change places
            try:
                memory = Reservation(self._budget, CHUNKS, size)
            finally:
                self._is_loading = False
            self._disk.release(part.region)
            self._parts[index] = part = _InMemory(arrays=arrays, memory=memory, stop=len(arrays[0]))
        return part

    def _to_disk(self, arrays: list[pa.Array]) -> list[_OnDisk | _InMemory]:
        # Rows may differ in weight: a few heavy ones at the end must not make one slice as heavy as all.
        totals = sum((_held_bytes(array) for array in arrays), start=np.zeros(len(arrays[0]) + 1))
        return [
            self._store([array.slice(start, stop - start) for array in arrays])
            for start, stop in spans_within(totals, self._slice_bytes)
        ]

    def _store(self, arrays: Sequence[pa.Array]) -> _OnDisk:
        columns, buffers = [], []
        for array in arrays:
            column = _StoredColumn()
            for part in _divided(array):
                batch = pa.record_batch([part], names=["v"])
                buffer = batch.serialize()
                column.batches.append((batch.schema, buffer.size))
                buffers.append(buffer)
            columns.append(column)
        region = self._disk.allocate(sum(buffer.size for buffer in buffers))
        at = 0
        for buffer in buffers:
            self._disk.write(region, memoryview(buffer), at)
            at += buffer.size
        return _OnDisk(region, len(arrays[0]), columns)


def _restore(data: bytes, part: _OnDisk) -> list[pa.Array]:
    whole = pa.py_buffer(data)
    arrays, at = [], 0
    for column in part.columns:
        parts = []
        for schema, size in column.batches:
            batch = pa.ipc.read_record_batch(whole.slice(at, size), schema)
            parts.append(batch.column(0))
            at += size
        arrays.append(_joined(parts))
    return arrays


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Returns the array that `_divided` has taken apart."""
    match parts:
        case [array]:
            return array
        case [indices, values]:
            return pa.DictionaryArray.from_arrays(indices, values, safe=False)
        case _:
            indices, templates, numbers, texts = parts
            return templated(templates, indices, numbers, texts)


def _held_bytes(array: pa.Array) -> npt.NDArray[np.float64]:
    """Returns the bytes of the first i rows in memory, for i in 0..rows. Shape (rows + 1,).

    Rows that share a value of a dictionary have a part of it each.
    """
    if is_templated(array.type):
        variables = cumulative_bytes(numbers_of(array)) + cumulative_bytes(texts_of(array))
        return _held_bytes(coded_templates(array)) + variables
    if pt.is_dictionary(array.type):
        values = np.diff(cumulative_bytes(array.dictionary))
        if not len(values):
            return np.linspace(0, array.nbytes, len(array) + 1)
        codes = array.indices.fill_null(0).to_numpy()
        parts = values / np.maximum(np.bincount(codes, minlength=len(values)), 1)
        return np.append(0, np.cumsum(parts[codes] + array.indices.type.byte_width))
    return cumulative_bytes(array).astype(np.float64)


def _divided(array: pa.Array) -> list[pa.Array]:
    """Returns the array, or codes and dictionary, the latter without values that no code points to; of a
    templated array also the variables, and of a worded one the strings: each part would have most of the
    words."""
    if is_templated(array.type):
        return [*_divided(coded_templates(array)), numbers_of(array), texts_of(array)]
    if is_worded(array.type):
        return [expanded(array)]
    if not pt.is_dictionary(array.type):
        return [array]
    array = without_unused(array)
    return [array.indices, array.dictionary]
