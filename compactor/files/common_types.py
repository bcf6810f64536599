"""Finds the type of a column that text files give different types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.widening import converts_to, widens_to


def common_type(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Returns the widest number or time of these; double for integers beside floats, whose values it may not
    hold; None if there is none."""
    wide = next((t for t in types if all(_widens(other, t) for other in types)), None)
    if wide is None and any(map(pt.is_floating, types)) and all(map(_is_number, types)):
        return pa.float64()
    return wide


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pt.is_integer(dtype) or pt.is_floating(dtype) or pt.is_null(dtype))


def _widens(dtype: pa.DataType, wide: pa.DataType) -> bool:
    if pt.is_date(dtype) and pt.is_timestamp(wide):
        return wide.tz is None
    return (
        dtype == wide
        or pt.is_null(dtype)
        or widens_to(dtype, wide)
        or (pt.is_timestamp(dtype) and converts_to(dtype, wide) and pt.is_timestamp(wide))
    )
