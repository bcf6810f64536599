"""Window functions, held against plain Python and DuckDB; whatever the batches, partitions and frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import ConfigError, DataError
from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.segments import Frames, accumulated
from compactor.pipelines.window_functions import WindowedColumns
from compactor.resources.budget import MemoryBudget
from compactor.resources.errors import MemoryLimitError
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from tests.support.wording import refuses

MIB = 1 << 20
Row = dict[str, Any]


def budget_of(limit: int) -> MemoryBudget:
    return MemoryBudget(
        StagePlan(
            limit,
            0,
            (MemoryStage(name="w", holds="fused", buffer=Buffer("streaming"), memory_bytes=limit),),
        )
    )


def windowed(
    table: pa.Table,
    columns: dict[str, str],
    *,
    partition_by: Sequence[str] = ("p",),
    frame: int | None = None,
    batch_rows: int = 5,
    limit: int = 64 * MIB,
) -> list[Row]:
    """Of rows that are in the window's order."""
    made = WindowedColumns(columns, table.schema, frame, "node 'w'")
    batches = (made.with_arguments(b) for b in table.to_batches(max_chunksize=batch_rows))
    return [
        dict(zip(made.columns, values, strict=True))
        for batch in made.over(
            batches, partition_by, BatchSize(batch_rows, MIB), budget_of(limit), "w"
        )
        for values in zip(*(c(batch).to_pylist() for c in made.columns.values()), strict=True)
    ]


def partitions(rows: list[Row], key: str = "p") -> list[list[Row]]:
    found: list[list[Row]] = []
    for row in rows:
        if not found or repr(found[-1][-1][key]) != repr(row[key]):
            found.append([])
        found[-1].append(row)
    return found


def oracle(
    rows: list[Row], of: Callable[[list[Row], int, list[Row]], Any], frame: int | None
) -> list[Any]:
    """of: a partition, a row's place in it, and its frame."""
    return [
        of(part, place, part[max(0, place + 1 - (frame or place + 1)) : place + 1])
        for part in partitions(rows)
        for place in range(len(part))
    ]  # fmt: skip


def known(frame: list[Row], name: str = "x") -> list[Any]:
    return [row[name] for row in frame if row[name] is not None]


def at(part: list[Row], place: int) -> Any:
    return part[place]["x"] if 0 <= place < len(part) else None


COLUMNS: dict[str, tuple[str, Callable[[list[Row], int, list[Row]], Any]]] = {
    "number": ("row_number()", lambda _, n, f: n + 1),
    "lag": ("lag(x)", lambda p, n, f: at(p, n - 1)),
    "lag3": ("lag(x, 3)", lambda p, n, f: at(p, n - 3)),
    "lag0": ("lag(x, 0)", lambda p, n, f: at(p, n)),
    "lead": ("lead(x)", lambda p, n, f: at(p, n + 1)),
    "lead4": ("lead(x, 4)", lambda p, n, f: at(p, n + 4)),
    "first": ("first(x)", lambda _, n, f: f[0]["x"]),
    "last": ("last(x)", lambda _, n, f: f[-1]["x"]),
    "rows": ("count(*)", lambda _, n, f: len(f)),
    "count": ("count(x)", lambda _, n, f: len(known(f))),
    "sum": ("sum(x)", lambda _, n, f: sum(known(f)) if known(f) else None),
    "min": ("min(x)", lambda _, n, f: min(known(f), default=None)),
    "max": ("max(x)", lambda _, n, f: max(known(f), default=None)),
    "avg": ("avg(x)", lambda _, n, f: sum(known(f)) / len(known(f)) if known(f) else None),
    "step": ("x - lag(x)", lambda p, n, f: minus(at(p, n), at(p, n - 1))),
    "most": ("max(x * 2 + 1) - coalesce(min(x), 0)",
             lambda _, n, f: max(known(f)) * 2 + 1 - min(known(f)) if known(f) else None),
}  # fmt: skip
TEXTS = {name: text for name, (text, _) in COLUMNS.items()}


