"""What nodes make of rows, held against plain Python; what memory, errors and batch sizes change: nothing."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Table
from compactor.errors import ConfigError, DataError, InputError
from compactor.pipelines.binding import UnserializableMapValue
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.nodes.transform import Transformer
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.work import AHEAD_BYTES
from compactor.predicate import parse_where
from compactor.predicate.computed import Expression
from compactor.predicate.tree import matching
from compactor.resources.errors import MemoryLimitError
from tests.pipelines.support import MIB, Gated, lines_of, numbered, run_of, sources
from tests.support.wording import refuses


def events(rows: int, seed: int = 1) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "id": range(rows),
            "who": [f"user-{rng.randrange(rows // 5 + 1)}" for _ in range(rows)],
            "size": [rng.choice([None, rng.randrange(1000)]) for _ in range(rows)],
            "level": [rng.choice(["info", "warn", "error"]) for _ in range(rows)],
            "text": [f"{rng.random()} {'x' * rng.randrange(60)}" for _ in range(rows)],
        }
    )


def out(tmp_path: Path, node: str, name: str = "out.ndjson") -> dict[str, Any]:
    return {name.split(".")[0]: {"output": {"input": node, "path": str(tmp_path / name)}}}


def test_casts_know_every_year_and_every_scale(tmp_path: Path) -> None:
    odd = (
        pa.array([pa.scalar(7, pa.int64())]).cast(pa.decimal128(19, 0)).view(pa.decimal128(19, 39))
    )
    table = pa.table(
        {
            "t": pa.array([253_402_300_800], pa.timestamp("s")),
            "d": pa.array([-719_529], pa.int32()).view(pa.date32()),
            "n": odd,
            "text": ["-0001-12-31T23:59:59"],
        }
    )
    columns = {
        "t": "cast(t as varchar)",
        "d": "d || ''",
        "n": "cast(n as text)",
        "back": "cast(text as timestamp)",
        "fixed": "cast('+10000-01-01' as date)",
    }
    nodes = {
        "a": {"source": {"path": "a"}},
        "t": {"transform": {"input": "a", "columns": columns}},
        "o": {"output": {"input": "t", "path": str(tmp_path / "o.ndjson")}},
    }
    run_of(nodes, {"a": table}).run()
    assert lines_of(tmp_path / "o.ndjson") == [
        {
            "t": "+10000-01-01 00:00:00",
            "d": "-0001-12-31",
            "n": "7E-39",
            "back": "-0001-12-31T23:59:59.000000",
            "fixed": "+10000-01-01",
        }
    ]


def test_rows_are_filtered_and_columns_computed(tmp_path: Path) -> None:
    table = events(500)
    columns = {"id": "id", "big": "size > 500 AND level <> 'info'", "s": "upper(level) || '-' || who",
               "n": "coalesce(size, -1) * 2 + length(text)", "kind": "case when size is null then 'none' "
               "when size < 10 then 'small' else 'large' end"}  # fmt: skip
    nodes = {
        **sources("a"),
        "t": {
            "transform": {"input": "a", "filter": "level IN ('warn', 'error')", "columns": columns}
        },
    }
    run_of({**nodes, **out(tmp_path, "t")}, {"a": table}).run()

    def kind(size: int | None) -> str:
        return "none" if size is None else "small" if size < 10 else "large"

    assert lines_of(tmp_path / "out.ndjson") == [
        {
            "id": row["id"],
            "big": None if row["size"] is None else row["size"] > 500,
            "s": f"{row['level'].upper()}-{row['who']}",
            "n": (-1 if row["size"] is None else row["size"]) * 2 + len(row["text"]),
            "kind": kind(row["size"]),
        }
        for row in table.to_pylist()
        if row["level"] != "info"
    ]


def test_a_route_gives_each_row_to_its_first_branch(tmp_path: Path) -> None:
    table = events(300)
    route = {
        "input": "a",
        "branches": {"big": "size > 500", "bad": "level = 'error'"},
        "otherwise": "rest",
    }
    nodes = {**sources("a"), "r": {"route": route}}
    for branch in ("big", "bad", "rest"):
        nodes |= out(tmp_path, f"r.{branch}", f"{branch}.ndjson")
    report = run_of(nodes, {"a": table}).run()
    expected: dict[str, list[int]] = defaultdict(list)
    for row in table.to_pylist():
        is_big = row["size"] is not None and row["size"] > 500
        expected["big" if is_big else "bad" if row["level"] == "error" else "rest"].append(
            row["id"]
        )
    for branch, ids in expected.items():
        assert [row["id"] for row in lines_of(tmp_path / f"{branch}.ndjson")] == ids
        assert report.outputs[branch].ok_count == len(ids)


SORT = {"s": {"sort": {"input": "a", "by": "level:desc,size:nulls_first,who"}}}
AGGREGATE = {
    "s": {
        "aggregate": {
            "input": "a",
            "group_by": ["who", "level"],
            "columns": {"rows": "count", "sizes": "count(size)", "total": "sum(size)", "least": "min(text)",
                        "most": "max(id)", "mean": "mean(size)"},
        }
    }
}  # fmt: skip


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    order = {"warn": 0, "info": 1, "error": 2}
    return sorted(
        table.to_pylist(),
        key=lambda r: (order[r["level"]], r["size"] is not None, r["size"] or 0, r["who"].encode()),
    )


def grouped_rows(table: pa.Table) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in table.to_pylist():
        groups[row["who"], row["level"]].append(row)
    found = []
    for who, level in sorted(groups):
        rows = groups[who, level]
        sizes = [row["size"] for row in rows if row["size"] is not None]
        found.append(
            {
                "who": who,
                "level": level,
                "rows": len(rows),
                "sizes": len(sizes),
                "total": sum(sizes) if sizes else None,
                "least": min(row["text"] for row in rows),
                "most": max(row["id"] for row in rows),
                "mean": sum(sizes) / len(sizes) if sizes else None,
            }
        )
    return found


@pytest.mark.parametrize(("nodes", "oracle"), [(SORT, sorted_rows), (AGGREGATE, grouped_rows)])
def test_blocking_stages_give_the_same_rows_with_and_without_memory(
    nodes: dict[str, Any], oracle: Any, tmp_path: Path
) -> None:
    table = events(40_000)
    assert table.nbytes > 3 * MIB
    files = []
    for limit, batch_size in (("512MiB", 2048), ("2MiB", 300)):
        name = f"o{limit}.ndjson"
        run = run_of(
            {**sources("a"), **nodes, **out(tmp_path, "s", name)},
            {"a": table},
            memory={"limit": limit},
            batch_size=batch_size,
        )
        report = run.run()
        assert (report.spills > 0) == (limit == "2MiB")
        assert report.peak_bytes <= run._work.budget.limit_bytes
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
    assert lines_of(tmp_path / "o2MiB.ndjson") == oracle(table)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_combine_joins_rows_whose_columns_are_equal(how: str, tmp_path: Path) -> None:
    left = events(400).append_column(
        "key", pa.array([n % 7 if n % 5 else None for n in range(400)])
    )
    right = pa.table(
        {"k": [0, 1, 1, 3, None, 9], "level": ["info"] * 2 + ["warn"] * 4, "note": list("abcdef")}
    )
    combine = {"probe": "a", "build": "b", "on": {"key": "k", "level": "level"}, "how": how}
    nodes = {**sources("a", "b"), "c": {"combine": combine}}
    run_of({**nodes, **out(tmp_path, "c")}, {"a": left, "b": right}).run()
    expected = []
    for row in left.to_pylist():
        wanted = row["key"], row["level"]
        notes = [r["note"] for r in right.to_pylist() if (r["k"], r["level"]) == wanted]
        notes = [] if row["key"] is None else notes
        if not notes and how == "left":
            notes = [None]
        expected += [(row["id"], note) for note in notes]
    rows = lines_of(tmp_path / "out.ndjson")
    assert [row["id"] for row in rows] == [n for n, _ in expected]
    assert sorted((r["id"], r["note"] or "") for r in rows) == sorted(
        (n, t or "") for n, t in expected
    )


@pytest.mark.parametrize("batch_size", [1, 7, 2048, 1_000_000])
def test_a_batch_size_changes_no_byte(batch_size: int, tmp_path: Path) -> None:
    tables = {"a": events(600), "b": events(500, 2)}
    nodes = {
        **sources("a", "b"),
        "t": {"transform": {"input": "a", "filter": "id <> 3", "columns": ["id", "who", "size"]}},
        "u": {"transform": {"input": "b", "columns": {"id": "id + 1", "who": "who", "size": "size"}}},
        "m": {"merge": {"inputs": ["t", "u"], "mode": "interleave"}},
        "s": {"sort": {"input": "m", "by": "who"}},
        "g": {"aggregate": {"input": "m", "group_by": ["who"], "columns": {"n": "count", "s": "sum(size)"}}},
        **out(tmp_path, "s", "s_out.ndjson"),
        **out(tmp_path, "g", "g_out.csv"),
        **out(tmp_path, "m", "m_out.ndjson"),
    }  # fmt: skip
    report = run_of(nodes, tables, batch_size=batch_size).run()
    assert report.outputs["s_out"].ok_count == 1099
    found = {
        name: (tmp_path / name).read_bytes()
        for name in ("s_out.ndjson", "g_out.csv", "m_out.ndjson")
    }
    run_of(nodes, tables, batch_size=64).run()
    assert found == {name: (tmp_path / name).read_bytes() for name in found}


def test_counters_are_the_same_live_and_not(tmp_path: Path) -> None:
    tables = {"a": numbered("a", 10), "b": numbered("b", 10)}
    reports = []
    for settings in ({}, {"interleave_seed": 1}):
        merge = {"m": {"merge": {"inputs": ["a", "b"], "mode": "interleave", **settings}}}
        reports.append(run_of({**sources("a", "b"), **merge, **out(tmp_path, "m")}, tables).run())
    live, held = (report.outputs["out"] for report in reports)
    assert (live.live, held.live) == (True, False)
    for report in reports:
        o = report.outputs["out"]
        assert (o.records_written, o.ok_count, report.dlq_count) == (20, 20, 0)
        assert set(report.node_seconds) >= {"a", "b", "out"}


def test_a_row_that_comes_on_two_ways_counts_once(tmp_path: Path) -> None:
    nodes = {
        **sources("a"),
        "t": {"transform": {"input": "a", "filter": "n < 7"}},
        "u": {"transform": {"input": "a", "filter": "n > 3"}},
        "m": {"merge": {"inputs": ["t", "u"]}},
    }
    report = run_of({**nodes, **out(tmp_path, "m")}, {"a": numbered("a", 10)}).run()
    assert (report.outputs["out"].records_written, report.outputs["out"].ok_count) == (13, 10)


@pytest.mark.parametrize(("threads", "ahead"), [(1, 0), (2, 2 * AHEAD_BYTES)])
def test_a_fused_chain_holds_no_more_of_ten_times_the_rows(
    tmp_path: Path, threads: int, ahead: int
) -> None:
    peaks = []
    for rows in (20_000, 200_000):
        tables = {name: numbered(name, rows) for name in "ab"}
        nodes = {**sources(*tables), "m": {"merge": {"inputs": ["a", "b"], "mode": "interleave"}}}
        nodes |= out(tmp_path, "m", "o.arrow")
        peaks.append(run_of(nodes, tables, threads=threads).run().peak_bytes - ahead)
    assert peaks[1] <= 1.5 * peaks[0] < 400_000


def test_a_document_of_5000_records_comes_whole_and_in_order(tmp_path: Path) -> None:
    nodes = {**sources("a"), "t": {"transform": {"input": "a"}}}
    run_of(
        {**nodes, **out(tmp_path, "t")}, {"a": Gated(numbered("a", 5000), 5000)}, batch_size=2048
    ).run()
    assert [row["n"] for row in lines_of(tmp_path / "out.ndjson")] == list(range(5000))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_combine_gives_the_same_bytes_when_its_build_side_does_not_fit(
    how: str, tmp_path: Path
) -> None:
    left = events(20_000)
    right = (
        events(40_000, 2).select(["who", "level", "text"]).rename_columns(["user", "level", "note"])
    )
    combine = {"probe": "a", "build": "b", "on": {"who": "user", "level": "level"}, "how": how}
    found = []
    for limit in ("512MiB", "3MiB"):
        nodes = {
            **sources("a", "b"),
            "c": {"combine": combine},
            **out(tmp_path, "c", f"o{limit}.csv"),
        }
        run = run_of(nodes, {"a": left, "b": right}, memory={"limit": limit})
        report = run.run()
        assert (report.spills > 0) == (limit == "3MiB")
        assert report.peak_bytes <= run._work.budget.limit_bytes
        found.append((tmp_path / f"o{limit}.csv").read_bytes())
    assert found[0] == found[1]
    assert len(found[0]) > 1_000_000


def test_beyond_the_limit_an_error_names_the_stage(tmp_path: Path) -> None:
    """Of one key there is nothing to divide."""
    same = pa.array([1] * 60_000)
    tables = {"a": numbered("a", 10), "b": events(60_000).append_column("n", same)}
    nodes = {**sources("a", "b"), "join": {"combine": {"probe": "a", "build": "b", "on": ["n"]}}}
    with refuses(MemoryLimitError):
        run_of({**nodes, **out(tmp_path, "join")}, tables, memory={"limit": "2MiB"}).run()
    assert list(tmp_path.iterdir()) == []


BAD = pa.table({"n": [1, 2, 0, 4, 0, 6]})
DIVIDES = {**sources("a"), "t": {"transform": {"input": "a", "columns": {"n": "12 / n"}}}}


def test_a_bad_record_ends_the_run_and_nothing_is_written(tmp_path: Path) -> None:
    with refuses(DataError):
        run_of({**DIVIDES, **out(tmp_path, "t")}, {"a": Gated(BAD)}).run()
    assert list(tmp_path.iterdir()) == []


def test_bad_records_may_be_put_aside_with_source_row_and_reason(tmp_path: Path) -> None:
    letters = tmp_path / "bad.ndjson"
    report = run_of(
        {**DIVIDES, **out(tmp_path, "t")}, {"a": BAD}, on_error="continue", dead_letter=str(letters)
    ).run()
    assert [row["n"] for row in lines_of(tmp_path / "out.ndjson")] == [12, 6, 3, 2]
    assert [(r["source"], r["row"], r["reason"]) for r in lines_of(letters)] == [
        ("a", 3, "column 'n': divide by zero"),
        ("a", 5, "column 'n': divide by zero"),
    ]
    assert (report.dlq_count, report.outputs["out"].ok_count) == (2, 4)


@pytest.mark.parametrize("mode", ["interleave", "concat"])
def test_maps_are_refused_by_csv_on_both_paths_and_nested_in_ndjson(
    mode: str, tmp_path: Path
) -> None:
    maps = pa.array([[("x", 1)], None], pa.map_(pa.string(), pa.int64()))
    table = pa.table({"n": [1, 2], "deep": pa.StructArray.from_arrays([maps], ["m"])})
    nodes = {**sources("a", "b"), "m": {"merge": {"inputs": ["a", "b"], "mode": mode}}}
    with refuses(UnserializableMapValue) as caught:
        run_of({**nodes, **out(tmp_path, "m", "out.csv.gz")}, {"a": table, "b": table}).run()
    assert (caught.value.format, caught.value.column) == ("csv", "deep")
    assert list(tmp_path.iterdir()) == []
    run_of({**nodes, **out(tmp_path, "m")}, {"a": table, "b": table}).run()
    assert len(lines_of(tmp_path / "out.ndjson")) == 4


def test_files_of_several_kinds_go_into_a_table_and_out_of_it(tmp_path: Path) -> None:
    table = events(1000)
    (tmp_path / "a.ndjson").write_text("\n".join(map(json.dumps, table.slice(0, 600).to_pylist())))
    pq.write_table(table.slice(600), tmp_path / "b.parquet")
    nodes = {
        "a": {"source": {"path": str(tmp_path / "a.ndjson")}},
        "b": {"source": {"path": str(tmp_path / "b.parquet")}},
        "m": {"merge": {"inputs": ["a", "b"], "mode": "interleave"}},
        "t": {
            "transform": {
                "input": "m",
                "filter": "level = 'error'",
                "columns": ["id", "who", "size"],
            }
        },
        "out": {"output": {"input": "t", "table": str(tmp_path / "t"), "sort_by": "who,id"}},
    }
    PipelineRun(parse_pipeline(json.dumps({"nodes": nodes}), "x.yaml")).run()
    expected = sorted(
        (
            {k: r[k] for k in ("id", "who", "size")}
            for r in table.to_pylist()
            if r["level"] == "error"
        ),
        key=lambda r: (r["who"], r["id"]),
    )
    assert Table.open(tmp_path / "t").scan().to_table().to_pylist() == expected
    nodes = {
        "a": {"source": {"table": str(tmp_path / "t"), "where": "size > 900", "columns": ["id"]}},
        "out": {"output": {"input": "a", "path": str(tmp_path / "o.ndjson")}},
    }
    PipelineRun(parse_pipeline(json.dumps({"nodes": nodes}), "x.yaml")).run()
    assert lines_of(tmp_path / "o.ndjson") == [
        {"id": r["id"]} for r in expected if (r["size"] or 0) > 900
    ]


def test_groups_of_sorted_rows_leave_as_they_are_done(tmp_path: Path) -> None:
    table = events(30_000)
    columns = AGGREGATE["s"]["aggregate"]["columns"]
    nodes = {
        **sources("a"),
        "sorted": {"sort": {"input": "a", "by": "level,who"}},
        "s": {"aggregate": {"input": "sorted", "group_by": ["who", "level"], "columns": columns}},
    }
    for batch_size in (97, 5000):
        run = run_of({**nodes, **out(tmp_path, "s")}, {"a": table}, batch_size=batch_size)
        assert run.forms["s"].form == "built"
        run.run()
        rows = lines_of(tmp_path / "out.ndjson")
        assert rows == sorted(grouped_rows(table), key=lambda r: (r["level"], r["who"]))


def test_rows_are_written_as_xml_that_a_parser_reads_back(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [1, None],
            "odd name": ['a<b & "c"', ""],
            "tags": [["x", None, "<y>"], None],
            "at": pa.StructArray.from_arrays(
                [pa.array([0.5, None]), pa.array(["\u00e4\r\n", "z"])], ["x", "y"]
            ),
        }
    )
    run_of({**sources("a"), **out(tmp_path, "a", "out.xml")}, {"a": table}).run()
    first, second = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert [e.tag for e in first] == ["id", "column", "tags", "at"]
    assert first.findtext("id") == "1" and first.find("column").attrib == {"name": "odd name"}  # type: ignore[union-attr]
    assert first.findtext("column") == 'a<b & "c"'
    assert [item.text for item in first.findall("tags/item")] == ["x", None, "<y>"]
    assert (first.findtext("at/x"), first.findtext("at/y")) == ("0.5", "\u00e4\r\n")
    assert [e.tag for e in second] == ["column", "at"]


@pytest.mark.parametrize("mode", ["interleave", "concat"])
def test_xml_refuses_maps_and_what_it_has_no_character_for(mode: str, tmp_path: Path) -> None:
    maps = pa.table({"m": pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64()))})
    merge = {"m": {"merge": {"inputs": ["a", "b"], "mode": mode}}}
    with pytest.raises(UnserializableMapValue) as caught:
        run_of(
            {**sources("a", "b"), **merge, **out(tmp_path, "m", "o.xml")}, {"a": maps, "b": maps}
        ).run()
    assert (caught.value.format, caught.value.column) == ("xml", "m")
    odd = pa.table({"m": ["fine", "bell \x07"]})
    with refuses(InputError):
        run_of(
            {**sources("a", "b"), **merge, **out(tmp_path, "m", "o.xml")}, {"a": odd, "b": odd}
        ).run()
    assert list(tmp_path.iterdir()) == []


def test_several_files_are_one_source_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, rows in (("b", [3, 4]), ("a", [1, 2]), ("c", [None])):
        lines = [json.dumps({"n": n, "file": name}) for n in rows]
        (tmp_path / f"in-{name}.ndjson").write_text("\n".join(lines))
    nodes = {"a": {"source": {"path": str(tmp_path / "in-*.ndjson")}}, **out(tmp_path, "a")}
    PipelineRun(parse_pipeline(json.dumps({"nodes": nodes}), "x.yaml")).run()
    assert [row["n"] for row in lines_of(tmp_path / "out.ndjson")] == [1, 2, 3, 4, None]
    (tmp_path / "in-d.ndjson").write_text('{"n":"x","file":"d"}')
    with refuses(ConfigError):
        PipelineRun(parse_pipeline(json.dumps({"nodes": nodes}), "x.yaml"))
    nodes["a"]["source"]["path"] = str(tmp_path / "none-*.csv")
    with refuses(InputError):
        PipelineRun(parse_pipeline(json.dumps({"nodes": nodes}), "x.yaml"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("case when x = 1 then 'one' else 'other' end", ["one", "other", "other"]),
        ("case x when 1 then 'one' when 2 then 'two' end", ["one", None, "two"]),
        ("round(y, 1)", [1.2, 0.1, -2.5]),
        ("round(y * 10)", [12.0, 1.0, -25.0]),
    ],
)
def test_expressions_mean_what_sql_means(text: str, expected: list[Any], tmp_path: Path) -> None:
    table = pa.table({"x": [1, None, 2], "y": [1.234, 0.05, -2.45]})
    nodes = {**sources("a"), "t": {"transform": {"input": "a", "columns": {"z": text}}}}
    run_of({**nodes, **out(tmp_path, "t")}, {"a": table}).run()
    assert [row["z"] for row in lines_of(tmp_path / "out.ndjson")] == expected


def test_a_column_compared_with_a_value_means_what_it_means_in_a_filter() -> None:
    batch = pa.record_batch(
        {
            "u": pa.array([5, 1 << 63, None], pa.uint64()),
            "f": pa.array([0.1, -0.0, None], pa.float32()),
            "d": pa.array([Decimal("1.10"), Decimal("-1.10"), None], pa.decimal128(5, 2)),
            "at": pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2), None], pa.timestamp("ms")),
            "s": ["a%", "b", None],
            "yes": [True, False, None],
        }
    )
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    for text in (
        "u > 5", "5 < u", "u <> -(1)", "u = 1e30", "u = NULL", "f = 0.1", "0 = f", "d < 1.105",
        "at >= '2026-01-02'", "at BETWEEN '2026-01-01' AND '2026-01-01 12:00'", "u NOT IN (5, NULL)",
        "s LIKE 'a!%' ESCAPE '!'", "s NOT ILIKE 'B%'", "yes = false", "yes IS TRUE", "yes IS NOT FALSE",
        "NOT (f > 0 OR u IN (5) AND s <> 'x')", " AND ".join(["u > 1"] * 2000),
    ):  # fmt: skip
        condition = matching(parse_where(text, batch.schema), arrays, batch.num_rows)
        found = Expression(text, batch.schema, "node 't'")(batch)
        assert found.to_pylist() == condition.to_pylist(), text[:80]


def test_not_a_number_fulfils_no_comparison_of_an_expression_either() -> None:
    batch = pa.record_batch({"x": [1.0, float("nan"), None, 3.0]})
    for op, expected in {
        "<>": [False, False, None, True],
        "=": [True, False, None, False],
        ">=": [True, False, None, True],
    }.items():
        assert Expression(f"x {op} 1", batch.schema, "node 't'")(batch).to_pylist() == expected, op


@pytest.mark.parametrize(
    "text",
    [
        "initcap(s)",
        "s SIMILAR TO 'x'",
        "safe_cast(s as int format 'x')",
        "k.s",
        "9" * 80,
        "s || " * 3000 + "s",
    ],
)
def test_what_would_be_taken_for_something_else_is_refused(text: str, tmp_path: Path) -> None:
    nodes = {**sources("a"), "t": {"transform": {"input": "a", "columns": {"z": text}}}}
    with refuses(ConfigError, "node 't'"):
        run_of({**nodes, **out(tmp_path, "t")}, {"a": pa.table({"s": ["x"]})})


@pytest.mark.parametrize("dtype", [pa.int64(), pa.uint64(), pa.decimal128(38, 0)])
def test_sums_are_right_or_refused_and_means_are_of_any_size(
    dtype: pa.DataType, tmp_path: Path
) -> None:
    most = {pa.int64(): 2**63 - 1, pa.uint64(): 2**64 - 1}.get(dtype, 10**38 - 1)
    nodes = {
        **sources("a"),
        "g": {"aggregate": {"input": "a", "group_by": ["k"], "columns": {"m": "mean(v)"}}},
    }
    table = pa.table({"k": [1, 1], "v": pa.array([most, most - 1], dtype)})
    run_of({**nodes, **out(tmp_path, "g")}, {"a": table}).run()
    assert lines_of(tmp_path / "out.ndjson") == [{"k": 1, "m": pytest.approx(float(most))}]
    nodes["g"]["aggregate"]["columns"] = {"s": "sum(v)"}
    with refuses(DataError):
        run_of({**nodes, **out(tmp_path, "g")}, {"a": table}).run()


def test_the_current_time_is_one_instant_for_all_nodes_of_a_run(tmp_path: Path) -> None:
    columns = {"n": "n", "at": "now()"}
    nodes = {
        **sources("a"),
        "one": {"transform": {"input": "a", "columns": columns}},
        "r": {"route": {"input": "one", "branches": {"yes": "at = now() AND 'now()' <> 'now'"}}},
        "two": {
            "transform": {"input": "r.yes", "columns": {"n": "n", "same": "at = current_timestamp"}}
        },
    }
    table = pa.table({"n": range(5000)})
    run_of({**nodes, **out(tmp_path, "two")}, {"a": table}).run()
    assert lines_of(tmp_path / "out.ndjson") == [{"n": n, "same": True} for n in range(5000)]


def test_long_texts_computed_from_one_batch_go_on_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compactor.predicate.expressions.sizes.MAX_TOGETHER", 100_000)
    longer = {"n": "n", "s": "lpad('', if(n < 0, 0, 1000), 'x')"}
    nodes = {
        **sources("a"),
        "t": {"transform": {"input": "a", "columns": longer}},
        "u": {"transform": {"input": "t", "columns": {"n": "n", "size": "length(s)"}}},
    }
    run_of({**nodes, **out(tmp_path, "u")}, {"a": pa.table({"n": range(300)})}).run()
    assert lines_of(tmp_path / "out.ndjson") == [{"n": n, "size": 1000} for n in range(300)]


@pytest.mark.parametrize(
    ("node", "named"),
    [
        ({"transform": {"input": "a", "filter": "n / d > 1"}}, "filter: 'n / d': divide by zero"),
        ({"transform": {"input": "a", "columns": {"q": "n / d"}}}, "column 'q': divide by zero"),
        (
            {"route": {"input": "a", "branches": {"t": "n / d > 1"}}},
            "branch 't': 'n / d': divide by zero",
        ),
        ({"transform": {"input": "a", "columns": {"q": "CAST(s AS INT)"}}}, "column 'q': "),
        (
            {
                "transform": {
                    "input": "a",
                    "columns": {"q": f"CASE WHEN d = 0 THEN n * {2**62} END"},
                }
            },
            "column 'q': overflow",
        ),
        (
            {
                "transform": {
                    "input": "a",
                    "filter": "n / d > 1",
                    "window": {"order_by": "n"},
                    "columns": {"q": "lag(n)"},
                }
            },
            "filter: 'n / d': divide by zero",
        ),
        (
            {"aggregate": {"input": "a", "columns": {"p": "count", "q": "sum(n / d)"}}},
            "column 'q': divide by zero",
        ),
        *(
            (
                {
                    "combine": {
                        "probe": "a",
                        "build": "a",
                        "on": on,
                        "how": "semi",
                        "method": method,
                    }
                },
                "key 'n / d': divide by zero",
            )
            for on in ({"n / d": "n"}, {"n": "n / d"})
            for method in ("hash", "sort_merge")
        ),
    ],
)
def test_what_cannot_be_computed_names_source_row_and_column(
    node: dict[str, Any], named: str, tmp_path: Path
) -> None:
    table = pa.table({"n": [1, 2, 3, 4], "d": [1, 1, 0, 1], "s": ["1", "2", "x", "4"]})
    nodes = {**sources("a"), "t": node, **out(tmp_path, "t.t" if "route" in node else "t")}
    with refuses(DataError, "node 't'", "row 3 of 'a'", named):
        run_of(nodes, {"a": Gated(table)}).run()
    letters = tmp_path / "bad.ndjson"
    run_of(nodes, {"a": table}, on_error="continue", dead_letter=str(letters)).run()
    assert [(row["row"], row["node"]) for row in lines_of(letters)] == [(3, "t")]


@pytest.mark.parametrize("ending", ["csv", "ndjson"])
def test_all_types_that_sql_names_are_declared_and_cast_alike(ending: str, tmp_path: Path) -> None:
    fields = {
        "d": "DECIMAL(20, 3)", "at": "TIMESTAMPTZ", "ts": "timestamp", "tm": "TIME", "x": "real",
        "n": "integer", "ok": "BOOLEAN", "day": "DATE", "s": "string",
    }  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"d": "12345678901234567.125", "at": "2026-01-01T02:00:00+02:00", "ts": "2026-01-01 00:00:00",
         "tm": "08:30:00.25", "x": "1.5", "n": "7", "ok": "true", "day": "2026-01-01", "s": "t"},
        dict.fromkeys(fields, None),
    ]  # fmt: skip
    path = tmp_path / f"in.{ending}"
    if ending == "csv":
        lines = [",".join(fields), ",".join(rows[0].values()), "," * (len(fields) - 1)]
    else:
        bare = ("x", "n", "ok")
        lines = [
            json.dumps({k: json.loads(v) if v and k in bare else v for k, v in row.items()})
            for row in rows
        ]
    path.write_text("\n".join(lines) + "\n")
    same = {
        f"{name}_": f"CAST(CAST({name} AS TEXT) AS {dtype}) = {name}"
        for name, dtype in fields.items()
    }
    nodes = {
        "in": {"source": {"path": str(path), "fields": fields}},
        "t": {"transform": {"input": "in", "columns": same}},
        "out": {"output": {"input": "t", "path": str(tmp_path / "out.ndjson")}},
    }
    PipelineRun(parse_pipeline(json.dumps({"nodes": nodes}), "test.yaml")).run()
    first, second = lines_of(tmp_path / "out.ndjson")
    assert first == dict.fromkeys(same, True)
    assert set(second.values()) <= {None, True}


def test_columns_may_be_called_anything_but_what_is_ours(tmp_path: Path) -> None:
    table = pa.table(
        {"n count": [1, 1, 2], "count_all": [1, 2, 2], "v_sum": [1, 1, 1], "k0": [0, 0, 0]}
    )
    columns = {"n": "count", "s0": "sum(v_sum)", "k1": "max(count_all)"}
    nodes = {
        **sources("a"),
        "g": {"aggregate": {"input": "a", "group_by": ["n count", "k0"], "columns": columns}},
    }
    run_of({**nodes, **out(tmp_path, "g")}, {"a": table}).run()
    assert lines_of(tmp_path / "out.ndjson") == [
        {"n count": 1, "k0": 0, "n": 2, "s0": 2, "k1": 2},
        {"n count": 2, "k0": 0, "n": 1, "s0": 1, "k1": 2},
    ]
    with refuses(ConfigError):
        run_of({**sources("a"), **out(tmp_path, "a")}, {"a": pa.table({"$row": [1]})})


def test_zeros_and_nans_are_one_group_and_zeros_are_joined(tmp_path: Path) -> None:
    table = pa.table({"k": [0.0, -0.0, float("nan"), -float("nan"), 1.0]})
    nodes = {
        **sources("a"),
        "g": {"aggregate": {"input": "a", "group_by": ["k"], "columns": {"n": "count"}}},
    }
    run_of({**nodes, **out(tmp_path, "g")}, {"a": table}).run()
    assert [row["n"] for row in lines_of(tmp_path / "out.ndjson")] == [2, 1, 2]
    nodes = {**sources("a", "b"), "c": {"combine": {"probe": "a", "build": "b", "on": ["k"]}}}
    report = run_of(
        {**nodes, **out(tmp_path, "c")}, {"a": table, "b": pa.table({"k": [-0.0]})}
    ).run()
    assert report.outputs["out"].records_written == 2


def test_halves_are_grouped_as_other_floats_are(tmp_path: Path) -> None:
    keys = pa.array([0.0, -0.0, float("nan"), -float("nan"), 1.5, None, None]).cast(pa.float16())
    nodes = {
        **sources("a"),
        "g": {"aggregate": {"input": "a", "group_by": ["k"], "columns": {"n": "count"}}},
        **out(tmp_path, "g", "o.arrow"),
    }
    run_of(nodes, {"a": pa.table({"k": keys})}).run()
    with pa.ipc.open_file(tmp_path / "o.arrow") as file:
        found = file.read_all()
    assert found.schema.field("k").type == pa.float16()
    assert [str(key) for key in found["k"].to_pylist()] == ["0.0", "1.5", "nan", "None"]
    assert found["n"].to_pylist() == [2, 1, 2, 2]


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_durations_have_a_least_and_a_greatest(unit: str, tmp_path: Path) -> None:
    dtype = pa.duration(unit)
    values = pa.array([3, -7, None, 5, None], pa.int64()).cast(dtype)
    columns = {"low": "min(d)", "high": "max(d)", "n": "count(d)"}
    nodes = {
        **sources("a"),
        "g": {"aggregate": {"input": "a", "group_by": ["k"], "columns": columns}},
        **out(tmp_path, "g", "o.arrow"),
    }
    run_of(nodes, {"a": pa.table({"k": [1, 1, 1, 1, 2], "d": values})}).run()
    with pa.ipc.open_file(tmp_path / "o.arrow") as file:
        found = file.read_all()
    assert found.schema.field("low").type == found.schema.field("high").type == dtype
    assert found["low"].cast(pa.int64()).to_pylist() == [-7, None]
    assert found["high"].cast(pa.int64()).to_pylist() == [5, None]
    assert found["n"].to_pylist() == [3, 0]


def test_groups_are_by_columns_whatever_their_names(tmp_path: Path) -> None:
    """Also such as a sort schema could not name."""
    names = ["a:desc", "a", "b,c"]
    rows = [[2, 1, 1], [1, 2, 1], [1, 1, 2], [1, 1, 1], [2, 1, 1]]
    nodes = {
        **sources("a"),
        "g": {"aggregate": {"input": "a", "group_by": names, "columns": {"n": "count"}}},
        **out(tmp_path, "g"),
    }
    table = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
    run_of(nodes, {"a": table}).run()
    found = [list(row.values()) for row in lines_of(tmp_path / "out.ndjson")]
    assert found == [[1, 1, 1, 1], [1, 1, 2, 1], [1, 2, 1, 1], [2, 1, 1, 2]]


@pytest.mark.parametrize("limit", ["512MiB", "2MiB"])
def test_dictionaries_and_columns_without_nulls_go_anywhere(limit: str, tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("c", pa.dictionary(pa.int32(), pa.string())), pa.field("n", pa.int64(), False)]
    )
    tables = {
        name: pa.table(
            [pa.array([f"{name}{n % 9}" for n in range(rows)]).dictionary_encode(), range(rows)],
            schema,
        )
        for name, rows in (("a", 60_000), ("b", 50_000))
    }
    nodes = {
        **sources("a", "b"),
        "m": {"merge": {"inputs": ["a", "b"]}},
        "t": {"transform": {"input": "m", "columns": {"c": "upper(c)", "n": "n"}}},
        "s": {"sort": {"input": "t", "by": "n:desc,c"}},
        "g": {"aggregate": {"input": "t", "group_by": ["c"], "columns": {"n": "sum(n)"}}},
        **out(tmp_path, "s", "s_out.parquet"),
        **out(tmp_path, "g", "g_out.parquet"),
    }
    run_of(nodes, tables, memory={"limit": limit}).run()
    assert pq.read_table(tmp_path / "s_out.parquet").column("n")[0].as_py() == 59_999
    assert len(pq.read_table(tmp_path / "g_out.parquet")) == 18


def test_rows_that_several_take_are_held_until_the_last_has_them(tmp_path: Path) -> None:
    table = pa.table({"k": range(10_000)})
    nodes = {
        **sources("a"),
        "low": {"transform": {"input": "a", "filter": "k < 9000"}},
        "high": {"transform": {"input": "a", "filter": "k > 9000"}},
        "m": {"merge": {"inputs": ["low", "high", "a"], "mode": "key", "sort_by": "k"}},
        **out(tmp_path, "m"),
    }
    run_of(nodes, {"a": table}, batch_size=100).run()
    expected = sorted([*range(10_000), *range(9000), *range(9001, 10_000)])
    assert [row["k"] for row in lines_of(tmp_path / "out.ndjson")] == expected


def test_sources_that_others_take_too_are_not_fused_into_a_merge(tmp_path: Path) -> None:
    tables = {name: pa.table({"k": range(100_000)}) for name in "ab"}
    nodes = {
        **sources("a", "b"),
        "m": {"merge": {"inputs": ["a", "b"], "mode": "interleave"}},
        **out(tmp_path, "m", "o.arrow"),
        **out(tmp_path, "a", "oa.arrow"),
        **out(tmp_path, "b", "ob.arrow"),
    }
    run = run_of(nodes, tables, memory={"limit": "2MiB"})
    assert run.forms["m"].form == "built"
    report = run.run()
    assert not report.outputs["o"].live and report.spills
    assert [o.records_written for o in report.outputs.values()] == [200_000, 100_000, 100_000]


@pytest.mark.parametrize("groups", [20_000, 60_000, 200_000])
def test_any_number_of_groups_goes_through_little_memory(groups: int, tmp_path: Path) -> None:
    table = pa.table({"k": [f"key-{n:08d}" for n in range(groups)], "v": range(groups)})
    nodes = {
        **sources("a"),
        "g": {"aggregate": {"input": "a", "group_by": ["k"], "columns": {"s": "sum(v)"}}},
    }
    run = run_of({**nodes, **out(tmp_path, "g", "o.arrow")}, {"a": table}, memory={"limit": "8MiB"})
    assert run.run().outputs["o"].records_written == groups


def test_wide_rows_do_not_go_beyond_the_limit_while_they_wait(tmp_path: Path) -> None:
    heavy = ["x" * 20_000] * 1500
    tables = {name: Gated(numbered(name, 1500, text=heavy), 10) for name in "abc"}
    nodes = {**sources(*tables), "m": {"merge": {"inputs": list(tables), "mode": "interleave"}}}
    run = run_of({**nodes, **out(tmp_path, "m", "o.arrow")}, tables, memory={"limit": "8MiB"})
    assert run.run().peak_bytes <= 8 * MIB


def test_many_matches_come_some_at_a_time(tmp_path: Path) -> None:
    tables = {
        "a": pa.table({"k": [1] * 1000, "n": range(1000)}),
        "b": pa.table({"k": [1] * 1000, "m": range(1000)}),
    }
    nodes = {**sources("a", "b"), "c": {"combine": {"probe": "a", "build": "b", "on": ["k"]}}}
    run = run_of({**nodes, **out(tmp_path, "c", "o.arrow")}, tables, memory={"limit": "8MiB"})
    assert run.run().outputs["o"].records_written == 1_000_000


@pytest.mark.parametrize("how", ["inner", "left"])
def test_matches_of_wide_rows_leave_by_their_bytes(how: str, tmp_path: Path) -> None:
    """100 MB of them; of one row more than leave at a time."""
    texts = [f"{number:04d}" + "x" * 1000 for number in range(1000)]
    tables = {
        "a": pa.table({"k": [2, *[1] * 100], "a": [texts[0], *texts[:100]]}),
        "b": pa.table({"k": [1] * 1000, "b": texts}),
    }
    nodes = {
        **sources("a", "b"),
        "j": {"combine": {"probe": "a", "build": "b", "on": ["k"], "how": how}},
        **out(tmp_path, "j", "o.arrow"),
    }
    report = run_of(nodes, tables, memory={"limit": "16MiB"}, batch_size=50).run()
    assert report.peak_bytes <= 16 * MIB
    with pa.ipc.open_file(tmp_path / "o.arrow") as file:
        found = file.read_all()
    rows = found["b"].to_pylist()
    if how == "left":
        assert rows.pop(0) is None
    assert rows == texts * 100


def test_a_hash_join_on_disk_takes_columns_of_any_name(tmp_path: Path) -> None:
    """In few writes, and in the probe side's order."""
    rows = 60_000
    tables = {
        "a": pa.table({"k": range(rows), "$sequence": range(rows, 0, -1)}),
        "b": pa.table({"k": range(rows - 1, -1, -1), "$$sequence": range(rows)}),
    }
    nodes = {
        **sources("a", "b"),
        "j": {"combine": {"probe": "a", "build": "b", "on": ["k"]}},
        **out(tmp_path, "j", "o.arrow"),
    }
    report = run_of(nodes, tables, memory={"limit": "4MiB"}).run()
    # A batch of 2048 rows in 32 parts, for each side, would be 1,900.
    assert 0 < report.spills < 600
    with pa.ipc.open_file(tmp_path / "o.arrow") as file:
        found = file.read_all().to_pydict()
    assert found["k"] == list(range(rows))
    assert found["$sequence"] == list(range(rows, 0, -1))
    assert found["$$sequence"] == list(range(rows - 1, -1, -1))


