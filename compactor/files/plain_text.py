"""Renders scalar values as text, whole columns at a time; the inverse of `text_values`."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import InputError
from compactor.files.base64_arrays import base64_encode
from lsm_fragment.arrays.cast import iso_text
from lsm_fragment.arrays.json_texts import float_texts, joined, text_scalar
from lsm_fragment.arrays.types import is_bytes

_INTERVAL: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


class UnwritableError(InputError, ValueError):
    """A type or a value has no text form."""


def plain_text(array: pa.Array) -> pa.Array:
    """Renders a storage array as large strings; nulls stay null.

    Floats always have a point or an exponent, so that they are read back as floats. Raises `UnwritableError`
    for nested types.
    """
    dtype = array.type
    if is_bytes(dtype):
        return base64_encode(array)
    if pt.is_floating(dtype):
        return float_texts(array.cast(pa.float32()) if pt.is_float16(dtype) else array)
    if pt.is_duration(dtype):
        return array.cast(pa.int64()).cast(pa.large_string())
    if pt.is_interval(dtype):
        return _interval_text(array)
    if pt.is_nested(dtype):
        raise UnwritableError(f"text can't hold {dtype}")
    return iso_text(array)


def _interval_text(array: pa.Array) -> pa.Array:
    """Renders ISO 8601, such as P1M2DT3.000000004S, with months, days and time as separate parts, like
    Arrow."""
    parts = np.frombuffer(array.buffers()[1], dtype=_INTERVAL)[array.offset :][: len(array)]
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    nanoseconds = np.stack([parts["nanoseconds"], parts["nanoseconds"] >> 63], axis=1)
    wide = [None, pa.py_buffer(np.ascontiguousarray(nanoseconds))]
    seconds = pa.Array.from_buffers(pa.decimal128(28, 9), len(array), wide)
    months, days = (pa.array(parts[name], mask=nulls) for name in ("months", "days"))
    texts = [values.cast(pa.large_string()) for values in (months, days, seconds)]
    marks = [text_scalar(mark) for mark in ("P", "M", "DT", "S")]
    return joined(marks[0], texts[0], marks[1], texts[1], marks[2], texts[2], marks[3])
