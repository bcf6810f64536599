"""Gathers rows of several sources in merged order: fixed-width values, strings and dictionary codes in native
code, nested values through Arrow.

Sources are numbered from 0; each has its rows in pieces. `origins` has the source of each output row, and the
rows of one source keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from format.arrays import concat_storage, in_order_of_use
from format.native import gather as native
from format.nodes import binary_parts, fixed_width_bytes
from format.sizes import heaviest_value_bytes, nulls_bytes
from format.storage import plain
from format.types import is_binary_like, is_large_offsets

Origins = npt.NDArray[np.uint16]

_VALUES, _CODES, _NULLS = range(3)
_DISTINCT_SHARE: Final = 3
"""A dictionary stays if there are at least this many values to each distinct one."""
_MEMO_SHARE: Final = 4
"""A piece remembers the codes of its dictionary if that has at most this many values to each row."""
_MAX_OFFSET_32: Final = 2**31 - 1


class GatherArray:
    """A storage array of which rows are gathered, with what native code has to know of it."""

    __slots__ = (
        "_dtype", "_fields", "_fixed_bytes", "_heaviest_bytes", "_offsets", "array",
        "dictionary_bytes", "has_nulls", "kind",
    )  # fmt: skip

    def __init__(self, array: pa.Array, dtype: pa.DataType | None = None) -> None:
        """array: of type null if it stands for nulls of type `dtype`, which take no memory before they are
        gathered."""
        dtype = dtype or (array.type.value_type if pt.is_dictionary(array.type) else array.type)
        if pt.is_dictionary(array.type) and not (is_binary_like(dtype) or pt.is_nested(dtype)):
            array = plain(array)
        is_coded = pt.is_dictionary(array.type)
        self.array = array
        self._dtype = dtype
        self.has_nulls = array.null_count > 0
        self.dictionary_bytes = array.dictionary.nbytes if is_coded else 0
        self._heaviest_bytes: int | None = None
        self._offsets: npt.NDArray[Any] | None = None
        self._fixed_bytes: int | None = 4
        self._fields: tuple[int, ...] = (0, 0, 0, 0, 0, 0)
        if array.null_count == len(array):
            self.kind = _NULLS
        elif is_coded:
            self.kind = _CODES
            if is_binary_like(dtype):
                codes, values = array.indices, array.dictionary
                at = codes.buffers()[1].address + 4 * codes.offset
                self._fields = (*_validity(codes), *_values(values), at, len(values))
        else:
            self.kind = _VALUES
            self._fixed_bytes = fixed_width_bytes(dtype)
            if is_binary_like(dtype):
                self._offsets, _ = binary_parts(array)
            if not pt.is_nested(dtype):
                self._fields = (*_validity(array), *_values(array), 0, 0)

    @property
    def is_coded(self) -> bool:
        return self.kind == _CODES

    @property
    def is_plain(self) -> bool:
        """Whether there are values that are not dictionary-coded."""
        return self.kind == _VALUES

    def bytes_of(self, start: int, rows: int) -> int:
        """Returns the bytes of some rows, with all of their dictionary."""
        if self.kind == _NULLS:
            return nulls_bytes(rows, self._dtype) + self.dictionary_bytes
        if self._offsets is not None:
            size = int(self._offsets[start + rows]) - int(self._offsets[start])
            return size + self._offsets.itemsize * rows
        if self._fixed_bytes is not None:
            return self._fixed_bytes * rows + self.dictionary_bytes
        return int(self.array.slice(start, rows).nbytes)

    def most_bytes_of(self, start: int, rows: int) -> int:
        """Returns an upper bound of the bytes of some rows, as if they were not dictionary-coded."""
        if not self.is_coded:
            return self.bytes_of(start, rows)
        if self._heaviest_bytes is None:
            self._heaviest_bytes = heaviest_value_bytes(self.array)
        return rows * self._heaviest_bytes

    def rows(self, start: int, rows: int) -> Rows:
        """Returns some rows. Rows that are all null stand for nulls, whatever the others of the array are, so
        that the result does not depend on how the rows were divided into arrays."""
        may_be_null = self.kind != _NULLS and self.has_nulls
        if may_be_null and self.array.slice(start, rows).null_count == rows:
            return nulls_of(rows, self._dtype)
        return Rows(self, start, rows)

    def as_array(self, start: int, rows: int) -> pa.Array:
        if self.kind == _NULLS:
            return pa.nulls(rows, self._dtype)
        return self.array.slice(start, rows)

    def piece(self, start: int, rows: int, memo: int) -> tuple[int, ...]:
        """Returns the fields of `Piece` in `format.native.gather`."""
        return (self.kind, rows, start, *self._fields, memo)


class Rows(NamedTuple):
    """Rows of an array, from `start` on."""

    array: GatherArray
    start: int
    rows: int

    @property
    def as_array(self) -> pa.Array:
        return self.array.as_array(self.start, self.rows)


def rows_of(array: pa.Array) -> Rows:
    """Returns all rows of an array."""
    return Rows(GatherArray(array), 0, len(array))


def nulls_of(rows: int, dtype: pa.DataType) -> Rows:
    """Returns rows that are null."""
    return Rows(GatherArray(pa.nulls(rows), dtype), 0, rows)


def gather(
    sources: Sequence[Sequence[Rows]],
    origins: Origins,
    dtype: pa.DataType,
    most_plain_bytes: int = 0,
) -> pa.Array:
    """Gathers storage arrays. Returns an array of type `dtype`, dictionary-coded if all pieces are.

    Then the dictionary has exactly the values in use, in the order of their first use. Strings that hardly
    repeat are returned as values if these take at most `most_plain_bytes`.

    sources: for each source its pieces, which together have as many rows as `origins` names.
    Raises `pa.ArrowInvalid` where 32-bit offsets do not reach.
    """
    if not len(origins) or pt.is_null(dtype):
        return pa.nulls(len(origins), dtype)
    pieces = [[piece for piece in source if piece.rows] for source in sources]
    if len(pieces) == 1 and len(pieces[0]) == 1 and pieces[0][0].array.kind == _VALUES:
        return pieces[0][0].as_array
    if pt.is_nested(dtype):
        return _nested(pieces, origins, dtype)
    table = _Table(pieces, origins, dtype)
    if pt.is_boolean(dtype):
        return table.booleans()
    if is_binary_like(dtype):
        return table.codes(most_plain_bytes) or table.strings()
    return table.fixed()


def _nested(sources: Sequence[Sequence[Rows]], origins: Origins, dtype: pa.DataType) -> pa.Array:
    arrays = [
        pa.nulls(piece.rows, dtype) if piece.array.kind == _NULLS else piece.as_array
        for source in sources
        for piece in source
    ]
    array = concat_storage(arrays)
    if len(sources) > 1:
        array = array.take(pa.array(positions_by_source(origins)))
    return in_order_of_use(array) if pt.is_dictionary(array.type) else array


def gather_arrays(sources: Sequence[Sequence[pa.Array]], origins: Origins) -> pa.Array:
    """Gathers whole arrays of one type, dictionary-coded or not; like `gather`. There must be one."""
    dtype = next(array.type for source in sources for array in source)
    if pt.is_dictionary(dtype):
        dtype = dtype.value_type
    return gather([[rows_of(array) for array in source] for source in sources], origins, dtype)


def positions_by_source(origins: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Returns each row's position among the sources' rows laid end to end."""
    by_source = np.argsort(origins, kind="stable")
    positions = np.empty(len(origins), dtype=np.int64)
    positions[by_source] = np.arange(len(origins))
    return positions


