"""What docs/reference/files.md says of texts, in plain Python: the type and the values of a column."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Context, Decimal

import pyarrow as pa

INT64 = range(-(2**63), 2**63)
UINT64 = range(2**64)
_BLANKS = " \t\r\n\v\f"
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_WITH_LEADING_ZERO = re.compile(r"[-+]?0[0-9].*")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_YEAR = "[0-9]{4}|[+][1-9][0-9]{4,11}|-[1-9][0-9]{4,11}|-(?!0000)[0-9]{4}"
_DATE = re.compile(f"({_YEAR})-([0-9]{{2}})-([0-9]{{2}})")
_CYCLE_DAYS = 146_097
"""Days after which the calendar repeats itself: 400 years."""
_TIME = re.compile(
    r"([-+]?[0-9]+-..-..)"
    r"([T ]([0-9]{2})(:([0-9]{2})(:([0-9]{2})(\.([0-9]{1,9}))?)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?"
)
_EPOCH = datetime(1970, 1, 1)


class NoValueError(ValueError):
    """A text is no value of a type."""


def integer(text: str, values: range) -> int:
    has_sign = text.startswith("-") and values.start == 0  # an unsigned integer has none
    if not _INTEGER.fullmatch(text) or int(text) not in values or has_sign:
        raise NoValueError(text)
    return int(text)


def double(text: str) -> float:
    """As a double in a column of such."""
    if text.lstrip("+-").lower() in ("nan", "inf", "infinity") and not text[1:].startswith(
        ("+", "-")
    ):
        return float(text)
    if not _NUMBER.fullmatch(text) or _WITH_LEADING_ZERO.fullmatch(text):
        raise NoValueError(text)
    if text.startswith("+") and text[1:].isdigit():
        raise NoValueError(text)
    exact, value = Decimal(text), float(text)
    if abs(value) == float("inf") or (value == 0) != (exact == 0):
        raise NoValueError(text)
    if "e" not in text.lower() and exact == exact.to_integral_value():
        is_held = int(exact) in INT64 and exact == Decimal(value)
    else:
        digits = len(exact.normalize(Context(prec=1_000)).as_tuple().digits)
        is_held = digits <= 17 or Context(prec=digits).create_decimal(Decimal(value)) == exact
    if not is_held:
        raise NoValueError(text)
    return value


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise NoValueError(text)
    return text.lower() == "true"


def day(text: str) -> int:
    """As days since 1970."""
    found = _DATE.fullmatch(text)
    if not found:
        raise NoValueError(text)
    cycles, year = divmod(int(found[1]), 400)
    try:
        near = date(400 + year, int(found[2]), int(found[3]))
    except ValueError:
        raise NoValueError(text) from None
    return (near - _EPOCH.date()).days + (cycles - 1) * _CYCLE_DAYS


def date32(text: str) -> int:
    """As days since 1970 in 32 bits."""
    if not -(2**31) <= day(text) < 2**31:
        raise NoValueError(text)
    return day(text)


def moment(text: str, *, zoned: bool, digits: int) -> int:
    """Returns the time since 1970, counted in units of 10**-digits seconds."""
    found = _TIME.fullmatch(text)
    if not found or (found[10] is not None) != zoned or len(found[9] or "") > digits:
        raise NoValueError(text)
    seconds = day(found[1]) * 86_400
    if found[2]:
        hour, minute, second = (int(found[n] or 0) for n in (3, 5, 7))
        if hour > 23 or minute > 59 or second > 59:
            raise NoValueError(text)
        seconds += hour * 3_600 + minute * 60 + second
    if zoned and found[10] != "Z":
        zone = found[10].replace(":", "").ljust(5, "0")
        offset = int(zone[1:3]) * 60 + int(zone[3:5])
        seconds -= (-60 if zone[0] == "-" else 60) * offset
    units: int = seconds * 10**digits + int((found[9] or "").ljust(digits, "0"))
    if units not in INT64:
        raise NoValueError(text)
    return units


TIMES: Sequence[tuple[pa.DataType, Callable[[str], object]]] = (
    (pa.date32(), date32),
    (pa.timestamp("us"), lambda text: moment(text, zoned=False, digits=6)),
    (pa.timestamp("us", "UTC"), lambda text: moment(text, zoned=True, digits=6)),
    (pa.timestamp("ns"), lambda text: moment(text, zoned=False, digits=9)),
    (pa.timestamp("ns", "UTC"), lambda text: moment(text, zoned=True, digits=9)),
)
SCALARS: Sequence[tuple[pa.DataType, Callable[[str], object]]] = (
    (pa.int64(), lambda text: integer(text, INT64)),
    (pa.uint64(), lambda text: integer(text, UINT64)),
    (pa.float64(), double),
    (pa.bool_(), boolean),
    *TIMES,
)


def of_cells(cells: Sequence[str | None]) -> tuple[pa.DataType, list[object]]:
    """The type and values of a column of CSV that no table has."""
    return _first(SCALARS, cells, lambda text: text.strip(_BLANKS))


def of_strings(texts: Sequence[str | None]) -> tuple[pa.DataType, list[object]]:
    """The type and values of a field of JSON strings."""
    return _first(TIMES, texts, lambda text: text)


def first_unreadable(cells: Sequence[str | None], dtype: pa.DataType) -> int | None:
    """The first cell that is no value of a table's type."""
    read = dict(SCALARS).get(dtype)
    for place, cell in enumerate(cells):
        try:
            if cell is not None and read is not None:
                read(cell.strip(_BLANKS))
        except NoValueError:
            return place
    return None


def read_as(cells: Sequence[str | None], dtype: pa.DataType) -> list[object]:
    read = dict(SCALARS).get(dtype)
    if read is None:
        return list(cells)
    return [None if cell is None else read(cell.strip(_BLANKS)) for cell in cells]


def of_numbers(texts: Sequence[str | None]) -> tuple[pa.DataType, list[object]]:
    """The type and values of a field of JSON numbers. Raises `NoValueError` if there is no such type."""
    there = [text for text in texts if text is not None]
    whole = [int(text) for text in there if _INTEGER.fullmatch(text)]
    if len(whole) == len(there):
        for dtype, values in ((pa.int64(), INT64), (pa.uint64(), UINT64)):
            if all(number in values for number in whole):
                return dtype, [None if text is None else int(text) for text in texts]
    return pa.float64(), [None if text is None else double(text) for text in texts]


def _first(
    readers: Sequence[tuple[pa.DataType, Callable[[str], object]]],
    texts: Sequence[str | None],
    bare: Callable[[str], str],
) -> tuple[pa.DataType, list[object]]:
    if all(text is None for text in texts):
        return pa.null(), list(texts)
    for dtype, read in readers:
        try:
            return dtype, [None if text is None else read(bare(text)) for text in texts]
        except NoValueError:
            continue
    return pa.string(), list(texts)
