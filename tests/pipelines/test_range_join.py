"""Range joins against nested loops, and against DuckDB."""

from __future__ import annotations

import operator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.pipelines.join_keys import joined_schema
from compactor.pipelines.pairing import Joined
from compactor.pipelines.range_join import Closed, Intervals, RangeJoin, interval_order
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.pipelines.join_support import (
    FLOATS,
    MIB,
    TEXTS,
    Held,
    is_known,
    is_nan,
    order_key,
    rows_of,
    shown,
)

ON = [("t", "u")]
POINTS = pa.schema([("p", pa.float64()), ("t", pa.string()), ("a", pa.int64())])
INTERVALS = pa.schema(
    [("b", pa.int64()), ("u", pa.string()), ("lo", pa.float64()), ("hi", pa.float64())]
)


def join_of(
    points: pa.Table, intervals: pa.Table, held: Held, *, closed: str = "left",
    keeps_all: bool = False, on: Any = ON, batch_rows: int = 2048,
) -> RangeJoin:  # fmt: skip
    lefts, rights = [left for left, _ in on], [right for _, right in on]
    of_points = parse_sort_schema(",".join([*lefts, "p"]))
    of_intervals = interval_order(parse_sort_schema(",".join(rights)) if on else (), "lo")
    joined = Joined(joined_schema(points.schema, intervals.schema, on, "join"), points.schema, on)
    return RangeJoin(
        held.sorted(points, [*lefts, "p"], of_points, batch_rows),
        held.sorted(intervals, [*rights, "lo"], of_intervals, batch_rows),
        Intervals(tuple(rights), "lo", "hi", Closed(closed)),
        joined,
        keeps_all=keeps_all,
    )


def joined_rows(points: pa.Table, intervals: pa.Table, **settings: Any) -> list[Any]:
    held = Held()
    return rows_of(join_of(points, intervals, held, **settings).rows(), held)


def contains(low: Any, high: Any, point: Any, closed: str) -> bool:
    """As PostgreSQL's ranges: without a bound there is none."""
    after = operator.ge if closed in ("left", "both") else operator.gt
    before = operator.le if closed in ("right", "both") else operator.lt
    if not is_known(point) or is_nan(low) or is_nan(high):
        return False
    return (low is None or after(point, low)) and (high is None or before(point, high))


def nested_loops(
    points: pa.Table, intervals: pa.Table, *, closed: str, keeps_all: bool, on: Any
) -> list[Any]:
    """Every pair; by key and point, then as the points came, then by lower bound, none first."""
    found = []
    for i, row in enumerate(points.to_pylist()):
        order = (order_key([row["t"], row["p"]] if on else [row["p"]]), i)
        own = tuple(row.values())
        matches = [
            ((other["lo"] is not None, other["lo"] or 0.0), j, other)
            for j, other in enumerate(intervals.to_pylist())
            if (not on or (is_known(row["t"]) and row["t"] == other["u"]))
            and contains(other["lo"], other["hi"], row["p"], closed)
        ]
        for low, j, other in matches:
            theirs = tuple(v for name, v in other.items() if not on or name != "u")
            found.append((order, low, j, own + theirs))
        if keeps_all and not matches:
            found.append((order, (False, 0.0), 0, own + (None,) * (4 - len(on))))
    return shown(row[-1] for row in sorted(found, key=lambda row: row[:-1]))


def tables(points: list[Any], intervals: list[Any]) -> tuple[pa.Table, pa.Table]:
    lefts = [{"p": p, "t": t, "a": n} for n, (t, p) in enumerate(points)]
    rights = [{"b": n, "u": t, "lo": a, "hi": b} for n, (t, a, b) in enumerate(intervals)]
    return pa.Table.from_pylist(lefts, POINTS), pa.Table.from_pylist(rights, INTERVALS)


SOME_POINTS = st.lists(st.tuples(TEXTS, FLOATS), max_size=12)
SOME_INTERVALS = st.lists(st.tuples(TEXTS, FLOATS, FLOATS), max_size=12)


@pytest.mark.parametrize("keeps_all", [False, True])
@pytest.mark.parametrize("closed", list(Closed))
@settings(max_examples=40, deadline=None)
@given(
    points=SOME_POINTS,
    intervals=SOME_INTERVALS,
    on=st.sampled_from([[], ON]),
    batch_rows=st.sampled_from([1, 7, 2048]),
)
def test_it_gives_what_nested_loops_give_in_the_order_of_points(
    closed: str, keeps_all: bool, points: list[Any], intervals: list[Any], on: Any, batch_rows: int
) -> None:
    sides = tables(points, intervals)
    expected = nested_loops(*sides, closed=closed, keeps_all=keeps_all, on=on)
    options: dict[str, Any] = {"closed": closed, "keeps_all": keeps_all, "on": on}
    assert joined_rows(*sides, **options, batch_rows=batch_rows) == expected


