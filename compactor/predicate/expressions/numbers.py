"""Functions of numbers. Logarithms and roots beyond their domain are errors, as overflow is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.expressions.comparing import (
    as_common,
    as_float,
    as_unsigned,
    common_type,
)
from compactor.predicate.expressions.kinds import kind_of
from lsm_fragment import compute as pc
from lsm_fragment.arrays.decimals import MOST_DIGITS, decimal_type

_ORDERED: Final = (
    "null", "integer", "decimal", "float", "text", "date", "timestamp", "time", "duration",
)  # fmt: skip
_FIRST_WHOLE: Final = {16: 2.0**10, 32: 2.0**23, 64: 2.0**52}
"""The floats of each width from which on none has a fraction."""


def unless_whole(name: str) -> Callable[[Any], Any]:
    """Returns a function that rounds; integers stay as they are."""
    return lambda value: (
        value if pt.is_integer(value.type) else getattr(pc, name)(_with_room(value))
    )


def rounded(value: Any, digits: pa.Scalar | None = None) -> Any:
    """Rounds halves away from zero. The digits have a limit, since Arrow's cost grows with them."""
    count = 0 if digits is None else digits.as_py()
    if count is None or not 0 <= count <= MOST_DIGITS:
        raise pa.ArrowInvalid(f"digits are a number from 0 to {MOST_DIGITS}")
    if pt.is_integer(value.type):
        return value
    if count and pt.is_floating(value.type):
        return _rounded_fractions(value, count)
    return _rounded(_with_room(value), count)


def _rounded_fractions(value: Any, digits: int) -> Any:
    """Leaves the floats that are whole by their size: Arrow's product of them and the digits overflows."""
    is_whole = pc.greater_equal(pc.abs(value), _FIRST_WHOLE[value.type.bit_width])
    fractions = pc.if_else(is_whole, pa.scalar(0, value.type), value)
    return pc.if_else(is_whole, value, _rounded(fractions, digits))


def _rounded(value: Any, digits: int) -> Any:
    return pc.round(value, ndigits=digits, round_mode="half_towards_infinity")


def _with_room(value: Any) -> Any:
    """Gives decimals one digit more, which rounding up may need."""
    dtype = value.type
    if not pt.is_decimal(dtype) or dtype.precision == MOST_DIGITS or dtype.scale <= 0:
        return value
    return pc.cast(value, decimal_type(dtype.precision + 1, dtype.scale))


def of_doubles(name: str) -> Callable[..., Any]:
    """Returns Arrow's function, of doubles."""
    return lambda *values: getattr(pc, name)(*map(as_float, values))


def sign(value: Any) -> Any:
    return pc.cast(pc.sign(value), pa.int8()) if not pt.is_floating(value.type) else pc.sign(value)


def absolute(value: Any) -> Any:
    return value if pt.is_unsigned_integer(value.type) else pc.abs_checked(value)


def is_nan(value: Any) -> Any:
    return pc.is_nan(as_float(value))


def extreme(name: str) -> Callable[..., Any]:
    """Returns `greatest` or `least`. They leave nulls out, and NaN if there is another value."""

    def call(*values: Any) -> Any:
        types = [value.type for value in values]
        values = tuple(as_unsigned(value, types) for value in values)
        dtype = common_type([value.type for value in values])
        if kind_of(dtype) not in _ORDERED:
            raise pa.ArrowInvalid(f"there is no greatest or least of {dtype}")
        # Arrow orders no timestamps with a zone.
        plain = pa.timestamp(dtype.unit) if pt.is_timestamp(dtype) else dtype
        parts = [_in(value, dtype).cast(plain) for value in values]
        found = getattr(pc, name)(*parts, skip_nulls=True)
        return found if plain == dtype else found.cast(dtype)

    return call


def _in(value: Any, dtype: pa.DataType) -> Any:
    if isinstance(value, pa.Scalar):
        return as_common(pa.repeat(value, 1), dtype)[0]
    return as_common(value, dtype)