def minus(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one - other


def table_of(pairs: Sequence[tuple[int, Any]], dtype: pa.DataType) -> pa.Table:
    pairs = sorted(pairs, key=lambda pair: pair[0])
    keys = pa.array([p for p, _ in pairs], pa.int64())
    return pa.table({"p": keys, "x": pa.array([x for _, x in pairs], dtype)})


ints = st.lists(
    st.tuples(st.integers(0, 4), st.none() | st.integers(-(10**15), 10**15)), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(ints, st.none() | st.integers(1, 9), st.sampled_from([1, 2, 3, 7, 100]))
def test_functions_are_those_of_plain_python(
    pairs: list[tuple[int, int | None]], frame: int | None, batch_rows: int
) -> None:
    table = table_of(pairs, pa.int64())
    found = windowed(table, TEXTS, frame=frame, batch_rows=batch_rows)
    for name, (_, of) in COLUMNS.items():
        assert [row[name] for row in found] == oracle(table.to_pylist(), of, frame), name


ANY = ["first(x)", "last(x)", "lag(x, 2)", "lead(x)", "min(x)", "max(x)", "count(x)"]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["b", "a", "", "é", "zz", None, "a"]),
    "bool": (pa.bool_(), [True, None, False, True]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-3.00"), None, Decimal("7.10")]),
    "wide decimal": (pa.decimal256(70, 1), [Decimal("-0.1"), None, Decimal(10**40), Decimal("5.5")]),
    "unsigned": (pa.uint64(), [2**64 - 1, None, 0, 2**63]),
    "small": (pa.int8(), [127, -128, None, 5]),
    "nothing": (pa.int32(), [None]),
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("frame", [None, 1, 3])
def test_values_of_every_kind_have_an_order(kind: str, frame: int | None) -> None:
    dtype, values = VALUES[kind]
    column = pa.array([values[n * 5 % len(values)] for n in range(40)], dtype)
    table = pa.table({"p": sorted(n % 4 for n in range(40)), "x": column})
    of = dict(COLUMNS.values())
    of["lag(x, 2)"] = lambda p, n, f: at(p, n - 2)
    for batch_rows in (1, 6, 100):
        found = windowed(table, {text: text for text in ANY}, frame=frame, batch_rows=batch_rows)
        for text in ANY:
            assert [r[text] for r in found] == oracle(table.to_pylist(), of[text], frame), text


@pytest.mark.parametrize(
    ("dtype", "sum_type"),
    [(pa.int8(), pa.int64()), (pa.uint32(), pa.uint64()), (pa.decimal128(5, 2), pa.decimal128(38, 2)),
     (pa.decimal256(50, 1), pa.decimal256(76, 1)), (pa.float32(), pa.float64())],
)  # fmt: skip
def test_sums_have_the_type_that_aggregates_give_them(
    dtype: pa.DataType, sum_type: pa.DataType
) -> None:
    made = WindowedColumns(
        {"s": "sum(x)", "a": "avg(x)"}, pa.schema([("x", dtype)]), None, "node 'w'"
    )
    assert [column.type for column in made.columns.values()] == [sum_type, pa.float64()]


decimals = st.lists(st.none() | st.decimals(-(10**9), 10**9, places=3), min_size=1, max_size=40)


@settings(max_examples=40, deadline=None)
@given(decimals, st.none() | st.integers(1, 5), st.integers(1, 9))
def test_sums_of_decimals_are_exact(
    values: list[Decimal | None], frame: int | None, rows: int
) -> None:
    for dtype in (pa.decimal128(14, 3), pa.decimal256(60, 3)):
        table = pa.table({"p": [0] * len(values), "x": pa.array(values, dtype)})
        found = windowed(table, {"s": "sum(x)", "a": "avg(x)"}, frame=frame, batch_rows=rows)
        sums = oracle(table.to_pylist(), COLUMNS["sum"][1], frame)
        assert [row["s"] for row in found] == sums
        means = oracle(table.to_pylist(), COLUMNS["avg"][1], frame)
        for row, mean in zip(found, means, strict=True):
            assert (row["a"] is None) == (mean is None)
            assert mean is None or math.isclose(row["a"], float(mean), rel_tol=1e-12, abs_tol=1e-9)


floats = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.none() | st.floats(width=64) | st.sampled_from([0.0, -0.0, 0.1, math.nan]),
    ),
    max_size=50,
)  # fmt: skip


@pytest.mark.parametrize(
    "dtype", [pa.decimal128(38, 25), pa.decimal128(38, 38), pa.decimal256(76, 60)]
)
def test_sums_of_decimals_are_of_any_scale(dtype: pa.DataType) -> None:
    ones = [1, None, -3, 7]
    values = [None if n is None else Decimal(n).scaleb(-dtype.scale) for n in ones]
    table = pa.table({"p": [1] * 4, "x": pa.array(values, dtype)})
    found = windowed(table, {"s": "sum(x)", "a": "avg(x)"}, frame=2)
    assert [row["s"] for row in found] == [Decimal(n).scaleb(-dtype.scale) for n in (1, 1, -3, 4)]
    means = [n * 10.0**-dtype.scale for n in (1, 1, -3, 2)]
    assert [row["a"] for row in found] == pytest.approx(means, rel=1e-12, abs=0)


