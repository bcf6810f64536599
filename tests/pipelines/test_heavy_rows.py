"""Rows of several kilobytes, of which a batch by rows alone would not fit into the memory limit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.pipeline_run import PipelineRun

MIB = 1 << 20
ROWS = 2_500
LIMIT_MIB = 16
Row = dict[str, Any]


def text_of(number: int) -> str:
    return f"{number:05d}" + "x" * 8_000


def written(path: Path, numbers: list[int]) -> str:
    with path.open("w") as file:
        for number in numbers:
            file.write(json.dumps({"i": number, "s": text_of(number)}) + "\n")
    return str(path)


def shuffled(step: int) -> list[int]:
    return [number * step % ROWS for number in range(ROWS)]


def rows_of(nodes: Row, folder: Path) -> list[Row]:
    """Returns the rows of node `n`, which keeps the limit."""
    target = folder / "out.ndjson"
    output = {"output": {"input": "n", "path": str(target)}}
    limit = {"limit": f"{LIMIT_MIB}MiB"}
    document = {"memory": limit, "nodes": {**nodes, "out": output}}
    report = PipelineRun(parse_pipeline(json.dumps(document), "test.yaml")).run()
    assert report.peak_bytes <= LIMIT_MIB * MIB
    with target.open() as lines:
        return [json.loads(line) for line in lines]


def test_groups_may_be_heavier_than_the_first_rows(tmp_path: Path) -> None:
    source = tmp_path / "a.parquet"
    texts = ["x" * (8 if number < ROWS // 2 else 20_000) for number in range(ROWS)]
    rows = pa.table({"i": range(ROWS), "s": texts})
    pq.write_table(rows, source, row_group_size=300)
    nodes = {
        "a": {"source": {"path": str(source)}},
        **aggregate("max(s)"),
    }
    found = {row["i"]: row["m"] for row in rows_of(nodes, tmp_path)}
    assert found == dict(enumerate(texts))


def first_letters(row: Row) -> Row:
    """Returns the row with its texts cut, after a look at their ends."""
    texts = {name: value for name, value in row.items() if isinstance(value, str)}
    assert all(value.endswith("x") and len(value) % 8_005 == 0 for value in texts.values())
    return row | {name: value[:5] for name, value in texts.items()}


SORTED: list[Row] = [{"i": number, "s": f"{number:05d}"} for number in range(ROWS)]
JOINED = [row | {"t": row["s"]} for row in SORTED]
GROUPED = [{"i": row["i"], "m": row["s"]} for row in SORTED]


def aggregate(call: str) -> Row:
    return {"n": {"aggregate": {"input": "a", "group_by": ["i"], "columns": {"m": call}}}}


def combine(**settings: Any) -> Row:
    return {
        "c": {"transform": {"input": "b", "columns": {"j": "i", "t": "s"}}},
        "n": {"combine": {"probe": "a", "build": "c", "on": {"i": "j"}, **settings}},
    }


WINDOW = {"partition_by": [], "order_by": "i"}
MERGED = {"merge": {"inputs": ["x", "y"], "mode": "key", "sort_by": "i"}}
JOBS: dict[str, tuple[Row, list[Row], bool]] = {
    "sort": ({"n": {"sort": {"input": "a", "by": "i"}}}, SORTED, True),
    "window": (
        {
            "n": {
                "transform": {
                    "input": "a",
                    "window": WINDOW,
                    "columns": {"i": "i", "s": "s", "m": "row_number()"},
                }
            }
        },
        [row | {"m": row["i"] + 1} for row in SORTED],
        True,
    ),
    "hash join": (combine(how="full"), JOINED, False),
    "sort merge join": (combine(method="sort_merge"), JOINED, False),
    "merge by key": (
        {
            "x": {"sort": {"input": "a", "by": "i"}},
            "y": {"sort": {"input": "b", "by": "i"}},
            "n": MERGED,
        },
        [row for row in SORTED for _ in range(2)],
        True,
    ),
    "max": (aggregate("max(s)"), GROUPED, False),
    "first": (aggregate("first(s)"), GROUPED, False),
    "string_agg": (aggregate("string_agg(s, ',')"), GROUPED, False),
    "count distinct": (
        aggregate("count(distinct s)"),
        [{"i": number, "m": 1} for number in range(ROWS)],
        False,
    ),
}


def by_number(row: Row) -> int:
    return int(row["i"])


@pytest.mark.parametrize("job", JOBS)
def test_rows_of_8_kilobytes_pass_through_every_kind_of_node(job: str, tmp_path: Path) -> None:
    nodes, expected, is_ordered = JOBS[job]
    sources = {
        name: {
            "source": {
                "path": written(tmp_path / f"{name}.ndjson", shuffled(step)),
                "fields": {"i": "INT", "s": "TEXT"},
            }
        }
        for name, step in (("a", 3), ("b", 7))
        if f'"{name}"' in json.dumps(nodes)
    }
    found = [first_letters(row) for row in rows_of({**sources, **nodes}, tmp_path)]
    key: Callable[[Row], int] | None = None if is_ordered else by_number
    assert (found if key is None else sorted(found, key=key)) == expected
