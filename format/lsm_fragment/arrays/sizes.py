"""Measures the bytes of rows, by which row groups are cut, independently of how rows are batched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import native
from lsm_fragment.arrays.buffers import (
    binary_parts,
    dictionary_codes,
    fixed_width_bytes,
    valid_mask,
)
from lsm_fragment.arrays.dictionaries import is_same_memory
from lsm_fragment.arrays.moves import list_parts, present_items
from lsm_fragment.arrays.templated import max_text_bytes, text_lengths
from lsm_fragment.arrays.types import is_binary_like, is_large_offsets, is_templated, is_worded
from lsm_fragment.arrays.worded import text_offsets

I64 = npt.NDArray[np.int64]
_LENGTH_BITS: Final = 32


def cumulative_bytes(array: pa.Array) -> I64:
    """Returns the bytes of the first i rows of a storage array, for i in 0..rows. Shape (rows + 1,)."""
    return cumulative_bits(array) // 8


def cumulative_bits(array: pa.Array) -> I64:
    """Returns the bits of the first i rows of a storage array, for i in 0..rows. Shape (rows + 1,).

    Counts values, 4 bytes per string or list for its length, and nothing for validity or for values hidden
    under nulls. Dictionary-coded arrays count as if decoded. Bits, so that a row counts the same however the
    rows are sliced.
    """
    dtype, length = array.type, len(array)
    if is_templated(dtype):
        return _with_lengths(8 * running_totals(text_lengths(array)))
    if is_worded(dtype):
        return _with_lengths(8 * text_offsets(array).astype(np.int64))
    if pt.is_dictionary(dtype):
        return running_totals(_dictionary_sizes(array))
    if is_binary_like(dtype):
        return _with_lengths(8 * running_totals(_string_lengths(array)))
    width = fixed_width_bytes(dtype)
    if width is not None:
        return 8 * width * np.arange(length + 1, dtype=np.int64)
    if pt.is_struct(dtype):
        children = (cumulative_bits(child) for child in array.flatten())
        return sum(children, start=np.zeros(length + 1, dtype=np.int64))
    if pt.is_fixed_size_list(dtype):
        if not dtype.list_size:
            return np.zeros(length + 1, dtype=np.int64)
        return cumulative_bits(present_items(array))[:: dtype.list_size]
    if pt.is_nested(dtype):
        counts, items = list_parts(array)
        stops = running_totals(counts)
        return _with_lengths(cumulative_bits(items)[stops])
    return np.arange(length + 1, dtype=np.int64)


def running_totals(sizes: npt.NDArray[Any]) -> I64:
    """Returns the totals of the first i sizes, for i in 0..sizes. Shape (sizes + 1,)."""
    totals = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=totals[1:])
    return totals


def total_bytes(array: pa.Array) -> int:
    """Returns the last value of `cumulative_bytes`, without computing the others for plain arrays."""
    return total_bits(array) // 8


def total_bits(array: pa.Array) -> int:
    """Returns the last value of `cumulative_bits`."""
    dtype, length = array.type, len(array)
    if is_templated(dtype):
        return 8 * int(text_lengths(array).sum()) + _LENGTH_BITS * length
    if pt.is_dictionary(dtype):
        return _coded_bits(array)
    if is_binary_like(dtype):
        offsets, _ = binary_parts(array)
        seen = int(offsets[-1] - offsets[0]) - hidden_bytes(array)
        return 8 * seen + _LENGTH_BITS * length
    if (width := fixed_width_bytes(dtype)) is not None:
        return 8 * width * length
    if pt.is_struct(dtype):
        return sum(map(total_bits, array.flatten()))
    if pt.is_fixed_size_list(dtype):
        return total_bits(present_items(array)) if dtype.list_size else 0
    if pt.is_nested(dtype):
        _, items = list_parts(array)
        return total_bits(items) + _LENGTH_BITS * length
    return length


def max_templated_bytes(array: pa.Array) -> int:
    """Returns an upper bound of `total_bytes` of a templated array, without reading its variables."""
    return max_text_bytes(array) + _LENGTH_BITS // 8 * len(array)


def take_at_most(arrays: Sequence[pa.Array], max_bytes: int) -> bool:
    """Returns whether `total_bytes` of storage arrays together is at most `max_bytes`. Codes are read only if
    dictionaries do not tell."""
    bounds = (max_total_bytes(a) if pt.is_dictionary(a.type) else total_bytes(a) for a in arrays)
    return sum(bounds) <= max_bytes or sum(map(total_bytes, arrays)) <= max_bytes


def max_total_bytes(array: pa.Array) -> int:
    """Returns an upper bound of `total_bytes` of a dictionary-coded array, without reading its codes."""
    return len(array) * max_row_bytes(array)


def max_row_bytes(array: pa.Array) -> int:
    """Returns an upper bound of the bytes of a row, possibly null, of an array that is not templated."""
    heaviest = heaviest_value_bytes(array) + 1  # that rounds down to whole bytes
    return max(heaviest, _LENGTH_BITS // 8)


def heaviest_value_bytes(array: pa.Array) -> int:
    """Returns the bytes of the heaviest value, including unused values of a dictionary."""
    values = array.dictionary if pt.is_dictionary(array.type) else array
    width = fixed_width_bytes(values.type)
    if width is not None:
        return width if len(values) else 0
    if is_binary_like(values.type) and len(values) and not hidden_bytes(values):
        return native.arrays.strings.longest(binary_parts(values)[0]) + _LENGTH_BITS // 8
    return int(np.diff(cumulative_bytes(values)).max(initial=0))


def spans_within(
    totals: npt.NDArray[Any], limit: float, max_rows: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yields start and stop of consecutive spans of rows, each as long as its part of the totals is at most
    `limit`, or of a single row, and of at most `max_rows`. totals: as of `running_totals`."""
    start, rows = 0, len(totals) - 1
    while start < rows:
        fitting = int(np.searchsorted(totals, totals[start] + limit, side="right")) - 1
        stop = max(start + 1, fitting)
        if max_rows is not None:
            stop = min(stop, start + max_rows)
        yield start, stop
        start = stop