@settings(max_examples=60, deadline=None)
@given(floats)
def test_running_sums_of_floats_go_from_left_to_right_whatever_the_batches(
    pairs: list[tuple[int, float | None]],
) -> None:
    table = table_of(pairs, pa.float64())

    def left_to_right(_part: list[Row], _place: int, frame: list[Row]) -> float | None:
        total = None
        for x in known(frame):
            total = x if total is None else total + x
        return total

    for batch_rows in (1, 3, 100):
        found = windowed(table, {"s": "sum(x)"}, batch_rows=batch_rows)
        expected = oracle(table.to_pylist(), left_to_right, None)
        assert [repr(row["s"]) for row in found] == [repr(x) for x in expected]


@settings(max_examples=60, deadline=None)
@given(floats, st.integers(1, 6))
def test_frames_of_floats_do_not_depend_on_batches_and_a_nan_leaves_with_its_row(
    pairs: list[tuple[int, float | None]], frame: int
) -> None:
    table = table_of(pairs, pa.float64())
    texts = {"s": "sum(x)", "least": "min(x)", "most": "max(x)"}
    found = [windowed(table, texts, frame=frame, batch_rows=rows) for rows in (1, 2, 7, 100)]
    assert len({repr(rows) for rows in found}) == 1
    of_frames = oracle(table.to_pylist(), lambda _, n, f: known(f), frame)
    for row, values in zip(found[0], of_frames, strict=True):
        numbers = [x for x in values if not math.isnan(x)]
        assert repr(row["least"]) == repr(min(numbers, default=math.nan) + 0.0 if values else None)
        assert repr(row["most"]) == repr(max(numbers, default=math.nan) + 0.0 if values else None)
        if values and all(abs(x) < 1e300 for x in values):
            error = 1e-9 * sum(abs(x) for x in values)
            assert math.isclose(row["s"], math.fsum(values), rel_tol=1e-9, abs_tol=error)
        elif not values:
            assert row["s"] is None


@pytest.mark.parametrize("frame", [None, 4])
def test_functions_are_those_of_duckdb(frame: int | None) -> None:
    rng = np.random.default_rng(3)
    rows_given = pa.table(
        {
            "p": pa.array(rng.integers(0, 300, 5000)),
            "n": np.arange(5000),
            "x": pa.array(rng.integers(-1000, 1000, 5000), mask=rng.random(5000) < 0.2),
        }
    ).sort_by([("p", "ascending"), ("n", "ascending")])
    texts = {name: text for name, text in TEXTS.items() if name not in ("step", "most")}
    before = "unbounded" if frame is None else str(frame - 1)
    over = f"over (partition by p order by n rows between {before} preceding and current row)"
    columns = ", ".join(f"{text} {over} as {name}_" for name, text in texts.items())
    query = f"select {columns} from rows_given order by p, n"
    expected = duckdb.connect().execute(query).fetchall()
    found = windowed(rows_given, texts, frame=frame, batch_rows=613)
    assert [tuple(row.values()) for row in found] == expected


def test_partitions_are_of_equal_keys_as_in_every_order() -> None:
    nan = float("nan")
    keys = [-0.0, 0.0, 1.0, nan, -nan, None, None]
    table = pa.table({"p": pa.array(keys, pa.float64()), "q": ["a"] * 7})
    for batch_rows in (1, 2, 100):
        found = windowed(
            table, {"n": "row_number()"}, partition_by=("q", "p"), batch_rows=batch_rows
        )
        assert [row["n"] for row in found] == [1, 2, 1, 1, 2, 1, 2]
        whole = windowed(table, {"n": "row_number()"}, partition_by=(), batch_rows=batch_rows)
        assert [row["n"] for row in whole] == [1, 2, 3, 4, 5, 6, 7]


