"""Where outputs go: never over what is read, or over another's rows; nothing before everything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Table
from compactor.errors import (
    CompactorError,
    ConfigError,
    DataError,
    TableExistsError,
    TableNotFoundError,
)
from compactor.pipelines.config import load_pipeline, parse_pipeline
from compactor.pipelines.nodes.table_output import StagedFragments
from compactor.pipelines.phases import run_pipeline
from tests.pipelines.support import MIB, lines_of, numbered, run_of, sources
from tests.pipelines.test_documents import run_files, write_lines
from tests.support.wording import refuses


def split_by(tmp_path: Path, name: str, node: str = "a", **split: Any) -> dict[str, Any]:
    return {"output": {"input": node, "path": str(tmp_path / name), "split": split}}


def test_numbered_names_of_documents_are_not_those_of_others(tmp_path: Path) -> None:
    for place, rows in (("0/a-2", 1), ("x/a", 2), ("y/a", 3)):
        (tmp_path / place).parent.mkdir()
        write_lines(tmp_path / f"{place}.ndjson", rows)
    nodes = {
        "a": {"source": {"path": str(tmp_path / "?/a*.ndjson")}},
        "o": split_by(tmp_path, "out-{}.ndjson", documents=True),
    }
    run_files(nodes).run()
    found = {p.name: len(lines_of(p)) for p in tmp_path.glob("out-*")}
    assert found == {"out-a-2.ndjson": 1, "out-a.ndjson": 2, "out-a-3.ndjson": 3}


@pytest.mark.parametrize("value", ["x", "in", "bad"])
def test_a_file_of_a_split_is_not_written_over_another_place(tmp_path: Path, value: str) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text(json.dumps({"k": value}) + "\n")
    nodes = {
        "a": {"source": {"path": str(path)}},
        "o": split_by(tmp_path, "{}.ndjson", by="k"),
        "p": {"output": {"input": "a", "path": str(tmp_path / "x.ndjson")}},
    }
    settings = {"on_error": "continue", "dead_letter": str(tmp_path / "bad.ndjson")}
    with refuses(ConfigError, value):
        run_files(nodes, **settings).run()
    assert [p.name for p in tmp_path.iterdir()] == ["in.ndjson"]
    assert lines_of(path) == [{"k": value}]


@pytest.mark.parametrize("over", ["dead_letter", "output"])
@pytest.mark.parametrize("name", ["p.json", "pairs.ndjson"])
def test_nothing_is_written_over_the_pipeline_or_its_pairs(
    tmp_path: Path, over: str, name: str
) -> None:
    for source in "ab":
        (tmp_path / f"{source}.ndjson").write_text(f'{{"_id": "{source}1", "x": 1}}\n')
    (tmp_path / "pairs.ndjson").write_text('{"one": "a1", "other": "b1"}\n')
    rules = {"equality": [["eq", "a.x", "b.x"]], "always": str(tmp_path / "pairs.ndjson")}
    nodes = {
        "a": {"source": {"path": "a.ndjson"}},
        "b": {"source": {"path": "b.ndjson"}},
        "m": {"merge": {"inputs": ["a", "b"], "mode": "entity", "entity": rules}},
        "o": {"output": {"input": "m", "path": name if over == "output" else "o.json"}},
    }
    letters = name if over == "dead_letter" else "bad.ndjson"
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"nodes": nodes, "on_error": "continue", "dead_letter": letters}))
    before = {file.name: file.read_text() for file in tmp_path.iterdir()}
    with refuses(ConfigError, name):
        run_pipeline(load_pipeline(str(path)))
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("over", ["dead_letter", "output"])
def test_nothing_is_written_over_a_source(tmp_path: Path, over: str) -> None:
    write_lines(tmp_path / "in.ndjson", 3)
    place = str(tmp_path / "in.ndjson")
    output = place if over == "output" else str(tmp_path / "o.csv")
    letters = place if over == "dead_letter" else str(tmp_path / "bad.ndjson")
    nodes = {
        "a": {"source": {"path": str(tmp_path / "*.ndjson")}},
        "o": {"output": {"input": "a", "path": output}},
    }
    with refuses(ConfigError):
        run_files(nodes, on_error="continue", dead_letter=letters)


def test_no_table_is_committed_before_the_rows_of_all_are_written(tmp_path: Path) -> None:
    nodes = {
        **sources("a"),
        "t": {"transform": {"input": "a", "columns": {"n": "1 / (n - 5)"}}},
        "good": {"output": {"input": "a", "table": str(tmp_path / "good"), "sort_by": "n"}},
        "bad": {"output": {"input": "t", "table": str(tmp_path / "bad"), "sort_by": "n"}},
    }
    with pytest.raises(DataError):
        run_of(nodes, {"a": numbered("a", 10)}).run()
    for name in ("good", "bad"):
        with pytest.raises(TableNotFoundError):
            Table.open(str(tmp_path / name))


@pytest.mark.parametrize("order", ["good before bad", "bad before good"])
def test_a_run_that_fails_leaves_no_fragment_of_a_table(tmp_path: Path, order: str) -> None:
    table = numbered("a", 60_000).append_column("x", pa.array(["x" * 60] * 60_000))
    outputs = {
        "good": {"output": {"input": "a", "table": str(tmp_path / "good"), "sort_by": "n"}},
        "bad": {"output": {"input": "t", "table": str(tmp_path / "bad"), "sort_by": "n"}},
    }
    nodes = {
        **sources("a"),
        "t": {"transform": {"input": "a", "columns": {"n": "1 / (n - 59999)"}}},
        **{name: outputs[name] for name in order.split(" before ")},
    }
    with pytest.raises(DataError):
        run_of(nodes, {"a": table}, memory={"limit": "8MiB"}).run()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_table_that_another_writer_makes_meanwhile_keeps_only_its_own_fragments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = str(tmp_path / "t")
    nodes = {**sources("a"), "o": {"output": {"input": "a", "table": table, "sort_by": "n"}}}
    publish = StagedFragments.publish

    def publish_late(staged: StagedFragments) -> None:
        monkeypatch.setattr(StagedFragments, "publish", publish)
        other = {**sources("b"), "o": {"output": {"input": "b", "table": table, "sort_by": "from"}}}
        run_of(other, {"b": numbered("b", 3)}).run()
        staged.publish()

    monkeypatch.setattr(StagedFragments, "publish", publish_late)
    with pytest.raises(TableExistsError):
        run_of(nodes, {"a": numbered("a", 10)}).run()
    assert len(Table.open(table)) == 3 and len([*(tmp_path / "t").rglob("*.frag")]) == 1


def test_a_table_is_written_in_fragments_that_memory_holds(tmp_path: Path) -> None:
    table = numbered("a", 60_000).append_column("x", pa.array(["x" * 60] * 60_000))
    nodes = {
        **sources("a"),
        "o": {"output": {"input": "a", "table": str(tmp_path / "t"), "sort_by": "n"}},
        "p": {"output": {"input": "a", "path": str(tmp_path / "p.parquet")}},
    }
    report = run_of(nodes, {"a": table}, memory={"limit": "8MiB"}).run()
    assert report.peak_bytes <= 8 * MIB
    found = Table.open(str(tmp_path / "t"))
    # Of 5 MB, 1 MiB at a time.
    assert len(found) == 60_000 and 5 <= len(list((tmp_path / "t").rglob("*.frag"))) <= 8
    assert pq.ParquetFile(tmp_path / "p.parquet").num_row_groups in range(5, 9)


def phases(tmp_path: Path, nodes: dict[str, Any], **more: Any) -> Any:
    text = json.dumps({"nodes": nodes, "init": ["first"], **more})
    return run_pipeline(parse_pipeline(text, "t.yaml"))


def test_without_continue_both_phases_end_at_the_first_bad_record(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.ndjson", 3)
    nodes = {
        "a": {"source": {"path": str(tmp_path / "a.ndjson")}},
        "first": {"output": {"input": "a", "path": str(tmp_path / "1.csv")}},
        "t": {"transform": {"input": "a", "columns": {"n": "1 / n"}}},
        "then": {"output": {"input": "t", "path": str(tmp_path / "2.csv")}},
    }
    with refuses(DataError):
        phases(tmp_path, nodes, dead_letter=str(tmp_path / "bad.ndjson"))
    assert not (tmp_path / "2.csv").exists() and not (tmp_path / "bad.ndjson").exists()


def test_a_record_that_is_bad_in_both_phases_is_put_aside_once(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.ndjson", 3)
    nodes = {
        "a": {"source": {"path": str(tmp_path / "a.ndjson")}},
        "t": {"transform": {"input": "a", "columns": {"n": "1 / n"}}},
        "first": {"output": {"input": "t", "path": str(tmp_path / "1.csv")}},
        "then": {"output": {"input": "t", "path": str(tmp_path / "2.csv")}},
    }
    more = {"on_error": "continue", "dead_letter": str(tmp_path / "bad.ndjson")}
    assert phases(tmp_path, nodes, **more).dlq_count == 1
    assert len(lines_of(tmp_path / "bad.ndjson")) == 1


@pytest.mark.parametrize("pattern", ["*/x.ndjson", "new/?.ndjson", "new/../new/x.ndjson"])
def test_later_sources_find_what_the_init_phase_wrote_by_patterns(
    tmp_path: Path, pattern: str
) -> None:
    for folder in ("in", "new"):
        (tmp_path / folder).mkdir()
    write_lines(tmp_path / "in/a.ndjson", 3)
    nodes = {
        "a": {"source": {"path": str(tmp_path / "in/a.ndjson")}},
        "first": {"output": {"input": "a", "path": str(tmp_path / "new/x.ndjson")}},
        "b": {"source": {"path": str(tmp_path / pattern)}},
        "then": {"output": {"input": "b", "path": str(tmp_path / "2.ndjson")}},
    }
    phases(tmp_path, nodes)
    assert lines_of(tmp_path / "2.ndjson") == [{"n": n} for n in range(3)]


def test_later_sources_find_a_table_of_the_init_phase_and_may_be_live(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.ndjson", 3)
    nodes = {
        "a": {"source": {"path": str(tmp_path / "a.ndjson")}},
        "first": {"output": {"input": "a", "table": str(tmp_path / "t"), "sort_by": "n"}},
        "b": {"source": {"table": f"{tmp_path}/t/"}},
        "c": {"source": {"path": str(tmp_path / "a.ndjson")}},
        "m": {"merge": {"inputs": ["b", "c"], "mode": "interleave"}},
        "then": {"output": {"input": "m", "path": str(tmp_path / "2.ndjson")}},
    }
    report = phases(tmp_path, nodes)
    assert report.outputs["then"].live and report.outputs["then"].records_written == 6


def test_names_with_quotes_are_names_and_no_expressions(tmp_path: Path) -> None:
    table = pa.table({'x" || "y': ["v"], "x": ["a"], "y": ["b"], 'size 5"': [1]})
    nodes = {
        **sources("a"),
        "t": {"transform": {"input": "a", "filter": "x = 'a'"}},
        "o": {"output": {"input": "t", "path": str(tmp_path / "o.ndjson")}},
    }
    run_of(nodes, {"a": table}).run()
    assert lines_of(tmp_path / "o.ndjson") == table.to_pylist()


@pytest.mark.parametrize("name", ["$row", "$source", "$group", "$widened"])
def test_no_node_may_call_a_column_by_a_name_of_ours(tmp_path: Path, name: str) -> None:
    for node in (
        {"aggregate": {"input": "a", "group_by": ["n"], "columns": {name: "count"}}},
        {"transform": {"input": "a", "columns": {name: "n"}}},
    ):
        nodes = {**sources("a"), "x": node, "o": {"output": {"input": "x", "path": "o.csv"}}}
        with refuses(ConfigError, name):
            run_of(nodes, {"a": numbered("a", 3)})


def test_views_are_read_as_plain_values(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array(["a", "b", "a"], pa.string_view()), "n": [1, 2, 3]})
    nodes = {
        **sources("a"),
        "t": {"transform": {"input": "a", "filter": "v = 'a'"}},
        "g": {"aggregate": {"input": "t", "group_by": ["v"], "columns": {"s": "sum(n)"}}},
        "o": {"output": {"input": "g", "path": str(tmp_path / "o.ndjson")}},
    }
    run_of(nodes, {"a": table}).run()
    assert lines_of(tmp_path / "o.ndjson") == [{"v": "a", "s": 4}]


CODES = pa.array([0, 1, 2, 0], pa.int8())


@pytest.mark.parametrize(
    "values",
    [
        pa.DictionaryArray.from_arrays(CODES, pa.array([1.0, -0.0, 0.0], pa.float16())),
        pa.DictionaryArray.from_arrays(CODES, pa.array(["x", "y", None], pa.string_view())),
        pa.DictionaryArray.from_arrays(CODES, pa.array([[1], [], None])),
        pa.DictionaryArray.from_arrays(CODES, pa.array([1, 2, 3], pa.decimal32(3, 1))),
        pa.ListArray.from_arrays(
            [0, 1, 2, 2, 3],
            pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16] * 3, pa.binary(16))),
        ),
    ],
    ids=lambda array: str(array.type),
)
@pytest.mark.parametrize(
    "node",
    [
        {"transform": {"input": "t", "filter": "k >= 0", "columns": ["k", "v"]}},
        {"sort": {"input": "t", "by": "k"}},
        {"combine": {"probe": "t", "build": "n", "on": ["k"], "method": "sort_merge"}},
    ],
    ids=lambda node: next(iter(node)),
)
def test_types_of_which_arrow_makes_no_empty_array_from_values_pass_nodes(
    values: pa.Array, node: dict[str, Any], tmp_path: Path
) -> None:
    Table.create(str(tmp_path / "t"), pa.table({"k": range(4), "v": values}), "k")
    nodes = {
        "t": {"source": {"table": str(tmp_path / "t")}},
        **(
            {"n": {"source": {"table": str(tmp_path / "t"), "columns": ["k"]}}}
            if "combine" in node
            else {}
        ),
        "x": node,
        "o": {"output": {"input": "x", "path": str(tmp_path / "o.arrow")}},
    }
    run_files(nodes).run()
    with pa.ipc.open_file(tmp_path / "o.arrow") as file:
        found = file.read_all()
    assert repr(found["v"].to_pylist()) == repr(values.to_pylist())


def test_a_fragment_a_document_is_refused(tmp_path: Path) -> None:
    output = {"input": "a", "path": "{}.frag", "sort_by": "n", "split": {"documents": True}}
    with refuses(ConfigError):
        run_of({**sources("a"), "o": {"output": output}}, {"a": numbered("a", 3)})


def test_files_of_one_source_with_other_types_ask_for_fields(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("n\n1\n")
    (tmp_path / "2.csv").write_text("n\nx\n")
    nodes = {
        "a": {"source": {"path": str(tmp_path / "*.csv")}},
        "o": {"output": {"input": "a", "path": str(tmp_path / "o.ndjson")}},
    }
    with refuses(ConfigError):
        run_files(nodes)


_TERMINATED: Final = """
import os, signal, sys
from compactor.cli.main import main
from compactor.files.write import StagedSink
write = StagedSink.write
StagedSink.write = lambda *given: (write(*given), os.kill(os.getpid(), signal.SIGTERM))
if sys.argv.pop(1) == "named":
    del os.O_TMPFILE
main(sys.argv[1:])
"""


@pytest.mark.parametrize("kind", ["unnamed", "named"])
def test_sigterm_leaves_nothing_behind(tmp_path: Path, kind: str) -> None:
    (tmp_path / "in.ndjson").write_text("".join(f'{{"n": {n}}}\n' for n in range(1000)))
    spec = tmp_path / "p.json"
    nodes = {
        "a": {"source": {"path": str(tmp_path / "in.ndjson")}},
        "o": {"output": {"input": "a", "path": str(tmp_path / "o.xml")}},
    }
    spec.write_text(json.dumps({"nodes": nodes}))
    command = [sys.executable, "-c", _TERMINATED, kind, "run", str(spec)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 130 and "nothing unfinished is visible" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.ndjson", "p.json"]


def test_an_empty_path_is_no_place() -> None:
    with refuses(CompactorError):
        run_of(
            {**sources("a"), "o": {"output": {"input": "a", "path": ""}}}, {"a": numbered("a", 1)}
        )
