"""Columns that conditions speak of: values of every type, and literals of the type and of others.

A literal is written twice, for us and for DuckDB, which is the oracle. Where our documented rules are not
DuckDB's, or DuckDB has no such type, the difference is translated here and in `condition_trees`:

- NaN fulfils no comparison. To DuckDB it equals itself and is greater than every number.
- A number is compared with a float after it was rounded to the column's type. DuckDB gets the value that
  comes of it, and a column of doubles.
- Numbers and times that DuckDB would round are compared as texts of equal length that sort like them: the
  exact values, spelled out by Python.
- A backslash takes its meaning from a `%` or `_` in LIKE without an ESCAPE clause; in DuckDB it does not.
- ILIKE goes by simple case folding, DuckDB's by lower case; see `condition_trees.DUCKDB_FOLDED`.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.types import is_binary_like, storage_type
from tests.generated.bits import values_of

EXACT: Final = decimal.Context(prec=1000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_DIGITS: Final = 100
"""Of a sortable text, before and behind the point."""
_TICKS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_CYCLE_SECONDS: Final = 146_097 * 86_400
"""Seconds after which the calendar repeats itself: 400 years."""
LONG: Final = "https://example.org/" + "a" * 60
"""More than a bound holds."""


class Literal(Struct, frozen=True):
    """A value as it stands in a condition."""

    ours: str
    native: str | None
    """As DuckDB compares it with a column of its own type; None where that would round."""
    sortable: str = ""
    """As it is compared with the column's sortable texts."""
    overflow: int = 0
    """-1 or 1 for a number that lies outside of all finite ones of a column of floats."""


class Column(Struct, frozen=True):
    """A column of a generated table."""

    name: str
    dtype: pa.DataType
    narrow: pa.DataType | None = None
    """The type in which the first writer has it, which becomes `dtype` with a later one."""
    shown: str | None = None
    """The name that it was given later."""

    @property
    def storage(self) -> pa.DataType:
        return storage_type(self.dtype)

    @property
    def is_float(self) -> bool:
        return bool(pt.is_floating(self.storage))

    @property
    def is_text(self) -> bool:
        return bool(pt.is_string(self.storage) or pt.is_large_string(self.storage))

    @property
    def is_comparable(self) -> bool:
        s = self.storage
        return not (pt.is_nested(s) or pt.is_duration(s) or pt.is_interval(s))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Types


def _dictionary(dtype: pa.DataType) -> pa.DataType:
    return pa.dictionary(pa.int32(), dtype)


