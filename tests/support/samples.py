"""A column of every Arrow type the format holds, with nulls, extremes and empties."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from typing import Any

import pyarrow as pa

D = decimal.Decimal
_UTC = dt.UTC
_LONG = "ä" * 37_500  # 75 KB as UTF-8

_INTS = {
    f"{sign}int{bits}": (low, high)
    for bits in (8, 16, 32, 64)
    for sign, low, high in (("", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1), ("u", 0, 2**bits - 1))
}

SAMPLES: dict[str, tuple[pa.DataType, list[Any]]] = {
    **{
        name: (getattr(pa, name)(), [low, None, high, 0, 1, high, low])
        for name, (low, high) in _INTS.items()
    },
    "bool": (pa.bool_(), [True, None, False, True]),
    "float16": (pa.float16(), [1.5, None, -0.0, math.inf, -math.inf]),
    "float32": (pa.float32(), [1.5, None, -0.0, math.inf, 3.4e38]),
    "float64": (pa.float64(), [1.5, None, -0.0, -math.inf, 5e-324, 1.7e308]),
    "decimal32": (pa.decimal32(7, 2), [D("-99999.99"), None, D("0.01"), D("99999.99")]),
    "decimal64": (pa.decimal64(18, 3), [D("-1.001"), None, D("999999999999999.999")]),
    "decimal128": (pa.decimal128(38, 0), [D(10) ** 37, None, -(D(10) ** 37), D(1), D(0)]),
    "decimal128_small": (pa.decimal128(20, 4), [D("1.0001"), None, D("-2.5"), D(0)]),
    "decimal256": (pa.decimal256(76, 5), [D("1E+60"), None, D("-1E+60"), D("0.00001")]),
    "string": (pa.string(), ["", None, "a", "ß", "日本", "a" * 300, "a", "a"]),
    "large_string": (pa.large_string(), ["", None, "x" * 1000, "y"]),
    "string_view": (pa.string_view(), ["short", None, "longer than twelve bytes", ""]),
    "long_strings": (pa.string(), [_LONG, None, _LONG[:-1], "tiny"]),
    "binary": (pa.binary(), [b"", None, b"\x00\xff", b"a" * 100]),
    "large_binary": (pa.large_binary(), [b"", None, b"\x00"]),
    "binary_view": (pa.binary_view(), [b"", None, b"\xff" * 20]),
    "fixed_size_binary": (pa.binary(5), [b"abcde", None, b"\x00" * 5, b"\xff" * 5]),
    "date32": (pa.date32(), [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "date64": (pa.date64(), [dt.date(1970, 1, 1), None, dt.date(2038, 1, 19)]),
    "time32": (pa.time32("ms"), [dt.time(0), None, dt.time(23, 59, 59, 999000)]),
    "time64": (pa.time64("us"), [dt.time(0), None, dt.time(23, 59, 59, 999999)]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1900, 1, 1), None, dt.datetime(2262, 1, 1)]),
    "timestamp_zone": (
        pa.timestamp("ms", "Europe/Vienna"),
        [dt.datetime(2024, 3, 31, 1, tzinfo=_UTC), None, dt.datetime(1970, 1, 1, tzinfo=_UTC)],
    ),
    "duration": (pa.duration("us"), [dt.timedelta(0), None, dt.timedelta(days=-3, microseconds=7)]),
    "interval": (
        pa.month_day_nano_interval(),
        [pa.MonthDayNano([1, -2, 3]), None, pa.MonthDayNano([0, 0, 0])],
    ),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["x", None, "y", "x", "x"]),
    "dictionary_ints": (pa.dictionary(pa.uint16(), pa.int64()), [2**40, None, -1, -1]),
    "list": (pa.list_(pa.int32()), [[1, None, 3], None, [], [4]]),
    "large_list": (pa.large_list(pa.string()), [["a", None], None, [], ["bc"]]),
    "list_view": (pa.list_view(pa.int16()), [[1], None, [], [2, 3]]),
    "large_list_view": (pa.large_list_view(pa.string_view()), [["q"], None, []]),
    "fixed_size_list": (pa.list_(pa.float32(), 2), [[1.0, 2.0], None, [None, 4.0]]),
    "struct": (
        pa.struct([("a", pa.int8()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 2, "b": ""}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("l", None)], None, []]),
    "nested": (
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.decimal128(5, 1))))])),
        [[{"m": [("k", [D("1.5"), None])]}, None], None, [], [{"m": None}]],
    ),
    "null": (pa.null(), [None, None, None]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1), None, uuid.UUID(int=2**128 - 1)]),
}


def sample_array(name: str, repeat: int = 1) -> pa.Array:
    """Returns the sample column, its values `repeat` times over."""
    dtype, values = SAMPLES[name]
    if isinstance(dtype, pa.BaseExtensionType):
        storage = [None if value is None else value.bytes for value in values * repeat]
        return pa.ExtensionArray.from_storage(dtype, pa.array(storage, dtype.storage_type))
    return pa.array(values * repeat, dtype)
