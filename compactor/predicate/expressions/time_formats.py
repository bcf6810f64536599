"""Writes and reads times by formats such as `%Y-%m-%d %H:%M:%S.%f`, and moves them between zones."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.common.escaping import shortened
from compactor.predicate.expressions.moments import check_years, date_trunc, part
from compactor.predicate.expressions.sizes import check_size
from compactor.predicate.expressions.texts import row_by_row
from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import integer_array, valid_mask
from lsm_fragment.arrays.times import UNITS_PER_SECOND

_CODE: Final = re.compile(r"%(.?)", re.DOTALL)
_WRITTEN: Final = "YymdHIMSfjaAbBpuwVG%"
_READ: Final = "YymdHIMSfjbBp%"
_EPOCH: Final = datetime(1970, 1, 1)
_YEARS: Final = (-62_135_510_400, 253_339_228_800)
"""The second day of the year 1, and the last moment of 9997, in seconds since 1970."""
_FIRST_FAR: Final = 2_145_916_800
"""The year 2038."""
_ROOM: Final = (1 << 63) - (1 << 50)
_MICROSECONDS: Final = pa.timestamp("us")
_DIGITS: Final = 6
_MAX_WRITTEN: Final = 9
"""No code writes more characters: "September", "Wednesday"."""
_SECOND: Final = pa.scalar("second")


def strftime(moments: Any, form: pa.Scalar) -> Any:
    """Writes dates and timestamps, those with a zone in UTC. Raises `pa.ArrowInvalid` for an unknown code."""
    if isinstance(moments, pa.Scalar):
        return strftime(pa.repeat(moments, 1), form)[0]
    text = _checked(form, _WRITTEN)
    check_years(moments)
    check_size(len(moments) * _length(text), len(moments))
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

    codes = [code for code in _CODE.findall(text) if code != "%"]
    if len(set(codes)) < len(codes):
        raise pa.ArrowInvalid(f"the format {text!r} has a code twice")

    def read(value: str) -> datetime:
        try:
            return datetime.strptime(value, text)
        except ValueError as error:
            raise pa.ArrowInvalid(
                f"{shortened(value, 60)!r} is not of the format {text!r}: {error}"
            ) from None

    return row_by_row(read, _MICROSECONDS)(texts)


def at_zone(zone: pa.Scalar, moments: Any) -> Any:
    """`AT TIME ZONE`: the instant of a local time, in UTC; of an instant the local time.

    Of a local time that comes twice it is the later instant, of one that is skipped the instant at which
    clocks are put forward. Raises `pa.ArrowInvalid` for an unknown zone.
    """
    if isinstance(moments, pa.Scalar):
        return at_zone(zone, pa.repeat(moments, 1))[0]
    name = zone.as_py()
    _check_zone(name)
    if pt.is_date(moments.type):
        moments = pc.cast(moments, _MICROSECONDS)
    per_second, is_local = UNITS_PER_SECOND[moments.type.unit], moments.type.tz is None
    dtype = pa.timestamp(moments.type.unit, "UTC" if is_local else None)
    numbers = pc.fill_null(moments.view(pa.int64()), 0).to_numpy()
    first, last = (max(-_ROOM, min(_ROOM, year * per_second)) for year in _YEARS)
    if len(beyond := numbers[(numbers < first) | (numbers > last)]):
        raise pa.ArrowInvalid(f"{beyond[0]} as {moments.type} is beyond the times that zones have")
    if is_local:
        known = pc.assume_timezone(moments, name, ambiguous="latest", nonexistent="latest")
        found = pc.cast(known, dtype)
    else:
        found = pc.local_timestamp(pc.cast(moments, pa.timestamp(dtype.unit, name)))
    far = np.flatnonzero(numbers >= _FIRST_FAR * per_second)
    if not len(far):
        return found
    moved = pc.fill_null(found.view(pa.int64()), 0).to_numpy().copy()
    zone_info = ZoneInfo(name)
    for place in far.tolist():
        moved[place] = _far(int(numbers[place]), per_second, zone_info, is_local=is_local)
    return integer_array(moved, valid_mask(moments)).view(dtype)


def _far(number: int, per_second: int, zone: ZoneInfo, *, is_local: bool) -> int:
    """Moves a time to or from a zone by its rule, which Arrow follows up to the year 2037 only."""
    seconds = number // per_second
    if not is_local:
        return number + per_second * _offset(seconds, zone)
    local = _EPOCH + timedelta(seconds=seconds)
    for fold in (1, 0):
        offset = _seconds(local.replace(tzinfo=zone, fold=fold).utcoffset())
        if _offset(seconds - offset, zone) == offset:
            return number - per_second * offset
    # Skipped. The clocks are put forward between the instants that the offsets of before and after give.
    before, after = (_seconds(local.replace(tzinfo=zone, fold=fold).utcoffset()) for fold in (0, 1))
    low, high = seconds - after, seconds - before
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _offset(middle, zone) == after else (middle, high)
    return high * per_second


def _offset(seconds: int, zone: ZoneInfo) -> int:
    """Returns how far clocks are ahead of UTC at an instant, in seconds."""
    instant = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=UTC)
    return _seconds(instant.astimezone(zone).utcoffset())


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None
    return int(offset.total_seconds())


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


def _length(text: str) -> int:
    """Returns an upper bound of the characters that a format writes."""
    return len(text) + _MAX_WRITTEN * text.count("%")


def _around_fractions(text: str) -> list[str]:
    """Returns the parts of a format between codes `%f`."""
    parts, start = [], 0
    for found in _CODE.finditer(text):
        if found[1] == "f":
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]
