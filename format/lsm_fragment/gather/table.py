"""Builds the table of the pieces of one gather, which the loops read."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment.arrays.buffers import fixed_width_bytes
from lsm_fragment.arrays.nested_bytes import offset_type
from lsm_fragment.arrays.types import MAX_OFFSET_32
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import CODES, DISTINCT_DIVISOR, VALUES, Pieces
from lsm_fragment.native.gather import rows as native

_MEMO_DIVISOR: Final = 4
"""Remember the codes of a dictionary only if it has at most this many values per row."""


class Table:
    """The pieces of all sources in native form. Keeps their memory alive."""

    def __init__(self, pieces: Pieces, origins: Origins) -> None:
        self._held = pieces.arrays
        self._rows = len(origins)
        self._dtype = pieces.dtype
        self._offset_type = offset_type(pieces.dtype)
        self._pieces = pieces.fields
        if not native.agrees(pieces.fields, pieces.firsts, origins.counts):
            raise ValueError("sources do not have the rows that the order names")
        # The operands that every loop takes.
        self._walked = pieces.fields, pieces.firsts, origins.sources, origins.has_short_runs
        self._validity, self._nulls = None, 0
        if pieces.may_have_nulls:
            bits = self._bitmap()
            self._nulls = native.validity(*self._walked, bits)
            if self._nulls:
                self._validity = pa.py_buffer(bits)

    def fixed(self) -> pa.Array:
        """Gathers fixed-width values."""
        width = fixed_width_bytes(self._dtype)
        assert width is not None
        out = np.empty(self._rows * width, dtype=np.uint8)
        if width:
            native.fixed(*self._walked, width, out)
        return self._array([pa.py_buffer(out)])

    def booleans(self) -> pa.Array:
        out = self._bitmap()
        native.bits(*self._walked, out)
        return self._array([pa.py_buffer(out)])

    def strings(self) -> pa.Array:
        """Gathers strings as values, from dictionary-coded and plain pieces."""
        out = np.frombuffer(pa.allocate_buffer(self.text_bytes), dtype=np.uint8)
        native.strings(*self._walked, self._placed[0], out)
        return self.strings_of(pa.py_buffer(out))

    @property
    def text_bytes(self) -> int:
        """The bytes of all strings. Raises `pa.ArrowInvalid` if they exceed 32-bit offsets."""
        self._check_total(self._placed[1])
        return self._placed[1]

    def strings_of(self, text: pa.Buffer) -> pa.Array:
        """Returns the gathered strings, whose bytes are `text`."""
        return self._array([pa.py_buffer(self._placed[0]), text])

    def codes(self, max_plain_bytes: int) -> pa.Array | None:
        """Gathers codes over one dictionary; None if a piece is not dictionary-coded, or if values hardly
        repeat and take at most `max_plain_bytes`."""
        kinds = self._pieces[:, 0]
        if not (kinds == CODES).any() or (kinds == VALUES).any():
            return None
        present = self._rows - self._nulls
        if not max_plain_bytes:
            return self._codes(present)
        coded = self._codes(present // DISTINCT_DIVISOR)
        if coded is None and self._placed[1] > max_plain_bytes:
            return self._codes(present)
        return coded

    def used_bytes(self) -> int:
        """Returns the bytes of the strings in use. All pieces must be dictionary-coded, or nulls."""
        found = self._coded(self._rows - self._nulls)
        if found is None:
            return 0
        _, used = found
        return native.used_offsets(self._pieces, used, np.empty(len(used) + 1, self._offset_type))

    def _codes(self, max_distinct: int) -> pa.Array | None:
        """Gathers codes over one dictionary; None if it would have more than `max_distinct` values."""
        if (found := self._coded(max_distinct)) is None:
            return None
        codes, used = found
        indices = pa.Array.from_buffers(
            pa.int32(), self._rows, [self._validity, pa.py_buffer(codes)], self._nulls
        )
        return pa.DictionaryArray.from_arrays(indices, self._used(used), safe=False)

    def _coded(
        self, max_distinct: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]] | None:
        """Returns the rows' codes, and for each code a piece and the string's code in its dictionary; None
        for more than `max_distinct` codes."""
        rows = self._rows
        memo_size, distinct, are_complete = native.assign_memos(self._pieces, _MEMO_DIVISOR, rows)
        max_distinct = min(max_distinct, distinct)
        if not max_distinct:
            return None
        slots = 0 if are_complete else 1 << (2 * max_distinct).bit_length()
        codes = np.zeros(rows, dtype=np.int32)
        used = np.empty((max_distinct, 2), dtype=np.int64)
        count = native.codes(
            *self._walked,
            np.empty(0, dtype=self._offset_type),
            max_distinct,
            np.zeros(slots, dtype=np.uint64),
            np.full(memo_size, -1, dtype=np.int32),
            codes,
            used,
        )
        return None if count < 0 else (codes, used[:count])

    @cached_property
    def _placed(self) -> tuple[npt.NDArray[Any], int]:
        """The offsets of the gathered strings, and their total, which the offsets may not hold."""
        placed = np.empty(self._rows + 1, dtype=self._offset_type)
        return placed, native.offsets(*self._walked, placed)

    def _used(self, used: npt.NDArray[np.int64]) -> pa.Array:
        """Gathers the strings that pieces and codes in their dictionaries refer to."""
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
            self._dtype, self._rows, [self._validity, *buffers], self._nulls
        )

    def _bitmap(self) -> npt.NDArray[np.uint8]:
        return np.zeros((self._rows + 7) // 8, dtype=np.uint8)

    def _check_total(self, total: int) -> None:
        if self._offset_type.itemsize == 4 and total > MAX_OFFSET_32:
            raise pa.ArrowInvalid(f"{total} bytes of strings exceed 32-bit offsets")
