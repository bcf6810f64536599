"""Writes decimals of any scale as text, and reads them.

Arrow writes no scale beyond the maximum precision of the width. It counts zeros after the point as digits, so
it cannot read its own output for types with more zeros than digits, such as 0.04 with precision 1.
"""

from __future__ import annotations

import decimal
import re
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import keep, replaced, take

_MAX_DIGITS: Final = {32: 9, 64: 18, 128: 38, 256: 76}
_TYPES: Final = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}
MOST_DIGITS: Final = _MAX_DIGITS[256]
"""The precision of the widest decimals."""
_TEXT: Final = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?")
_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_SHOWN_CHARACTERS: Final = 60


def has_odd_scale(dtype: pa.DataType) -> bool:
    """Returns whether the scale exceeds the precision or is negative: Arrow cannot read its own output
    then."""
    return not 0 <= dtype.scale <= dtype.precision


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Returns decimals of 128 bits, or of 256 if they need more. precision: at most `MOST_DIGITS`."""
    return decimal_of_width(128 if precision <= _MAX_DIGITS[128] else 256, precision, scale)


def decimal_of_width(bits: int, precision: int, scale: int) -> pa.DataType:
    return _TYPES[bits](precision, scale)


def with_scale(dtype: pa.DataType, scale: int) -> pa.DataType:
    """Returns the decimal type of the same width and precision with another scale."""
    return decimal_of_width(dtype.bit_width, dtype.precision, scale)


def unscaled_at(array: pa.Array, row: int) -> int:
    """Returns the unscaled integer of a non-null decimal."""
    width = array.type.bit_width // 8
    start = (array.offset + row) * width
    return int.from_bytes(array.buffers()[1][start : start + width], "little", signed=True)


def text_of(unscaled: int, scale: int) -> str:
    """Returns a decimal as text, with an exponent where Arrow writes one."""
    digits = tuple(map(int, str(abs(unscaled))))
    return str(decimal.Decimal((unscaled < 0, digits, -scale)))


def decimal_texts(array: pa.Array) -> pa.Array:
    """Converts decimals to large strings, without exponents unless the scale has more digits than the width;
    nulls stay null."""
    dtype = array.type
    assert pt.is_decimal(dtype), f"not decimals: {dtype}"
    if abs(dtype.scale) <= _MAX_DIGITS[dtype.bit_width]:
        return _without_exponents(array.cast(pa.large_string()))
    valid = array.is_valid().to_pylist()
    texts = [
        text_of(unscaled_at(array, row), dtype.scale) if is_there else None
        for row, is_there in enumerate(valid)
    ]
    return pa.array(texts, pa.large_string())


def _without_exponents(texts: pa.Array) -> pa.Array:
    """Writes out what Arrow writes with an exponent, such as 0E-10."""
    has_exponent = np.asarray(pc.and_kleene(texts.is_valid(), pc.match_substring(texts, "E")))
    if not has_exponent.any():
        return texts
    short = keep(texts, has_exponent).dictionary_encode()
    distinct = [format(decimal.Decimal(text), "f") for text in short.dictionary.to_pylist()]
    written = take(pa.array(distinct, pa.large_string()), np.asarray(short.indices))
    return replaced(texts, has_exponent, written)


def decimal_floats(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Rounds decimals to the nearest floats, by way of their digits: Arrow's own cast rounds twice."""
    return decimal_texts(array).cast(dtype)


def decimals_of(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Reads texts as decimals, exactly.

    Raises `pa.ArrowInvalid` for a text that is no decimal or does not fit `dtype`.
    """
    width = dtype.bit_width // 8
    values = [None if text is None else _unscaled(text, dtype) for text in texts.to_pylist()]
    data = b"".join((value or 0).to_bytes(width, "little", signed=True) for value in values)
    bits = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(dtype, len(values), [bits, pa.py_buffer(data)])


def _unscaled(text: str, dtype: pa.DataType) -> int:
    if _TEXT.fullmatch(text):
        units = decimal.Decimal(text).scaleb(dtype.scale, _EXACT)
        if units == units.to_integral_value() and units.copy_abs() < 10**dtype.precision:
            return int(units)
    raise pa.ArrowInvalid(f"{text[:_SHOWN_CHARACTERS]!r} is no value of {dtype}")