@pytest.mark.parametrize("closed", list(Closed))
@settings(max_examples=60, deadline=None)
@given(
    points=SOME_POINTS,
    intervals=SOME_INTERVALS,
    on=st.sampled_from([[], ON]),
    chunk=st.integers(1, 4),
)
def test_chunks_of_few_rows_make_no_difference(
    closed: str, points: list[Any], intervals: list[Any], on: Any, chunk: int
) -> None:
    """So that intervals are kept over several chunks, and many contain one point."""
    sides = tables(points, intervals)
    options: dict[str, Any] = {"closed": closed, "keeps_all": True, "on": on}
    with pytest.MonkeyPatch.context() as patch:
        for module in ("sorted_rows", "range_join"):
            patch.setattr(f"compactor.pipelines.{module}.CHUNK_ROWS", chunk)
        assert joined_rows(*sides, **options) == nested_loops(*sides, **options)


def test_duckdb_finds_the_same_of_many_rows() -> None:
    rng = np.random.default_rng(5)
    starts = rng.integers(0, 1_000_000, 3000)
    intervals = pa.table(
        {
            "b": range(3000),
            "u": rng.choice(list("wxyz"), 3000),
            "lo": pa.array(starts, mask=rng.random(3000) < 0.01),
            "hi": pa.array(starts + rng.integers(-10, 3000, 3000), mask=rng.random(3000) < 0.01),
        }
    )
    points = pa.table(
        {
            "p": pa.array(rng.integers(0, 1_000_000, 20_000), mask=rng.random(20_000) < 0.05),
            "t": rng.choice(list("vwxy"), 20_000),
            "a": range(20_000),
        }
    )
    with duckdb.connect() as connection:
        connection.register("points", points)
        connection.register("intervals", intervals)
        expected = connection.sql(
            "SELECT p, t, a, b, lo, hi FROM points LEFT JOIN intervals ON t = u AND p IS NOT NULL "
            "AND (lo IS NULL OR p >= lo) AND (hi IS NULL OR p < hi) "
            "ORDER BY t, p NULLS LAST, a, lo NULLS FIRST, b"
        ).fetchall()
    assert joined_rows(points, intervals, keeps_all=True) == shown(expected)
    assert len(expected) > 60_000


def test_intervals_beyond_memory_spill_and_give_the_same_rows() -> None:
    """All of 30,000 wide intervals contain all of 50 points: more than one chunk for each."""
    rng = np.random.default_rng(7)
    intervals = pa.table(
        {
            "b": range(30_000),
            "lo": rng.integers(0, 100, 30_000),
            "hi": rng.integers(1000, 2000, 30_000),
            "note": pa.array(rng.bytes(120) for _ in range(30_000)),
        }
    )
    points = pa.table({"p": [*range(100, 150), 1500, 5000], "a": range(52)})
    found = []
    for limit in (512 * MIB, 3 * MIB):
        held = Held(limit)
        pairs: list[Any] = []
        join = join_of(points, intervals, held, on=[], keeps_all=True)
        for batch in join.rows():
            assert batch.nbytes <= 3 * max(held.room.chunk_bytes, 1 << 16)
            pairs.append(np.array([batch.column("a"), batch.column("b").fill_null(-1)]))
        assert held.budget.peak_bytes <= limit
        assert held.budget.used_bytes == 0
        assert (held.spills > 0) == (limit == 3 * MIB)
        held.close()
        found.append(np.concatenate(pairs, axis=1))
    assert np.array_equal(found[0], found[1])
    first = np.argsort(intervals.column("lo").to_numpy(), kind="stable")
    assert np.array_equal(found[0][1][: 50 * 30_000], np.tile(first, 50))
    alive = first[intervals.column("hi").to_numpy()[first] > 1500]
    assert np.array_equal(found[0][1][50 * 30_000 :], [*alive, -1])


@pytest.mark.parametrize("dtype", [pa.timestamp("us", "UTC"), pa.string(), pa.decimal128(9, 2)])
def test_points_may_be_of_any_type_that_has_an_order(dtype: pa.DataType) -> None:
    def values(*numbers: int) -> pa.Array:
        array = pa.array(numbers, pa.int64())
        return (
            array.cast(pa.decimal128(19, 0)).cast(dtype)
            if "decimal" in str(dtype)
            else array.cast(dtype)
        )

    points = pa.table({"p": values(1, 2, 3, 4), "a": range(4)})
    intervals = pa.table({"lo": values(2, 3), "hi": values(4, 4), "b": range(2)})
    rows = joined_rows(points, intervals, on=[], closed="left")
    assert [(row[1], row[-1]) for row in rows] == [(1, 0), (2, 0), (2, 1)]