def test_times_are_subtracted_from_those_before() -> None:
    times = pa.array([1_000, 4_500, None, 9_000], pa.timestamp("ms", "UTC"))
    table = pa.table({"p": [0, 0, 0, 0], "t": times})
    found = windowed(table, {"d": "t - lag(t)", "since": "cast(t - first(t) as bigint)"})
    assert [row["since"] for row in found] == [0, 3500, None, 8000]
    assert [None if row["d"] is None else row["d"].total_seconds() for row in found] == [
        None,
        3.5,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("dtype", "values", "sums"),
    [
        (pa.int64(), [2**63 - 1, 0, 1], [2**63 - 1, 2**63 - 1]),
        (pa.int64(), [-(2**63), 0, -1], [-(2**63), -(2**63)]),
        (pa.uint64(), [2**64 - 1, 0, 1], [2**64 - 1, 2**64 - 1]),
        (pa.decimal128(38, 0), [10**38 - 1, 0, 1], [Decimal(10**38 - 1)] * 2),
        (pa.decimal128(38, 0), [10**38 - 1, 0, 10**38 - 1], [Decimal(10**38 - 1)] * 2),
        (pa.decimal256(76, 0), [10**76 - 1, 0, 1], [Decimal(10**76 - 1)] * 2),
    ],
)
def test_sums_that_do_not_fit_are_an_error(
    dtype: pa.DataType, values: list[int], sums: list[Any]
) -> None:
    column = pa.array([Decimal(v) if pa.types.is_decimal(dtype) else v for v in values], dtype)
    table = pa.table({"p": [0, 0, 0], "x": column})
    for batch_rows in (1, 100):
        assert [
            r["s"] for r in windowed(table.slice(0, 2), {"s": "sum(x)"}, batch_rows=batch_rows)
        ] == sums
        with refuses(DataError):
            windowed(table, {"s": "sum(x)"}, batch_rows=batch_rows)
        # Where the frame leaves the first row behind it fits again.
        assert len(windowed(table, {"s": "sum(x)"}, frame=2, batch_rows=batch_rows)) == 3
        means = windowed(table, {"s": "avg(x)"}, batch_rows=batch_rows)
        assert math.isclose(means[2]["s"], sum(values) / 3)


MISTAKES = [
    "lag(x) over (order by x)",
    "lag(x, -1)",
    "lag(x, 1.5)",
    "lag(x, 2, 0)",
    "lead(x, 1000001)",
    "row_number(x)",
    "count()",
    "count(distinct x)",
    "max(x, p)",
    "sum(lag(x))",
    "rank()",
    "sum(t)",
    "min(l)",
    "max(y) + 1",
    "lag(x) + y",
    "lag(x) +",
    "lag(t) + 1",
]  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_named(text: str) -> None:
    schema = pa.schema(
        [("p", pa.int64()), ("x", pa.int64()), ("t", pa.string()), ("l", pa.list_(pa.int64()))]
    )
    with refuses(ConfigError):
        WindowedColumns({"c": text}, schema, None, "node 'w'")


def test_columns_may_be_called_as_ours_are() -> None:
    table = pa.table({"p": [1, 1], "$window0": [5, 6], "$window1": [7, 8]})
    found = windowed(table, {"a": 'lag("$window0")', "b": 'sum("$window1")', "c": '"$window1"'})
    assert found == [{"a": None, "b": 7, "c": 7}, {"a": 5, "b": 15, "c": 8}]


def test_what_is_looked_back_at_is_charged() -> None:
    table = pa.table({"p": [0] * 60_000, "x": range(60_000), "text": ["x" * 50] * 60_000})
    short = windowed(table, {"a": "lag(x)"}, batch_rows=1000, limit=MIB)
    assert [row["a"] for row in short[-2:]] == [59_997, 59_998]
    with refuses(MemoryLimitError):
        windowed(table, {"a": "lag(x, 50000)"}, batch_rows=1000, limit=MIB)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=30), st.none() | st.integers(1, 80))
def test_segments_of_any_lengths_are_accumulated_each_by_itself(
    lengths: list[int], limit: int | None
) -> None:
    values = np.arange(sum(lengths)) * 7919 % 101
    is_start = np.zeros(len(values), dtype=np.bool_)
    is_start[np.cumsum([0, *lengths[:-1]])] = True
    parts = np.split(values, np.flatnonzero(is_start)[1:])
    assert accumulated(np.minimum, values, is_start).tolist() == [
        x for part in parts for x in np.minimum.accumulate(part).tolist()
    ]
    numbers = np.concatenate([np.arange(1, length + 1) for length in lengths])
    frames = Frames(numbers, 0, len(values), limit)
    given = values if limit is not None else np.concatenate([[0], values])
    frame = limit or len(values)
    expected = [
        part[max(0, n + 1 - frame) : n + 1].tolist() for part in parts for n in range(len(part))
    ]
    assert frames.over(np.minimum, given).tolist() == [min(rows) for rows in expected]
    assert frames.sums(given).tolist() == [sum(rows) for rows in expected]
