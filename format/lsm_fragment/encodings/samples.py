"""Samples values, and estimates from a sample how many are distinct and whether they recur."""

from __future__ import annotations

import sys
from collections.abc import Callable
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
    fixed_width_view,
    valid_mask,
)
from lsm_fragment.arrays.dictionaries import list_bytes
from lsm_fragment.arrays.hashing import distinct_numbers, value_hashes
from lsm_fragment.arrays.moves import keep, take
from lsm_fragment.arrays.storage import decoded
from lsm_fragment.arrays.templated import I32

_STRETCHES: Final = 4
_STRETCH_BYTES: Final = 16 << 10


def sampled_bytes(data: memoryview, length: int = 1) -> memoryview:
    """Returns a few evenly spaced stretches of the bytes, or all if they are few.

    length: the bytes of a value; stretches consist of whole values unless these are long.
    """
    if data.nbytes <= _STRETCHES * _STRETCH_BYTES:
        return data
    unit = length if 0 < length <= native.encodings.letters.MAX_FRAME_BYTES else 1
    size = _STRETCH_BYTES // unit * unit
    step = (data.nbytes - size) // (_STRETCHES - 1) // unit * unit
    starts = range(0, _STRETCHES * step, step)
    return memoryview(b"".join(data[start : start + size] for start in starts))


SAMPLE_VALUES: Final = 2048
UNSAMPLED_VALUES: Final = 3 * SAMPLE_VALUES
"""Number up to this many values without a look at a sample: as many distinct ones end it as a sample has."""
_SAMPLE_SLACK: Final = 1.5
"""Hash all values if a sample has at most this many times the distinct values that a dictionary may have."""
CODEC_FRACTION: Final = 0.85
"""Leave the saving to a codec only if it takes at most this fraction of the bytes, for its time."""
DISTINCT_DIVISOR: Final = 3
"""Use a dictionary only if there are at least this many values per distinct one."""
_RECURRING_DIVISOR: Final = 8
"""The divisor if values hardly recur within a sample: hashing must not cost more than a codec would."""
DISTINCT_LISTS_DIVISOR: Final = 2
"""`DISTINCT_DIVISOR` for lists, which take more bytes and more work."""


def dictionary_pays(
    array: pa.Array,
    sample: pa.Array,
    divisor: int,
    counts_of: Callable[[pa.Array], npt.NDArray[np.int64]],
    max_distinct: int = sys.maxsize,
) -> bool:
    """Estimates whether values repeat enough for a dictionary, and at most `max_distinct` are distinct.

    sample: adjacent rows. divisor: the required number of values per distinct one. counts_of: returns the
    number of occurrences of each distinct value of a sample without nulls.
    """
    counts = counts_of(sample)
    if len(counts) > max_distinct:
        return False
    if len(counts) * divisor <= _SAMPLE_SLACK * counts.sum():
        return True
    # In sorted rows, neighbours are often equal, so a sample of distant rows has to agree.
    few = int(len(array) - array.null_count) // _RECURRING_DIVISOR
    return (
        estimate_distinct(counts) <= few
        and estimate_distinct(counts_of(spread_values(array))) <= few
    )


def estimate_distinct(counts: npt.NDArray[np.int64]) -> float:
    """Estimates the number of distinct values of the whole from the counts of a sample (Chao's estimate)."""
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    return float(len(counts) + once * (once - 1) / (2 * (twice + 1)))


def count_values(sample: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the number of occurrences of each distinct value of a sample without nulls."""
    found = number_values(sample, len(sample))
    assert found is not None, "a sample has more distinct values than rows"
    return np.bincount(found[0])


def count_values_of_part(
    part: Callable[[pa.Array], pa.Array], sample: pa.Array
) -> npt.NDArray[np.int64]:
    """`count_values` for the number or text variables of a templated sample."""
    return count_values(part(sample))


def count_coded_values(sample: pa.Array) -> npt.NDArray[np.int64]:
    """`count_values` for a dictionary-coded sample."""
    return count_values(decoded(sample))


def count_codes(sample: pa.Array) -> npt.NDArray[np.int64]:
    """`count_values` for a dictionary-coded sample whose dictionary has distinct values."""
    counts = np.bincount(dictionary_codes(sample))
    return counts[counts > 0]


def count_distinct(array: pa.Array) -> int:
    return len(distinct_numbers(value_hashes(array)))


def number_values(array: pa.Array, max_distinct: int) -> tuple[I32, I32] | None:
    """Numbers values in the order of their first use. Returns each row's number, and the row of each number's
    first use; None if more than `max_distinct` values are distinct."""
    rows, valid = len(array), valid_mask(array)
    codes = np.empty(rows, dtype=np.int32)
    firsts = np.empty(rows, dtype=np.int32)
    flags = native.as_flags(valid)
    width = fixed_width_bytes(array.type)
    if width in (1, 2, 4, 8):
        words = fixed_width_view(array, f"u{width}")
        count = native.arrays.integers.code_words(words, flags, max_distinct, codes, firsts)
    else:
        offsets, data = _value_bytes(array, width)
        count = native.arrays.strings.code_strings(
            offsets, data, flags, max_distinct, codes, firsts
        )
    return None if count < 0 else (codes, firsts[:count])


def _value_bytes(
    array: pa.Array, width: int | None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Returns the offsets of values, and the bytes that they refer to."""
    if pt.is_nested(array.type):
        offsets, numbers = list_bytes(array)
        return offsets, numbers.view(np.uint8)
    if width is None:
        offsets, data = binary_parts(array)
        return offsets, native.as_bytes(data)
    if not width:  # numpy cannot view values of zero bytes
        return np.zeros(len(array) + 1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    values = fixed_width_view(array, np.dtype((np.uint8, width)))
    return width * np.arange(len(array) + 1, dtype=np.int64), values.reshape(-1)


def middle_values(array: pa.Array) -> pa.Array:
    """Returns about `SAMPLE_VALUES` adjacent values from the middle, without nulls."""
    present = max(1, len(array) - array.null_count)
    rows = min(len(array), SAMPLE_VALUES * len(array) // present)
    return without_nulls(array.slice((len(array) - rows) // 2, rows))


def spread_values(array: pa.Array) -> pa.Array:
    """Returns about `SAMPLE_VALUES` evenly spaced values, without nulls."""
    rows = min(len(array), SAMPLE_VALUES)
    places = np.arange(rows, dtype=np.int64) * (len(array) // rows)
    return without_nulls(take(array, places))


def without_nulls(sample: pa.Array) -> pa.Array:
    valid = valid_mask(sample)
    return sample if valid is None else keep(sample, valid)
