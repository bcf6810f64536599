"""Writes and reads times by formats such as `%Y-%m-%d %H:%M:%S.%f`, and moves them between zones."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.expressions.moments import check_years, date_trunc, part
from compactor.predicate.expressions.texts import row_by_row
from lsm_fragment import compute as pc

_CODE: Final = re.compile(r"%(.?)", re.DOTALL)
_WRITTEN: Final = "YymdHIMSfjaAbBpuwVG%"
_READ: Final = "YymdHIMSfjbBp%"
_MICROSECONDS: Final = pa.timestamp("us")
_DIGITS: Final = 6
_SECOND: Final = pa.scalar("second")


def strftime(moments: Any, form: pa.Scalar) -> Any:
    """Writes dates and timestamps, those with a zone in UTC. Raises `pa.ArrowInvalid` for an unknown code."""
    if isinstance(moments, pa.Scalar):
        return strftime(pa.repeat(moments, 1), form)[0]
    text = _checked(form, _WRITTEN)
    check_years(moments)
    unit = "s" if pt.is_date(moments.type) else moments.type.unit
    times = pc.cast(moments, pa.timestamp(unit))
    seconds = pc.cast(date_trunc(_SECOND, times), pa.timestamp("s"))
    pieces = [pc.strftime(seconds, format=piece, locale="C") for piece in _around_fractions(text)]
    within = pc.cast(part("microsecond")(times), pa.int64())
    fractions = pc.subtract(within, pc.multiply(pc.divide(within, 10**_DIGITS), 10**_DIGITS))
    digits = pc.utf8_lpad(pc.cast(fractions, pa.string()), _DIGITS, "0")
    return pc.binary_join_element_wise(*pieces, digits) if len(pieces) > 1 else pieces[0]


def strptime(texts: Any, form: pa.Scalar) -> Any:
    """Reads texts as timestamps without a zone. Raises `pa.ArrowInvalid` for a text that is not of the
    format, and for an unknown code."""
    text = _checked(form, _READ)

    def read(value: str) -> datetime:
        try:
            return datetime.strptime(value, text)
        except ValueError as error:
            raise pa.ArrowInvalid(
                f"{value[:60]!r} is not of the format {text!r}: {error}"
            ) from None

    return row_by_row(read, _MICROSECONDS)(texts)


def at_zone(moments: Any, zone: pa.Scalar) -> Any:
    """`AT TIME ZONE`: the instant of a local time, in UTC; of an instant the local time.

    Of a local time that comes twice it is the later instant, of one that is skipped the instant at which
    clocks are put forward. Raises `pa.ArrowInvalid` for an unknown zone.
    """
    if isinstance(moments, pa.Scalar):
        return at_zone(pa.repeat(moments, 1), zone)[0]
    name = zone.as_py()
    _check_zone(name)
    check_years(moments)
    if pt.is_date(moments.type):
        moments = pc.cast(moments, _MICROSECONDS)
    unit = moments.type.unit
    if moments.type.tz is None:
        known = pc.assume_timezone(moments, name, ambiguous="latest", nonexistent="latest")
        return pc.cast(known, pa.timestamp(unit, "UTC"))
    return pc.local_timestamp(pc.cast(moments, pa.timestamp(unit, name)))


@cache
def _check_zone(name: str) -> None:
    """Raises `pa.ArrowInvalid` if there is no such zone."""
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("s")), name)
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid(
            f"there is no time zone {name!r}; zones have names as 'Europe/Rome' and 'UTC'"
        ) from None


def _checked(form: pa.Scalar, codes: str) -> str:
    text = str(form.as_py())
    for found in _CODE.finditer(text):
        if not found[1] or found[1] not in codes:
            raise pa.ArrowInvalid(
                f"unknown code {found[0]!r} in the format {text!r}; known are: "
                + " ".join(f"%{code}" for code in codes)
            )
    return text


def _around_fractions(text: str) -> list[str]:
    """Returns the parts of a format between codes `%f`."""
    parts, start = [], 0
    for found in _CODE.finditer(text):
        if found[1] == "f":
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]
