"""DECIMAL: doubles with few decimal digits as integers, and a list of exceptions (the idea is ALP's)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import native
from lsm_fragment.encodings.integers import encode_ints
from lsm_fragment.encodings.node import Encoding, Node
from lsm_fragment.encodings.packed import Survey, sampled, survey
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape

ENCODING = Encoding.DECIMAL
SHAPE = NodeShape(children=1, has_param=True)

_EXCEPTIONS_DIVISOR: Final = 32
"""Use DECIMAL only if at most 1 value in 32 is an exception."""
_EXCEPTION_BITS: Final = 96
"""Bits per exception: a 32-bit row number and the 64-bit value."""


def encode_decimals(words: npt.NDArray[Any], dtype: pa.DataType, seen: Survey) -> Node | None:
    """Encodes doubles with few decimal digits as integers and exceptions; None if that saves no bits."""
    if not pt.is_float64(dtype):
        return None
    values = words.view(np.float64)
    sample = sampled(values)
    digits = native.encodings.floats.find_digits(sample, len(sample) // _EXCEPTIONS_DIVISOR)
    if digits < 0:
        return None
    exceptions = np.empty(len(values) // _EXCEPTIONS_DIVISOR, dtype=np.uint32)
    integers = np.empty(len(values), dtype=np.int64)
    count = native.encodings.floats.to_integers(values, digits, integers, exceptions)
    if count < 0:
        return None
    of_integers = survey(sampled(integers))
    if of_integers.bits + _EXCEPTION_BITS * count / len(values) >= seen.bits:
        return None
    rows = exceptions[:count]
    return Node(
        encoding=Encoding.DECIMAL,
        length=len(values),
        param=digits | count << 8,
        buffers=(rows, values[rows]),
        children=(encode_ints(integers),),
        is_dense=True,
    )


def fits(dtype: pa.DataType) -> bool:
    return bool(pt.is_float64(dtype))


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, _keep: Keep) -> pa.Array:
    cursor = reader.cursor
    digits, exceptions = cursor.param & 0xFF, cursor.param >> 8
    validity, nulls = reader.validity()
    if not 0 <= exceptions <= length:
        raise ValueError("decimals of impossible digits, or more exceptions than values")
    rows, values = cursor.buffer(4 * exceptions), cursor.buffer(8 * exceptions)
    doubles = cursor.child_integers(length).decimals(digits, rows, values)
    return pa.Array.from_buffers(dtype, length, [validity, doubles], nulls)
