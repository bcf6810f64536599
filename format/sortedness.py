"""Finds rows that are out of order (SPEC section 6), by comparing each with the one before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from format.native import as_bytes, compare, validity
from format.nodes import binary_parts, dictionary_codes
from format.schema import Nulls, Order, SortColumn, SortSchema, ordering
from format.storage import plain
from format.types import is_binary_like
from format.values import bytes_of_values, numbers_of, words_of


def first_out_of_order(columns: Sequence[pa.Array], sort: SortSchema) -> int | None:
    """Returns the first row that is less than the one before it; None if the rows are sorted.

    columns: the sort columns as storage arrays of equal length, possibly dictionary-coded. Columns of order
    none are ignored.
    """
    rows = len(columns[0])
    signs, stop = np.zeros(rows, dtype=np.uint8), rows
    for array, column in zip(columns, ordering(sort), strict=False):
        if array.null_count < rows:
            stop = _disorder(array, column, signs, stop)
    return stop if stop < rows else None


def _disorder(array: pa.Array, column: SortColumn, signs: npt.NDArray[np.uint8], stop: int) -> int:
    """Returns the new `stop`, as `format.native.compare` has it, after one more column."""
    codes = None
    if pt.is_dictionary(array.type):
        if is_binary_like(array.type.value_type):
            codes = dictionary_codes(array)
        else:
            array = plain(array)
    nulls = validity(array.indices if codes is not None else array)
    place = (*nulls, column.order is Order.DESC, column.nulls is Nulls.FIRST, signs, stop)
    dtype = array.type
    if codes is not None or is_binary_like(dtype):
        offsets, data = binary_parts(array if codes is None else array.dictionary)
        return compare.disorder_of_strings(codes, offsets, as_bytes(data), *place)
    if pt.is_fixed_size_binary(dtype):
        return compare.disorder_of_bytes(bytes_of_values(array), *place)
    if pt.is_decimal(dtype) and dtype.bit_width > 64:
        return compare.disorder_of_wide(words_of(array), *place)
    return compare.disorder_of_numbers(numbers_of(array), *place)
