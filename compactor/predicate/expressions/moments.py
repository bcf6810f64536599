"""Parts of dates, times of day and timestamps, exact in every year of their types. All are in UTC."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.expressions.bound import each
from compactor.predicate.expressions.comparing import as_float
from compactor.predicate.expressions.kinds import kind_of
from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import integer_array, valid_mask
from lsm_fragment.arrays.times import DAY_SECONDS, UNITS_PER_SECOND

I64 = npt.NDArray[np.int64]
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600}
_FRACTIONS: Final = {"millisecond": 10**3, "microsecond": 10**6, "nanosecond": 10**9}
_MAX_YEARS: Final = 30_000
_THURSDAY: Final = 4
"""Weekday of 1970-01-01, from Sunday."""


class _Moments:
    """Moments as days since 1970 and units since midnight; 0 for nulls."""

    def __init__(self, array: pa.Array) -> None:
        dtype = array.type
        numbers = array.view(pa.int32() if dtype.bit_width == 32 else pa.int64())
        self.numbers: I64 = pc.fill_null(numbers, 0).to_numpy().astype(np.int64, copy=False)
        self.per_second = UNITS_PER_SECOND[
            "ms" if pt.is_date64(dtype) else getattr(dtype, "unit", "s")
        ]
        self.per_day = 1 if pt.is_date32(dtype) else self.per_second * DAY_SECONDS

    @cached_property
    def days(self) -> I64:
        return self.numbers // self.per_day

    @cached_property
    def months(self) -> I64:
        """Months since 1970."""
        return _as_int(self.days.astype("M8[D]").astype("M8[M]"))

    @cached_property
    def year(self) -> I64:
        return self.months // 12 + 1970

    @cached_property
    def month(self) -> I64:
        return self.months % 12 + 1

    @cached_property
    def isodow(self) -> I64:
        return (self.days + _THURSDAY - 1) % 7 + 1

    @cached_property
    def iso_year(self) -> I64:
        thursday = self.days - self.isodow + _THURSDAY
        return _as_int(thursday.astype("M8[D]").astype("M8[Y]")) + 1970

    @cached_property
    def iso_week(self) -> I64:
        thursday = self.days - self.isodow + _THURSDAY
        return (thursday - _days_of_months((self.iso_year - 1970) * 12)) // 7 + 1

    def clock(self, unit: int, limit: int) -> I64:
        """Counts whole units of so many seconds, up to `limit`."""
        within = self.numbers - self.days * self.per_day
        return within // (unit * self.per_second) % limit if self.per_day > 1 else within * 0

    def fraction(self, per_second: int) -> I64:
        """Counts fractions of a second since the minute began."""
        if self.per_day == 1:
            return self.numbers * 0
        within = self.numbers % (60 * self.per_second)
        if per_second >= self.per_second:
            return within * (per_second // self.per_second)
        return within // (self.per_second // per_second)


_PARTS: Final[dict[str, Callable[[_Moments], I64]]] = {
    "year": lambda m: m.year,
    "quarter": lambda m: (m.month - 1) // 3 + 1,
    "month": lambda m: m.month,
    "week": lambda m: m.iso_week,
    "isoyear": lambda m: m.iso_year,
    "day": lambda m: m.days - _days_of_months(m.months) + 1,
    "dow": lambda m: (m.days + _THURSDAY) % 7,
    "isodow": lambda m: m.isodow,
    "doy": lambda m: m.days - _days_of_months((m.year - 1970) * 12) + 1,
    "hour": lambda m: m.clock(3600, 24),
    "minute": lambda m: m.clock(60, 60),
    "second": lambda m: m.clock(1, 60),
    **{name: lambda m, per=per: m.fraction(per) for name, per in _FRACTIONS.items()},  # type: ignore[misc]
}
ALIASES: Final = {
    "dayofmonth": "day", "dayofweek": "dow", "weekday": "dow", "dayofyear": "doy", "weekofyear": "week",
    "years": "year", "months": "month", "days": "day", "hours": "hour", "minutes": "minute",
    "seconds": "second", "milliseconds": "millisecond", "microseconds": "microsecond", "ms": "millisecond",
    "us": "microsecond",
}  # fmt: skip
PARTS: Final = (*_PARTS, "epoch")
_OF_TIMES: Final = ("hour", "minute", "second", *_FRACTIONS, "epoch")
_TRUNCATED: Final = (
    "year", "quarter", "month", "week", "day", *reversed(_SECONDS), "millisecond", "microsecond",
)  # fmt: skip


def part(name: str) -> Callable[[Any], Any]:
    """Returns the function of a part, such as `year`."""

    def call(value: Any) -> Any:
        if isinstance(value, pa.Scalar):
            return call(pa.repeat(value, 1))[0]
        return _part_of(value, name)

    return call


def date_part(name: pa.Scalar, value: Any) -> Any:
    return part(_known(name, PARTS))(value)


def date_trunc(unit: pa.Scalar, value: Any) -> Any:
    """Returns the start of the unit that a moment is in, of the same type."""
    if isinstance(value, pa.Scalar):
        return date_trunc(unit, pa.repeat(value, 1))[0]
    name, moments = _known(unit, _TRUNCATED), _Moments(value)
    starts = _start(moments, name)
    is_valid = np.asarray(value.is_valid())
    if (starts > moments.numbers)[is_valid].any():
        raise pa.ArrowInvalid(f"the {name} of a time begins before the first time of {value.type}")
    width = np.int32 if value.type.bit_width == 32 else np.int64
    return integer_array(starts.astype(width), is_valid).view(value.type)


def check_years(moments: pa.Array) -> None:
    """Raises `pa.ArrowInvalid` for a moment beyond the years that Arrow's calendar has."""
    beyond = np.abs(_Moments(moments).months) > 12 * _MAX_YEARS
    if beyond.any():
        raise pa.ArrowInvalid(f"a time is more than {_MAX_YEARS} years away from 1970")


