"""Joins that go through both sides in order, as nodes of a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.pipelines.nodes import sorted_combine
from compactor.resources.errors import MemoryLimitError
from tests.pipelines.support import lines_of, run_of, sources
from tests.support.wording import refuses

MERGE = {
    "probe": "a", "build": "b", "on": {"host": "server", "code": "status"}, "method": "sort_merge",
}  # fmt: skip
RANGE = {
    "probe": "a", "build": "b", "on": {"host": "server"}, "method": "range",
    "range": {"column": "ts", "from": "begun", "to": "ended"},
}  # fmt: skip

ASOF = {
    "probe": "a", "build": "b", "on": {"host": "server"}, "method": "asof", "at": {"ts": "begun"},
}  # fmt: skip


def requests(rows: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": range(rows),
            "host": pa.array(rng.choice(["web", "db", "mail", "cache"], rows), mask=rng.random(rows) < 0.1),
            "code": rng.integers(0, rows // 4, rows),
            "ts": pa.array(rng.integers(0, 100_000, rows), mask=rng.random(rows) < 0.1),
            "text": rng.choice(["x" * 60, "y" * 90], rows),
        }
    )  # fmt: skip


def incidents(rows: int, seed: int = 2) -> pa.Table:
    rng = np.random.default_rng(seed)
    begun = rng.integers(0, 100_000, rows)
    return pa.table(
        {
            "server": pa.array(rng.choice(["web", "db", "disk"], rows), mask=rng.random(rows) < 0.1),
            "status": rng.integers(0, rows // 4, rows),
            "number": range(rows),
            "begun": pa.array(begun, mask=rng.random(rows) < 0.001),
            "ended": pa.array(begun + rng.integers(0, 60, rows), mask=rng.random(rows) < 0.001),
            "note": rng.choice(["n" * 80, "m" * 40], rows),
        }
    )  # fmt: skip


def joined(
    tmp_path: Path, combine: dict[str, Any], tables: dict[str, pa.Table], **settings: Any
) -> tuple[bytes, Any]:
    path = tmp_path / "out.ndjson"
    nodes = {
        **sources("a", "b"),
        "j": {"combine": combine},
        "out": {"output": {"input": "j", "path": str(path)}},
    }
    run = run_of(nodes, tables, **settings)
    report = run.run()
    assert report.peak_bytes <= run._work.budget.limit_bytes
    return path.read_bytes(), report


@pytest.mark.long
@pytest.mark.parametrize(
    "combine",
    [{**MERGE, "how": how} for how in ("inner", "left", "right", "full")]
    + [{**by, "how": how} for by in (RANGE, ASOF) for how in ("inner", "left")],
)
def test_neither_memory_nor_batches_change_a_byte(combine: dict[str, Any], tmp_path: Path) -> None:
    tables = {"a": requests(12_000), "b": incidents(14_000)}
    expected, report = joined(tmp_path, combine, tables)
    assert report.spills == 0 and report.outputs["out"].ok_count > 4000
    found, report = joined(tmp_path, combine, tables, memory={"limit": "2MiB"}, batch_size=300)
    assert report.spills > 0
    assert found == expected
    tables = {name: table.slice(0, 600) for name, table in tables.items()}
    files = [joined(tmp_path, combine, tables, batch_size=size)[0] for size in (1, 7, 2048)]
    assert files[0] == files[1] == files[2] != b""


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_a_sort_merge_join_gives_duckdbs_rows_in_the_order_of_keys(
    how: str, tmp_path: Path
) -> None:
    tables = {"a": requests(2000), "b": incidents(2500)}
    joined(tmp_path, {**MERGE, "how": how}, tables)
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        expected = connection.sql(
            "SELECT id, coalesce(host, server) AS h, coalesce(code, status) AS c, ts, text, "
            f"number, begun, ended, note FROM a {how} JOIN b ON host = server AND code = status "
            "ORDER BY h NULLS LAST, c NULLS LAST, id NULLS LAST, number"
        ).fetchall()
    assert [tuple(row.values()) for row in lines_of(tmp_path / "out.ndjson")] == expected


def test_a_range_join_gives_duckdbs_rows_in_the_order_of_points(tmp_path: Path) -> None:
    tables = {"a": requests(2000), "b": incidents(2500)}
    joined(tmp_path, {**RANGE, "how": "left"}, tables)
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        expected = connection.sql(
            "SELECT id, host, code, ts, text, status, number, begun, ended, note "
            "FROM a LEFT JOIN b ON host = server AND ts IS NOT NULL "
            "AND (begun IS NULL OR ts >= begun) AND (ended IS NULL OR ts < ended) "
            "ORDER BY host NULLS LAST, ts NULLS LAST, id, begun NULLS FIRST, number"
        ).fetchall()
    assert [tuple(row.values()) for row in lines_of(tmp_path / "out.ndjson")] == expected


def test_an_asof_join_gives_duckdbs_rows_in_the_order_of_time(tmp_path: Path) -> None:
    tables = {"a": requests(2000), "b": incidents(2500)}
    # Of two at the same time DuckDB takes any.
    first = np.unique(np.asarray(tables["b"]["begun"].fill_null(-1)), return_index=True)[1]
    tables["b"] = tables["b"].take(pa.array(np.sort(first)))
    joined(tmp_path, {**ASOF, "how": "left"}, tables)
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        expected = connection.sql(
            "SELECT id, host, code, ts, text, status, number, begun, ended, note "
            "FROM a ASOF LEFT JOIN b ON host = server AND ts >= begun "
            "ORDER BY host NULLS LAST, ts NULLS LAST, id"
        ).fetchall()
    assert [tuple(row.values()) for row in lines_of(tmp_path / "out.ndjson")] == expected


def test_inputs_that_are_sorted_are_not_sorted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both by the keys the other way round, and downwards; the join goes by that order."""
    nodes = {
        **sources("a", "b"),
        "s": {"sort": {"input": "a", "by": "code:desc,host:nulls_first,id:desc"}},
        "t": {"sort": {"input": "b", "by": "status:desc,server:nulls_first"}},
        "u": {"transform": {"input": "t", "filter": "number >= 0"}},
        "j": {"combine": {**MERGE, "probe": "s", "build": "u", "how": "full"}},
        "out": {"output": {"input": "j", "path": str(tmp_path / "sorted.ndjson")}},
    }
    tables = {"a": requests(900), "b": incidents(700)}
    with monkeypatch.context() as patch:
        patch.setattr(sorted_combine, "Sorter", None)
        run_of(nodes, tables).run()
    rows = lines_of(tmp_path / "sorted.ndjson")
    codes = [row["code"] for row in rows]
    assert codes == sorted(codes, reverse=True)
    joined(tmp_path, {**MERGE, "how": "full"}, tables)
    others = lines_of(tmp_path / "out.ndjson")
    assert sorted(map(str, rows)) == sorted(map(str, others)) and rows != others


