"""Parses numbers in text exactly, or refuses them.

Integers are exact in every column. In a float column an integer must be exact and within int64. A fraction,
or a number with an exponent, is rounded to the nearest value if it has at most 17 significant digits, the
precision of a double, or if that value prints as the same digits. No number becomes infinite or zero unless
it is written so.
"""

from __future__ import annotations

import math
import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import binary_parts, boolean_array, validity_buffer
from lsm_fragment.arrays.widening import MANTISSA_BITS
from lsm_fragment.native.arrays.json_rows import Kind, numbers

MAX_DIGITS: Final = 17
"""Significant digits that identify every double."""
MAX_EXACT: Final = 1 << 53
"""A double holds all integers up to this one."""
_IDENTIFIER: Final = r"^(?:[-+]?0[0-9xX]|\+[0-9]+$)"
"""Integers with leading zeros or plus signs, which are probably identifiers. Arrow reads 0x1F as 31."""
_NOT_FINITE: Final = r"^[-+]?(?i:nan|inf|infinity)$"
_IS_SOMETHING: Final = r"^[-+]?[0.]*[1-9]"
_LONG: Final = rf"^[-+]?[0.]*[1-9](?:\.?[0-9]){{{MAX_DIGITS}}}"
"""More than `MAX_DIGITS` significant digits, counting trailing zeros."""
_WHOLE: Final = re.compile(r"([-+]?[0-9]+)(?:\.0*)?")
_BEYOND_INT64: Final = 2.0**63
Spans = npt.NDArray[np.int32]
INT64: Final = range(-(2**63), 2**63)
"""The integers of 64 bits with a sign."""


class NumberError(ValueError):
    """The type cannot hold a number in a text."""

    def __init__(self, text: object, dtype: pa.DataType) -> None:
        super().__init__(f"{dtype} does not hold {str(text)[:60]} exactly")
        self.text = text


