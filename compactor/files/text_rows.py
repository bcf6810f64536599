"""Writes rows of text natively: cells of CSV, fields of JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from compactor.files.plain_text import plain_text
from lsm_fragment.arrays.buffers import binary_parts, fixed_width_view
from lsm_fragment.arrays.cast import as_text
from lsm_fragment.arrays.storage import decoded
from lsm_fragment.arrays.types import is_string
from lsm_fragment.native import as_bytes, validity
from lsm_fragment.native.arrays.text_rows import Cell, written

if TYPE_CHECKING:
    from lsm_fragment.native.arrays.text_rows import NativeColumn


_NO_DATA: Final = np.zeros(0, np.uint8)


class TextColumn(Struct, frozen=True, kw_only=True):
    """The cells of one column, and how they are written."""

    texts: pa.Array
    """Strings or binaries, possibly dictionary-coded; int64 if `kind` is INTEGER."""
    kind: Cell = Cell.PLAIN
    quote: bytes = b""
    """Stands before and after each value, but not the null: one byte, or empty."""
    before: bytes = b""
    """Comes before each cell: a separator, the name of a field."""
    null: bytes = b""
    """Stands for null."""


def text_rows(columns: Sequence[TextColumn], rows: int, end: bytes) -> bytes:
    """Returns the cells of each row in turn, each row followed by `end`."""
    return written([_parts(column) for column in columns], rows, end)


def scalar_texts(array: pa.Array) -> tuple[pa.Array, Cell]:
    """Returns the texts of a storage array of scalars, and what is left to do to them: `plain_text` does all.

    Raises `UnwritableError`.
    """
    dtype = array.type
    if is_string(dtype):
        return array, Cell.PLAIN
    if pt.is_integer(dtype) and dtype != pa.uint64():
        # Without a cast, printing such a column imports no compute functions.
        return array if dtype == pa.int64() else array.cast(pa.int64()), Cell.INTEGER
    if pt.is_floating(dtype):
        wide = array.cast(pa.float32()) if pt.is_float16(dtype) else array
        return wide.cast(pa.large_string()), Cell.REAL
    if pt.is_timestamp(dtype):
        return as_text(array), Cell.MOMENT
    return plain_text(array), Cell.PLAIN


def _parts(column: TextColumn) -> NativeColumn:
    array, codes = column.texts, None
    if column.kind == Cell.INTEGER:
        if pt.is_dictionary(array.type):
            array = decoded(array)
        texts = fixed_width_view(array, np.int64), _NO_DATA
        codes_of = None, *validity(array)
        return texts, codes_of, column.before, column.null, column.kind, column.quote
    valid, start = validity(array)
    if pt.is_dictionary(array.type):
        codes = fixed_width_view(array.indices, np.int32)
        array = array.dictionary
    offsets, data = binary_parts(array)
    texts = offsets.astype(np.int64, copy=False), as_bytes(data)
    return texts, (codes, valid, start), column.before, column.null, column.kind, column.quote
