"""Compares numbers in conditions exactly with columns of numbers and times of any scale, unit or width.

Integers, decimals, dates and times count whole units within the range of their type. A number between two
units equals neither, and as a bound is equivalent to the unit below.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.tree import Compare, Op

_EXACT: Final = decimal.Context(
    prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[]
)
_FLOATS: Final[dict[int, type[np.floating[Any]]]] = {16: np.float16, 32: np.float32, 64: np.float64}


def has_numbers(dtype: pa.DataType) -> bool:
    """Returns whether a storage type holds numbers, not times."""
    return bool(pt.is_integer(dtype) or pt.is_decimal(dtype) or pt.is_floating(dtype))


def in_units(number: Decimal, dtype: pa.DataType) -> Decimal:
    """Converts a number to a count of a numeric type's units."""
    return number.scaleb(dtype.scale, _EXACT) if pt.is_decimal(dtype) else number


def comparison(column: str, dtype: pa.DataType, op: Op, units: Decimal) -> Compare:
    """Returns an equivalent comparison with a value that the column's type can hold."""
    if pt.is_floating(dtype):
        return _of_floats(column, dtype, op, units)
    low, high = _range(dtype)
    always = Compare(column, Op.LE, _value(high, dtype))
    never = Compare(column, Op.GT, _value(high, dtype))
    if units > high:
        return always if op in (Op.LT, Op.LE, Op.NE) else never
    if units < low:
        return always if op in (Op.GT, Op.GE, Op.NE) else never
    below = int(units.to_integral_value(decimal.ROUND_FLOOR, _EXACT))
    if below != units:
        if op in (Op.EQ, Op.NE):
            return never if op is Op.EQ else always
        op = Op.LE if op in (Op.LT, Op.LE) else Op.GT
    return Compare(column, op, _value(below, dtype))


def exactly(dtype: pa.DataType, units: Decimal) -> pa.Scalar | None:
    """Returns the value of a count of units; None if the type cannot hold it."""
    equal = comparison("", dtype, Op.EQ, units)
    return equal.value if equal.op is Op.EQ else None


def _of_floats(column: str, dtype: pa.DataType, op: Op, number: Decimal) -> Compare:
    """Compares with the nearest float, since the column's values were rounded in the same way."""
    with np.errstate(over="ignore"):
        rounded = float(_FLOATS[dtype.bit_width](float(number)))
    value = pa.scalar(rounded).cast(dtype)
    if not math.isinf(rounded):
        return Compare(column, op, value)
    # The number lies between this infinity and all finite values.
    inward, outward = (Op.LT, Op.GE) if rounded > 0 else (Op.GT, Op.LE)
    if op in (Op.EQ, Op.NE):
        beyond = Op.GT if rounded > 0 else Op.LT
        return Compare(column, beyond if op is Op.EQ else _NOT_BEYOND[beyond], value)
    return Compare(column, inward if op.value[0] == inward.value[0] else outward, value)


_NOT_BEYOND: Final = {Op.GT: Op.LE, Op.LT: Op.GE}


def _range(dtype: pa.DataType) -> tuple[int, int]:
    if pt.is_decimal(dtype):
        high: int = 10**dtype.precision - 1
        return -high, high
    bits: int = dtype.bit_width
    if pt.is_unsigned_integer(dtype):
        return 0, (1 << bits) - 1
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _value(units: int, dtype: pa.DataType) -> pa.Scalar:
    """Makes a scalar from bytes: Arrow cannot convert Python values to decimals of negative scale, nor to
    times of every unit."""
    width = dtype.bit_width // 8
    data = units.to_bytes(width, "little", signed=not pt.is_unsigned_integer(dtype))
    return pa.Array.from_buffers(dtype, 1, [None, pa.py_buffer(data)])[0]
