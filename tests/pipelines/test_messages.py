"""What `compactor run` says of a mistake: the pipeline's file, line and node; of data file, row, column."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Table
from compactor.errors import CompactorError
from compactor.files.staging import StagedFile
from compactor.pipelines.config import Pipeline, load_pipeline
from compactor.pipelines.phases import check_pipeline, run_pipeline
from tests.support.wording import refuses

A: Final = "source: {path: a.ndjson}"
"""Columns n, s, t."""
MISTAKES: Final = {
    "no such source": "source: {path: none.ndjson}",
    "no source matches": "source: {path: 'none-*.ndjson'}",
    "address of no store": "source: {path: 'ftp://host/a.csv'}",
    "address of a folder": "source: {path: 'file:///'}",
    "folder as a source": "source: {path: folder}",
    "unknown ending of a source": "source: {path: a.txt}",
    "type of fields": "source: {path: a.ndjson, fields: {n: NUMBER}}",
    "column of a source": "source: {path: a.ndjson, columns: [x]}",
    "column of a source twice": "source: {path: a.ndjson, columns: [n, n]}",
    "files of two types": "source: {path: '?.ndjson'}",
    "column of a filter": "transform: {input: a, filter: x > 1}",
    "column of an expression": "transform: {input: a, columns: {y: x + 1}}",
    "column chosen": "transform: {input: a, columns: [x]}",
    "types of an expression": "transform: {input: a, columns: {y: n + s}}",
    "window without order": "transform: {input: a, window: {partition_by: [s]}, columns: {y: row_number()}}",
    "window function without window": "transform: {input: a, columns: {y: row_number()}}",
    "order of a window": "transform: {input: a, window: {order_by: x}, columns: {y: row_number()}}",
    "partition of a window": "transform: {input: a, window: {order_by: n, partition_by: [x]}, columns: [n]}",
    "types of a merge": "merge: {inputs: [a, b]}",
    "columns of a merge": "merge: {inputs: [a, c]}",
    "input of a merge twice": "merge: {inputs: [a, a]}",
    "order of a merge by key": "merge: {inputs: [a, d], mode: key, sort_by: x}",
    "inputs of a merge by key are not sorted": "merge: {inputs: [a, d], mode: key, sort_by: 'n:desc'}",
    "sort": "sort: {input: a, by: x}",
    "condition of a branch": "route: {input: a, branches: {x: x > 1, y: n > 1}}",
    "group of an aggregate": "aggregate: {input: a, group_by: [x], columns: {y: count}}",
    "column of an aggregate": "aggregate: {input: a, group_by: [s], columns: {y: sum(x)}}",
    "function of an aggregate": "aggregate: {input: a, group_by: [s], columns: {y: middle(n)}}",
    "column of a time window": "aggregate: {input: a, window: {column: s, size: 1m}, columns: {y: count}}",
    "on of the probe side": "combine: {probe: a, build: d, on: [x]}",
    "on of the build side": "combine: {probe: a, build: d, on: {n: x}}",
    "types of on": "combine: {probe: a, build: b, on: [n]}",
    "on is missing": "combine: {probe: a, build: d}",
    "columns of a join by one name": "combine: {probe: a, build: d, on: [n]}",
    "division by zero": "transform: {input: a, columns: {y: 1 / (n - 2)}}",
    "overflow": "transform: {input: a, columns: {y: n * 9223372036854775807}}",
    "division by zero in a branch": "route: {input: a, branches: {ok: n > 5, x: 1 / (n - 2) > 0}}",
    "argument in a window": "transform: {input: a, window: {order_by: n}, columns: {m: n, y: sum(s)}}",
    "value in a window": "transform: {input: a, window: {order_by: n}, columns: {m: n, y: lag(1 / (n - 2))}}",
    "sum of a window": "transform: {input: a, window: {order_by: n}, columns: {y: sum(n * 4e18::BIGINT)}}",
    "cast": "transform: {input: a, columns: {y: CAST(s AS BIGINT)}}",
    "damaged line": "source: {path: damaged.ndjson}",
    "cell of another type": "source: {path: cells.csv, fields: {n: BIGINT}}",
    "row with too many cells": "source: {path: rows.csv}",
    "declared type of a Parquet file": "source: {path: p.parquet, fields: {s: BIGINT}}",
    "damaged Parquet file": "source: {path: damaged.parquet}",
}
"""Node `x` of each pipeline."""
OUTPUTS: Final = {
    "unknown ending of an output": "{input: a, path: out.txt}",
    "folder of an output": "{input: a, path: none/out.csv}",
    "output over a source": "{input: a, path: a.ndjson}",
    "output inside a table": "{input: a, path: there/out.csv}",
    "maps in CSV": "{input: maps, path: out.csv}",
    "maps in XML": "{input: maps, path: out.xml}",
    "sort_by of a new table": "{input: a, table: t}",
    "column of sort_by": "{input: a, table: t, sort_by: x}",
    "sort_by of a file": "{input: a, path: out.csv, sort_by: n}",
    "column of a split": "{input: a, path: 'out-{}.csv', split: {by: x}}",
    "split without a place": "{input: a, path: out.csv, split: {rows: 5}}",
    "table of other columns": "{input: a, table: there}",
}
"""Settings of the output of each pipeline."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files: dict[str, list[dict[str, Any]]] = {
        "a.ndjson": [{"n": 1, "s": "1"}, {"n": 2, "s": "x"}],
        "b.ndjson": [{"n": "text", "s": "x"}],
        "c.ndjson": [{"other": 1}],
        "d.ndjson": [{"n": 1, "s": "1"}],
    }
    for name, rows in files.items():
        Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    Path("folder").mkdir()
    Path("a.txt").write_text("text\n")
    Path("damaged.ndjson").write_text('{"n": 1}\n{"n": 2\n')
    Path("cells.csv").write_text("n\n1\nx\n")
    Path("rows.csv").write_text("n,m\n1,2\n1,2,3\n")
    maps = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table({"m": maps}), "maps.parquet")
    pq.write_table(pa.table({"s": ["x"]}), "p.parquet")
    pq.write_table(pa.table({"n": range(10_000)}), "damaged.parquet")
    whole = bytearray(Path("damaged.parquet").read_bytes())
    whole[100:200] = bytes(100)
    Path("damaged.parquet").write_bytes(whole)
    return tmp_path