def read_integers(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Parses integers. Raises `ValueError` for a text that differs from the printed integer."""
    kinds, values = _parsed(texts)
    if dtype == pa.int64() and (kinds <= Kind.INT).all():
        return _with_nulls(values, dtype, kinds)
    numbers = texts.cast(dtype)
    _refuse(texts, _IDENTIFIER, dtype)
    return numbers


def read_floats(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Parses floats. Raises `ValueError` for a number that the type cannot hold."""
    kinds, values = _parsed(texts)
    doubles, is_whole = values.view(np.float64), kinds == Kind.INT
    whole = values[is_whole]
    doubles[is_whole] = whole
    is_odd = kinds > Kind.DOUBLE
    is_odd |= kinds == Kind.UINT
    is_odd[is_whole] = np.abs(whole) >= _max_exact(dtype)
    if is_odd.any():
        odd = _read_odd_floats(texts.filter(boolean_array(is_odd)), dtype)
        doubles[is_odd] = odd.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return narrowed(_with_nulls(values, pa.float64(), kinds), dtype)


def _parsed(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Returns the kinds and values of texts as `json_rows` parses numbers. Texts that it does not take are of
    another kind."""
    offsets, data = binary_parts(texts.cast(pa.string()))
    is_there = texts.is_valid().cast(pa.uint8()).to_numpy()
    found = numbers(np.frombuffer(data, np.uint8), offsets[:-1], offsets[1:], is_there)
    assert found is not None, "it stops early only where asked to"
    return found


def plain_numbers(
    data: bytes | npt.NDArray[np.uint8],
    starts: Spans,
    stops: Spans,
    is_there: npt.NDArray[np.uint8],
) -> pa.Array | None:
    """Returns texts of which no one needs a second look as int64 or as doubles; None for all others."""
    found = numbers(data, starts, stops, is_there, stops_early=True)
    if found is None:
        return None
    kinds, values = found
    if (kinds <= Kind.INT).all():
        return _with_nulls(values, pa.int64(), kinds)
    doubles, is_whole = values.view(np.float64), kinds == Kind.INT
    whole = values[is_whole]
    if (kinds == Kind.UINT).any() or (np.abs(whole) > MAX_EXACT).any():
        return None
    doubles[is_whole] = whole
    return _with_nulls(values, pa.float64(), kinds)


def _with_nulls(
    values: npt.NDArray[np.int64], dtype: pa.DataType, kinds: npt.NDArray[np.uint8]
) -> pa.Array:
    buffers = [validity_buffer(kinds != Kind.NULL_), pa.py_buffer(values)]
    return pa.Array.from_buffers(dtype, len(values), buffers)


def _read_odd_floats(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    doubles = texts.cast(pa.float64())
    _refuse(texts, _IDENTIFIER, dtype)
    values = doubles.to_numpy(zero_copy_only=False)
    if not np.isfinite(values).all():
        odd = texts.filter(boolean_array(~np.isfinite(values))).drop_null()
        _refuse(odd, _NOT_FINITE, dtype, is_wanted=True)
    if (values == 0).any():
        _refuse(texts.filter(pc.equal(doubles, 0)), _IS_SOMETHING, dtype)
    is_large = (np.abs(values) >= _max_exact(dtype)) & np.isfinite(values)
    large = texts.filter(boolean_array(is_large))
    _check_each(large.filter(pc.match_substring_regex(large, rf"^{_WHOLE.pattern}$")), dtype)
    # A long text may be 17 digits with sign, zeros and exponent: only a regular expression counts digits.
    long = texts.filter(pc.greater(pc.binary_length(texts), MAX_DIGITS + 1))
    _check_each(long.filter(pc.match_substring_regex(long, _LONG)), dtype)
    return narrowed(doubles, dtype)


def _check_each(texts: pa.Array, dtype: pa.DataType) -> None:
    for text in texts.to_pylist():
        if not float_holds(text, dtype):
            raise NumberError(text, dtype)


def float_holds(text: str, dtype: pa.DataType) -> bool:
    """Returns whether a float column accepts a number as written, including all spellings of infinity and
    NaN."""
    value = float(text)
    if not math.isfinite(value):
        return re.match(_NOT_FINITE, text) is not None
    whole = _WHOLE.fullmatch(text)
    if whole is not None:
        number = int(whole[1])
        return number in INT64 and number == _as_float(value, dtype)
    if value == 0:
        return re.match(_IS_SOMETHING, text) is None
    mantissa = re.split("[eE]", text.lstrip("+-"))[0]
    digits = mantissa.replace(".", "").strip("0")
    if len(digits) <= MAX_DIGITS:
        return True
    printed = f"{abs(value):.{len(digits) - 1}e}".partition("e")[0]
    return printed.replace(".", "") == digits


def narrowed(doubles: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Rounds doubles to the nearest floats of a type.

    Raises `NumberError` if one would become infinite or zero.
    """
    if dtype == doubles.type:
        return doubles
    with np.errstate(over="ignore", under="ignore"):
        wide = doubles.to_numpy(zero_copy_only=False)
        narrow = wide.astype(dtype.to_pandas_dtype())
    is_lost = (np.isinf(narrow) & np.isfinite(wide)) | ((narrow == 0) & (wide != 0))
    if is_lost.any():
        raise NumberError(wide[is_lost][0], dtype)
    mask = doubles.is_null().to_numpy(zero_copy_only=False) if doubles.null_count else None
    return pa.array(narrow, dtype, mask=mask)


def has_inexact(integers: pa.Array) -> bool:
    """Returns whether any int64 is not exact as a double."""
    values = integers.drop_null().to_numpy()
    doubles = values.astype(np.float64)
    is_beyond = doubles >= _BEYOND_INT64  # rounded up
    doubles[is_beyond] = 0
    return bool((is_beyond | (doubles.astype(np.int64) != values)).any())


def _refuse(texts: pa.Array, pattern: str, dtype: pa.DataType, *, is_wanted: bool = False) -> None:
    """Raises `NumberError` for a text that matches a pattern or, if `is_wanted`, for one that does not
    match."""
    is_found = pc.match_substring_regex(texts, pattern)
    if is_wanted:
        is_found = pc.invert(is_found)
    if pc.any(is_found).as_py():
        raise NumberError(texts.filter(is_found)[0].as_py(), dtype)


def _max_exact(dtype: pa.DataType) -> float:
    return float(1 << MANTISSA_BITS[dtype.bit_width])


def _as_float(value: float, dtype: pa.DataType) -> float:
    with np.errstate(over="ignore"):
        return float(dtype.to_pandas_dtype()(value))
