"""Samples values, and tells from a sample what holds for all: how many are distinct, and whether they
recur."""

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
from lsm_fragment.arrays.hashing import distinct_hashes, value_hashes
from lsm_fragment.arrays.moves import keep, take
from lsm_fragment.arrays.storage import decoded
from lsm_fragment.arrays.templated import I32

_STRETCHES: Final = 4
_STRETCH_BYTES: Final = 16 << 10


def sampled_bytes(data: memoryview, length: int = 1) -> memoryview:
    """Returns a few stretches of bytes, from the first to the last, or all if these are few.

    length: the bytes of a value; stretches have whole ones, unless these are long.
    """
    if data.nbytes <= _STRETCHES * _STRETCH_BYTES:
        return data
    unit = length if 0 < length <= native.encodings.letters.MAX_FRAME_BYTES else 1
    size = _STRETCH_BYTES // unit * unit
    step = (data.nbytes - size) // (_STRETCHES - 1) // unit * unit
    starts = range(0, _STRETCHES * step, step)
    return memoryview(b"".join(data[start : start + size] for start in starts))


SAMPLE_VALUES: Final = 2048
_SAMPLE_SLACK: Final = 1.5
"""A sample may have this many times the share of distinct values that a dictionary may have."""
CODEC_PAYS: Final = 0.85
"""The share that a codec has to make of packed bits, or templates of text, for the time that it takes."""
DISTINCT_DIVISOR: Final = 3
"""A dictionary pays if there are at least this many values to each distinct one."""
_RECURRING_DIVISOR: Final = 8
"""The same where values of a sample hardly recur: coding them takes no longer than a codec takes for them."""
DISTINCT_LISTS_DIVISOR: Final = 2
"""The same as `DISTINCT_DIVISOR` for lists, which take more room and more work."""


def are_few(
    array: pa.Array,
    sample: pa.Array,
    share: int,
    counts_of: Callable[[pa.Array], npt.NDArray[np.int64]],
    most: int = sys.maxsize,
) -> bool:
    """Returns whether values are likely to have so few distinct ones, and at most so many, that a dictionary
    pays.

    sample: neighbouring rows. counts_of: tells how often a sample without nulls has each of its values.
    """
    counts = counts_of(sample)
    if len(counts) > most:
        return False
    if len(counts) * share <= _SAMPLE_SLACK * counts.sum():
        return True
    # Neighbours are often equal only because rows are sorted, so rows far apart are asked too.
    few = int(len(array) - array.null_count) // _RECURRING_DIVISOR
    return (
        estimate_distinct(counts) <= few
        and estimate_distinct(counts_of(spread_values(array))) <= few
    )


def estimate_distinct(counts: npt.NDArray[np.int64]) -> float:
    """Returns how many distinct values there are in all, whose sample has most of them once.

    That is told by how many of them it has twice (Chao's estimate).
    """
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    return float(len(counts) + once * (once - 1) / (2 * (twice + 1)))


def count_values(sample: pa.Array) -> npt.NDArray[np.int64]:
    """Returns how often each value of a sample without nulls occurs."""
    found = number_values(sample, len(sample))
    assert found is not None, "a sample has more distinct values than rows"
    return np.bincount(found[0])


def count_values_of_part(
    part: Callable[[pa.Array], pa.Array], sample: pa.Array
) -> npt.NDArray[np.int64]:
    """Returns the same of the numbers or texts of a templated sample."""
    return count_values(part(sample))


def count_coded_values(sample: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the same of a dictionary-coded sample."""
    return count_values(decoded(sample))


def count_codes(sample: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the same of a dictionary-coded sample whose dictionary has no value twice."""
    counts = np.bincount(dictionary_codes(sample))
    return counts[counts > 0]


def count_distinct(array: pa.Array) -> int:
    return len(distinct_hashes(value_hashes(array)))


def number_values(array: pa.Array, most: int) -> tuple[I32, I32] | None:
    """Numbers values in the order of their first use. Returns each row's number, and the
    row of each number's first use; None if there are more than `most` distinct values."""
    rows, valid = len(array), valid_mask(array)
    codes = np.empty(rows, dtype=np.int32)
    firsts = np.empty(rows, dtype=np.int32)
    flags = native.as_flags(valid)
    width = fixed_width_bytes(array.type)
    if width in (1, 2, 4, 8):
        words = fixed_width_view(array, f"u{width}")
        count = native.arrays.integers.code_words(words, flags, most, codes, firsts)
    else:
        offsets, data = _value_bytes(array, width)
        count = native.arrays.strings.code_strings(offsets, data, flags, most, codes, firsts)
    return None if count < 0 else (codes, firsts[:count])


def _value_bytes(
    array: pa.Array, width: int | None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Returns where each value begins, and the last one ends, in the bytes that come with it."""
    if pt.is_nested(array.type):
        offsets, numbers = list_bytes(array)
        return offsets, numbers.view(np.uint8)
    if width is None:
        offsets, data = binary_parts(array)
        return offsets, native.as_bytes(data)
    if not width:  # numpy has no values of no bytes
        return np.zeros(len(array) + 1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    values = fixed_width_view(array, np.dtype((np.uint8, width)))
    return width * np.arange(len(array) + 1, dtype=np.int64), values.reshape(-1)


def middle_values(array: pa.Array) -> pa.Array:
    """Returns about `SAMPLE_VALUES` values from the middle. Nulls, which say nothing of values, are left
    out."""
    present = max(1, len(array) - array.null_count)
    rows = min(len(array), SAMPLE_VALUES * len(array) // present)
    return without_nulls(array.slice((len(array) - rows) // 2, rows))


def spread_values(array: pa.Array) -> pa.Array:
    """Returns about as many values that lie as far apart as they can."""
    rows = min(len(array), SAMPLE_VALUES)
    places = np.arange(rows, dtype=np.int64) * (len(array) // rows)
    return without_nulls(take(array, places))


def without_nulls(sample: pa.Array) -> pa.Array:
    valid = valid_mask(sample)
    return sample if valid is None else keep(sample, valid)