def rows_within(arrays: list[pa.Array], limit_bytes: int) -> int:
    """Returns the maximum number of leading rows (at least 1) within `limit_bytes` in every array."""
    return max(1, min(_rows_within(array, limit_bytes) for array in arrays))


def _rows_within(array: pa.Array, limit_bytes: int) -> int:
    if take_at_most([array], limit_bytes):
        return len(array)
    return int(np.searchsorted(cumulative_bytes(array), limit_bytes, side="right")) - 1


def rows_of_pieces_within(pieces: Iterable[pa.Array], limit_bytes: int) -> int:
    """Returns the maximum number of leading rows within `limit_bytes`, of an array in pieces."""
    rows, left = 0, 8 * limit_bytes + 7  # partial bytes do not count
    for piece in pieces:
        bits = total_bits(piece)
        if bits > left:
            return rows + int(np.searchsorted(cumulative_bits(piece), left, side="right")) - 1
        rows, left = rows + len(piece), left - bits
    return rows


class HeldBytes:
    """Counts the bytes of batches that are in memory together; a shared dictionary counts once."""

    def __init__(self) -> None:
        self._dictionaries: dict[int, pa.Array] = {}

    def add(self, batch: pa.RecordBatch) -> int:
        """Adds a batch. Returns its bytes."""
        coded = [at for at, dtype in enumerate(batch.schema.types) if pt.is_dictionary(dtype)]
        if not coded:
            return int(batch.nbytes)
        return sum(self._added(place, array) for place, array in enumerate(batch.columns))

    def _added(self, place: int, array: pa.Array) -> int:
        if not pt.is_dictionary(array.type):
            return int(array.nbytes)
        known = self._dictionaries.get(place)
        if known is not None and is_same_memory(known, array.dictionary):
            return int(array.indices.nbytes)
        self._dictionaries[place] = array.dictionary
        return int(array.nbytes)


def nulls_bytes(length: int, dtype: pa.DataType) -> int:
    """Returns the bytes of `length` nulls of a storage type; types of fixed size allocate their values."""
    bitmap = length // 8
    if pt.is_fixed_size_list(dtype):
        return bitmap + nulls_bytes(length * dtype.list_size, dtype.value_type)
    if pt.is_struct(dtype):
        return bitmap + sum(nulls_bytes(length, field.type) for field in dtype.fields)
    width = fixed_width_bytes(dtype)
    if width is None:
        width = 8 if is_large_offsets(dtype) else 0 if pt.is_boolean(dtype) else 4
    return bitmap + length * width


def hidden_bytes(array: pa.Array) -> int:
    """Returns the bytes of null strings: Arrow allows them, and no reader shows them."""
    if not array.null_count:
        return 0
    return native.arrays.strings.hidden_bytes(binary_parts(array)[0], *native.validity(array))


def _string_lengths(array: pa.Array) -> npt.NDArray[Any]:
    """Returns the bytes of each string, 0 for nulls."""
    lengths = np.diff(binary_parts(array)[0])
    if hidden_bytes(array):
        lengths[np.asarray(array.is_null())] = 0
    return lengths


def _dictionary_sizes(array: pa.Array) -> npt.NDArray[Any]:
    width = fixed_width_bytes(array.dictionary.type)
    null_bits = _LENGTH_BITS if width is None else 8 * width
    by_code = np.diff(cumulative_bits(array.dictionary))
    codes = dictionary_codes(array)
    valid = valid_mask(array)
    if valid is None:
        present: npt.NDArray[Any] = by_code.take(codes)
        return present
    if not len(by_code):
        return np.full(len(array), null_bits, dtype=np.int64)
    sizes: npt.NDArray[Any] = by_code.take(np.where(valid, codes, 0))
    sizes[~valid] = null_bits
    return sizes


def _coded_bits(array: pa.Array) -> int:
    values = array.dictionary
    if not is_binary_like(values.type) or array.indices.type != pa.int32():
        return int(_dictionary_sizes(array).sum())
    codes, (offsets, _) = dictionary_codes(array), binary_parts(values)
    size = native.arrays.strings.coded_bytes(codes, offsets, *native.validity(array.indices))
    return 8 * size + _LENGTH_BITS * len(array)


def _with_lengths(totals: I64) -> I64:
    return totals + _LENGTH_BITS * np.arange(len(totals), dtype=np.int64)
