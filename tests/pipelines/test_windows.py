"""Windows as nodes of a pipeline: whatever the batches, the order of the input and the memory."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from compactor.errors import ConfigError, DataError
from compactor.pipelines.config import parse_pipeline
from tests.pipelines.support import Gated, lines_of, run_of, sources
from tests.support.wording import refuses

Row = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)


def log(rows: int, seed: int = 1) -> pa.Table:
    """In no order; some times are equal, some rows have none."""
    rng = random.Random(seed)
    times = [START + timedelta(milliseconds=rng.randrange(rows * 40)) for _ in range(rows)]
    return pa.table(
        {
            "id": range(rows),
            "service": [rng.choice(["api", "db", "web", None]) for _ in range(rows)],
            "ts": pa.array(
                [None if rng.random() < 0.05 else t for t in times], pa.timestamp("ms", "UTC")
            ),
            "size": [rng.choice([None, rng.randrange(1000)]) for _ in range(rows)],
            "load": [rng.random() for _ in range(rows)],
            "text": [f"{'x' * rng.randrange(60)}" for _ in range(rows)],
        }
    )


WINDOWED = {
    "input": "a",
    "filter": "text <> 'x'",
    "window": {"partition_by": ["service"], "order_by": "ts:desc"},
    "columns": {
        "id": "id",
        "n": "row_number()",
        "since": "cast(lag(ts) - ts as bigint)",
        "next": "lead(id, 2)",
        "total": "coalesce(sum(size), 0)",
        "load": "sum(load)",
        "longest": "max(text) || upper(service)",
    },
}


def window_oracle(table: pa.Table) -> list[Row]:
    rows = [row for row in table.to_pylist() if row["text"] != "x"]
    late = datetime(9000, 1, 1, tzinfo=UTC)
    rows.sort(key=lambda r: (r["service"] or "~", r["ts"] is None, late - (r["ts"] or late)))
    found = []
    for place, row in enumerate(rows):
        part = [r for r in rows[: place + 1] if r["service"] == row["service"]]
        before = part[-2]["ts"] if len(part) > 1 else None
        ahead = rows[place + 2] if place + 2 < len(rows) else {"service": "none", "id": None}
        load = 0.0
        for r in part:
            load += r["load"]
        found.append(
            {
                "id": row["id"],
                "n": len(part),
                "since": (before - row["ts"]) // timedelta(milliseconds=1) if before and row["ts"] else None,
                "next": ahead["id"] if ahead["service"] == row["service"] else None,
                "total": sum(r["size"] or 0 for r in part),
                "load": load,
                "longest": None if row["service"] is None
                else max(r["text"] for r in part) + row["service"].upper(),
            }
        )  # fmt: skip
    return found


TIMED = {
    "input": "a",
    "window": {"column": "ts", "size": "5s", "slide": "2s"},
    "group_by": ["service"],
    "columns": {"rows": "count", "sizes": "sum(size)", "longest": "max(text)"},
}


def timed_oracle(table: pa.Table) -> list[Row]:
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in table.to_pylist():
        if row["ts"] is not None:
            second = (row["ts"] - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)
            for start in range(int(second) // 2 * 2 - 8, int(second) + 1, 2):
                if start <= second < start + 5:
                    groups.setdefault((start, row["service"] or "~"), []).append(row)
    found = []
    for start, service in sorted(groups):
        rows = groups[start, service]
        sizes = [row["size"] for row in rows if row["size"] is not None]
        bounds = [datetime.fromtimestamp(at, UTC) for at in (start, start + 5)]
        found.append(
            {
                "window_start": bounds[0],
                "window_end": bounds[1],
                "service": None if service == "~" else service,
                "rows": len(rows),
                "sizes": sum(sizes) if sizes else None,
                "longest": max(row["text"] for row in rows),
            }
        )
    return found


def run_one(
    kind: str, settings: Row, table: pa.Table, path: Path, batch_rows: int = 1000, **more: Any
) -> Any:
    nodes = {
        **sources("a"),
        "w": {kind: settings},
        "out": {"output": {"input": "w", "path": str(path)}},
    }
    return run_of(nodes, {"a": Gated(table, batch_rows)}, **more).run()


BOTH = pytest.mark.parametrize(
    ("kind", "settings", "oracle"),
    [("transform", WINDOWED, window_oracle), ("aggregate", TIMED, timed_oracle)],
    ids=["rows", "time"],
)


@pytest.mark.long
@BOTH
def test_windows_give_what_plain_python_gives_whatever_the_batches(
    kind: str, settings: Row, oracle: Any, tmp_path: Path
) -> None:
    table = log(700)
    files = []
    for batch_size in (1, 7, 2048, 1_000_000):
        path = tmp_path / f"{batch_size}.parquet"
        report = run_one(kind, settings, table, path, 100, batch_size=batch_size)
        files.append(path.with_suffix(".ndjson"))
        run_one(kind, settings, table, files[-1], 100, batch_size=batch_size)
        assert pq.read_table(path).to_pylist() == oracle(table)
        assert report.records_without_time == (
            {"w": table.column("ts").null_count} if kind == "aggregate" else {}
        )
    assert len({path.read_bytes() for path in files}) == 1


def test_a_column_of_the_partition_may_also_stand_in_its_order(tmp_path: Path) -> None:
    out = tmp_path / "o.ndjson"
    window = {"partition_by": ["g"], "order_by": "g:desc,n:desc"}
    nodes = {
        **sources("a"),
        "w": {"transform": {"input": "a", "window": window, "columns": {"n": "n", "b": "lag(n)"}}},
        "out": {"output": {"input": "w", "path": str(out)}},
    }
    run_of(nodes, {"a": pa.table({"g": [2, 1, 2], "n": [1, 2, 3]})}).run()
    assert [tuple(row.values()) for row in lines_of(out)] == [(2, None), (3, None), (1, 3)]


@BOTH
def test_windows_spill_and_give_the_same_bytes(
    kind: str, settings: Row, oracle: Any, tmp_path: Path
) -> None:
    table = log(60_000 if kind == "transform" else 20_000)
    group_by = {"group_by": ["id"]} if kind == "aggregate" else {}
    found = []
    for limit in ("64MiB", "2MiB"):
        path = tmp_path / f"{limit}.csv"
        report = run_one(kind, {**settings, **group_by}, table, path, memory={"limit": limit})
        assert (report.spills > 0) == (limit == "2MiB")
        assert report.peak_bytes <= int(limit.removesuffix("MiB")) << 20
        assert report.outputs["out"].ok_count == report.outputs["out"].records_written
        found.append(path.read_bytes())
    assert found[0] == found[1] and len(found[0]) > 1_000_000


def test_a_batch_size_of_its_own_changes_nothing(tmp_path: Path) -> None:
    table = log(400)
    for name, more in (("one", {}), ("two", {"batch_size": 3})):
        run_one("transform", {**WINDOWED, **more}, table, tmp_path / f"{name}.ndjson")
    assert (tmp_path / "one.ndjson").read_bytes() == (tmp_path / "two.ndjson").read_bytes()


def test_windows_of_time_are_those_of_duckdb(tmp_path: Path) -> None:
    rows_given = log(3000)
    settings = {**TIMED, "window": {"column": "ts", "size": "1m", "origin": "2026-01-01T00:00:13"}}
    del settings["group_by"]
    run_one("aggregate", settings, rows_given, tmp_path / "o.parquet")
    expected = (
        duckdb.connect()
        .execute(
            "select time_bucket(interval '1 minute', ts at time zone 'UTC', "
            "timestamp '2026-01-01 00:00:13') s, s + interval '1 minute', count(*), sum(size)::bigint, "
            "max(text) from rows_given where ts is not null group by 1 order by 1"
        )
        .fetchall()
    )
    found = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [
        (r["window_start"].replace(tzinfo=None), r["window_end"].replace(tzinfo=None), r["rows"], r["sizes"],
         r["longest"])
        for r in found
    ] == expected  # fmt: skip
    assert len(found) == 3


def test_rows_that_an_argument_is_not_defined_of_are_in_no_window(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2, 3, 4], "by": [1, 0, 2, 1], "text": ["1", "2", "3", "x"]})
    columns = {"n": "n", "s": "sum(12 / by)", "t": "cast(text as bigint) + row_number()"}
    settings = {"input": "a", "window": {"order_by": "n"}, "columns": columns}
    with refuses(DataError):
        run_one("transform", settings, table, tmp_path / "o.ndjson")
    letters = str(tmp_path / "bad.ndjson")
    report = run_one(
        "transform",
        settings,
        table,
        tmp_path / "o.ndjson",
        on_error="continue",
        dead_letter=letters,
    )
    # The last row was in the window: only what was made of it failed.
    assert lines_of(tmp_path / "o.ndjson") == [{"n": 1, "s": 12, "t": 2}, {"n": 3, "s": 18, "t": 5}]
    assert report.dlq_count == 2
    assert [(row["row"], row["node"]) for row in lines_of(Path(letters))] == [(2, "w"), (4, "w")]


def test_rows_of_a_window_keep_their_groups_and_are_one_document(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2, 3, 4], "key": ["x", "y", "x", "z"], "text": ["1", "2", "x", "4"]})
    columns = {"n": "n", "s": "sum(n)", "t": "cast(text as bigint) + lag(n)"}
    nodes = {
        "a": {"source": {"path": "a", "correlation_key": "key"}},
        "w": {"transform": {"input": "a", "window": {"order_by": "n:desc"}, "columns": columns}},
        "out": {"output": {"input": "w", "path": str(tmp_path / "o.ndjson")}},
    }
    letters = tmp_path / "bad.ndjson"
    given = {"a": Gated(table, 1)}
    report = run_of(nodes, given, on_error="continue", dead_letter=str(letters)).run()
    # The group of the bad row is put aside whole, after the window saw its other row.
    assert lines_of(tmp_path / "o.ndjson") == [
        {"n": 4, "s": 4, "t": None},
        {"n": 2, "s": 9, "t": 5},
    ]
    assert sorted(row["row"] for row in lines_of(letters)) == [1, 3]
    assert (report.dlq_count, report.outputs["out"].documents) == (2, 1)


def test_times_whose_windows_have_no_bounds_are_bad_records(tmp_path: Path) -> None:
    times = pa.array([0, 2**63 - 1, 10**9], pa.timestamp("ns"))
    settings = {"input": "a", "window": {"column": "t", "size": "1h"}, "columns": {"n": "count"}}
    table = pa.table({"t": times})
    with refuses(DataError):
        run_one("aggregate", settings, table, tmp_path / "o.ndjson")
    letters = str(tmp_path / "bad.ndjson")
    more: Row = {"on_error": "continue", "dead_letter": letters}
    report = run_one("aggregate", settings, table, tmp_path / "o.ndjson", **more)
    assert (report.dlq_count, [row["n"] for row in lines_of(tmp_path / "o.ndjson")]) == (1, [2])


def test_windows_over_windows_branches_and_shared_rows(tmp_path: Path) -> None:
    table = log(500)
    number = {"window": {"order_by": "ts,id"}, "columns": {"id": "id", "n": "row_number()"}}
    nodes = {
        **sources("a"),
        "r": {"route": {"input": "a", "branches": {"big": "size > 500"}, "otherwise": "rest"}},
        "w": {"transform": {"input": "r.big", **number}},
        "v": {
            "transform": {
                "input": "w",
                "window": {"order_by": "n:desc"},
                "columns": {"s": "sum(n)"},
            }
        },
        "x": {"transform": {"input": "r.rest", **number}},
        "out": {"output": {"input": "v", "path": str(tmp_path / "v.ndjson")}},
        "two": {"output": {"input": "x", "path": str(tmp_path / "x.ndjson")}},
        "three": {"output": {"input": "w", "path": str(tmp_path / "w.ndjson")}},
    }
    run_of(nodes, {"a": table}).run()
    big = [r for r in table.to_pylist() if (r["size"] or 0) > 500]
    ordered = sorted(big, key=lambda r: (r["ts"] is None, r["ts"] or START, r["id"]))
    assert lines_of(tmp_path / "w.ndjson") == [
        {"id": r["id"], "n": n} for n, r in enumerate(ordered, 1)
    ]
    sums = [sum(range(n, len(big) + 1)) for n in range(len(big), 0, -1)]
    assert [row["s"] for row in lines_of(tmp_path / "v.ndjson")] == sums
    assert len(lines_of(tmp_path / "x.ndjson")) == 500 - len(big)


def test_sessions_are_counted_by_the_gaps_between_times(tmp_path: Path) -> None:
    table = log(400).filter(pc.equal(pc.bit_wise_and(pa.array(range(400)), 7), 0))
    gap = "case when ts - lag(ts) > interval '1 second' then 1 else 0 end"
    by = {"partition_by": ["service"], "order_by": "ts"}
    columns = {"service": "service", "ts": "ts"}
    nodes = {
        **sources("a"),
        "w": {"transform": {"input": "a", "filter": "ts IS NOT NULL", "window": by,
                            "columns": {**columns, "new": gap}}},
        "v": {"transform": {"input": "w", "window": by, "columns": {**columns, "session": "sum(new)"}}},
        "out": {"output": {"input": "v", "path": str(tmp_path / "o.parquet")}},
    }  # fmt: skip
    run_of(nodes, {"a": table}).run()
    rows = sorted((r["service"] or "~", r["ts"]) for r in table.to_pylist() if r["ts"] is not None)
    expected, session = [], 0
    for (before, last), (service, ts) in zip([("", START), *rows], rows, strict=False):
        session = 0 if before != service else session + (ts - last > timedelta(seconds=1))
        expected.append((service, ts, session))
    found = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [(r["service"] or "~", r["ts"], r["session"]) for r in found] == expected
    assert {s for _, _, s in expected} > {0, 1, 2}


def test_rows_of_a_window_are_in_order_for_what_comes_next(tmp_path: Path) -> None:
    table = log(300)
    window = {
        "window": {"partition_by": ["service"], "order_by": "id"},
        "columns": {"service": "service", "n": "row_number()"},
    }
    nodes = {
        **sources("a"),
        "w": {"transform": {"input": "a", **window}},
        "g": {"aggregate": {"input": "w", "group_by": ["service"], "columns": {"most": "max(n)"}}},
        "out": {"output": {"input": "g", "path": str(tmp_path / "o.ndjson")}},
    }
    run = run_of(nodes, {"a": table})
    assert str(run.forms["g"].form) == "built"
    run.run()
    services = table.column("service").to_pylist()
    assert lines_of(tmp_path / "o.ndjson") == [
        {"service": s, "most": services.count(s)} for s in ("api", "db", "web", None)
    ]


def test_no_rows_have_no_windows(tmp_path: Path) -> None:
    for kind, settings in (("transform", WINDOWED), ("aggregate", TIMED)):
        run_one(kind, settings, log(5).slice(0, 0), tmp_path / f"{kind}.ndjson")
        assert lines_of(tmp_path / f"{kind}.ndjson") == []


MISTAKES: dict[str, tuple[str, Row]] = {
    "order missing": ("transform", {"window": {}}),
    "no setting": ("transform", {"window": {"order_by": "n", "by": "n"}}),
    "no rows": ("transform", {"window": {"order_by": "n", "rows": 0}}),
    "too many rows": ("transform", {"window": {"order_by": "n", "rows": 10**9}}),
    "twice": ("transform", {"window": {"order_by": "n", "partition_by": ["s", "s"]}}),
    "no mapping": ("transform", {"window": "1m"}),
    "no groups and no calls": ("aggregate", {"columns": {}}),
    "no size": ("aggregate", {"window": {"column": "t"}, "columns": {}}),
    "number": ("aggregate", {"window": {"column": "t", "size": 30}, "columns": {}}),
    "long slide": ("aggregate", {"window": {"column": "t", "size": "1s", "slide": "2s"}, "columns": {}}),
    "our name": ("aggregate", {"window": {"column": "t", "size": "1s"}, "columns": {"window_end": "count"}}),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_in_a_window_are_named(case: str) -> None:
    kind, settings = MISTAKES[case]
    nodes = {**sources("a"), "w": {kind: {"input": "a", **settings}},
             "out": {"output": {"input": "w", "path": "o.csv"}}}  # fmt: skip
    with refuses(ConfigError):
        parse_pipeline(json.dumps({"nodes": nodes}), "t.yaml")


def test_a_mistake_in_a_window_has_its_own_line() -> None:
    text = """\
