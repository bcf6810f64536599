"""Hypothesis strategies: sort schemas, tables, awkward sizes."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn, SortSchema

AWKWARD_SIZES = (1, 2, 7, 49, 50, 51, 100)

# Small domains, so that keys collide often.
_KEY_TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])),
    (pa.int8(), st.integers(-2, 2)),
    (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    (pa.float64(), st.sampled_from([-0.0, 0.0, 1.5, float("nan"), float("inf"), -float("inf")])),
    (pa.float32(), st.sampled_from([-1.5, 0.0, 2.25, float("nan")])),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.sampled_from(["", "a", "ab", "b", "ä", "\U0010ffff", "a" * 70, "a" * 71])),
    (pa.large_string(), st.text(max_size=2)),
    (pa.string_view(), st.sampled_from(["x", "y", "a long string that is not inlined"])),
    (pa.binary(), st.sampled_from([b"", b"\x00", b"\x00\x00", b"\xff", b"\xff" * 80])),
    (pa.binary(2), st.sampled_from([b"ab", b"ba", b"\x00\x00"])),
    (pa.date32(), st.dates(dt.date(1969, 12, 30), dt.date(1970, 1, 3))),
    (
        pa.timestamp("us", "UTC"),
        st.sampled_from([dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]),
    ),
    (
        pa.decimal128(30, 2),
        st.sampled_from([decimal.Decimal("-1E+20"), decimal.Decimal("0.01"), decimal.Decimal("1E+20")]),
    ),
    (pa.decimal64(10, 1), st.sampled_from([decimal.Decimal("-0.1"), decimal.Decimal("7.5")])),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["p", "q", "r"])),
    (pa.null(), st.none()),
]  # fmt: skip


@st.composite
def key_columns(draw: st.DrawFn) -> tuple[list[tuple[pa.DataType, Any]], SortSchema]:
    """One to three typed key columns, with a sort schema over k0, k1, ..."""
    kinds = draw(st.lists(st.sampled_from(_KEY_TYPES), min_size=1, max_size=3))
    ordering = draw(st.integers(1, len(kinds)))
    sort = tuple(
        SortColumn(
            f"k{i}",
            draw(st.sampled_from([Order.ASC, Order.DESC])) if i < ordering else Order.NONE,
            draw(st.sampled_from(Nulls)),
        )
        for i in range(len(kinds))
    )
    return kinds, sort


@st.composite
def keyed_tables(
    draw: st.DrawFn, *, max_tables: int, max_rows: int
) -> tuple[list[pa.Table], SortSchema]:
    """Unsorted tables of one schema: key columns and a payload that tells every row apart."""
    kinds, sort = draw(key_columns())
    tables = []
    identity = 0
    for _ in range(draw(st.integers(1, max_tables))):
        rows = draw(st.integers(0, max_rows))
        columns = {
            f"k{i}": pa.array(
                draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), dtype
            )
            for i, (dtype, values) in enumerate(kinds)
        }
        columns["id"] = pa.array(range(identity, identity + rows), pa.int64())
        columns["text"] = pa.array([f"row {n % 5}" for n in range(rows)], pa.string())
        identity += rows
        tables.append(pa.table(columns))
    return tables, sort
