"""Pipelines in Spark stages give what they give in one process; a stand-in for Spark, in this process."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compactor import Table
from compactor.errors import CompactorError, ConfigError, DataError, InputError, UsageError
from compactor.pipelines.config import Pipeline, parse_pipeline
from compactor.pipelines.on_spark import SparkRun
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.run_report import RunReport
from compactor.read.verify import verify
from compactor.resources.errors import MemoryLimitError
from compactor.spark.session import SparkOptions
from compactor.spark.shuffle import packets
from compactor.spark.shuffle.exchange import ByKeys, from_bytes, to_bytes
from compactor.stores.local import LocalStore
from tests.spark.stand_in import FakeSpark, as_session
from tests.support.wording import refuses

Nodes = dict[str, Any]


def events(rows: int, seed: int) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "who": [rng.choice([None, *(f"user-{n}" for n in range(30))]) for _ in range(rows)],
            "size": pa.array(
                [rng.choice([None, rng.randrange(50)]) for _ in range(rows)], pa.int64()
            ),
            "big": pa.array([rng.randrange(1 << 63, 1 << 64) for _ in range(rows)], pa.uint64()),
            "tags": [[f"t{rng.randrange(3)}"] * rng.randrange(3) for _ in range(rows)],
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a-0` to `a-2` and `b` as Parquet, `users`, and a table of `a`'s rows in several fragments."""
    folder = tmp_path_factory.mktemp("sources")
    for number, rows in enumerate((400, 0, 700)):
        pq.write_table(events(rows, number), folder / f"a-{number}.parquet")
    pq.write_table(events(500, 7), folder / "b.parquet")
    users = pa.table({"name": ["user-1", "user-2", "user-2", None], "team": list("abcd")})
    pq.write_table(users, folder / "users.parquet")
    table = Table.create(str(folder / "t"), events(50, 9), sort_by="who,id")
    for seed in range(3):
        table.append(events(200, seed))
    return folder


def pipeline(nodes: Nodes, folder: Path, place: Path, **document: Any) -> Pipeline:
    place.mkdir(exist_ok=True)
    text = json.dumps({"nodes": nodes, **document})
    text = text.replace("OUT/", f"{place}/").replace("IN/", f"{folder}/")
    return parse_pipeline(text, "test.yaml")


def both(
    nodes: Nodes, folder: Path, place: Path, parts: int | None = 3, **document: Any
) -> tuple[RunReport, RunReport]:
    """Reports of a run in this process, whose outputs are in `one`, and of one in stages, in `many`."""
    one = PipelineRun(pipeline(nodes, folder, place / "one", **document)).run()
    spark = FakeSpark()
    many = SparkRun(pipeline(nodes, folder, place / "many", **document)).run(
        as_session(spark), SparkOptions(shuffle_partitions=parts)
    )
    assert spark.kept == 0
    assert spark.conf == {"spark.master": "local[2]"}
    return one, many


def counters(report: RunReport) -> dict[str, Any]:
    value = report.to_json()
    return {k: value[k] for k in ("outputs", "records_read", "records_without_time", "dlq_count")}


A = {"a": {"source": {"path": "IN/a-*.parquet"}}}
B = {"b": {"source": {"path": "IN/b.parquet"}}}
T = {"t": {"transform": {"input": "a", "filter": "size > 10 OR size IS NULL"}}}
OUT = {"out": {"output": {"input": "x", "path": "OUT/out.ndjson"}}}


def sort(of: str, by: str = "who:desc,size:nulls_first") -> dict[str, Any]:
    return {"sort": {"input": of, "by": by}}


def merge(*inputs: str, **more: Any) -> dict[str, Any]:
    return {"merge": {"inputs": list(inputs), **more}}


def aggregate(of: str, *keys: str) -> dict[str, Any]:
    columns = {"n": "count", "total": "sum(size)", "most": "max(big)", "mean": "mean(size)"}
    return {"aggregate": {"input": of, "group_by": list(keys), "columns": columns}}


def combine(probe: str, build: str, how: str = "left", on: Any = None) -> dict[str, Any]:
    return {"combine": {"probe": probe, "build": build, "on": on or {"who": "name"}, "how": how}}


def windowed(of: str, partition_by: list[str]) -> dict[str, Any]:
    columns = {"who": "who", "size": "size", "big": "big", "before": "lag(id)", "n": "row_number()"}
    window = {"partition_by": partition_by, "order_by": "size:desc,id"}
    return {"transform": {"input": of, "window": window, "columns": columns}}


