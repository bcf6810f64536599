"""Compares numbers of conditions exactly with columns of numbers and times of any scale, unit or size.

Whole numbers, decimals, dates and times count even units within the range of their type. A number between two
units equals neither, and as a bound acts as the unit below it does.
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
    """Returns whether values of a storage type are numbers, not times."""
    return bool(pt.is_integer(dtype) or pt.is_decimal(dtype) or pt.is_floating(dtype))


def in_units(number: Decimal, dtype: pa.DataType) -> Decimal:
    """Returns a number as a count of the units of a numeric type."""
    return number.scaleb(dtype.scale, _EXACT) if pt.is_decimal(dtype) else number


def comparison(column: str, dtype: pa.DataType, op: Op, units: Decimal) -> Compare:
    """Returns an equivalent of comparing a column with a number of units, by a value that its type holds."""
    if pt.is_floating(dtype):
        return _of_floats(column, dtype, op, units)
    least, most = _range(dtype)
    always = Compare(column, Op.LE, _value(most, dtype))
    never = Compare(column, Op.GT, _value(most, dtype))
    if units > most:
        return always if op in (Op.LT, Op.LE, Op.NE) else never
    if units < least:
        return always if op in (Op.GT, Op.GE, Op.NE) else never
    below = int(units.to_integral_value(decimal.ROUND_FLOOR, _EXACT))
    if below != units:
        if op in (Op.EQ, Op.NE):
            return never if op is Op.EQ else always
        op = Op.LE if op in (Op.LT, Op.LE) else Op.GT
    return Compare(column, op, _value(below, dtype))


def exactly(dtype: pa.DataType, units: Decimal) -> pa.Scalar | None:
    """Returns the value of a number of units; None if the type does not hold it."""
    equal = comparison("", dtype, Op.EQ, units)
    return equal.value if equal.op is Op.EQ else None


def _of_floats(column: str, dtype: pa.DataType, op: Op, number: Decimal) -> Compare:
    """Compares with the float nearest to the number, because the column's values were rounded alike."""
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
        most: int = 10**dtype.precision - 1
        return -most, most
    bits: int = dtype.bit_width
    if pt.is_unsigned_integer(dtype):
        return 0, (1 << bits) - 1
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _value(units: int, dtype: pa.DataType) -> pa.Scalar:
    """Returns the value as a scalar, from bytes: Arrow cannot convert Python values to decimals of negative
    scale, nor to times of every unit."""
    width = dtype.bit_width // 8
    data = units.to_bytes(width, "little", signed=not pt.is_unsigned_integer(dtype))
    return pa.Array.from_buffers(dtype, 1, [None, pa.py_buffer(data)])[0]