def date_diff(unit: pa.Scalar, first: Any, last: Any) -> Any:
    """Counts the starts of a unit after `first`, up to `last`: 1 from December 31 to January 1 in years."""
    name = _known(unit, _TRUNCATED)
    rows = next((len(side) for side in (first, last) if isinstance(side, pa.Array)), None)
    if rows is None:
        return date_diff(unit, pa.repeat(first, 1), last)[0]
    sides = each(first, rows), each(last, rows)
    counts = [integer_array(_count(_Moments(side), name), valid_mask(side)) for side in sides]
    return pc.subtract_checked(counts[1], counts[0])


def epoch_ms(value: Any) -> Any:
    """Returns the milliseconds of moments since 1970; of such milliseconds the timestamps."""
    if isinstance(value, pa.Scalar):
        return epoch_ms(pa.repeat(value, 1))[0]
    if pt.is_integer(value.type):
        return pc.cast(pc.cast(value, pa.int64()), pa.timestamp("ms"))
    return integer_array(_count(_Moments(value), "millisecond"), valid_mask(value))


def to_timestamp(seconds: Any) -> Any:
    """Returns the instants so many seconds after 1970."""
    if isinstance(seconds, pa.Scalar):
        return to_timestamp(pa.repeat(seconds, 1))[0]
    per_second = UNITS_PER_SECOND["us"]
    if pt.is_integer(seconds.type):
        count = pc.multiply_checked(pc.cast(seconds, pa.int64()), per_second)
    else:
        micros = pc.round(pc.multiply(as_float(seconds), float(per_second)))
        within = pc.fill_null(pc.less(pc.abs(micros), float(2**63)), True)
        if len(beyond := seconds.filter(pc.invert(within))):
            raise pa.ArrowInvalid(
                f"{beyond[0].as_py()} seconds are beyond the times of a timestamp"
            )
        count = pc.cast(micros, pa.int64())
    return pc.cast(count, pa.timestamp("us", "UTC"))


def _count(moments: _Moments, name: str) -> I64:
    """Counts the units since 1970."""
    if name in ("year", "quarter", "month"):
        return moments.months // {"year": 12, "quarter": 3, "month": 1}[name]
    if name == "week":
        return (moments.days + _THURSDAY - 1) // 7
    if name == "day":
        return moments.days
    per_second = _FRACTIONS.get(name, 1)
    if moments.per_day == 1:
        each = DAY_SECONDS // _SECONDS.get(name, 1) * per_second
        return _as_int(pc.multiply_checked(pa.array(moments.days), each).to_numpy())
    if per_second > moments.per_second:
        finer = pc.multiply_checked(pa.array(moments.numbers), per_second // moments.per_second)
        return _as_int(finer.to_numpy())
    return moments.numbers // (_SECONDS.get(name, 1) * moments.per_second // per_second)


def _start(moments: _Moments, name: str) -> I64:
    if name in ("year", "quarter", "month"):
        size = {"year": 12, "quarter": 3, "month": 1}[name]
        return _days_of_months(moments.months // size * size) * moments.per_day
    if name in ("week", "day"):
        back = moments.isodow - 1 if name == "week" else 0
        return (moments.days - back) * moments.per_day
    if moments.per_day == 1:
        return moments.numbers
    if name in _SECONDS:
        size = _SECONDS[name] * moments.per_second
    else:
        size = max(1, moments.per_second // _FRACTIONS[name])
    return moments.numbers // size * size


def _part_of(array: pa.Array, name: str) -> pa.Array:
    is_time = pt.is_time(array.type)
    if is_time and name not in _OF_TIMES:
        raise pa.ArrowInvalid(f"a time of day has no {name}; it has: {', '.join(_OF_TIMES)}")
    moments = _Moments(array)
    is_valid = valid_mask(array)
    if name != "epoch":
        return integer_array(_PARTS[name](moments), is_valid)
    days = kind_of(array.type) == "date" and moments.per_day == 1
    seconds = moments.numbers * DAY_SECONDS if days else moments.numbers / moments.per_second
    return integer_array(seconds.astype(np.float64), is_valid)


def _known(name: pa.Scalar, names: tuple[str, ...]) -> str:
    given = str(name.as_py()).lower()
    found = ALIASES.get(given, given)
    if found not in names:
        raise pa.ArrowInvalid(f"no unit {given!r}; units are: {', '.join(names)}")
    return found


def _days_of_months(months: I64) -> I64:
    """Returns the day on which each month begins. months: since 1970."""
    return _as_int(months.astype("M8[M]").astype("M8[D]"))


def _as_int(times: npt.NDArray[Any]) -> I64:
    return times.astype(np.int64)