INTEGERS: Final = tuple(
    getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)
)
FLOATS: Final = (pa.float16(), pa.float32(), pa.float64())
DECIMALS: Final = (
    pa.decimal32(9, 2), pa.decimal32(5, 0), pa.decimal64(18, 4), pa.decimal128(9, 2), pa.decimal128(18, 2),
    pa.decimal128(38, 10), pa.decimal128(38, 0), pa.decimal128(10, -2), pa.decimal128(30, 30),
    pa.decimal256(76, 20), pa.decimal256(50, 0), pa.decimal32(5, 11), pa.decimal128(5, 39),
)  # fmt: skip
TEXTS: Final = (pa.string(), pa.large_string(), pa.string_view(), _dictionary(pa.string()))
BINARIES: Final = (
    pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4), pa.binary(70), _dictionary(pa.binary()),
)  # fmt: skip
TIMES: Final = (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
DATES: Final = (pa.date32(), pa.date64())
TIMESTAMPS: Final = tuple(
    pa.timestamp(unit, zone)
    for unit in _TICKS
    for zone in (None, "UTC", "America/New_York", "+05:30")
)
OTHERS: Final = (
    pa.bool_(), pa.bool_(), pa.null(), pa.duration("ms"), pa.month_day_nano_interval(), pa.list_(pa.int8()),
    pa.struct({"x": pa.int8()}), pa.uuid(),
)  # fmt: skip
CODED: Final = tuple(
    map(_dictionary, (pa.int64(), pa.float64(), pa.decimal128(18, 2), pa.timestamp("ms"), pa.date32()))
)  # fmt: skip
FAMILIES: Final[Sequence[Sequence[pa.DataType]]] = (
    INTEGERS, FLOATS, DECIMALS, TEXTS, TEXTS, BINARIES, TIMES, DATES, TIMESTAMPS, OTHERS, CODED,
)  # fmt: skip
NAMES: Final = ("a", "A", "two words", 'quo"ted', "x.y", "select", "ä", "null", "b", "c", "_")
_NARROWER: Final[dict[pa.DataType, tuple[pa.DataType, ...]]] = {
    pa.int64(): (pa.int8(), pa.uint32(), pa.int32()),
    pa.uint64(): (pa.uint8(),),
    pa.int16(): (pa.uint8(), pa.int8()),
    pa.float64(): (pa.float32(), pa.float16(), pa.int32(), pa.uint8()),
    pa.float32(): (pa.int8(), pa.float16()),
    pa.decimal128(18, 2): (pa.decimal128(9, 2), pa.decimal32(9, 2)),
    pa.decimal128(38, 10): (pa.decimal128(12, 10),),
    pa.large_string(): (pa.string(),),
    pa.large_binary(): (pa.binary(),),
    pa.timestamp("us"): (pa.timestamp("ms"), pa.timestamp("s")),
    pa.timestamp("ms", "UTC"): (pa.timestamp("s", "UTC"),),
    pa.string(): (pa.int64(), pa.bool_(), pa.date32(), pa.decimal128(9, 2), pa.timestamp("ms")),
}


def some_columns(rng: Random) -> list[Column]:
    """A few columns of types of all families."""
    names = rng.sample(NAMES, rng.randint(3, 6))
    columns = []
    for name in names:
        dtype = rng.choice(rng.choice(FAMILIES))
        narrower = _NARROWER.get(dtype, ())
        narrow = rng.choice(narrower) if narrower and rng.random() < 0.4 else None
        columns.append(Column(name, dtype, narrow))
    return columns


# Values


def pool(rng: Random, dtype: pa.DataType, size: int = 8) -> list[Any]:
    """Some Python values of a type, few enough that they repeat; integers for what has ticks."""
    everything = _all_values(rng, storage_type(dtype))
    return rng.sample(everything, min(size, len(everything)))


def _all_values(rng: Random, dtype: pa.DataType) -> list[Any]:
    if pt.is_integer(dtype):
        low, high = integer_range(dtype)
        near = [0, 1, 2, 5, 100, 127, 128, 255, 1 << 24, (1 << 24) + 1, (1 << 53) + 1, 1 << 53]
        near += [low, low + 1, high, high - 1, *(-n for n in near), rng.randint(low, high)]
        return [n for n in dict.fromkeys(near) if low <= n <= high]
    if pt.is_floating(dtype):
        return [*_FLOAT_VALUES, rng.uniform(-9, 9)]
    if pt.is_decimal(dtype):
        return _decimals(rng, dtype)
    if pt.is_boolean(dtype):
        return [True, False]
    if pt.is_string(dtype) or pt.is_large_string(dtype):
        return _texts(rng)
    if pt.is_fixed_size_binary(dtype):
        return _fixed(rng, dtype.byte_width)
    if pt.is_binary(dtype) or pt.is_large_binary(dtype):
        raw = [
            b"\xff" * 70,
            b"\xff" * 64,
            b"\xff" * 63 + b"\xfe",
            b"\x00",
            b"\x80abc",
            bytes([255]),
        ]
        return [text.encode() for text in _texts(rng)] + raw
    if pt.is_date(dtype):
        return [datetime.date.fromisoformat(text) for text in _DATE_VALUES]
    if pt.is_time(dtype):
        per_second = _TICKS[dtype.unit]
        day = 86_400 * per_second
        fixed = [0, 1, 59, 3600 * per_second, day // 2, day - 1, per_second, per_second - 1]
        return list(dict.fromkeys([*fixed, rng.randrange(day)]))
    if pt.is_timestamp(dtype):
        return _moments(rng, dtype.unit)
    return [0, 1, 2]


_FLOAT_VALUES: Final = (
    math.nan, 0.0, -0.0, math.inf, -math.inf, 0.1, 1.0, 1.5, -2.25, 2.0, 65504.0, 1e10, 3.4028234663852886e38,
    16777216.0, 5e-324, 1e-8, 1.7976931348623157e308, -1.0, 9007199254740992.0,
)  # fmt: skip
_DATE_VALUES: Final = (
    "1970-01-01", "1969-12-31", "2026-11-22", "2026-11-23", "0001-01-01", "9999-12-31", "1582-10-10",
    "2000-02-29", "2262-04-12",
)  # fmt: skip


def integer_range(dtype: pa.DataType) -> tuple[int, int]:
    bits = dtype.bit_width
    if pt.is_signed_integer(dtype):
        return -(1 << bits - 1), (1 << bits - 1) - 1
    return 0, (1 << bits) - 1


def _decimals(rng: Random, dtype: pa.DataType) -> list[Decimal]:
    most = 10**dtype.precision - 1
    one = 10**dtype.scale if 0 <= dtype.scale < dtype.precision else 1
    units = [0, 1, -1, one, -one, 100 * one, 2 * one + 1, most, -most, most - 1, one // 2]
    units += [rng.randint(-most, most), rng.randint(-9 * one, 9 * one)]
    fits = [n for n in dict.fromkeys(units) if abs(n) <= most]
    return [Decimal(n).scaleb(-dtype.scale, EXACT) for n in fits]


_PIECES: Final = (
    *("\\", "\\\\", "%", "_", "%%", "'", "\n", "\t", "\r", " ", "\\E", "\\Q", "ab"),
    *'abABkKsSäÄßé.*([^$|+"?{𝄞',
    *"\u03c3\u03c2\u03a3\u212a\u017f\u0130\u0131\ud7ff\ue000\U0010ffff",
)
"""Letters of several cases that are one, and what means something in patterns, among others."""


def some_text(rng: Random, most: int = 5) -> str:
    return "".join(rng.choice(_PIECES) for _ in range(rng.randint(0, most)))


def _texts(rng: Random) -> list[str]:
    long = rng.choice([LONG, "x" * 63 + "ä", "ä" * 33, "\U0010ffff" * 17, "\\" * 65, "%" * 64])
    longs = [long, long[:-1], long + "b", long + "a", long + "a%", long + "\\", long[:63]]
    return list(dict.fromkeys(["", "a", "ab", *longs, *(some_text(rng) for _ in range(12))]))


def _fixed(rng: Random, width: int) -> list[bytes]:
    values = [b"\xff" * width, b"\x00" * width, b"a" * width, b"\\" * width]
    values += [b"a" * (width - 1) + bytes([n]) for n in (0, 98, 255, 92)]
    values.append(bytes(rng.randrange(256) for _ in range(width)))
    return values


def _moments(rng: Random, unit: str) -> list[int]:
    per_second = _TICKS[unit]
    day = 86_400 * per_second
    at = 20_779 * day
    values = [
        0,
        1,
        -1,
        at,
        at + 1,
        at - 1,
        at + per_second,
        at + day,
        -day,
        at + rng.randrange(day),
    ]
    if unit != "ns":  # which end in the year 2262
        ends = (
            253_402_300_799,
            253_402_300_800,
            -62_135_596_800,
            -62_167_219_201,
            10**12,
            -(10**12),
        )
        values += [end * per_second for end in ends]
    return values


def array_of(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    """Values of `pool`, and None, as an array of the type."""
    storage = storage_type(dtype)
    if pt.is_null(storage):
        return pa.nulls(len(values))
    if pt.is_time(storage) or pt.is_timestamp(storage):
        width = pa.int32() if pt.is_time32(storage) else pa.int64()
        made = pa.array(values, width).cast(storage)
    elif pt.is_float16(storage):
        with np.errstate(over="ignore"):
            made = pa.array([None if v is None else np.float16(v) for v in values], storage)
    elif pt.is_floating(storage):
        made = pa.array(values, pa.float64()).cast(storage)
    elif pt.is_decimal(storage):
        made = _decimal_array(values, storage)
    elif pt.is_struct(storage):
        made = pa.array([None if v is None else {"x": v} for v in values], storage)
    elif pt.is_list(storage):
        made = pa.array([None if v is None else [v] for v in values], storage)
    elif pt.is_interval(storage):
        made = pa.array([None if v is None else (v, 0, 0) for v in values], storage)
    else:
        made = pa.array(values, storage)
    if pt.is_dictionary(dtype):
        return made.dictionary_encode()
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, made)
    return made.cast(dtype)


def _decimal_array(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    if 0 <= dtype.scale <= dtype.precision:
        return pa.array(values, dtype)
    # PyArrow makes no decimals of odd scales of Python's: the bytes of their units are laid out here.
    units = [0 if v is None else int(v.scaleb(dtype.scale, EXACT)) for v in values]
    data = b"".join(n.to_bytes(dtype.byte_width, "little", signed=True) for n in units)
    valid = pa.array([v is not None for v in values]).buffers()[1]
    return pa.Array.from_buffers(dtype, len(values), [valid, pa.py_buffer(data)])


def values_in(array: pa.Array) -> list[Any]:
    """The distinct values of a storage array as `pool` has them, without null."""
    array = plain(array).drop_null()
    if pt.is_nested(array.type) or pt.is_interval(array.type):
        return []
    if pt.is_time(array.type) or pt.is_timestamp(array.type):
        array = array.cast(pa.int32() if pt.is_time32(array.type) else pa.int64())
    values = values_of(array) if pt.is_decimal(array.type) else array.to_pylist()
    if pt.is_floating(array.type):
        values = list(map(float, values))
    return list(dict.fromkeys(values))


# For DuckDB


def for_duckdb(array: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """A storage array as a type that DuckDB has, and as sortable texts where that is possible.

    Of what DuckDB has no type for it gets ones and nulls.
    """
    array = plain(array)
    dtype = array.type
    if pt.is_floating(dtype):
        doubles = [None if v is None else float(v) for v in array.to_pylist()]
        return pa.array(doubles, pa.float64()), None
    if pt.is_decimal(dtype):
        exact = _sortable_array(values_of(array))
        if not 0 <= dtype.scale <= dtype.precision or dtype.bit_width > 128:
            return _ones(array), exact
        return array.cast(pa.decimal128(dtype.precision, dtype.scale)), exact
    if pt.is_integer(dtype):
        return array, _sortable_array(
            [None if v is None else Decimal(v) for v in array.to_pylist()]
        )
    if pt.is_time(dtype) or pt.is_timestamp(dtype):
        ticks = array.cast(pa.int32() if pt.is_time32(dtype) else pa.int64()).to_pylist()
        seconds = [None if n is None else Decimal(n) / _TICKS[dtype.unit] for n in ticks]
        of_us = pa.time64("us") if pt.is_time(dtype) else pa.timestamp("us", dtype.tz and "UTC")
        native = _ones(array) if dtype.unit == "ns" else array.cast(of_us)
        return native, _sortable_array(seconds)
    if pt.is_fixed_size_binary(dtype):
        return array.cast(pa.binary()), None
    if pt.is_date(dtype):
        return array.cast(pa.date32()), None
    is_known = pt.is_boolean(dtype) or is_binary_like(dtype)
    return (array if is_known else _ones(array)), None


def _ones(array: pa.Array) -> pa.Array:
    return pa.array([1 if valid else None for valid in array.is_valid().to_pylist()], pa.int8())


def _sortable_array(values: Sequence[Decimal | None]) -> pa.Array:
    return pa.array([None if v is None else sortable(v) for v in values], pa.string())


def sortable(number: Decimal) -> str:
    """A text of a fixed length; such texts sort as the numbers do."""
    ceiling = Decimal(10).scaleb(_DIGITS - 2, EXACT)
    least = Decimal(1).scaleb(-_DIGITS, EXACT)
    if number.copy_abs() > ceiling:  # greater than all values; how much greater says nothing
        number = ceiling.copy_sign(number)
    elif number and number.copy_abs() < least:
        number = least.copy_sign(number)
    units = int(number.scaleb(_DIGITS, EXACT)) + 10 ** (2 * _DIGITS)
    return str(units).zfill(2 * _DIGITS + 1)


# Literals


def literal(rng: Random, column: Column, values: Sequence[Any]) -> Literal:
    """A value to compare the column with: one of its own, or near one, or of another size, scale or unit."""
    dtype = column.storage
    of_table = [value for value in values if value is not None]
    value = rng.choice(of_table) if of_table and rng.random() < 0.75 else None
    for is_of, make in _MAKERS:
        if is_of(dtype):
            return make(rng, dtype, value)
    raise AssertionError(dtype)


def _number(rng: Random, dtype: pa.DataType, value: Any) -> Literal:
    number = _near(rng, Decimal(value) if value is not None else None)
    digits = number.as_tuple()
    is_easy = len(digits.digits) <= 15 and abs(int(digits.exponent)) <= 15
    if pt.is_decimal(dtype):
        is_easy &= 0 <= dtype.scale <= dtype.precision <= 18
    return Literal(
        _spelled(rng, number), format(number, "f") if is_easy else None, quoted(sortable(number))
    )


_FLOAT_TYPES: Final[dict[int, type[np.floating[Any]]]] = {
    16: np.float16,
    32: np.float32,
    64: np.float64,
}


def _float(rng: Random, dtype: pa.DataType, value: Any) -> Literal:
    is_finite = value is not None and math.isfinite(value)
    number = _near(rng, Decimal(repr(value)) if is_finite else None)
    rounded = float(number)
    with np.errstate(over="ignore"):
        rounded = float(_FLOAT_TYPES[dtype.bit_width](rounded))
    ours = _spelled(rng, number)
    if math.isinf(rounded):
        return Literal(ours, "", overflow=1 if rounded > 0 else -1)
    return Literal(ours, f"CAST('{rounded!r}' AS DOUBLE)")


def _near(rng: Random, value: Decimal | None) -> Decimal:
    if value is None:
        return Decimal(rng.choice(_NUMBERS))
    if rng.random() < 0.6:
        return value
    step = Decimal(rng.choice(["1", "0.5", "0.001", "1e-12", "1e-32", "100"]))
    return EXACT.add(value, step.copy_sign(Decimal(rng.choice([1, -1]))))


_NUMBERS: Final = (
    "0", "-0", "1", "-1", "100", "1.00", "1.005", "0.1", "2.5", "-200", "300", "1e3", "1e19", "-1e19", "1e39",
    "9007199254740993", "18446744073709551616", "9223372036854775808", "1e90", "-1e90", "1e400", "-1e400",
    "1e-400", "12345678901234567890123456789012345678", "1.0000000000000000000000000000000000001",
    "1e999999999", "-1e999999999", "1e-999999999", "65520", "65519.9", "16777217", "0.30",
)  # fmt: skip


def _spelled(rng: Random, number: Decimal) -> str:
    """A number in one of the ways of SQL."""
    exponent = int(number.as_tuple().exponent)
    ways = [str(number).replace("E", rng.choice("eE"))]
    if abs(exponent) < 200:
        plain_text = format(number, "f")
        ways += [plain_text, plain_text + (".0" if "." not in plain_text else "00")]
        if plain_text.startswith("0."):
            ways.append(plain_text[1:])
    text = rng.choice(ways)
    if text.startswith("-"):
        return rng.choice([text, text, f"- {text[1:]}", f"-({text[1:]})", f"({text})"])
    return rng.choice([text, text, text, f"({text})"])


def _flag(rng: Random, dtype: pa.DataType, value: Any) -> Literal:
    text = rng.choice(["true", "false"])
    return Literal(rng.choice([text, text.upper()]), text)


def _text(rng: Random, dtype: pa.DataType, value: Any) -> Literal:
    text = some_text(rng) if value is None else value
    if value is not None and rng.random() < 0.3:
        text = rng.choice([text[:-1], text + "a", text + "\\", text[:64], text + "\U0010ffff"])
    return Literal(quoted(text), quoted(text))


def _bytes(rng: Random, dtype: pa.DataType, value: Any) -> Literal:
    data = some_text(rng).encode() if value is None else value
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = LONG
    if pt.is_fixed_size_binary(dtype):  # texts of another length are refused
        if len(text.encode()) != dtype.byte_width or "\0" in text:
            text = rng.choice("ab\\_z") * dtype.byte_width
    elif value is not None and rng.random() < 0.3:
        text = rng.choice([text[:-1], text + "a", text + "\\"])
    text = text.replace("\0", "0")
    spelled = "".join(f"\\x{byte:02X}" for byte in text.encode())
    return Literal(quoted(text), f"'{spelled}'::BLOB")


def _date(rng: Random, dtype: pa.DataType, value: Any) -> Literal:
    text = rng.choice(_DATE_VALUES) if value is None else value.isoformat()
    ours = f"DATE {quoted(text)}" if rng.random() < 0.3 else quoted(text)
    return Literal(ours, f"DATE {quoted(text)}")


def _time(rng: Random, dtype: pa.DataType, value: Any) -> Literal:
    seconds = (
        Decimal(value) / _TICKS[dtype.unit] if value is not None else Decimal(rng.randrange(86_400))
    )
    if rng.random() < 0.3:
        seconds = min(seconds + Decimal(rng.choice(_FRACTIONS)), Decimal("86399.999999999"))
    text = _clock(rng, seconds)
    is_easy = dtype.unit != "ns" and seconds == round(seconds, 6)
    ours = f"TIME {quoted(text)}" if rng.random() < 0.3 else quoted(text)
    return Literal(ours, f"TIME {quoted(text)}" if is_easy else None, quoted(sortable(seconds)))


_FRACTIONS: Final = ("0.5", "0.001", "0.0001", "0.000001", "0.0000005", "0.000000001")


def _clock(rng: Random, seconds: Decimal) -> str:
    whole = int(seconds)
    text = f"{whole // 3600:02}:{whole // 60 % 60:02}"
    if not whole % 60 and seconds == whole and rng.random() < 0.3:
        return text
    fraction = format(seconds - whole, ".9f")[2:].rstrip("0")
    return f"{text}:{whole % 60:02}" + (f".{fraction}" if fraction else "")


def _moment(rng: Random, dtype: pa.DataType, value: Any) -> Literal:
    if value is None:
        second = rng.choice([0, 1_795_305_600, 1_795_219_200, -1, 951_782_400, 32_503_680_000])
        seconds = Decimal(second)
    else:
        seconds = EXACT.divide(Decimal(value), Decimal(_TICKS[dtype.unit]))
    if rng.random() < 0.3:
        more = Decimal(rng.choice([*_FRACTIONS, "1", "60"])) * rng.choice([1, 1, -1])
        seconds += more
    whole = int(seconds.to_integral_value(decimal.ROUND_FLOOR))
    zone = ""
    cycles = 0 if 0 <= whole + 62_135_596_800 < 315_537_897_600 else whole // _CYCLE_SECONDS
    shown = _EPOCH + datetime.timedelta(seconds=whole - cycles * _CYCLE_SECONDS)
    if dtype.tz is not None and rng.random() < 0.4:
        zone, minutes = rng.choice([("Z", 0), ("+00:00", 0), ("-08:00", -480), ("+05:30", 330)])
        if datetime.timedelta(days=1) < shown - datetime.datetime.min and shown.year < 9999:
            shown += datetime.timedelta(minutes=minutes)
        else:
            zone = ""
    clock = _clock(rng, shown.hour * 3600 + shown.minute * 60 + shown.second + seconds - whole)
    year = shown.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    day = f"{sign}{abs(year):04}-{shown.month:02}-{shown.day:02}"
    text = f"{day}{rng.choice(' T')}{clock}{zone}"
    if clock in ("00:00", "00:00:00") and not zone and rng.random() < 0.5:
        text = day
    # TIMESTAMP ignores an offset.
    named = f"TIMESTAMP{'TZ' if zone else ''} {quoted(text)}"
    ours = named if rng.random() < 0.2 else quoted(text)
    is_easy = dtype.unit != "ns" and seconds == round(seconds, 6) and not cycles
    kind = "TIMESTAMP" if dtype.tz is None else "TIMESTAMPTZ"
    return Literal(ours, f"{kind} {quoted(text)}" if is_easy else None, quoted(sortable(seconds)))


def _anything(rng: Random, dtype: pa.DataType, value: Any) -> Literal:
    return Literal("1", "1")


_MAKERS: Final[Sequence[tuple[Callable[[pa.DataType], bool], Callable[..., Literal]]]] = (
    (pt.is_integer, _number),
    (pt.is_decimal, _number),
    (pt.is_floating, _float),
    (pt.is_boolean, _flag),
    (lambda t: pt.is_string(t) or pt.is_large_string(t), _text),
    (lambda t: pt.is_binary(t) or pt.is_large_binary(t) or pt.is_fixed_size_binary(t), _bytes),
    (pt.is_date, _date),
    (pt.is_time, _time),
    (pt.is_timestamp, _moment),
    (pt.is_null, _anything),
)
