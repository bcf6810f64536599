"""As-of joins against nested loops, and against DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.pipelines.asof_join import AsofJoin
from compactor.pipelines.join_keys import joined_schema
from compactor.pipelines.pairing import Joined
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.pipelines.join_support import (
    FLOATS,
    MIB,
    TEXTS,
    Held,
    is_known,
    order_key,
    rows_of,
    shown,
)

ON = [("t", "u")]
LEFT = pa.schema([("p", pa.float64()), ("t", pa.string()), ("a", pa.int64())])
RIGHT = pa.schema([("b", pa.int64()), ("u", pa.string()), ("q", pa.float64())])


def join_of(
    left: pa.Table, right: pa.Table, held: Held, *, keeps_all: bool = True, on: Any = ON,
    batch_rows: int = 2048,
) -> AsofJoin:  # fmt: skip
    lefts, rights = [*(mine for mine, _ in on), "p"], [*(theirs for _, theirs in on), "q"]
    joined = Joined(joined_schema(left.schema, right.schema, on, "join"), left.schema, on)
    return AsofJoin(
        held.sorted(left, lefts, parse_sort_schema(",".join(lefts)), batch_rows),
        held.sorted(right, rights, parse_sort_schema(",".join(rights)), batch_rows),
        joined,
        keeps_all=keeps_all,
    )


def joined_rows(left: pa.Table, right: pa.Table, **options: Any) -> list[Any]:
    held = Held()
    return rows_of(join_of(left, right, held, **options).rows(), held)


def nested_loops(left: pa.Table, right: pa.Table, *, keeps_all: bool, on: Any) -> list[Any]:
    found = []
    for i, row in enumerate(left.to_pylist()):
        before = [
            (other["q"], j, other)
            for j, other in enumerate(right.to_pylist())
            if (not on or (row["t"] is not None and row["t"] == other["u"]))
            and is_known(row["p"]) and is_known(other["q"]) and other["q"] <= row["p"]
        ]  # fmt: skip
        if not before and not keeps_all:
            continue
        best = max(before, key=lambda item: item[:2])[2] if before else dict.fromkeys(RIGHT.names)
        theirs = tuple(v for name, v in best.items() if not on or name != "u")
        order = order_key([row["t"], row["p"]] if on else [row["p"]])
        found.append((order, i, tuple(row.values()) + theirs))
    return shown(row[-1] for row in sorted(found, key=lambda row: row[:2]))


def tables(lefts: list[Any], rights: list[Any]) -> tuple[pa.Table, pa.Table]:
    left = [{"p": p, "t": t, "a": n} for n, (t, p) in enumerate(lefts)]
    right = [{"b": n, "u": t, "q": q} for n, (t, q) in enumerate(rights)]
    return pa.Table.from_pylist(left, LEFT), pa.Table.from_pylist(right, RIGHT)


ROWS = st.lists(st.tuples(TEXTS, FLOATS), max_size=12)


@pytest.mark.parametrize("keeps_all", [False, True])
@settings(max_examples=80, deadline=None)
@given(
    lefts=ROWS, rights=ROWS, on=st.sampled_from([[], ON]), batch_rows=st.sampled_from([1, 7, 2048])
)
def test_each_row_gets_the_last_one_at_or_before_it(
    keeps_all: bool, lefts: list[Any], rights: list[Any], on: Any, batch_rows: int
) -> None:
    sides = tables(lefts, rights)
    expected = nested_loops(*sides, keeps_all=keeps_all, on=on)
    assert joined_rows(*sides, keeps_all=keeps_all, on=on, batch_rows=batch_rows) == expected


@settings(max_examples=120, deadline=None)
@given(lefts=ROWS, rights=ROWS, on=st.sampled_from([[], ON]), chunk=st.integers(1, 4))
def test_chunks_of_few_rows_make_no_difference(
    lefts: list[Any], rights: list[Any], on: Any, chunk: int
) -> None:
    sides = tables(lefts, rights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compactor.pipelines.sorted_rows.CHUNK_ROWS", chunk)
        found = joined_rows(*sides, on=on)
    assert found == nested_loops(*sides, keeps_all=True, on=on)


@pytest.mark.parametrize("limit", [512 * MIB, 2 * MIB])
def test_duckdb_finds_the_same_of_many_rows(limit: int) -> None:
    rng = np.random.default_rng(11)
    right = pa.table(
        {
            "b": range(30_000),
            "u": rng.choice(list("wxyz"), 30_000),
            "q": rng.permutation(60_000)[:30_000],
            "note": rng.choice(["n" * 80, "m" * 40], 30_000),
        }
    )
    left = pa.table(
        {
            "p": pa.array(rng.integers(-10, 60_000, 20_000), mask=rng.random(20_000) < 0.05),
            "t": rng.choice(list("vwxy"), 20_000),
            "a": range(20_000),
        }
    )
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        expected = connection.sql(
            "SELECT p, t, a, b, q, note FROM l ASOF LEFT JOIN r ON t = u AND p >= q "
            "ORDER BY t, p NULLS LAST, a"
        ).fetchall()
    held = Held(limit)
    assert rows_of(join_of(left, right, held).rows(), held) == shown(expected)
    assert held.budget.peak_bytes <= limit
    assert (sum(sorter.spills for sorter in held.sorters) > 0) == (limit == 2 * MIB)