def _refused(text: str, *names: str, by: Callable[[Pipeline], object] = run_pipeline) -> None:
    Path("p.yaml").write_text(text)
    before = set(Path().iterdir())
    with refuses(CompactorError, *names):
        by(load_pipeline("p.yaml"))
    assert set(Path().iterdir()) == before


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_file_line_and_node(mistake: str, folder: Path) -> None:
    node = MISTAKES[mistake]
    taken = "x.x" if node.startswith("route") else "x"
    others = [name for name in "abcd" if any(f"{c}{name}{e}" in node for c in " [" for e in ",]}")]
    lines = [f"  {name}: {{source: {{path: {name}.ndjson}}}}" for name in others]
    lines += [f"  x: {{{node}}}", f"  o: {{output: {{input: {taken}, path: out.ndjson}}}}"]
    _refused("\n".join(["nodes:", *lines, ""]), f"p.yaml, line {2 + len(others)}: node 'x'")


@pytest.mark.parametrize("mistake", OUTPUTS)
def test_a_mistake_of_an_output_is_told_with_file_line_and_node(mistake: str, folder: Path) -> None:
    output = OUTPUTS[mistake]
    if "there" in output:
        written = "{output: {input: c, table: there, sort_by: other}}"
        before = f"nodes:\n  c: {{source: {{path: c.ndjson}}}}\n  o: {written}\n"
        Path("q.yaml").write_text(before)
        run_pipeline(load_pipeline("q.yaml"))
    path = "maps.parquet" if "maps" in output else "a.ndjson"
    name = "maps" if "maps" in output else "a"
    text = f"nodes:\n  {name}: {{source: {{path: {path}}}}}\n  o: {{output: {output}}}\n"
    _refused(text, "p.yaml, line 3: node 'o': ", by=check_pipeline)


@pytest.mark.parametrize("column", ["s", "n"])
def test_a_table_of_other_types_is_told_without_settings_that_an_output_lacks(
    column: str, folder: Path
) -> None:
    table = pa.table({"n": [1], "s": ["1"]} | {column: [True]})
    Table.create(folder / "there", table, "n")
    output = "{output: {input: a, table: there}}"
    with refuses(CompactorError, f"'{column}'", "bool", "transform") as caught:
        Path("p.yaml").write_text(f"nodes:\n  a: {{{A}}}\n  o: {output}\n")
        run_pipeline(load_pipeline("p.yaml"))
    assert "on_conflict" not in caught.value.message


