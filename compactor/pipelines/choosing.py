"""Implements `CASE` and `COALESCE`. Nested values do not go through Arrow's kernels (decision 66)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment.arrays.joining import concat_logical
from lsm_fragment.arrays.moves import take

Value = Any
"""An array, or a scalar for all rows."""


def if_else(holds: Value, value: Value, other: Value) -> Value:
    """Returns `value` where a condition without nulls holds, else `other`.

    Raises `pa.ArrowException` if the two have no common type.
    """
    dtypes = {part.type for part in (value, other) if not pt.is_null(part.type)}
    if not any(map(_has_nested, dtypes)):
        return pc.if_else(holds, value, other)
    if len(dtypes) > 1:
        names = " and ".join(sorted(map(str, dtypes)))
        raise pa.ArrowInvalid(f"{names} have no type in common")
    [dtype] = dtypes
    lengths = [len(part) for part in (holds, value, other) if isinstance(part, pa.Array)]
    if not lengths:
        return value if holds.as_py() else other
    rows = lengths[0]
    whose = np.asarray(_each(holds, pa.bool_(), rows))
    both = concat_logical([_each(value, dtype, rows), _each(other, dtype, rows)])
    return take(both, np.where(whose, np.arange(rows), np.arange(rows, 2 * rows)))


def coalesce(values: Sequence[Value]) -> Value:
    """Returns the first non-null value of each row. Raises what `if_else` raises."""
    if not any(_has_nested(value.type) for value in values):
        return pc.coalesce(*values)
    *firsts, found = values
    for value in reversed(firsts):
        found = if_else(pc.is_valid(value), value, found)
    return found


def _has_nested(dtype: pa.DataType) -> bool:
    return bool(pt.is_nested(dtype.value_type if pt.is_dictionary(dtype) else dtype))


def _each(value: Value, dtype: pa.DataType, rows: int) -> pa.Array:
    if pt.is_null(value.type):
        return pa.nulls(rows, dtype)
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value