nodes:
  a: {source: {path: a.csv}}
  w:
    aggregate:
      input: a
      window:
        column: ts
        size: 1m
        slid: 30s
      columns: {n: count}
  out: {output: {input: w, path: o.csv}}
"""
    with refuses(ConfigError):
        parse_pipeline(text, "t.yaml")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (
            "transform",
            {"window": {"order_by": "nope"}},
        ),
        (
            "transform",
            {"window": {"order_by": "id:up"}},
        ),
        (
            "transform",
            {"window": {"order_by": "id"}, "columns": {"x": "lag(nope)"}},
        ),
        (
            "transform",
            {"columns": {"x": "lag(id)"}},
        ),
        ("transform", {"window": {"order_by": "id"}, "filter": "row_number() = 1"}),
        (
            "aggregate",
            {"window": {"column": "id", "size": "1s"}, "columns": {}},
        ),
        (
            "aggregate",
            {"window": {"column": "ts", "size": "1us"}, "columns": {}},
        ),
    ],
)
def test_what_does_not_fit_the_columns_is_refused(kind: str, settings: Row, tmp_path: Path) -> None:
    with refuses(ConfigError):
        run_one(kind, {"input": "a", **settings}, log(3), tmp_path / "o.csv")
    assert list(tmp_path.iterdir()) == []
