"""Worded arrays: strings as numbers of words, which merges move.

A worded array is a struct of `numbers`, the bytes of uint16 numbers of each row, and `words`, a dictionary
whose values are the words and whose codes are null. Nulls are those of the struct. No column has such a
storage type, so the type alone identifies it. All words are strings, and no number is a single byte beyond
ASCII, so that any rows are strings. `expanded` gives the strings that the array stands for.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment import native
from lsm_fragment.arrays.buffers import address_of_values, binary_parts, validity_bitmap
from lsm_fragment.arrays.types import WORDED_TYPE
from lsm_fragment.native.gather.words import WordTable

NUMBER_BYTES: Final = 2
MAX_NUMBERS_FRACTION: Final = 0.375
"""Number the words of text only if that takes at most so many numbers for each byte: 3/4 of its bytes."""


class Words(NamedTuple):
    """The numbers of the words of rows, and the words."""

    numbers: pa.Buffer
    """uint16, of all rows, as SPEC section 5 has them."""
    counts: npt.NDArray[np.int32]
    """How many numbers each row has. Shape (rows,)."""
    sizes: npt.NDArray[np.uint8]
    """The bytes of each word. Shape (words,)."""
    text: bytes
    """The words end to end."""


def worded(numbers: pa.Array, words: pa.Array) -> pa.Array:
    """Makes a worded array. numbers: binaries, null where the strings are. words: strings."""
    rows = len(numbers)
    codes = pa.nulls(rows, pa.int8())
    children = [
        pa.Array.from_buffers(
            pa.binary(), rows, [None, *numbers.buffers()[1:]], 0, offset=numbers.offset
        ),
        pa.DictionaryArray.from_arrays(codes, words, safe=False),
    ]
    validity, nulls = validity_bitmap(numbers), numbers.null_count
    return pa.Array.from_buffers(WORDED_TYPE, rows, [validity], nulls, children=children)


def numbers_in(array: pa.Array) -> pa.Array:
    """Returns the numbers of each row, as binaries."""
    return array.field(0)


def words_in(array: pa.Array) -> pa.Array:
    """Returns the words."""
    return array.field(1).dictionary


def numbers_with_nulls(array: pa.Array) -> pa.Array:
    """Returns the numbers of each row, as binaries, null where the strings are."""
    numbers: pa.Array = array.flatten()[0]
    return numbers


def number_ends(array: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Returns the offsets of rows in the numbers, and all numbers as bytes."""
    offsets, data = binary_parts(numbers_in(array))
    return offsets // NUMBER_BYTES, native.as_bytes(data)


def text_offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    """Returns the offsets of rows in the text of the array. Shape (rows + 1,)."""
    ends, data = number_ends(array)
    offsets = np.empty(len(array) + 1, dtype=np.int32)
    native.encodings.vocabulary.measure(data, ends, _sizes(array), offsets)
    return offsets


def renumbered(array: pa.Array, table: WordTable) -> tuple[pa.Array, WordedRows] | None:
    """Returns a worded array with the numbers of a table, which learns its words, and its rows; None if some
    word has no number: the table has no room, or the array spells what another would not.

    The array has no words, which the rows have: they would take memory for each array.
    """
    ends, data = number_ends(array)
    own, text = binary_parts(words_in(array))
    found = table.renumbered(data, ends, native.as_bytes(text), own)
    if found is None:
        return None
    numbers, ends, offsets = found
    buffers = [validity_bitmap(array), pa.py_buffer(ends * np.int32(NUMBER_BYTES)), numbers]
    rows = pa.Array.from_buffers(pa.binary(), len(array), buffers, array.null_count)
    array = worded(rows, pa.nulls(0, pa.string()))
    return array, WordedRows(array, table, offsets)


def expanded(array: pa.Array) -> pa.Array:
    """Returns the strings that a worded array stands for."""
    ends, data = number_ends(array)
    offsets = text_offsets(array)
    _, text = binary_parts(words_in(array))
    own = data[NUMBER_BYTES * int(ends[0]) : NUMBER_BYTES * int(ends[-1])]
    strings = native.encodings.vocabulary.expand(
        own, _sizes(array), native.as_bytes(text), int(offsets[-1])
    )
    buffers = [validity_bitmap(array), pa.py_buffer(offsets), strings]
    return pa.Array.from_buffers(pa.string(), len(array), buffers, array.null_count)


class WordedRows:
    """The rows of a worded array by a table of words, in native form. Keeps their memory alive."""

    def __init__(
        self, array: pa.Array, table: WordTable, text_offsets: npt.NDArray[np.int32]
    ) -> None:
        """array: one whose numbers are those of the table. text_offsets: those of rows in their text."""
        self.table = table
        self._known = table.count
        self._text_offsets = text_offsets
        self._ends, numbers = number_ends(array)
        self._held = array
        self.text_address = address_of_values(self._text_offsets)
        """That of the offsets of rows in their text."""
        self.addresses = address_of_values(numbers), address_of_values(self._ends)
        """Those of the numbers, and of the offsets of rows in them."""

    @property
    def nbytes(self) -> int:
        """The memory beside the array."""
        return self._text_offsets.nbytes + self._ends.nbytes

    def copied(self, array: pa.Array, start: int) -> WordedRows:
        """Returns the rows of an array that is a copy of some of these rows, from `start` on."""
        offsets = self._text_offsets[start : start + len(array) + 1]
        return WordedRows(array, self.table, offsets - offsets[0])

    def with_words(self, array: pa.Array) -> pa.Array:
        """Returns some of the rows with the words that they may have."""
        sizes, text = self.table.listed(self._known)
        ends = np.zeros(len(sizes) + 1, dtype=np.int32)
        np.cumsum(sizes, out=ends[1:])
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(text)]
        words = pa.Array.from_buffers(pa.string(), len(sizes), buffers, 0)
        return worded(numbers_with_nulls(array), words)


def _sizes(array: pa.Array) -> npt.NDArray[Any]:
    """Returns the bytes of each word."""
    ends, _ = binary_parts(words_in(array))
    return np.diff(ends).astype(np.uint8)
