"""Sources read only the columns that their graph uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.errors import ConfigError, InputError
from compactor.files.write import SinkOptions, open_table_sink
from compactor.pipelines import work
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.explain import explained, rows_of
from compactor.pipelines.phases import run_pipeline
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.projection import used_columns
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.support.wording import refuses

A = {"a": {"source": {"path": "a.csv"}}}
B = {"b": {"source": {"path": "b.csv"}}}


def pipeline(nodes: dict[str, Any], **settings: Any) -> Any:
    return parse_pipeline(json.dumps({"nodes": nodes, **settings}), "p.yaml")


def out(of: str, path: Any = "o.csv") -> dict[str, Any]:
    return {"o": {"output": {"input": of, "path": str(path)}}}


CASES: list[tuple[dict[str, Any], dict[str, list[str] | None]]] = [
    ({**A, **out("a")}, {"a": None}),
    ({**A, "t": {"transform": {"input": "a", "filter": "x > 1"}}, **out("t")}, {"a": None}),
    (
        {**A, "t": {"transform": {"input": "a", "filter": "x IN ('ok', s.f)", "columns": ["y"]}}, **out("t")},
        {"a": ["f", "s", "s.f", "x", "y"]},
    ),
    (
        {**A, "t": {"transform": {"input": "a", "columns": {"z": 'x + "a ""b"'}}}, **out("t")},
        {"a": ['a "b', "x"]},
    ),
    (
        {**A, "g": {"aggregate": {"input": "a", "group_by": ["k"], "columns": {"n": "sum(v)"}}}, **out("g")},
        {"a": ["k", "v"]},
    ),
    (
        {
            **A, **B,
            "j": {"combine": {"probe": "a", "build": "b", "on": {"k": "l"}}},
            "t": {"transform": {"input": "j", "columns": ["v"]}},
            **out("t"),
        },
        {"a": ["k", "l", "v"], "b": ["k", "l", "v"]},
    ),
    (
        {
            **A, **B,
            "m": {"merge": {"inputs": ["a", "b"], "mode": "key", "sort_by": "k:desc"}},
            "t": {"transform": {"input": "m", "columns": ["v"]}},
            **out("t"),
        },
        {"a": ["k", "v"], "b": ["k", "v"]},
    ),
    (
        {
            **A,
            "r": {"route": {"input": "a", "branches": {"x": "p > 1"}, "otherwise": "y"}},
            "t": {"transform": {"input": "r.x", "columns": ["v"]}},
            "u": {"transform": {"input": "r.y", "columns": ["w"]}},
            **out("t"),
            "o2": {"output": {"input": "u", "path": "o2.csv"}},
        },
        {"a": ["p", "v", "w"]},
    ),
    (
        {
            **A,
            "t": {
                "transform": {
                    "input": "a",
                    "window": {"partition_by": ["k"], "order_by": "ts"},
                    "columns": {"n": "lag(v)"},
                }
            },
            **out("t"),
        },
        {"a": ["k", "ts", "v"]},
    ),
    ({**A, "t": {"transform": {"input": "a", "columns": ["$widened"]}}, **out("t", "o.ndjson")}, {"a": None}),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "expected"), CASES)
def test_used_columns_go_back_to_the_sources(
    nodes: dict[str, Any], expected: dict[str, list[str] | None]
) -> None:
    found = {
        name: used and sorted(used) for name, used in used_columns(pipeline(nodes).nodes).items()
    }
    assert found == expected


def test_explain_shows_the_columns_of_a_source() -> None:
    given = pipeline({**A, "t": {"transform": {"input": "a", "columns": ["y", "x"]}}, **out("t")})
    assert explained(given)[0]["columns"] == ["x", "y"]
    assert rows_of(given)[0][-1] == "row by row, for one node; reads only columns named x, y"
    assert explained(pipeline({**A, **out("a")}))[0]["columns"] is None


def written(folder: Path, ending: str) -> Path:
    table = pa.table({"s": [{"x": 1}, None], "n": [1, 2], "t": ["x", "y"]})
    path = folder / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        sort = parse_sort_schema("n") if ending == "frag" else None
        with open_table_sink(str(path), table.schema, SinkOptions(sort=sort)) as sink:
            sink.write(table.to_batches()[0])
    return path


@pytest.mark.parametrize("ending", ["parquet", "arrow", "frag", "csv", "ndjson"])
def test_every_kind_of_file_reads_the_columns_used(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path, ending)
    for columns, expected in [
        ({"v": "n * 2"}, [{"v": 2}, {"v": 4}]),
        ({"t": "t", "n": "n"}, [{"t": "x", "n": 1}, {"t": "y", "n": 2}]),
        ({"one": "1"}, [{"one": 1}, {"one": 1}]),
    ]:
        nodes = {
            "a": {"source": {"path": str(path)}},
            "t": {"transform": {"input": "a", "columns": columns}},
            **out("t", tmp_path / "o.ndjson"),
        }
        run_pipeline(pipeline(nodes))
        lines = (tmp_path / "o.ndjson").read_text().splitlines()
        assert [json.loads(line) for line in lines] == expected


def test_a_missing_column_is_named_with_all_columns_of_the_source(tmp_path: Path) -> None:
    path = written(tmp_path, "csv")
    nodes = {
        "a": {"source": {"path": str(path)}},
        "t": {"transform": {"input": "a", "columns": {"v": "nn * 2"}}},
        **out("t", tmp_path / "o.csv"),
    }
    with refuses(ConfigError, "s, n, t"):
        PipelineRun(pipeline(nodes))


def test_bad_rows_of_unused_columns_are_bad_by_their_cells_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,x\n2\n3,4\n5,6,7\n")
    nodes = {
        "a": {"source": {"path": str(tmp_path / "a.csv"), "fields": {"a": "INT", "b": "INT"}}},
        "t": {"transform": {"input": "a", "columns": ["a"]}},
        **out("t", tmp_path / "o.csv"),
    }
    more = {"on_error": "continue", "dead_letter": str(tmp_path / "bad.ndjson")}
    report = run_pipeline(pipeline(nodes, **more))
    assert (tmp_path / "o.csv").read_text() == '"a"\n1\n3\n'
    bad = [json.loads(line) for line in (tmp_path / "bad.ndjson").read_text().splitlines()]
    assert [row["row"] for row in bad] == [2, 4]
    assert report.records_read["a"] == 4


def test_fields_of_json_that_nothing_uses_may_be_of_any_types(tmp_path: Path) -> None:
    rows = [{"n": 1, "x": 1}, {"x": "text", "n": 2}, {"n": 3, "x": {"y": [1]}}]
    (tmp_path / "a.ndjson").write_text("\n".join(map(json.dumps, rows)))
    nodes = {
        "a": {"source": {"path": str(tmp_path / "a.ndjson")}},
        "t": {"transform": {"input": "a", "columns": ["n"]}},
        **out("t", tmp_path / "o.csv"),
    }
    run_pipeline(pipeline(nodes))
    assert (tmp_path / "o.csv").read_text() == '"n"\n1\n2\n3\n'
    nodes["t"]["transform"]["columns"] = ["n", "x"]
    with refuses(InputError, "line 2", "'x'"):
        run_pipeline(pipeline(nodes))


@pytest.mark.parametrize("ending", ["csv", "ndjson"])
def test_declared_columns_are_read_in_one_pass(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compactor.files.source import TextBatches

    def scanned(*_args: Any) -> None:
        raise AssertionError("a pass for the types")

    monkeypatch.setattr(TextBatches, "_scan", scanned)
    if ending == "csv":
        lines = ["n,s", *(f"{n},x" if n % 7 else f"{n},x,y" for n in range(20_000)), "z,x"]
    else:
        rows = ({"n": n, "s": "x"} if n % 7 else {"n": "bad", "s": "x"} for n in range(20_000))
        lines = [*map(json.dumps, rows), '{"n": [1]}']
    (tmp_path / f"a.{ending}").write_text("\n".join(lines) + "\n")
    fields = {"n": "BIGINT", "s": "TEXT"}
    nodes = {
        "a": {"source": {"path": str(tmp_path / f"a.{ending}"), "fields": fields}},
        "t": {"transform": {"input": "a", "columns": ["n"]}},
        **out("t", tmp_path / "o.ndjson"),
    }
    more = {"on_error": "continue", "dead_letter": str(tmp_path / "bad.ndjson"), "batch_size": 500}
    run_pipeline(pipeline(nodes, **more))
    found = [json.loads(line)["n"] for line in (tmp_path / "o.ndjson").read_text().splitlines()]
    bad = [json.loads(line)["row"] for line in (tmp_path / "bad.ndjson").read_text().splitlines()]
    assert found == [n for n in range(20_000) if n % 7]
    assert bad == [*range(1, 20_001, 7), 20_001]
    (tmp_path / "o.ndjson").unlink()
    with refuses(InputError):
        run_pipeline(pipeline(nodes))
    assert not (tmp_path / "o.ndjson").exists()


def test_fields_give_types_of_some_columns_and_others_are_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("zip,n\n01234,1\n23456,2\n")
    (tmp_path / "b.csv").write_text("zip,n\n12345,2.5\n")
    nodes = {
        "a": {"source": {"path": str(tmp_path / "?.csv"), "fields": {"zip": "TEXT", "k": "INT"}}},
        **out("a", tmp_path / "o.ndjson"),
    }
    run_pipeline(pipeline(nodes))
    found = [json.loads(line) for line in (tmp_path / "o.ndjson").read_text().splitlines()]
    assert found == [
        {"zip": "01234", "n": 1.0, "k": None},
        {"zip": "23456", "n": 2.0, "k": None},
        {"zip": "12345", "n": 2.5, "k": None},
    ]


def rows_with_few_texts(count: int = 3_000) -> pa.Table:
    levels = [None if n % 7 == 0 else ["info", "warn", "error"][n % 3] for n in range(count)]
    return pa.table(
        {"n": range(count), "level": levels, "tag": [b"%d" % (n % 5) for n in range(count)]}
    )


@pytest.mark.parametrize("condition", ["level IN ('warn', 'error')", "level LIKE 'in%'", "level IS NULL",
                                       "upper(level) = 'WARN'", "level LIKE 'W%'", "n > 5000"])  # fmt: skip
@pytest.mark.parametrize("max_codes", [2, 4_096])
def test_a_filter_over_codes_keeps_the_rows_that_it_keeps_of_texts(
    condition: str, max_codes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(rows_with_few_texts(), path, row_group_size=1_000)
    kept = {
        "input": "a",
        "filter": condition,
        "columns": {"n": "n", "l": "lower(level)", "tag": "tag"},
    }
    nodes = {"a": {"source": {"path": str(path)}}, "kept": {"transform": kept}}
    found = []
    for codes in (0, max_codes):
        monkeypatch.setattr(work, "_MAX_CODES", codes)
        target = tmp_path / f"{codes}.parquet"
        run_pipeline(pipeline(nodes | out("kept", target)))
        found.append(pq.read_table(target))
    assert found[0] == found[1]


@pytest.mark.parametrize(("changes", "takes_codes"), [
    ({}, True),
    ({"kept": {"transform": {"input": "a", "columns": ["level"]}}}, False),
    ({"p": {"output": {"input": "a", "path": "p.csv"}}}, False),
    ({"a": {"source": {"path": "a.csv", "correlation_key": "n"}}}, False),
])  # fmt: skip
def test_only_a_filter_that_alone_takes_the_rows_takes_codes(
    changes: dict[str, Any], takes_codes: bool
) -> None:
    kept = {"kept": {"transform": {"input": "a", "filter": "level = 'warn'"}}}
    nodes = A | kept | out("kept") | changes
    context = work.RunContext(pipeline(nodes), lambda _: iter(()))
    assert (context.reading_of("a").max_codes > 0) == takes_codes
