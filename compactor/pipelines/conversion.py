"""Casts values to the types named in expressions and column declarations."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment.arrays.cast import as_text
from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.times import times_of
from lsm_fragment.arrays.widening import may_be_text


def converted(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts a storage array as Arrow does, and formats the years and decimals that Arrow cannot format.

    Raises `pa.ArrowInvalid` for a value that does not fit.
    """
    array = plain(array)
    if pt.is_string(dtype) and may_be_text(array.type):
        return as_text(array).cast(dtype)
    is_text = pt.is_string(array.type) or pt.is_large_string(array.type)
    if is_text and (pt.is_timestamp(dtype) or pt.is_date32(dtype)):
        return times_of(array, dtype)
    return pc.cast(array, dtype)