@pytest.fixture
def third_move_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = StagedFile.publish

    def failing(file: StagedFile, target: Path) -> None:
        if target.name == "2.csv":
            raise OSError(errno.EPERM, "Operation not permitted")
        publish(file, target)

    monkeypatch.setattr(StagedFile, "publish", failing)


@pytest.mark.usefixtures("third_move_fails")
def test_a_failed_move_is_told_with_the_outputs_that_are_in_place(folder: Path) -> None:
    outputs = [f"  o{n}: {{output: {{input: a, path: {n}.csv}}}}" for n in range(4)]
    Path("p.yaml").write_text("\n".join(["nodes:", f"  a: {{{A}}}", *outputs, ""]))
    with refuses(CompactorError, "p.yaml, line 5: node 'o2': ", "'o0', 'o1'"):
        run_pipeline(load_pipeline("p.yaml"))
    assert [n for n in range(4) if Path(f"{n}.csv").exists()] == [0, 1]


@pytest.mark.usefixtures("third_move_fails")
def test_a_failed_move_within_a_split_is_told_with_the_files_that_are_in_place(
    folder: Path,
) -> None:
    Path("out").mkdir()
    Path("k.csv").write_text("k\n0\n1\n2\n3\n")
    output = "{output: {input: k, path: 'out/{}.csv', split: {by: k}}}"
    Path("p.yaml").write_text(f"nodes:\n  k: {{source: {{path: k.csv}}}}\n  o: {output}\n")
    in_place = "; 2 of its 4 files are in place: out/0.csv to out/1.csv"
    with refuses(CompactorError, "p.yaml, line 3: node 'o': out/2.csv: ", in_place):
        run_pipeline(load_pipeline("p.yaml"))
    assert sorted(path.name for path in Path("out").iterdir()) == ["0.csv", "1.csv"]


def test_a_row_of_several_files_is_told_with_its_file(folder: Path) -> None:
    for number in range(3):
        Path(f"n-{number}.ndjson").write_text(
            "".join(f'{{"n": {number * 10 + n}}}\n' for n in range(5))
        )
    nodes: dict[str, Any] = {
        "a": {"source": {"path": "n-*.ndjson"}},
        "x": {"transform": {"input": "a", "columns": {"y": "1 / (n - 12)"}}},
        "o": {"output": {"input": "x", "path": "out.ndjson"}},
    }
    Path("p.json").write_text(json.dumps({"nodes": nodes}, indent=1))
    with refuses(CompactorError, "row 8 of 'a' (row 3 of n-1.ndjson)"):
        run_pipeline(load_pipeline("p.json"))


@pytest.mark.parametrize(
    ("source", "output", "code"),
    [
        ("path: a.ndjson", "path: out.ndjson, sort_by: n", 2),
        ("path: none.ndjson", "path: out.ndjson", 3),
        ("path: maps.parquet", "path: out.csv", 3),
        ("path: a.ndjson", "table: t", 5),
        ("table: t", "path: out.ndjson", 5),
    ],
)
def test_the_exit_code_of_a_mistake_is_that_of_its_kind(
    folder: Path, source: str, output: str, code: int
) -> None:
    text = f"nodes:\n  a: {{source: {{{source}}}}}\n  o: {{output: {{input: a, {output}}}}}\n"
    Path("p.yaml").write_text(text)
    with pytest.raises(CompactorError) as caught:
        check_pipeline(load_pipeline("p.yaml"))
    assert caught.value.exit_code == code


def test_the_condition_of_a_table_that_fails_for_a_row_ends_the_run(folder: Path) -> None:
    Table.create(folder / "there", pa.table({"k": [1, 2]}), "k")
    text = "on_error: continue\ndead_letter: bad.ndjson\nnodes:\n"
    text += "  a: {source: {table: there, where: 10 / (k - 1) > 1}}\n"
    text += "  o: {output: {input: a, path: out.ndjson}}\n"
    _refused(text, "p.yaml, line 4: node 'a'")
