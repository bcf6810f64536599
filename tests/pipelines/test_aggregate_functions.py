"""The aggregate functions beside those of DuckDB: nulls, NaN, signed zeros, no rows, little memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import ConfigError
from compactor.resources.errors import MemoryLimitError
from tests.pipelines.support import MIB, lines_of, run_of, sources
from tests.support.wording import refuses

NAN = float("nan")
SCHEMA: Final = pa.schema(
    [
        ("k", pa.string()),
        ("g", pa.float64()),
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("w", pa.timestamp("us")),
    ]
)
START: Final = datetime(2026, 1, 1)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from([None, "", "a", "b"]),
            "g": st.sampled_from([None, NAN, -0.0, 0.0, 1.5]),
            "i": st.none() | st.integers(-5, 5) | st.sampled_from([2**53 + 1, -(2**62)]),
            "f": st.sampled_from([None, NAN, -0.0, 0.0, -3.5, 1.0, 2.5, 1e300]),
            "d": st.none() | st.integers(-300, 300).map(lambda n: Decimal(n) / 100),
            "t": st.sampled_from([None, "", "x", "y", "zz"]),
            "b": st.sampled_from([None, True, False]),
            "w": st.none() | st.integers(0, 5).map(lambda n: START + timedelta(seconds=n)),
        }
    ),
    max_size=40,
)
NUMBERS: Final = "ifd"
CALLS: Final[dict[str, tuple[str, str]]] = {
    "n": ("count", "count(*)"),
    "star": ("count(*) FILTER (WHERE b)", "count(*) FILTER (WHERE b)"),
    "trues": ("count_if(i > 0)", "count(*) FILTER (WHERE i > 0)"),
    "all": ("bool_and(b)", "bool_and(b)"),
    "any": ("bool_or(i > 1)", "bool_or(i > 1)"),
    "case": ("sum(CASE WHEN b THEN 1 END)", "sum(CASE WHEN b THEN 1 END)"),
    "product": ("sum(f * 2)", "sum(f * 2 ORDER BY r)"),
    "filtered": ("avg(i) FILTER (WHERE b AND i < 9)", "avg(i) FILTER (WHERE b AND i < 9)"),
    "texts": ("string_agg(t, ', ')", "string_agg(t, ', ' ORDER BY r)"),
    "some": ("string_agg(t) FILTER (WHERE b)", "string_agg(t, ',' ORDER BY r) FILTER (WHERE b)"),
    "first_b": ("first(t) FILTER (WHERE b)", "first(t ORDER BY r) FILTER (WHERE b)"),
    **{f"first_{c}": (f"first({c})", f"first({c} ORDER BY r)") for c in "ifdtw"},
    **{f"last_{c}": (f"last({c})", f"last({c} ORDER BY r)") for c in "ifdtw"},
    **{f"sum_of_different_{c}": (f"sum(distinct {c})",) * 2 for c in "ifd"},
    **{f"mean_of_different_{c}": (f"avg(distinct {c})",) * 2 for c in "ifd"},
    "mean_different": ("mean(distinct i)", "avg(distinct i)"),
    "flags_different": ("sum(distinct b)", "sum(distinct b::INT)"),
    "least_different": ("min(distinct i)",) * 2,
    **{f"different_{c}": (f"count(distinct {c})",) * 2 for c in "ifdtbw"},
    **{f"min_by_{c}": (f"min_by(t, {c})", f"arg_min(t, {c} ORDER BY r)") for c in "ifdtw"},
    **{f"max_by_{c}": (f"max_by(i, {c})", f"arg_max(i, {c} ORDER BY r)") for c in "idtw"},
    "max_by_f": (
        "max_by(t, f)",
        "coalesce(arg_max(t, f ORDER BY r) FILTER (NOT isnan(f)), arg_max(t, f ORDER BY r))",
    ),
    **{f"half_{c}": (f"median({c})", f"quantile_cont({c}::DOUBLE, 0.5)") for c in NUMBERS},
    **{f"p95_{c}": (f"quantile({c}, 0.95)", f"quantile_cont({c}::DOUBLE, 0.95)") for c in NUMBERS},
    "half_w": ("median(w)", "quantile_cont(w, 0.5)"),
    **{f"{f}_{c}": (f"{f}({c})", f"{sql}({c}::DOUBLE ORDER BY r)")
       for f, sql in (("stddev", "stddev_samp"), ("variance", "var_samp"), ("stddev_pop", "stddev_pop"))
       for c in "id"},
}  # fmt: skip


def aggregated(
    table: pa.Table, columns: Mapping[str, str], *keys: str, **given: Any
) -> tuple[list[dict[str, Any]], Any]:
    """The groups of a table, and the report."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "o.arrow"
        node = {"input": "a", "columns": columns, **({"group_by": list(keys)} if keys else {})}
        nodes = {
            **sources("a"),
            "g": {"aggregate": node},
            "out": {"output": {"input": "g", "path": str(path)}},
        }
        report = run_of(nodes, {"a": table}, **given).run()
        with pa.ipc.open_file(path) as file:
            return file.read_all().to_pylist(), report