@pytest.mark.parametrize(
    "types",
    [
        (pa.int64(), pa.int32(), pa.int16()), (pa.uint64(), pa.int64(), pa.int8()),
        (pa.int16(), pa.decimal128(14, 2), pa.int16()), (pa.float32(), pa.float64(), pa.float64()),
        (pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("s")),
        (pa.timestamp("ns", "UTC"), pa.timestamp("s", "Europe/Berlin"), pa.timestamp("s", "UTC")),
        (pa.timestamp("us"), pa.timestamp("us"), pa.timestamp("s")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["range", "asof"])
def test_points_compare_by_value_with_bounds_of_other_widths_and_units(
    method: str, types: tuple[pa.DataType, ...], tmp_path: Path
) -> None:
    """A timestamp is a number of seconds here."""

    def numbers(dtype: pa.DataType, *values: int | None) -> pa.Array:
        column = pa.array(values, pa.int32())
        if not pa.types.is_timestamp(dtype):
            return column.cast(dtype)
        return column.cast(pa.int64()).cast(pa.timestamp("s", dtype.tz)).cast(dtype)

    of_point, of_begin, of_end = types
    tables = {
        "a": pa.table({"p": numbers(of_point, 6, 1, 4, None, 9), "n": range(5)}),
        "b": pa.table(
            {"lo": numbers(of_begin, 5, 2, 4), "hi": numbers(of_end, 7, 5, None), "m": range(3)}
        ),
    }
    combine: dict[str, Any] = {"probe": "a", "build": "b", "method": method, "how": "left"}
    is_range = method == "range"
    if is_range:
        combine["range"] = {"column": "p", "from": "lo", "to": "hi"}
    else:
        combine["at"] = {"p": "lo"}
    run = {
        **sources("a", "b"),
        "j": {"combine": combine},
        "out": {"output": {"input": "j", "path": str(tmp_path / "out.parquet")}},
    }
    run_of(run, tables).run()
    found = pq.read_table(tmp_path / "out.parquet")
    assert set(found.column_names) == {"p", "n", "lo", "hi", "m"}
    pairs = zip(found["n"].to_pylist(), found["m"].to_pylist(), strict=True)
    if is_range:
        assert list(pairs) == [(1, None), (2, 1), (2, 2), (0, 2), (0, 0), (4, 2), (3, None)]
    else:
        assert list(pairs) == [(1, None), (2, 2), (0, 0), (4, 0), (3, None)]


def test_a_join_of_one_source_with_itself_and_of_joins(tmp_path: Path) -> None:
    """The second goes by the order that the first left its rows in."""
    again = {"transform": {"input": "a", "columns": {"other": "id", "h": "host", "c": "code"}}}
    nodes = {
        **sources("a", "b"),
        "again": again,
        "j": {
            "combine": {
                "probe": "a", "build": "again", "on": {"host": "h", "code": "c"}, "method": "sort_merge",
            }
        },
        "k": {"combine": {**MERGE, "probe": "j", "how": "left"}},
        "g": {"aggregate": {"input": "k", "group_by": ["code", "host"], "columns": {"n": "count"}}},
        "out": {"output": {"input": "g", "path": str(tmp_path / "out.ndjson")}},
    }  # fmt: skip
    tables = {"a": requests(1000), "b": incidents(800)}
    run_of(nodes, tables).run()
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        expected = connection.sql(
            "SELECT a.code, a.host, count(*) FROM a JOIN a AS c ON a.host = c.host AND a.code = c.code "
            "LEFT JOIN b ON a.host = server AND a.code = status GROUP BY ALL ORDER BY a.host, a.code"
        ).fetchall()
    assert [tuple(row.values()) for row in lines_of(tmp_path / "out.ndjson")] == expected


@pytest.mark.parametrize("combine", [MERGE, RANGE, ASOF])
def test_of_nothing_comes_nothing(combine: dict[str, Any], tmp_path: Path) -> None:
    tables = {"a": requests(20), "b": incidents(20)}
    for empty in ("a", "b"):
        given = {**tables, empty: tables[empty].slice(0, 0)}
        assert joined(tmp_path, combine, given)[0] == b""
        _, report = joined(tmp_path, {**combine, "how": "left"}, given)
        assert report.outputs["out"].records_written == given["a"].num_rows


@pytest.mark.parametrize("combine", [MERGE, RANGE, ASOF])
def test_beyond_the_limit_an_error_names_the_node(combine: dict[str, Any], tmp_path: Path) -> None:
    wide = requests(8).drop_columns("text").append_column("text", pa.array(["x" * (1 << 21)] * 8))
    with refuses(MemoryLimitError):
        joined(tmp_path, combine, {"a": wide, "b": incidents(9)}, memory={"limit": "2MiB"})
    assert list(tmp_path.iterdir()) == []


def test_columns_of_any_type_are_carried_through(tmp_path: Path) -> None:
    left = pa.table(
        {
            "k": pa.array(["b", "a", None, "a"]).dictionary_encode(),
            "tags": pa.array([[1], None, [2, 3], []]),
            "more": pa.array([[("x", 1)], None, [], [("y", 2)]], pa.map_(pa.string(), pa.int64())),
            "at": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
        }
    )
    right = pa.table({"k": ["a", "c"], "s": [{"u": 1}, {"u": 2}]})
    combine = {"probe": "a", "build": "b", "on": ["k"], "method": "sort_merge", "how": "full"}
    joined(tmp_path, combine, {"a": left, "b": right})
    rows = lines_of(tmp_path / "out.ndjson")
    assert [(row["k"], row["tags"], row["s"]) for row in rows] == [
        ("a", None, {"u": 1}),
        ("a", [], {"u": 1}),
        ("b", [1], None),
        ("c", None, {"u": 2}),
        (None, [2, 3], None),
    ]
    assert rows[1]["more"] == {"y": 2}
