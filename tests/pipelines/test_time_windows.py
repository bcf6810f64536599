"""Which windows of time a row falls into, held against plain Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import ConfigError
from compactor.pipelines.time_windows import (
    ColumnWindows,
    WindowSizes,
    parse_origin,
    parse_size,
    window_sizes,
)
from lsm_fragment.arrays.batches import keep_rows
from tests.support.wording import refuses

DAY_NS = 86_400 * 10**9


def found_windows(
    dtype: pa.DataType, times: list[int | None], sizes: WindowSizes
) -> list[tuple[Any, ...]]:
    """(row, start, end), sorted; times are stored integers of the type."""
    stored = pa.int32() if dtype == pa.date32() else pa.int64()
    batch = pa.record_batch({"t": pa.array(times, stored).cast(dtype), "row": range(len(times))})
    windows = ColumnWindows("t", sizes, batch.schema, "node 'w'")
    found = []
    last = windows.last_starts(batch)
    timed = keep_rows(batch, last.is_valid())
    for rows in windows.with_windows(timed, last.drop_null(), "start"):
        assert rows.schema.field("start").type == dtype
        ends = windows.ends(rows.column("start"))
        bounds = [a.cast(stored).to_pylist() for a in (rows.column("start"), ends)]
        found += list(zip(rows.column("row").to_pylist(), *bounds, strict=True))
    assert [row for row, *_ in found] == sorted(row for row, *_ in found)
    return sorted(found)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.none() | st.integers(-1000, 1000), max_size=20),
    st.integers(1, 30), st.integers(1, 30), st.integers(-50, 50),
)  # fmt: skip
def test_a_row_is_in_every_window_that_holds_its_time_and_no_other(
    times: list[int | None], size: int, slide: int, origin: int
) -> None:
    slide = min(size, slide)
    expected = [
        (row, origin + slide * n, origin + slide * n + size)
        for row, time in enumerate(times)
        if time is not None
        for n in range(-1200, 1200)
        if origin + slide * n <= time < origin + slide * n + size
    ]
    found = found_windows(pa.timestamp("ns"), times, WindowSizes(size, slide, origin))
    assert found == sorted(expected)


@pytest.mark.parametrize(
    ("dtype", "unit_ns", "step"),
    [(pa.timestamp("s"), 10**9, 1), (pa.timestamp("ms", "Europe/Berlin"), 10**6, 1),
     (pa.timestamp("us", "UTC"), 10**3, 1), (pa.date32(), DAY_NS, 1), (pa.date64(), DAY_NS, 86_400_000)],
)  # fmt: skip
def test_times_of_any_unit_and_dates_have_windows(
    dtype: pa.DataType, unit_ns: int, step: int
) -> None:
    sizes = WindowSizes(7 * unit_ns, 3 * unit_ns, 2 * unit_ns)
    plain = found_windows(pa.timestamp("ns"), [-1, 0, 13, None], WindowSizes(7, 3, 2))
    found = found_windows(dtype, [-1 * step, 0, 13 * step, None], sizes)
    assert found == [(row, start * step, end * step) for row, start, end in plain]


def test_an_origin_may_be_later_than_nanoseconds_reach() -> None:
    sizes = window_sizes("10s", None, "9999-12-31T00:00:03")
    assert found_windows(pa.timestamp("ns"), [0], sizes) == [(0, -7 * 10**9, 3 * 10**9)]


@pytest.mark.parametrize("dtype", [pa.timestamp("ns"), pa.date32()])
@pytest.mark.parametrize("is_high", [True, False])
def test_a_time_whose_windows_have_no_bounds_is_an_error(dtype: pa.DataType, is_high: bool) -> None:
    bits = 31 if dtype == pa.date32() else 63
    time = 2**bits - 1 if is_high else -(2**bits)
    sizes = WindowSizes(7 * DAY_NS, 3 * DAY_NS)
    with pytest.raises(pa.ArrowInvalid):
        found_windows(dtype, [time], sizes)


def test_lengths_are_numbers_with_a_unit() -> None:
    texts = ["250ms", "30s", "5m", "1h", "1d", "7us", "9ns"]
    assert [parse_size(text) for text in texts] == [
        25 * 10**7, 30 * 10**9, 300 * 10**9, 3600 * 10**9, DAY_NS, 7000, 9,
    ]  # fmt: skip
    assert parse_origin("1970-01-02") == DAY_NS
    assert parse_origin("1970-01-01T01:00:00.5+01:00") == 5 * 10**8
    assert window_sizes("1m", None, None) == WindowSizes(60 * 10**9, 60 * 10**9)
    assert window_sizes("1m", "45s", "1970-01-02").max_windows == 2


@pytest.mark.parametrize(
    ("size", "slide", "origin"),
    [
        ("1 minute", None, None),
        ("0s", None, None),
        ("-1s", None, None),
        ("1m", "1.5s", None),
        ("106752d", None, None),
        ("1m", "2m", None),
        (
            "1d",
            "1s",
            None,
        ),
        ("1m", None, "noon"),
    ],
)
def test_mistakes_in_sizes_name_the_setting(size: str, slide: str, origin: str) -> None:
    with refuses(ValueError):
        window_sizes(size, slide, origin)


@pytest.mark.parametrize(
    ("column", "sizes"),
    [
        (
            "x",
            WindowSizes(10, 10),
        ),
        ("y", WindowSizes(10, 10)),
        ("t", WindowSizes(10**9, 10**8)),
        ("t", WindowSizes(10**9, 10**9, 5)),
        (
            "d",
            WindowSizes(3600 * 10**9, 3600 * 10**9),
        ),
    ],
)
def test_mistakes_in_columns_are_named(column: str, sizes: WindowSizes) -> None:
    schema = pa.schema([("x", pa.int64()), ("t", pa.timestamp("s")), ("d", pa.date32())])
    with refuses(ConfigError):
        ColumnWindows(column, sizes, schema, "node 'w'")