_TIME = "CAST('2026-01-01' AS TIMESTAMP) + size * INTERVAL '1 second'"
AT = {"transform": {"input": "a", "columns": {"who": "who", "id": "id", "at": _TIME}}}
USERS = {"users": {"source": {"path": "IN/users.parquet"}}}
ORDERED: dict[str, Nodes] = {
    "transform": {**A, "x": {"transform": {"input": "a", "columns": {"i": "id + 1", "big": "big"}}}},
    "concat": {**A, **B, **T, "x": merge("b", "t")},
    "concat of one source twice": {**A, **T, "u": {"transform": {"input": "a"}}, "x": merge("t", "u")},
    "sort": {**A, **T, "x": sort("t")},
    "sort of a concat": {**A, **B, "m": merge("b", "a"), "x": sort("m", "who")},
    "concat of a sort and a source": {**A, **B, "s": sort("a"), "x": merge("s", "b")},
    "aggregate": {**A, "x": aggregate("a", "who", "size")},
    "aggregate of sorted rows": {**A, "s": sort("a", "size:desc,who"), "x": aggregate("s", "size")},
    "aggregate of an aggregate": {**A, "g": aggregate("a", "who", "size"),
                                  "x": {"aggregate": {"input": "g", "group_by": ["size"],
                                                      "columns": {"who": "count(who)"}}}},
    "key merge": {**A, **B, "s": sort("a", "size,who"), "r": sort("b", "size"),
                  "x": merge("r", "s", mode="key", sort_by="size")},
    "window": {**A, "x": windowed("a", ["who"])},
    "window without partitions": {**A, "x": windowed("a", [])},
    "aggregate of a window's rows": {**A, "w": windowed("a", ["who"]), "x": aggregate("w", "who", "size")},
    "windows of time": {**A, "at": AT, "x": {"aggregate": {
        "input": "at", "window": {"column": "at", "size": "5s", "slide": "2s"}, "group_by": ["who"],
        "columns": {"n": "count", "ids": "sum(id)"}}}},
    "aggregates of values in order": {**A, "x": {"aggregate": {
        "input": "a", "group_by": ["who"], "columns": {
            "p": "quantile(size, 0.95)", "d": "count(distinct size)", "first": "first(id)",
            "last": "last(id)", "ids": "string_agg(CAST(id AS TEXT), ',')", "by": "min_by(id, size)",
            "sd": "stddev(size)", "even": "sum(size * 2) FILTER (WHERE id > 100)"}}}},
    "texts in windows of time": {**A, "at": AT, "x": {"aggregate": {
        "input": "at", "window": {"column": "at", "size": "5s", "slide": "2s"},
        "columns": {"ids": "string_agg(CAST(id AS TEXT))", "half": "median(id)", "first": "first(id)"}}}},
    "seeded interleave": {**A, **B, **T, "x": merge("t", "b", mode="interleave", interleave_seed=5)},
    "sorted join": {**A, **USERS, "j": combine("a", "users"), "x": sort("j", "id,who,size,team,big")},
    "table": {"a": {"source": {"table": "IN/t", "where": "who > 'user-2'", "columns": ["id", "who"]}},
              "x": {"transform": {"input": "a", "filter": "id > 7"}}},
}  # fmt: skip
UNORDERED: dict[str, Nodes] = {
    "interleave": {**A, **B, "x": merge("a", "b", mode="interleave")},
    "interleave of transforms": {**A, **B, **T, "x": merge("t", "b", mode="interleave")},
    "inner join": {**A, **USERS, "x": combine("a", "users", "inner")},
    "left join of one node with itself": {
        **A, "k": {"transform": {"input": "a", "columns": ["id"]}},
        "x": combine("a", "k", on={"size": "id"})},
    **{f"{how} join": {**A, **USERS, "x": combine("a", "users", how)}
       for how in ("left", "right", "full", "semi", "anti")},
    "self join": {**USERS, "x": combine("users", "users", "inner", on=["name", "team"])},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("parts", [None, 1, 4])
@pytest.mark.parametrize("case", ORDERED)
def test_where_order_is_defined_stages_give_the_same_bytes(
    case: str, parts: int | None, folder: Path, tmp_path: Path
) -> None:
    one, many = both({**ORDERED[case], **OUT}, folder, tmp_path, parts)
    assert one.outputs["out"].records_written > 10
    assert (tmp_path / "many/out.ndjson").read_bytes() == (tmp_path / "one/out.ndjson").read_bytes()
    assert counters(many) == counters(one)


@pytest.mark.parametrize("case", UNORDERED)
def test_where_it_is_not_stages_give_the_same_rows(case: str, folder: Path, tmp_path: Path) -> None:
    one, many = both({**UNORDERED[case], **OUT}, folder, tmp_path)
    lines = [
        sorted((tmp_path / n / "out.ndjson").read_text().splitlines()) for n in ("one", "many")
    ]
    assert lines[0] == lines[1] != []
    for report in (one, many):
        report.outputs["out"].live = False
    assert counters(many) == counters(one)


@pytest.mark.parametrize("condition", ["id >= 0", "id < 0"], ids=["rows", "no rows"])
def test_all_rows_or_none_make_one_row_in_stages(
    condition: str, folder: Path, tmp_path: Path
) -> None:
    columns = {
        "n": "count",
        "ids": "string_agg(CAST(id AS TEXT))",
        "half": "median(id)",
        "s": "sum(id)",
    }
    nodes = {**A, "t": {"transform": {"input": "a", "filter": condition}},
             "x": {"aggregate": {"input": "t", "columns": columns}}, **OUT}  # fmt: skip
    one, many = both(nodes, folder, tmp_path)
    [row] = (tmp_path / "one/out.ndjson").read_text().splitlines()
    assert (tmp_path / "many/out.ndjson").read_text() == f"{row}\n"
    assert counters(many) == counters(one)


@pytest.mark.parametrize("on", [{"lower(who)": "name"}, {"size": "size"}], ids=["call", "types"])
def test_keys_that_are_no_columns_of_one_type_are_refused(
    on: Any, folder: Path, tmp_path: Path
) -> None:
    kept = {"transform": {"input": "users", "columns": {"name": "name", "size": "CAST(1 AS INT)"}}}
    nodes = {**A, **USERS, "k": kept, "x": combine("a", "k", "semi", on=on), **OUT}
    with refuses(ConfigError, "node 'x'"):
        both(nodes, folder, tmp_path)


@pytest.mark.parametrize(
    "merged",
    [
        {"mode": "concat"},
        {"mode": "interleave"},
        {"mode": "interleave", "interleave_seed": 3},
        {"mode": "key", "sort_by": "id"},
    ],
    ids=["concat", "interleave", "seeded", "key"],
)
def test_a_merge_that_several_nodes_take_gives_each_the_same_in_stages(
    merged: Nodes, folder: Path, tmp_path: Path
) -> None:
    nodes: Nodes = {**A, **B, "s": sort("a", "id"), "x": merge("s", "b", **merged), **OUT,
                    "t": {"transform": {"input": "x", "filter": "id > 3"}},
                    "two": {"output": {"input": "t", "path": "OUT/two.ndjson"}},
                    "y": merge("t", "b"),
                    "three": {"output": {"input": "y", "path": "OUT/three.ndjson"}}}  # fmt: skip
    one, many = both(nodes, folder, tmp_path)
    for name in ("out", "two", "three"):
        lines = [
            sorted((tmp_path / n / f"{name}.ndjson").read_text().splitlines())
            for n in ("one", "many")
        ]
        assert lines[0] == lines[1] != []
    assert counters(many) == counters(one)


def test_rows_that_come_on_several_ways_count_once(folder: Path, tmp_path: Path) -> None:
    """Sorted on one way, so that they meet in tasks of different stages."""
    nodes = {**A, **T, "s": sort("a"), "x": merge("t", "s", "a"), **OUT,
             "two": {"output": {"input": "x", "table": "OUT/two", "sort_by": "id"}}}  # fmt: skip
    one, many = both(nodes, folder, tmp_path)
    assert one.outputs["out"].records_written > 2 * one.outputs["out"].ok_count == 2200
    assert counters(many) == counters(one)


def test_a_route_and_a_fan_out_go_to_many_outputs(folder: Path, tmp_path: Path) -> None:
    route = {
        "input": "a",
        "branches": {"big": "size > 25", "some": "size IS NOT NULL"},
        "otherwise": "rest",
    }
    nodes: Nodes = {**A, "r": {"route": route}, "s": sort("r.big"), "g": aggregate("r.big", "who")}
    for n, edge in enumerate(("r.big", "r.some", "r.rest", "s", "g", "a")):
        nodes[f"o{n}"] = {"output": {"input": edge, "path": f"OUT/{n}.ndjson"}}
    one, many = both(nodes, folder, tmp_path)
    for n in range(6):
        assert (tmp_path / f"many/{n}.ndjson").read_bytes() == (
            tmp_path / f"one/{n}.ndjson"
        ).read_bytes()
    assert counters(many) == counters(one)


def test_a_table_gets_the_fragments_of_all_tasks_in_one_commit(
    folder: Path, tmp_path: Path
) -> None:
    nodes = {**A, **T, "x": {"output": {"input": "t", "table": "OUT/t", "sort_by": "who,size"}}}
    both(nodes, folder, tmp_path)
    tables = [Table.open(str(tmp_path / n / "t")) for n in ("one", "many")]
    rows = [pa.table(table.scan()) for table in tables]
    assert rows[0].num_rows > 800
    assert rows[0].equals(rows[1])
    assert [table.version for table in tables] == [1, 1]
    store = LocalStore(tmp_path / "many/t")
    assert verify(store, Table.open(store.url)._snapshot).faults == []
    # Files without rows leave no fragment; attempts that do not count are not committed.
    assert len(Table.open(store.url)._snapshot.fragments) == 2
    assert len(list((tmp_path / "many/t/data").iterdir())) == 4


def test_a_table_that_is_there_gets_more_rows(folder: Path, tmp_path: Path) -> None:
    nodes = {**A, "x": {"output": {"input": "a", "table": "OUT/t", "sort_by": "who,size"}}}
    both(nodes, folder, tmp_path)
    both(nodes, folder, tmp_path)
    tables = [Table.open(str(tmp_path / n / "t")) for n in ("one", "many")]
    assert pa.table(tables[0].scan()).equals(pa.table(tables[1].scan()))


def write_lines(folder: Path) -> None:
    """Files whose fields differ; some have lines that are none."""
    files = [
        ['{"n":1,"s":"a"}', '{"n":2,"s":"b","more":[1]}'],
        ["[]", '{"n":3,"late":true}', '{"n":"x"}'],
        ['{"n":4,"s":"d"}', "no"],
    ]
    for number, lines in enumerate(files):
        (folder / f"l-{number}.ndjson").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("fields", [None, {"n": "BIGINT", "s": "TEXT"}])
def test_unknown_fields_bad_lines_and_documents_are_as_in_one_process(
    fields: dict[str, str] | None, tmp_path: Path
) -> None:
    write_lines(tmp_path)
    node = {"path": "IN/l-*.ndjson"} | ({"fields": fields, "only_fields": True} if fields else {})
    nodes = {"l": {"source": node}, "t": {"transform": {"input": "l", "filter": "n <> 1"}},
             "x": merge("l", "t"), **OUT, "some": {"output": {"input": "t", "path": "OUT/some.ndjson"}},
             "csv": {"output": {"input": "t", "path": "OUT/t.csv", "drop_widened": True}},
             "bad": {"transform": {"input": "l", "columns": {"n": "1 / (n - 4)"}}},
             "rest": {"output": {"input": "bad", "path": "OUT/rest.ndjson"}}}  # fmt: skip
    document: dict[str, Any] = {"on_error": "continue", "dead_letter": "OUT/dead.ndjson"}
    one, many = both(nodes, tmp_path, tmp_path, **document)
    assert one.dlq_count == 4
    assert one.outputs["some"].documents == 3
    assert counters(many) == counters(one)
    assert '"more":[1]' in (tmp_path / "one/some.ndjson").read_text()
    for path in (tmp_path / "one").iterdir():
        assert (tmp_path / "many" / path.name).read_bytes() == path.read_bytes(), path.name


def test_lines_fixed_widths_xml_and_segments_are_as_in_one_process(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"a{number}.log").write_text(f"INFO web {number}\n  at x\nERROR db -\n")
        (tmp_path / f"a{number}.edi").write_text("UNB+UNOA:1+A'UNH+1'UNT+1'UNZ+1'")
    (tmp_path / "in.xml").write_text("<o><i n='1'><t>a</t></i><i n='2'/></o>")
    lines = {"pattern": r"%{LOGLEVEL:level} (?P<service>\w+) (?:%{INT:n:int}.*|-)",
             "multiline": {"starts_with": "[A-Z]"}}  # fmt: skip
    fixed = {"columns": [{"name": "service", "width": 5}, {"name": "level", "width": 6}]}
    nodes = {
        "l": {"source": {"path": "IN/a*.log", "lines": lines}},
        "t": {"transform": {"input": "l", "columns": ["level", "service"]}},
        "wide": {"output": {"input": "t", "path": "OUT/wide.txt", "fixed": fixed}},
        "x": {"source": {"path": "IN/in.xml", "xml": {"row": "o/i"}}},
        "items": {"output": {"input": "x", "path": "OUT/items.xml"}},
        "e": {"source": {"path": "IN/a*.edi"}},
        "segments": {"output": {"input": "e", "path": "OUT/all.edi"}},
    }
    one, many = both(nodes, tmp_path, tmp_path)
    assert counters(many) == counters(one)
    assert (tmp_path / "one/wide.txt").read_text() == "web  INFO  \ndb   ERROR \n" * 3
    for path in (tmp_path / "one").iterdir():
        assert (tmp_path / "many" / path.name).read_bytes() == path.read_bytes(), path.name


BAD = {"t": {"transform": {"input": "x", "columns": {"id": "id", "n": "100 / (id - 390)"}}}}


@pytest.mark.parametrize(
    "before",
    [
        {**A, "x": {"transform": {"input": "a"}}},
        {**A, "x": sort("a", "size")},
        {
            **A,
            "x": {
                "aggregate": {"input": "a", "group_by": ["who", "id"], "columns": {"n": "count"}}
            },
        },
    ],
    ids=["sources", "sorted", "groups"],
)
def test_bad_records_go_to_the_same_dead_letters(
    before: Nodes, folder: Path, tmp_path: Path
) -> None:
    nodes = {**before, **BAD, "out": {"output": {"input": "t", "path": "OUT/out.ndjson"}}}
    document: dict[str, Any] = {"on_error": "continue", "dead_letter": "OUT/dead.ndjson"}
    one, many = both(nodes, folder, tmp_path, **document)
    assert one.dlq_count == 2
    assert counters(many) == counters(one)
    for name in ("out", "dead"):
        found = [(tmp_path / n / f"{name}.ndjson").read_bytes() for n in ("one", "many")]
        assert found[0] == found[1]


def test_a_bad_record_ends_a_run_with_its_number_and_without_output(
    folder: Path, tmp_path: Path
) -> None:
    """In the third file, after an empty one."""
    nodes = {**A, **BAD, "x": {"transform": {"input": "a", "filter": "id > 400"}},
             "t": {"transform": {"input": "x", "columns": {"n": "100 / (id - 690)"}}},
             "out": {"output": {"input": "t", "path": "OUT/out.ndjson"}},
             "two": {"output": {"input": "t", "table": "OUT/two", "sort_by": "n"}}}  # fmt: skip
    errors = []
    runs: list[tuple[str, Callable[[Pipeline], Any]]] = [("one", PipelineRun), ("many", spark_run)]
    for name, run in runs:
        with pytest.raises(DataError) as error:
            run(pipeline(nodes, folder, tmp_path / name)).run()
        errors.append(str(error.value))
        assert not (tmp_path / name / "out.ndjson").exists()
        assert not (tmp_path / name / "two/_log").exists()
    assert without_file(errors[0]) == errors[1]
    assert "row 1091 of 'a' (row 691 of " in errors[0]


def without_file(text: str) -> str:
    """Returns a message about a row without its data file, which one process alone knows."""
    return re.sub(r"(row \d+ of '\w+') \([^)]*\)", r"\1", text)


class spark_run:  # noqa: N801 - stands for a function
    def __init__(self, pipeline: Pipeline, spark: FakeSpark | None = None, **options: Any) -> None:
        self._run, self._spark = SparkRun(pipeline), spark or FakeSpark()
        self._options = SparkOptions(**options)

    def run(self) -> RunReport:
        return self._run.run(as_session(self._spark), self._options)


MISTAKES: dict[str, tuple[Nodes, type[CompactorError]]] = {
    "a column that is not there": ({**A, "x": sort("a", "nothing")}, ConfigError),
    "a file that is not there": ({"x": {"source": {"path": "IN/none.parquet"}}}, InputError),
    "inputs that do not agree": ({**A, **USERS, "x": merge("a", "users")}, ConfigError),
    "a value that does not fit": (
        {**A, "x": {"transform": {"input": "a", "columns": {"n": "CAST(who AS INT)"}}}}, DataError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_in_the_same_words(case: str, folder: Path, tmp_path: Path) -> None:
    nodes, kind = MISTAKES[case]
    texts = []
    for run in (PipelineRun, spark_run):
        with pytest.raises(kind) as error:
            run(pipeline({**nodes, **OUT}, folder, tmp_path / "o")).run()
        texts.append(str(error.value))
    assert without_file(texts[0]) == texts[1]
    assert "\n" not in texts[0]
    assert not list((tmp_path / "o").iterdir())


def test_a_limit_that_is_too_low_names_the_setting(folder: Path, tmp_path: Path) -> None:
    wide = pa.table({"id": [1] * 30_000, "text": ["x" * 100] * 30_000})
    pq.write_table(wide, tmp_path / "w.parquet")
    nodes = {"w": {"source": {"path": str(tmp_path / "w.parquet")}},
             "k": {"transform": {"input": "w", "columns": {"id": "id"}}},
             "x": combine("k", "w", on=["id"]), **OUT}  # fmt: skip
    with refuses(MemoryLimitError):
        spark_run(pipeline(nodes, folder, tmp_path / "o", memory={"limit": "1MiB"})).run()
    assert not list((tmp_path / "o").iterdir())


def test_tasks_spill_under_a_limit_of_their_own(folder: Path, tmp_path: Path) -> None:
    pq.write_table(events(60_000, 3), tmp_path / "big.parquet")
    nodes = {"a": {"source": {"path": str(tmp_path / "big.parquet")}}, "x": sort("a"), **OUT}
    _, many = both(nodes, folder, tmp_path, 2, memory={"limit": "4MiB"})
    assert many.spills > 0
    assert many.peak_bytes <= 4 << 20
    assert (tmp_path / "many/out.ndjson").read_bytes() == (tmp_path / "one/out.ndjson").read_bytes()


def test_tasks_after_a_shuffle_are_as_many_as_its_bytes_need(folder: Path, tmp_path: Path) -> None:
    pq.write_table(events(60_000, 3), tmp_path / "big.parquet")
    nodes = {"a": {"source": {"path": str(tmp_path / "big.parquet")}}, "x": sort("a"), **OUT}
    run = SparkRun(pipeline(nodes, folder, tmp_path / "o", memory={"limit": "4MiB"}))
    run.run(as_session(FakeSpark()), SparkOptions())
    [feed] = run._stages[1].takes
    sent = run._results.size(feed)
    parts = [rows.rows for rows in run._results.written(run._stages[1].gives[0])]
    assert sent.rows == sum(parts) == 60_000
    assert len(parts) == -(-sent.bytes // (1 << 19)) > 3
    assert max(parts) < 2 * 60_000 / len(parts)


def test_rows_sent_to_many_tasks_leave_when_enough_wait(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packets, "_PENDING_DIVISOR", 1 << 15)
    monkeypatch.setattr("compactor.spark.shuffle.exchange._PACKET_BYTES", 3_000)
    both({**ORDERED["sort of a concat"], **OUT}, folder, tmp_path, 7)
    assert (tmp_path / "many/out.ndjson").read_bytes() == (tmp_path / "one/out.ndjson").read_bytes()


def test_what_goes_to_one_task_goes_in_small_packets_each_with_a_place_of_its_own() -> None:
    """At a limit of 16 MiB: packets of 256 KiB, and a MiB of rows that wait."""
    rows = [pa.RecordBatch.from_pydict({"k": [n % 2 for n in range(8000)]}) for _ in range(40)]
    given = [
        batch
        for place, some in enumerate(rows)
        for batch in packets.as_rows(
            iter([packets.Packet(packets.ROWS, 7, place, to_bytes([some]))])
        )
    ]
    ways = {7: (0, ByKeys(("k",)))}
    sent = pa.Table.from_batches(packets.send(iter(given), ways, 2, 16 << 20))
    sizes = [len(data) for data in sent.column("batch").to_pylist()]
    assert max(sizes) <= (256 << 10) + 1000
    assert len(sizes) < 20
    places = list(
        zip(sent.column("part").to_pylist(), sent.column("place").to_pylist(), strict=True)
    )
    assert len(set(places)) == len(places)
    assert set(sent.column("feed").to_pylist()) == {0}
    found = [from_bytes(pa.py_buffer(data)) for data in sent.column("batch").to_pylist()]
    assert sum(batch.num_rows for batch in found) == 320_000


def test_a_cluster_needs_a_staging_place_and_leaves_nothing_in_it(
    folder: Path, tmp_path: Path
) -> None:
    made = pipeline({**A, "x": sort("a"), **OUT}, folder, tmp_path / "o")
    cluster = FakeSpark(master="yarn")
    with refuses(UsageError, "--staging"):
        spark_run(made, cluster).run()
    spark_run(made, cluster, staging=str(tmp_path / "staging")).run()
    assert (tmp_path / "o/out.ndjson").exists()
    assert [p for p in (tmp_path / "staging").rglob("*") if p.is_file()] == []


STEPS = st.lists(
    st.sampled_from(["filter", "sort", "concat", "group", "route", "key", "seeded"]),
    min_size=1,
    max_size=5,
)


@pytest.mark.long
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS, parts=st.integers(1, 5), data=st.data())
def test_any_graph_of_nodes_gives_the_same_bytes(
    steps: list[str], parts: int, data: st.DataObject, folder: Path, tmp_path: Path
) -> None:
    columns = ["id", "who", "size"]
    nodes: Nodes = {
        "a": {"source": {"path": "IN/a-*.parquet", "columns": columns}},
        "b": {"source": {"path": "IN/b.parquet", "columns": columns}},
    }
    edges = ["a", "b"]
    for number, step in enumerate(steps):
        first, other = (data.draw(st.sampled_from(edges)) for _ in range(2))
        more, edge = STEP[step](first, other, f"n{number}")
        nodes |= more
        edges.append(edge)
    taken = {edge.split(".")[0] for node in nodes.values() for edge in _inputs_of(node)}
    ends = [edge for edge in edges if edge.split(".")[0] not in taken]
    for number, edge in enumerate(ends):
        nodes[f"o{number}"] = {"output": {"input": edge, "path": f"OUT/{number}.ndjson"}}
    one, many = both(nodes, folder, tmp_path, parts)
    assert counters(many) == counters(one)
    for number in range(len(ends)):
        paths = [tmp_path / n / f"{number}.ndjson" for n in ("one", "many")]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def _inputs_of(node: Any) -> list[str]:
    [value] = node.values()
    return [*value.get("inputs", ()), *([value["input"]] if "input" in value else [])]


def _filtered(first: str, _other: str, name: str) -> tuple[Nodes, str]:
    return {name: {"transform": {"input": first, "filter": "id IS NULL OR id <> 5"}}}, name


def _sorted(first: str, _other: str, name: str) -> tuple[Nodes, str]:
    return {name: sort(first, "size:desc,who")}, name


def _one_after_the_other(first: str, other: str, name: str) -> tuple[Nodes, str]:
    return {f"{name}t": {"transform": {"input": first}}, name: merge(f"{name}t", other)}, name


def _grouped(first: str, _other: str, name: str) -> tuple[Nodes, str]:
    node = {"input": first, "group_by": ["who", "size"], "columns": {"id": "max(id)"}}
    back = {"transform": {"input": f"{name}g", "columns": ["id", "who", "size"]}}
    return {f"{name}g": {"aggregate": node}, name: back}, name


def _routed(first: str, _other: str, name: str) -> tuple[Nodes, str]:
    return {
        name: {"route": {"input": first, "branches": {"x": "size > 9"}, "otherwise": "y"}}
    }, f"{name}.y"


def _merged(first: str, other: str, name: str) -> tuple[Nodes, str]:
    inputs = [f"{name}p", f"{name}q"]
    key = merge(*inputs, mode="key", sort_by="who")
    return {inputs[0]: sort(first, "who"), inputs[1]: sort(other, "who,id"), name: key}, name


def _drawn(first: str, other: str, name: str) -> tuple[Nodes, str]:
    inputs = {f"{name}t": {"transform": {"input": first}}}
    seeded = merge(*inputs, other, mode="interleave", interleave_seed=len(name))
    return {**inputs, name: seeded}, name


STEP: dict[str, Callable[[str, str, str], tuple[Nodes, str]]] = {
    "filter": _filtered,
    "sort": _sorted,
    "concat": _one_after_the_other,
    "group": _grouped,
    "route": _routed,
    "key": _merged,
    "seeded": _drawn,
}