@pytest.mark.parametrize("limit", ["1MiB", "256MiB"])
def test_a_probe_side_that_is_held_is_read_in_a_thread_of_its_own(
    tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the thread takes what a sort holds, the join's own result may push it to disk."""
    table = events(20_000)
    build = pa.table({"level": ["info", "warn", "error"], "rank": [1, 2, 3]})
    seen: set[str] = set()
    transformer = Transformer.__call__

    def noted(self: Transformer, batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.add(threading.current_thread().name)
        return transformer(self, batch)

    monkeypatch.setattr(Transformer, "__call__", noted)
    nodes = {
        **sources("a", "b"),
        "s": {"sort": {"input": "a", "by": "text"}},
        "t": {"transform": {"input": "s", "filter": "id <> 7"}},
        "j": {"combine": {"probe": "t", "build": "b", "on": ["level"]}},
        **out(tmp_path, "j"),
    }
    memory = {"limit": limit}
    report = run_of(nodes, {"a": table, "b": build}, memory=memory, batch_size=4096).run()
    assert (report.spills > 0) == (limit == "1MiB")
    # Also once for its types, on no rows.
    assert "read t" in seen and seen <= {"read t", "MainThread"}
    rank = dict(zip(*build.to_pydict().values(), strict=True))
    expected = sorted((r for r in table.to_pylist() if r["id"] != 7), key=lambda r: str(r["text"]))
    assert lines_of(tmp_path / "out.ndjson") == [r | {"rank": rank[r["level"]]} for r in expected]


@pytest.mark.parametrize("digits", [0, 2, 76])
def test_digits_that_a_number_may_have_are_rounded_to(digits: int) -> None:
    batch = pa.record_batch({"y": [1.256, None]})
    found = Expression(f"round(y, {digits})", batch.schema, "node 't'")(batch).to_pylist()
    assert found == [round(1.256, digits), None]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "round(y, 4000000000000)",
        "round(y, 77)",
        f"round(y, {'9' * 5000})",
        "round(y, '1')",
        f"interval '{'9' * 5000}' day",
        f"y + {'9' * 5000}",
        "y + 1e400",
    ],
)
def test_literals_that_size_work_are_bounded(text: str) -> None:
    with refuses(ConfigError):
        Expression(text, pa.schema([("y", pa.float64())]), "node 't'")


def test_columns_with_marks_are_sorted_by_and_divide_files(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('"a,b:desc","c:d"\n2,x\n1,y\n2,z\n')
    nodes = {
        "in": {"source": {"path": str(tmp_path / "in.csv")}},
        "sorted": {"sort": {"input": "in", "by": '"c:d":desc'}},
        "out": {
            "output": {
                "input": "sorted",
                "path": str(tmp_path / "out-{}.ndjson"),
                "split": {"by": "a,b:desc"},
            }
        },
    }
    PipelineRun(parse_pipeline(json.dumps({"nodes": nodes}), "test.json")).run()
    assert lines_of(tmp_path / "out-2.ndjson") == [
        {"a,b:desc": 2, "c:d": "z"},
        {"a,b:desc": 2, "c:d": "x"},
    ]
    assert lines_of(tmp_path / "out-1.ndjson") == [{"a,b:desc": 1, "c:d": "y"}]
