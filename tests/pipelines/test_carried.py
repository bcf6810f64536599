"""Values that go through DuckDB come back bit by bit, and in our order."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from compactor.pipelines.carried import carried, carried_type, restored
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.keys.normalised import sort_keys, stable_order
from lsm_fragment.keys.sort_schema import SortColumn

NUMBERS = [3, -7, None, 0, 5, -1, 100]
LONG = [Decimal(10) ** 60, Decimal(-(10**60)), None, Decimal(0), Decimal(-1), Decimal(1)]
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.null(), [None, None]),
    (pa.bool_(), [True, None, False]),
    *((dtype, NUMBERS) for dtype in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    (pa.int64(), [2**63 - 1, -(2**63), None]),
    *((dtype, [3, None, 0, 100]) for dtype in (pa.uint8(), pa.uint16(), pa.uint32())),
    (pa.uint64(), [2**64 - 1, 0, None]),
    *((dtype, [1.5, -2.0, None, float("nan"), float("inf")]) for dtype in (pa.float32(), pa.float64())),
    (pa.float16(), [np.float16(1.5), np.float16(-2), None, np.float16("nan")]),
    *((dtype, ["b", "", None, "a", "\u00e9", "a\0"]) for dtype in (pa.string(), pa.large_string())),
    *((dtype, [b"b", b"", None, b"\xff\0"]) for dtype in (pa.binary(), pa.large_binary())),
    (pa.binary(2), [b"ab", None, b"\xff\0"]),
    (pa.date32(), NUMBERS), (pa.date64(), [None, 86_400_000, -86_400_000]),
    (pa.time32("s"), [5, None, 3]), (pa.time32("ms"), [5, None]), (pa.time64("us"), [7, None, 1]),
    (pa.time64("ns"), [86_399_999_999_999, None, 0]),
    *((pa.timestamp(unit, zone), [*NUMBERS, 2**62]) for unit in ("s", "ms", "us", "ns")
      for zone in (None, "UTC", "Europe/Berlin", "+05:30")),
    *((pa.duration(unit), [*NUMBERS, -(2**62)]) for unit in ("s", "ms", "us", "ns")),
    (pa.decimal32(5, 2), [Decimal("1.25"), Decimal("-3.50"), None]),
    (pa.decimal64(12, 1), [Decimal("1.5"), Decimal("-3.5"), None]),
    (pa.decimal128(38, 2), [Decimal(10) ** 35, Decimal(-(10**35)), None, Decimal("0.01")]),
    (pa.decimal128(10, -2), [Decimal(1200), None, Decimal(-100)]),
    (pa.decimal256(76, 0), LONG), (pa.decimal256(70, 3), LONG),
    (pa.dictionary(pa.int8(), pa.string()), ["b", "a", None, "b"]),
]  # fmt: skip


def arrays() -> list[pa.Array]:
    found = []
    for dtype, values in VALUES:
        if pa.types.is_temporal(dtype):
            width = pa.int32() if dtype.bit_width == 32 else pa.int64()
            found.append(pa.array(values, width).view(dtype))
        else:
            found.append(pa.array(values, dtype))
    return found


def shown(values: pa.Array) -> list[str]:
    if pa.types.is_temporal(values.type):
        values = values.view(carried_type(values.type))
    return [repr(value) for value in values.to_pylist()]


@pytest.mark.parametrize("array", arrays(), ids=lambda array: str(array.type))
def test_values_of_every_type_come_back_bit_by_bit_and_are_sorted_as_ours(array: pa.Array) -> None:
    padded = pa.concat_arrays([array, array, array]).slice(1, 2 * len(array))
    for values in (array, padded, array.slice(0, 0)):
        with duckdb.connect() as connection:
            connection.register("given", pa.table({"v": carried(values)}))
            same = connection.sql("SELECT v FROM given").to_arrow_table()
            order = connection.sql("SELECT v FROM given ORDER BY v NULLS LAST").to_arrow_table()
        found = [restored(t["v"].combine_chunks(), array.type) for t in (same, order)]
        key = [plain(to_storage(values))]
        places = stable_order(sort_keys(key, (SortColumn("v"),))).tolist() if len(values) else []
        assert [v.type for v in found] == [array.type] * 2
        assert shown(found[0]) == shown(values)
        assert shown(found[1]) == [shown(values)[place] for place in places]
