"""Writes decimals of any scale as text: Arrow refuses a scale beyond the digits that its widths can have."""

from __future__ import annotations

import decimal
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

_MOST_DIGITS: Final = {32: 9, 64: 18, 128: 38, 256: 76}
_TYPES: Final = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}


def with_scale(dtype: pa.DataType, scale: int) -> pa.DataType:
    """Returns the decimals of the same width and precision with another scale."""
    return _TYPES[dtype.bit_width](dtype.precision, scale)


def unscaled_at(array: pa.Array, row: int) -> int:
    """Returns the unscaled integer of a decimal that is not null."""
    width = array.type.bit_width // 8
    start = (array.offset + row) * width
    return int.from_bytes(array.buffers()[1][start : start + width], "little", signed=True)


def text_of(unscaled: int, scale: int) -> str:
    """Returns a decimal as text, with an exponent where Arrow writes one too."""
    digits = tuple(map(int, str(abs(unscaled))))
    return str(decimal.Decimal((unscaled < 0, digits, -scale)))


def decimal_texts(array: pa.Array) -> pa.Array:
    """Returns decimals as large strings, null where they are."""
    dtype = array.type
    assert pt.is_decimal(dtype), f"not decimals: {dtype}"
    if abs(dtype.scale) <= _MOST_DIGITS[dtype.bit_width]:
        return array.cast(pa.large_string())
    valid = array.is_valid().to_pylist()
    texts = [
        text_of(unscaled_at(array, row), dtype.scale) if is_there else None
        for row, is_there in enumerate(valid)
    ]
    return pa.array(texts, pa.large_string())
