"""Writes dates and timestamps as ISO 8601 text and reads them, in every year of their types.

Arrow writes and reads the years 0000 to 9999. Other years have a sign and at least four digits, as in
extended ISO 8601: +10000-01-01, -0001-12-31. The Gregorian calendar repeats every 400 years, so other years
are shifted by multiples of 400 into those that Arrow knows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import replaced

DAY_SECONDS: Final = 86_400
UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNITS: Final = tuple(UNITS_PER_SECOND)
"""Units of time, from the coarsest."""
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
_FIRST_DAY, _END_DAY = -719_528, 2_932_897
"""The first day of the year 0000 and of the year 10000, relative to 1970-01-01."""
_YEAR: Final = r"^(?P<year>-[0-9]{4}|[-+][1-9][0-9]{4,11})(?P<rest>-.*)$"
_FIRST_NANOSECOND: Final = r"^(?P<year>1677)(?P<rest>-.*)$"
"""Matches the first year of nanosecond timestamps: Arrow does not read those of its first second."""
_NO_YEAR: Final = "-0000"
_SPACED_OFFSET: Final = r"(:[0-9.]+) (Z|z|[-+][0-9]{2}(:?[0-9]{2})?)$"
_SHOWN_CHARACTERS: Final = 60


def time_texts(array: pa.Array) -> pa.Array:
    """Converts dates and timestamps to large strings; nulls stay null.

    A timestamp has a space between date and time, and the digits of its unit after the point. One with a zone
    is in UTC and ends with Z: Arrow's offsets lose the seconds of historical zones.
    """
    if pt.is_timestamp(array.type) and array.type.tz is not None:
        array = array.view(pa.timestamp(array.type.unit, "UTC"))
    per_day, numbers = _units_per_day(array.type), _numbers(array)
    far = (numbers < _FIRST_DAY * per_day) | (numbers >= _END_DAY * per_day)
    if not far.any() or _is_of_nanoseconds(array.type):
        return array.cast(pa.large_string())
    cycles, within = np.divmod(numbers, _CYCLE_DAYS * per_day)
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    texts = _of_numbers(np.where(far, within, numbers), is_null, array.type).cast(pa.large_string())
    moved = texts.filter(pa.array(far))
    years = pc.utf8_slice_codeunits(moved, 0, 4).cast(pa.int64()).to_numpy()
    years = years + cycles[far] * _CYCLE_YEARS
    rest = pc.utf8_slice_codeunits(moved, 4)
    return replaced(texts, far, pc.binary_join_element_wise(_year_texts(years), rest, _nothing()))


def times_of(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Reads ISO 8601 texts as dates or timestamps, including extended years, and a space before an offset.

    Raises `pa.ArrowInvalid` for a text that is no date or does not fit `dtype`.
    """
    try:
        return texts.cast(dtype)
    except pa.ArrowInvalid:
        closed = pc.replace_substring_regex(texts, _SPACED_OFFSET, r"\1\2")
        if not closed.equals(texts):
            return times_of(closed, dtype)
        pattern = _FIRST_NANOSECOND if _is_of_nanoseconds(dtype) else _YEAR
        parts = pc.extract_regex(texts.cast(pa.large_string()), pattern)
        far = pc.and_not(parts.is_valid(), pc.starts_with(texts, _NO_YEAR)).fill_null(False)
        if not pc.any(far).as_py():
            raise
    years, rest = (pc.struct_field(parts.filter(far), name) for name in ("year", "rest"))
    numbers = pc.utf8_ltrim(years, "+").cast(pa.int64()).to_numpy()
    cycles, within = np.divmod(numbers, _CYCLE_YEARS)
    near = pc.binary_join_element_wise(_year_texts(2000 + within), rest, _nothing())
    is_far = np.asarray(far)
    moved = replaced(texts.cast(pa.large_string()), is_far, near).cast(dtype)
    units = np.array(_numbers(moved))
    # The year 2000 begins 5 cycles after the year 0000.
    steps = (cycles - 2000 // _CYCLE_YEARS).astype(object) * (_CYCLE_DAYS * _units_per_day(dtype))
    exact = units[is_far].astype(object) + steps
    limit = 1 << dtype.bit_width - 1
    beyond = np.flatnonzero((exact < -limit) | (exact >= limit))
    if len(beyond):
        text = texts.filter(far)[int(beyond[0])].as_py()[:_SHOWN_CHARACTERS]
        raise pa.ArrowInvalid(f"{text!r} is beyond the years of {dtype}")
    units[is_far] = exact.astype(np.int64)
    return _of_numbers(units, moved.is_null().to_numpy(zero_copy_only=False), dtype)


def _units_per_day(dtype: pa.DataType) -> int:
    if pt.is_date32(dtype):
        return 1
    return DAY_SECONDS * (1000 if pt.is_date64(dtype) else UNITS_PER_SECOND[dtype.unit])


def _is_of_nanoseconds(dtype: pa.DataType) -> bool:
    """Returns whether the type is limited to the years 1677 to 2262."""
    return bool(pt.is_timestamp(dtype) and dtype.unit == "ns")


def _integer(dtype: pa.DataType) -> pa.DataType:
    return pa.int32() if dtype.bit_width == 32 else pa.int64()


def _numbers(array: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the stored integers, 0 for null. Shape (rows,)."""
    numbers = pc.fill_null(array.view(_integer(array.type)), 0).to_numpy(zero_copy_only=False)
    return np.asarray(numbers, np.int64)


def _of_numbers(
    numbers: npt.NDArray[np.int64], is_null: npt.NDArray[np.bool_], dtype: pa.DataType
) -> pa.Array:
    return pa.array(numbers, mask=is_null).cast(_integer(dtype)).view(dtype)


def _year_texts(years: npt.NDArray[np.int64]) -> pa.Array:
    distinct, places = np.unique(years, return_inverse=True)
    texts = [_year_text(year) for year in distinct.tolist()]
    return pa.array(texts, pa.large_string()).take(pa.array(places))


def _year_text(year: int) -> str:
    if 0 <= year <= 9999:
        return f"{year:04d}"
    return f"{'-' if year < 0 else '+'}{abs(year):04d}"


def _nothing() -> pa.Scalar:
    return pa.scalar("", pa.large_string())
