"""What docs/reference/pipelines.md promises of order and bounds, over files and pipes."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.nodes import source
from compactor.pipelines.pipeline_run import PipelineRun
from tests.pipelines.support import MIB, in_background, lines_of, wait_until

FIELDS: Final = {"from": "TEXT", "n": "BIGINT"}


def run_of(folder: Path, nodes: dict[str, Any], **settings: Any) -> PipelineRun:
    text = json.dumps({"nodes": nodes, **settings}).replace("IN/", f"{folder}/")
    return PipelineRun(parse_pipeline(text, "test.yaml"))


def csv_source(folder: Path, name: str, rows: int) -> dict[str, Any]:
    lines = "".join(f"{name},{n}\n" for n in range(rows))
    (folder / f"{name}.csv").write_text(f"from,n\n{lines}")
    return {name: {"source": {"path": f"IN/{name}.csv", "fields": FIELDS}}}


def pipe_source(folder: Path, name: str) -> dict[str, Any]:
    """A source that reads what a test writes to the pipe, until the test closes it."""
    os.mkfifo(folder / f"{name}.csv")
    return {name: {"source": {"path": f"IN/{name}.csv", "fields": FIELDS}}}


def names_in(path: Path) -> list[tuple[str, int]]:
    return [(row["from"], row["n"]) for row in lines_of(path)]


@pytest.mark.timeout(60)
def test_later_inputs_of_a_concat_wait_in_channels_and_others_are_read_in_their_turn(
    tmp_path: Path,
) -> None:
    nodes = pipe_source(tmp_path, "a")
    for name in "bcd":
        nodes |= csv_source(tmp_path, name, 5000)
    nodes |= {
        "t": {"transform": {"input": "c", "filter": "n >= 0"}},
        "s": {"sort": {"input": "d", "by": "n:desc"}},
        "m": {"merge": {"inputs": ["a", "b", "t", "s"]}},
        "o": {"output": {"input": "m", "path": "IN/o.ndjson"}},
    }
    run = run_of(tmp_path, nodes)
    thread, results = in_background(run)
    with (tmp_path / "a.csv").open("w") as file:
        file.write("from,n\n")
        wait_until(lambda: [c.records for c in run._work._channels] == [1_024] * 2)
        file.write("a,0\n")
    thread.join(30)
    [report] = results
    assert report.peak_waiting == {"b": 1_024, "t": 1_024}
    expected = [("a", 0), *(("b", n) for n in range(5000)), *(("c", n) for n in range(5000))]
    assert names_in(tmp_path / "o.ndjson") == [*expected, *(("d", 4999 - n) for n in range(5000))]


_ROWS_OF_A_PIPE: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "csv": ({}, "from,n\n", "{0},{1}\n"),
    "csv-without-header": ({"csv": {"header": False}}, "", "{0},{1}\n"),
    "ndjson": ({"format": "ndjson"}, "", '{{"from": "{0}", "n": {1}}}\n'),
    "lines": ({"lines": {"pattern": r"(?P<from>\w+) (?P<n>\d+)"}}, "", "{0} {1}\n"),
    "fixed": (
        {"fixed": {"columns": [{"name": "from", "width": 1}, {"name": "n", "width": 2}]}},
        "",
        "{0}{1:2}\n",
    ),
}
"""Settings, the beginning of the text, and the form of a row."""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", _ROWS_OF_A_PIPE)
def test_rows_of_a_pipe_that_stays_open_are_written_as_they_come(tmp_path: Path, kind: str) -> None:
    settings, begin, form = _ROWS_OF_A_PIPE[kind]
    nodes = pipe_source(tmp_path, "a") | csv_source(tmp_path, "b", 3000)
    nodes["a"]["source"] |= settings
    nodes |= {
        "m": {"merge": {"inputs": ["a", "b"], "mode": "interleave"}},
        "o": {"output": {"input": "m", "path": "IN/o.ndjson"}},
    }
    run = run_of(tmp_path, nodes)
    thread, results = in_background(run)
    with (tmp_path / "a.csv").open("w") as file:
        _wait_for(run, 3000)
        for n in range(3):
            row = form.format("a", n)
            file.write(begin * (n == 0) + row + row[:1])
            file.flush()
            _wait_for(run, 3001 + 2 * n)
            file.write(row[1:])
            file.flush()
            _wait_for(run, 3002 + 2 * n)
    thread.join(30)
    assert results[0].outputs["o"].live
    found = [row for row in names_in(tmp_path / "o.ndjson") if row[0] == "a"]
    assert found == [("a", n // 2) for n in range(6)]


def _wait_for(run: PipelineRun, rows: int) -> None:
    wait_until(lambda: _written(run) == rows)


def _written(run: PipelineRun) -> int:
    return run.report.outputs["o"].records_written if run.report.outputs else 0


def test_a_seed_orders_rows_by_their_number_alone(tmp_path: Path) -> None:
    orders = []
    for names in ("ab", "xy"):
        nodes: dict[str, Any] = {}
        for name, rows in zip(names, (40, 300), strict=True):
            nodes |= csv_source(tmp_path, name, rows)
        merge = {"inputs": list(names), "mode": "interleave", "interleave_seed": 5}
        nodes |= {"m": {"merge": merge}, "o": {"output": {"input": "m", "path": "IN/o.ndjson"}}}
        run_of(tmp_path, nodes, batch_size=random.randint(1, 50)).run()
        orders.append([(names.index(name), n) for name, n in names_in(tmp_path / "o.ndjson")])
    assert orders[0] == orders[1]


def test_seeds_give_all_orders_that_keep_those_within_inputs_equally_often(tmp_path: Path) -> None:
    nodes = csv_source(tmp_path, "a", 2) | csv_source(tmp_path, "b", 2)
    merge: dict[str, Any] = {"inputs": ["a", "b"], "mode": "interleave"}
    nodes |= {"m": {"merge": merge}, "o": {"output": {"input": "m", "path": "IN/o.ndjson"}}}
    orders: Counter[str] = Counter()
    for seed in range(120):
        merge["interleave_seed"] = seed
        run_of(tmp_path, nodes).run()
        found = names_in(tmp_path / "o.ndjson")
        assert sorted(found) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        assert all(found.index((name, 0)) < found.index((name, 1)) for name in "ab")
        orders["".join(name for name, _ in found)] += 1
    # 20 each; the standard deviation is 4.
    assert len(orders) == 6 and min(orders.values()) > 8 and max(orders.values()) < 34


@pytest.mark.parametrize("limit", ["512MiB", "4MiB"])
def test_rows_of_equal_keys_keep_their_order_in_a_sort(tmp_path: Path, limit: str) -> None:
    rng = random.Random(4)
    keys = [rng.choice([None, 1, 2, 3]) for _ in range(60_000)]
    rows = pa.table({"k": keys, "n": range(60_000), "text": ["x" * 60] * 60_000})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=5000)
    nodes = {
        "a": {"source": {"path": "IN/a.parquet"}},
        "s": {"sort": {"input": "a", "by": "k:desc:nulls_first"}},
        "o": {"output": {"input": "s", "path": "IN/o.arrow"}},
    }
    report = run_of(tmp_path, nodes, memory={"limit": limit}).run()
    assert (report.spills > 0) == (limit == "4MiB")
    with pa.ipc.open_file(tmp_path / "o.arrow") as file:
        found = file.read_all()
    expected = sorted(range(60_000), key=lambda n: -(keys[n] or 9))
    assert found["n"].to_pylist() == expected


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_the_first_row_finds_what_the_end_of_the_build_side_has(
    tmp_path: Path, batch_size: int
) -> None:
    nodes = csv_source(tmp_path, "a", 3) | csv_source(tmp_path, "b", 4000)
    with (tmp_path / "b.csv").open("a") as file:
        file.write("late,0\n")
    named = {"other": '"from"', "k": "n"}
    nodes |= {
        "named": {"transform": {"input": "b", "columns": named}},
        "j": {"combine": {"probe": "a", "build": "named", "on": {"n": "k"}, "how": "full"}},
        "o": {"output": {"input": "j", "path": "IN/o.ndjson"}},
    }
    run_of(tmp_path, nodes, batch_size=batch_size).run()
    found = [(row["from"], row["n"], row["other"]) for row in lines_of(tmp_path / "o.ndjson")]
    assert found[:4] == [("a", 0, "b"), ("a", 0, "late"), ("a", 1, "b"), ("a", 2, "b")]
    assert found[4:] == [(None, n, "b") for n in range(3, 4000)]


@pytest.mark.parametrize(
    ("is_chain", "threads", "waiting"),
    [(True, 1, {"t"}), (True, 2, set()), (False, 1, {"a"}), (False, 2, {"a"})],
)
def test_the_probe_side_of_a_hash_join_is_read_in_a_thread_or_its_files_are(
    tmp_path: Path, is_chain: bool, threads: int, waiting: set[str]
) -> None:
    nodes = csv_source(tmp_path, "a", 5000) | csv_source(tmp_path, "b", 10)
    columns = {"name": '"from"', "k": "n"}
    chain = {"transform": {"input": "a", "filter": "n < 9"}}
    mixed = {"merge": {"inputs": ["a"], "mode": "interleave"}}
    nodes |= {
        "named": {"transform": {"input": "b", "columns": columns}},
        "t": chain if is_chain else mixed,
        "j": {"combine": {"probe": "t", "build": "named", "on": {"n": "k"}}},
        "o": {"output": {"input": "j", "path": "IN/o.ndjson"}},
    }
    report = run_of(tmp_path, nodes, threads=threads).run()
    assert set(report.peak_waiting) == waiting


def test_sources_keep_rows_within_a_quarter_of_the_limit_for_all_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    opened = source._opened

    def noted(*given: Any, **settings: Any) -> Any:
        held.append(opened(*given, **settings))
        return held[-1]

    monkeypatch.setattr(source, "_opened", noted)
    nodes: dict[str, Any] = {}
    for name in ("a", "b"):
        nodes |= csv_source(tmp_path, name, 60_000)
        del nodes[name]["source"]["fields"]
    (tmp_path / "a-2.csv").write_text((tmp_path / "a.csv").read_text())
    nodes["a"]["source"]["path"] = "IN/a*.csv"
    nodes |= {
        "m": {"merge": {"inputs": ["a", "b"]}},
        "o": {"output": {"input": "m", "path": "IN/o.arrow"}},
    }
    run = run_of(tmp_path, nodes, memory={"limit": "8MiB"})
    assert len(held) == 3 and 0 < sum(file.held_bytes for file in held) <= 2 * MIB
    assert run.run().outputs["o"].records_written == 180_000


@pytest.mark.long
def test_two_million_rows_in_many_groups_are_aggregated_in_64_mib(tmp_path: Path) -> None:
    rows, groups = 2_000_000, 200_000
    values = pa.array(range(rows), pa.int64())
    with pq.ParquetWriter(
        tmp_path / "a.parquet", pa.schema({"k": pa.int64(), "v": pa.int64()})
    ) as out:
        for start in range(0, rows, 100_000):
            part = values.slice(start, 100_000)
            keys = pa.array([n % groups for n in range(start, start + 100_000)])
            out.write_table(pa.table({"k": keys, "v": part}))
    columns = {"d": "count(distinct v)", "m": "median(v)", "t": "string_agg(CAST(v AS TEXT))"}
    nodes = {
        "a": {"source": {"path": "IN/a.parquet"}},
        "g": {"aggregate": {"input": "a", "group_by": ["k"], "columns": columns}},
        "o": {"output": {"input": "g", "path": "IN/o.arrow"}},
    }
    report = run_of(tmp_path, nodes, memory={"limit": "64MiB"}).run()
    assert report.peak_bytes <= 64 * MIB
    with pa.ipc.open_file(tmp_path / "o.arrow") as file:
        found = file.read_all()
    assert found["k"].to_pylist() == list(range(groups))
    assert set(found["d"].to_pylist()) == {10}
    assert found["m"][7].as_py() == 7 + groups * 4.5
    assert found["t"][7].as_py() == ",".join(str(7 + groups * n) for n in range(10))