def of_duckdb(table: pa.Table, keys: tuple[str, ...]) -> list[dict[str, Any]]:
    table = table.append_column("r", pa.array(range(len(table)), pa.int64()))
    calls = ", ".join(f'{sql} AS "{name}"' for name, (_, sql) in CALLS.items())
    by = ", ".join(keys)
    sql = f"SELECT {by}{', ' if keys else ''}{calls} FROM rows"
    if keys:
        sql += f" GROUP BY {by} ORDER BY {', '.join(f'{key} NULLS LAST' for key in keys)}"
    with duckdb.connect() as connection:
        connection.register("rows", table)
        found: list[dict[str, Any]] = connection.sql(sql).to_arrow_table().to_pylist()
        return found


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, datetime) and isinstance(other, datetime):
        return abs(one - other) <= timedelta(microseconds=1)
    return bool(one == other)


def test_sums_of_different_floats_do_not_depend_on_how_rows_are_divided() -> None:
    draw = np.random.default_rng(1)
    values = draw.normal(size=3000) * 10.0 ** draw.integers(-8, 8, 3000)
    table = pa.table({"k": draw.integers(0, 30, 3000), "f": values})
    found = [
        aggregated(table, {"s": "sum(distinct f)"}, "k", batch_size=size)[0]
        for size in (7, 100, 2048)
    ]
    assert found[0] == found[1] == found[2]


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from([(), ("k",), ("g",), ("k", "g")]), st.sampled_from([1, 3, 2048]))
def test_every_function_gives_duckdbs_values(
    rows: list[dict[str, Any]], keys: tuple[str, ...], batch_size: int
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    calls = {name: call for name, (call, _) in CALLS.items()}
    found, _ = aggregated(table, calls, *keys, batch_size=batch_size)
    expected = of_duckdb(table, keys)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert {
            name: (mine[name], theirs[name]) for name in mine if not alike(mine[name], theirs[name])
        } == {}


SOME: Final = {
    "texts": "string_agg(t, ',')",
    "different": "count(distinct t)",
    "half": "median(i)",
    "p99": "quantile(i, 0.99)",
    "first": "first(t)",
    "tie": "min_by(t, zero)",
}


def many(count: int, groups: int) -> pa.Table:
    numbers = [(n * 7919) % count for n in range(count)]
    return pa.table(
        {
            "k": [n % groups for n in numbers],
            "i": numbers,
            "t": [f"text-{n:07d}" + "x" * 60 for n in numbers],
            "zero": [0] * count,
        }
    )


@pytest.mark.parametrize("keys", [("k",), ()], ids=["groups", "one row"])
def test_more_values_than_memory_give_the_same_results(keys: tuple[str, ...]) -> None:
    table = many(60_000, 20_000)
    columns = SOME if keys else {n: c for n, c in SOME.items() if n != "texts"}
    plenty, _ = aggregated(table, columns, *keys)
    little, report = aggregated(table, columns, *keys, memory={"limit": "8MiB"}, batch_size=500)
    assert report.spills and report.peak_bytes <= 8 * MIB
    assert little == plenty
    first: dict[Any, str] = {}
    for row in table.to_pylist():
        first.setdefault(row["k"] if keys else None, row["t"])
    assert all(row["first"] == row["tie"] == first[row.get("k")] for row in plenty)


def test_the_text_of_a_group_that_does_not_fit_into_memory_is_one_clear_error() -> None:
    with refuses(MemoryLimitError):
        aggregated(many(60_000, 1), {"s": "string_agg(t)"}, memory={"limit": "8MiB"})


def test_rows_that_are_sorted_by_their_groups_give_groups_in_that_order(tmp_path: Path) -> None:
    table = many(5000, 70)
    node = {"input": "s", "group_by": ["k"], "columns": SOME}
    nodes = {
        **sources("a"),
        "s": {"sort": {"input": "a", "by": "k:desc"}},
        "g": {"aggregate": node},
        "out": {"output": {"input": "g", "path": str(tmp_path / "o.ndjson")}},
    }
    run_of(nodes, {"a": table}, batch_size=37).run()
    groups, _ = aggregated(table, SOME, "k")
    assert lines_of(tmp_path / "o.ndjson") == groups[::-1]


def test_rows_in_overlapping_windows_of_time_come_in_their_order() -> None:
    count = 200
    seconds = [(n * 37) % 60 for n in range(count)]
    table = pa.table(
        {"ts": pa.array(seconds, pa.timestamp("s")), "n": list(map(str, range(count)))}
    )
    columns = {"texts": "string_agg(n)", "first": "first(n)", "tie": "max_by(n, 1)", "n": "count"}
    window = {"column": "ts", "size": "20s", "slide": "7s"}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "o.ndjson"
        nodes = {
            **sources("a"),
            "g": {"aggregate": {"input": "a", "window": window, "columns": columns}},
            "out": {"output": {"input": "g", "path": str(path)}},
        }
        run_of(nodes, {"a": table}, batch_size=50).run()
        found = [[row[name] for name in columns] for row in lines_of(path)]
    inside = [
        [str(row) for row, second in enumerate(seconds) if start <= second < start + 20]
        for start in range(-14, 60, 7)
    ]
    assert found == [[",".join(rows), rows[0], rows[0], len(rows)] for rows in inside]


def test_a_row_for_which_an_argument_fails_is_a_dead_letter(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 1, 2], "i": [1, 0, 4]})
    letters = str(tmp_path / "bad.ndjson")
    found, report = aggregated(
        table, {"s": "sum(4 / i)", "n": "count"}, "k", on_error="continue", dead_letter=letters
    )
    assert found == [{"k": 1, "s": 4, "n": 1}, {"k": 2, "s": 1, "n": 1}]
    assert report.dlq_count == 1
    [letter] = lines_of(Path(letters))
    assert (letter["source"], letter["row"], letter["node"]) == ("a", 2, "g")


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("sum(s.b)", 9),
        ("sum(s.b + i)", 12),
        ("count(distinct s.b)", 2),
        ("sum(i) FILTER (WHERE s.b > 4)", 2),
        ("sum(CASE WHEN s.b = 4 THEN i ELSE 0 END)", 1),
    ],
)
def test_arguments_may_have_fields_of_structs(call: str, value: int) -> None:
    table = pa.table({"s": [{"b": 4}, {"b": 5}], "i": [1, 2]})
    found, _ = aggregated(table, {"n": call})
    assert found == [{"n": value}]


@pytest.mark.parametrize(
    "call",
    [
        "sum(t)", "avg(t)", "stddev(t)", "median(t)", "quantile(t, 0.5)", "quantile(i, 2)", "quantile(i, i)",
        "bool_and(i)", "count_if(i)", "string_agg(i)", "string_agg(t, i)", "string_agg(t, ',' ORDER BY i)",
        "stddev(distinct i)", "count(distinct i, t)", "count(i, t)", "min(i, t)", "max(l)", "first(l)",
        "count(distinct l)", "sum(i) FILTER (WHERE i)", "sum(i) / count(*)", "sum(nix)", "sum(*)", "i",
        "sum(sum(i))", "mode(i)", "min_by()", "min_by(*)", "max_by(i)", "max_by(i, *)",
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_made_is_refused_before_rows_are_read(call: str) -> None:
    table = pa.table({"k": [1], "i": [1], "t": ["x"], "l": [[1]]})
    with refuses(ConfigError, "test.yaml, line 1: node 'g': column 'c'"):
        aggregated(table, {"c": call}, "k")
