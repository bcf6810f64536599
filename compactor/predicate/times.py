"""Parses times in conditions as counts of a column's time unit."""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.times import DAY_SECONDS, UNITS_PER_SECOND, times_of

_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_BETWEEN: Final = Decimal("0.5")
_MS_PER_DAY: Final = 86_400_000
_CLOCK: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]+)?))?")
_FRACTION: Final = re.compile(r"(.*:[0-9]{2})(\.[0-9]+)([^.]*)", re.DOTALL)


def time_units(text: str, dtype: pa.DataType) -> Decimal:
    """Parses a date, time of day or timestamp (UTC unless it names a zone) into units of the type.

    Raises `ValueError` or `pa.ArrowInvalid` for other texts.
    """
    if pt.is_date(dtype):
        days = _days(text)
        return Decimal(days * _MS_PER_DAY if pt.is_date64(dtype) else days)
    seconds = _of_clock(text) if pt.is_time(dtype) else _since_1970(text)
    return _EXACT.multiply(seconds, Decimal(UNITS_PER_SECOND[dtype.unit]))


def units_of_time(constant: pa.Scalar, dtype: pa.DataType) -> Decimal:
    """Converts a date or timestamp to units of another such type; what is between two units stays so."""
    unit = _nanoseconds(dtype)
    whole, rest = divmod(constant.value * _nanoseconds(constant.type), unit)
    return Decimal(whole) + (_BETWEEN if rest else 0)


def _nanoseconds(dtype: pa.DataType) -> int:
    if pt.is_date(dtype):
        return DAY_SECONDS * 10**9 if pt.is_date32(dtype) else 10**6
    return 10**9 // UNITS_PER_SECOND[dtype.unit]


def _days(text: str) -> int:
    try:
        return int(times_of(pa.array([text]), pa.date32())[0].value)
    except pa.ArrowInvalid:
        raise ValueError(
            "write a date such as '2026-11-30', or a moment such as TIMESTAMP '2026-11-30 08:30:00'"
        ) from None


def _of_clock(text: str) -> Decimal:
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError("write a time of day such as '08:30:00'")
    hours, minutes, seconds = found.groups(default="0")
    return _EXACT.add(Decimal(int(hours) * 3600 + int(minutes) * 60), Decimal(seconds))


def _since_1970(text: str) -> Decimal:
    # Arrow rejects fractions finer than the type's unit; whole seconds span more years than finer units.
    found = _FRACTION.fullmatch(text)
    whole = text if found is None else found[1] + found[3]
    fraction = "0" if found is None else found[2]
    return _EXACT.add(Decimal(_seconds(whole)), Decimal(fraction))


def _seconds(text: str) -> int:
    try:
        found = times_of(pa.array([text]), pa.timestamp("s", "UTC"))
    except pa.ArrowInvalid:  # the text names no zone
        found = times_of(pa.array([text]), pa.timestamp("s"))
    return int(found[0].value)