class _Table:
    """The pieces of all sources, as native code takes them. It keeps their memory alive."""

    def __init__(
        self, sources: Sequence[Sequence[Rows]], origins: Origins, dtype: pa.DataType
    ) -> None:
        self._held = sources
        self._origins = origins
        self._dtype = dtype
        self._offset_type = np.dtype(np.int64 if is_large_offsets(dtype) else np.int32)
        self._memo_size = 0
        self._dictionary_values = 0
        """Number of values in the dictionaries of all pieces, of which a row can have no other."""
        self._firsts = np.cumsum([0, *(len(source) for source in sources[:-1])])
        pieces = [piece for source in sources for piece in source]
        self._pieces = np.array([self._piece(piece) for piece in pieces], dtype=np.int64)
        if not native.agrees(self._pieces, self._firsts, origins):
            raise ValueError("sources have other rows than the order names")
        self._validity, self._nulls = None, 0
        if any(piece.array.has_nulls for piece in pieces):
            bits = self._bitmap()
            self._nulls = native.validity(self._pieces, self._firsts, origins, bits)
            if self._nulls:
                self._validity = pa.py_buffer(bits)

    def _piece(self, rows: Rows) -> tuple[int, ...]:
        memo, array = -1, rows.array
        if array.kind == _CODES:
            values = len(array.array.dictionary)
            self._dictionary_values += values
            if values <= _MEMO_SHARE * rows.rows:
                memo, self._memo_size = self._memo_size, self._memo_size + values
        return array.piece(rows.start, rows.rows, memo)

    def fixed(self) -> pa.Array:
        """Gathers values of fixed width."""
        width = fixed_width_bytes(self._dtype)
        assert width is not None
        out = np.zeros(len(self._origins) * width, dtype=np.uint8)
        if width:
            native.fixed(self._pieces, self._firsts, self._origins, width, out)
        return self._array([pa.py_buffer(out)])

    def booleans(self) -> pa.Array:
        out = self._bitmap()
        native.bits(self._pieces, self._firsts, self._origins, out)
        return self._array([pa.py_buffer(out)])

    def strings(self) -> pa.Array:
        """Gathers strings as values, whether the pieces are dictionary-coded or not."""
        placed, total = self._offsets()
        self._check_total(total)
        out = np.empty(total, dtype=np.uint8)
        native.strings(self._pieces, self._firsts, self._origins, placed, out)
        return self._array([pa.py_buffer(placed), pa.py_buffer(out)])

    def codes(self, most_plain_bytes: int) -> pa.Array | None:
        """Gathers codes over one dictionary; None if a piece is not dictionary-coded, or if values hardly
        repeat and take at most `most_plain_bytes`."""
        kinds = self._pieces[:, 0]
        if not (kinds == _CODES).any() or (kinds == _VALUES).any():
            return None
        present = len(self._origins) - self._nulls
        if not most_plain_bytes:
            return self._codes(present)
        coded = self._codes(present // _DISTINCT_SHARE)
        if coded is None and self._offsets()[1] > most_plain_bytes:
            return self._codes(present)
        return coded

    def _codes(self, most: int) -> pa.Array | None:
        """Gathers codes over one dictionary of at most `most` values; None if there are more."""
        most = min(most, self._dictionary_values)
        if not most:
            return None
        rows = len(self._origins)
        codes = np.zeros(rows, dtype=np.int32)
        used = np.empty((most, 2), dtype=np.int64)
        count = native.codes(
            self._pieces,
            self._firsts,
            self._origins,
            np.empty(0, dtype=self._offset_type),
            most,
            np.zeros(1 << (2 * most).bit_length(), dtype=np.uint64),
            np.full(self._memo_size, -1, dtype=np.int32),
            codes,
            used,
        )
        if count < 0:
            return None
        indices = pa.Array.from_buffers(
            pa.int32(), rows, [self._validity, pa.py_buffer(codes)], self._nulls
        )
        return pa.DictionaryArray.from_arrays(indices, self._used(used[:count]), safe=False)

    def _offsets(self) -> tuple[npt.NDArray[Any], int]:
        """Returns the offsets of the gathered strings, and their total, which the offsets may not hold."""
        placed = np.empty(len(self._origins) + 1, dtype=self._offset_type)
        return placed, native.offsets(self._pieces, self._firsts, self._origins, placed)

    def _used(self, used: npt.NDArray[np.int64]) -> pa.Array:
        """Returns the strings that pieces and numbers in their dictionaries name."""
        placed = np.empty(len(used) + 1, dtype=self._offset_type)
        total = native.used_offsets(self._pieces, used, placed)
        self._check_total(total)
        out = np.empty(total, dtype=np.uint8)
        native.used_strings(self._pieces, used, placed, out)
        return pa.Array.from_buffers(
            self._dtype, len(used), [None, pa.py_buffer(placed), pa.py_buffer(out)], 0
        )

    def _array(self, buffers: list[pa.Buffer]) -> pa.Array:
        return pa.Array.from_buffers(
            self._dtype, len(self._origins), [self._validity, *buffers], self._nulls
        )

    def _bitmap(self) -> npt.NDArray[np.uint8]:
        return np.zeros((len(self._origins) + 7) // 8, dtype=np.uint8)

    def _check_total(self, total: int) -> None:
        if self._offset_type.itemsize == 4 and total > _MAX_OFFSET_32:
            raise pa.ArrowInvalid(f"{total} bytes of strings exceed 32-bit offsets")


def _values(array: pa.Array) -> tuple[int, int]:
    """Returns the addresses of an array's values and offsets."""
    if is_binary_like(array.type):
        _, offsets, data = array.buffers()
        width = 8 if is_large_offsets(array.type) else 4
        return _address(data), _address(offsets) + width * array.offset
    width = fixed_width_bytes(array.type) or 0
    return _address(array.buffers()[1]) + width * array.offset, 0


def _validity(array: pa.Array) -> tuple[int, int]:
    if not array.null_count:
        return 0, array.offset  # booleans use the offset in bits, too
    return array.buffers()[0].address, array.offset


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)
