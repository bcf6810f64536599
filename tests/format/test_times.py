"""Dates and timestamps of every year as text, and back: held against a calendar that counts days itself."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import types as pt

from lsm_fragment.arrays.times import time_texts, times_of

TYPES = (
    pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"),
    pa.timestamp("us", "Europe/Vienna"), pa.timestamp("ns"),
)  # fmt: skip
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FIRST_DAY, END_DAY = -719_528, 2_932_897
"""The first day of the years 0000 and 10000."""


def per_day(dtype: pa.DataType) -> int:
    if pt.is_date32(dtype):
        return 1
    return 86_400 * (1000 if pt.is_date64(dtype) else PER_SECOND[dtype.unit])


def date_of(days: int) -> str:
    """A day since 1970 as ISO 8601, counted year by year within 400 years, and month by month."""
    cycle, rest = divmod(days - FIRST_DAY, 146_097)
    year = 0
    while rest >= (length := 366 if is_leap(year) else 365):
        rest, year = rest - length, year + 1
    month = 1
    for length in (31, 29 if is_leap(year) else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31):
        if rest < length:
            break
        rest, month = rest - length, month + 1
    year += 400 * cycle
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{rest + 1:02d}"


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def numbers(dtype: pa.DataType) -> list[int | None]:
    """The ends of the type and of the years 0000 to 9999, and numbers between."""
    rng, day = random.Random(str(dtype)), per_day(dtype)
    limit = 1 << dtype.bit_width - 1
    found = [-limit, limit - 1, 0, -1, 1]
    for border in (FIRST_DAY, FIRST_DAY + 366, END_DAY, END_DAY - 365):
        found += [border * day + step for step in (-day, -1, 0, 1, day)]
    for _ in range(100):
        found += [rng.randrange(-limit, limit), rng.randrange(FIRST_DAY, END_DAY) * day]
    if pt.is_date64(dtype):
        found = [number // day * day for number in found[2:]]
    return [None, *(number for number in found if -limit <= number < limit)]


def array_of(dtype: pa.DataType) -> pa.Array:
    bits = pa.int32() if dtype.bit_width == 32 else pa.int64()
    return pa.array(numbers(dtype), bits).view(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_year_is_written_as_the_calendar_has_it(dtype: pa.DataType) -> None:
    texts = time_texts(array_of(dtype)).to_pylist()
    for number, text in zip(numbers(dtype), texts, strict=True):
        if number is None:
            assert text is None
            continue
        days, rest = divmod(number, per_day(dtype))
        expected = date_of(days)
        if pt.is_timestamp(dtype):
            seconds, fraction = divmod(rest, PER_SECOND[dtype.unit])
            expected += f" {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
            digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[dtype.unit]
            expected += f".{fraction:0{digits}d}" if digits else ""
            expected += "Z" if dtype.tz else ""
        assert text == expected


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_what_is_written_is_read_again(dtype: pa.DataType) -> None:
    array = array_of(dtype)
    texts = time_texts(array)
    assert times_of(texts, dtype).equals(array)
    if pt.is_timestamp(dtype):
        assert times_of(pc.replace_substring(texts, " ", "T").cast(pa.string()), dtype) == array
    rows = pa.array([5, 0, 7])
    assert times_of(texts.take(rows), dtype).equals(array.take(rows))


@pytest.mark.parametrize(
    "text",
    [
        "-0000-01-01", "+0000-01-01", "+2020-01-01", "+09999-01-01", "-02020-01-01", "10000-01-01",
        "+10000-13-01", "+10000-02-30", "-1-01-01", "+10000", "+10001-02-29", "+999999999999-01-01",
        "+1e400-01-01",
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [pa.date32(), pa.timestamp("us"), pa.timestamp("s", "UTC")])
def test_a_year_in_any_other_form_is_none(text: str, dtype: pa.DataType) -> None:
    for texts in (pa.array([text]), pa.array(["2020-01-01", None, "+10000-01-01", text])):
        with pytest.raises(pa.ArrowInvalid):
            times_of(texts, dtype)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("+5881580-07-12", pa.date32()), ("-5877641-06-22", pa.date32()),
        ("+294247-01-10T04:00:54.775808", pa.timestamp("us")),
        ("-290308-12-21T19:59:05.224191", pa.timestamp("us")),
        ("+10000-01-01", pa.timestamp("ns")), ("1677-09-21T00:12:43.145224191", pa.timestamp("ns")),
    ],
)  # fmt: skip
def test_a_year_beyond_the_type_is_refused(text: str, dtype: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        times_of(pa.array([text]), dtype)
