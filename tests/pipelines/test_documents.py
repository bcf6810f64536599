"""Documents: where they begin and end, in order among the rows; and outputs of several files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import ConfigError, DataError
from compactor.files.read import open_table_file
from compactor.pipelines import writers
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.dead_letters import DeadLetters
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.provenance import boundary_of
from compactor.pipelines.writers import _quoted
from tests.pipelines.support import lines_of, numbered, run_of, sources
from tests.support.wording import refuses


def run_files(nodes: Mapping[str, Any], **settings: Any) -> PipelineRun:
    return PipelineRun(parse_pipeline(json.dumps({"nodes": nodes, **settings}), "t.yaml"))


def write_lines(path: Path, rows: int, first: int = 0) -> None:
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(first, first + rows)))


def events_of(run: PipelineRun, node: str) -> list[Any]:
    """Rows of each batch that a node gives, and boundaries: as (is open, name)."""
    found: list[Any] = []
    work = run._work
    work.dead_letters = DeadLetters(list(work.nodes), work.report, None)
    with work.opened():
        for batch in work.stream(node):
            boundary = boundary_of(batch)
            found.append(tuple(boundary) if boundary else batch.column("n").to_pylist())
    return found


def test_a_documents_end_follows_its_last_record_across_batches(tmp_path: Path) -> None:
    """5,000 records at batch_size 2048: open, 2048, 2048, 904, close; then the next document."""
    write_lines(tmp_path / "a.ndjson", 5000)
    write_lines(tmp_path / "b.ndjson", 10, 5000)
    nodes = {
        "s": {"source": {"path": str(tmp_path / "*.ndjson")}},
        "t": {"transform": {"input": "s", "filter": "n <> 7"}},
        "out": {"output": {"input": "t", "path": str(tmp_path / "o.csv")}},
    }
    events = events_of(run_files(nodes, batch_size=2048), "t")
    sizes = [len(e) if isinstance(e, list) else e for e in events]
    assert sizes == [
        (True, "a.ndjson"), 2047, 2048, 904, (False, "a.ndjson"), (True, "b.ndjson"), 10, (False, "b.ndjson"),
    ]  # fmt: skip
    rows = [n for e in events if isinstance(e, list) for n in e]
    assert rows == [n for n in range(5010) if n != 7]


@pytest.mark.parametrize(
    "settings", [{"mode": "interleave"}, {"mode": "interleave", "interleave_seed": 1},
                 {"mode": "key", "sort_by": "n"}]
)  # fmt: skip
def test_rows_that_a_merge_mixes_are_one_document_with_one_open_and_one_close(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    for name in "abc":
        write_lines(tmp_path / f"{name}.ndjson", 100)
    nodes = {
        "one": {"source": {"path": str(tmp_path / "[ab].ndjson")}},
        "two": {"source": {"path": str(tmp_path / "c.ndjson")}},
        "u": {"sort": {"input": "one", "by": "n"}},
        "m": {"merge": {"inputs": ["u", "two"], **settings}},
        "out": {"output": {"input": "m", "path": str(tmp_path / "o.xml")}},
    }
    events = events_of(run_files(nodes), "m")
    assert [e for e in events if isinstance(e, tuple)] == [(True, "m"), (False, "m")]
    assert events[0] == (True, "m") and events[-1] == (False, "m")
    report = run_files(nodes).run()
    assert report.outputs["out"].documents == 1
    text = (tmp_path / "o.xml").read_text()
    assert text.count("<rows>") == text.count("</rows>") == 1 and text.count("<row>") == 300


@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize("threads", [True, False])
def test_documents_pass_a_concat_in_order_of_its_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consumers: int, threads: bool
) -> None:
    """Those of sources, of a sorted result, and of empty files; read ahead or from buffers."""
    if not threads:
        monkeypatch.setattr("compactor.pipelines.work.started", lambda _thread: False)
    for number, name in enumerate(["a", "b", "c", "d"]):
        write_lines(tmp_path / f"{name}.ndjson", 3000, 3000 * number)
    (tmp_path / "e.csv").write_text("n\n12000\n")
    nodes = {
        "one": {"source": {"path": str(tmp_path / "[cd].ndjson")}},
        "two": {"source": {"path": str(tmp_path / "[ab].ndjson")}},
        "none": {"transform": {"input": "two", "filter": "n < 3000"}},
        "three": {"source": {"path": str(tmp_path / "e.csv")}},
        "u": {"sort": {"input": "three", "by": "n"}},
        "m": {"merge": {"inputs": ["one", "none", "u"]}},
        **{
            f"out{n}": {
                "output": {
                    "input": "m",
                    "path": str(tmp_path / f"o{n}-{{}}.csv"),
                    "split": {"documents": True},
                }
            }
            for n in range(consumers)
        },
    }
    report = run_files(nodes, memory={"limit": "1MiB"}).run()
    for n in range(consumers):
        assert report.outputs[f"out{n}"].documents == 5
        files = {p.stem: p.read_text().split()[1:] for p in tmp_path.glob(f"o{n}-*")}
        assert files == {
            f"o{n}-c": [str(i) for i in range(6000, 9000)],
            f"o{n}-d": [str(i) for i in range(9000, 12000)],
            f"o{n}-a": [str(i) for i in range(3000)],
            f"o{n}-b": [],
            f"o{n}-u": ["12000"],
        }


def test_joins_and_live_outputs_take_documents_as_rows(tmp_path: Path) -> None:
    for name in "ab":
        write_lines(tmp_path / f"{name}.ndjson", 10)
    nodes = {
        "a": {"source": {"path": str(tmp_path / "[ab].ndjson")}},
        "b": {"source": {"path": str(tmp_path / "a.ndjson")}},
        "c": {"source": {"path": str(tmp_path / "b.ndjson")}},
        "m": {"merge": {"inputs": ["b", "c"]}},
        "j": {"combine": {"probe": "a", "build": "m", "on": ["n"]}},
        "i": {"merge": {"inputs": ["d", "e"], "mode": "interleave"}},
        "d": {"source": {"path": str(tmp_path / "*.ndjson")}},
        "e": {"source": {"path": str(tmp_path / "a.ndjson")}},
        "o": {"output": {"input": "j", "path": str(tmp_path / "o.csv")}},
        "p": {"output": {"input": "i", "path": str(tmp_path / "p.csv")}},
    }
    report = run_files(nodes).run()
    assert report.outputs["p"].live
    figures = {n: (o.documents, o.records_written) for n, o in report.outputs.items()}
    assert figures == {"o": (1, 40), "p": (1, 30)}


def test_documents_pass_buffers_and_routes_in_order(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.ndjson", 50)
    write_lines(tmp_path / "b.ndjson", 50, 50)
    nodes = {
        "s": {"source": {"path": str(tmp_path / "*.ndjson")}},
        "r": {"route": {"input": "s", "branches": {"low": "n < 20", "high": "n >= 60"}}},
        "low": {
            "output": {
                "input": "r.low",
                "path": str(tmp_path / "low-{}.csv"),
                "split": {"documents": True},
            }
        },
        "high": {
            "output": {
                "input": "r.high",
                "path": str(tmp_path / "high-{}.csv"),
                "split": {"documents": True},
            }
        },
    }
    report = run_files(nodes, batch_size=7, memory={"limit": "1MiB"}).run()
    assert (report.outputs["low"].documents, report.outputs["low"].records_written) == (2, 20)
    assert (tmp_path / "low-a.csv").read_text().split() == ['"n"', *map(str, range(20))]
    # A document of which no row is left is there, without rows.
    assert (tmp_path / "low-b.csv").read_text().split() == ['"n"']
    assert (tmp_path / "high-b.csv").read_text().split() == ['"n"', *map(str, range(60, 100))]


def test_a_file_for_each_document_keeps_names_apart(tmp_path: Path) -> None:
    for folder in "xy":
        (tmp_path / folder).mkdir()
        write_lines(tmp_path / folder / "app.ndjson.gz".removesuffix(".gz"), 3, ord(folder))
    (tmp_path / "out").mkdir()
    nodes = {
        "s": {"source": {"path": str(tmp_path / "?" / "*.ndjson")}},
        "o": {
            "output": {
                "input": "s",
                "path": str(tmp_path / "out/{}.ndjson"),
                "split": {"documents": True},
            }
        },
    }
    report = run_files(nodes).run()
    assert report.outputs["o"].documents == 2
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["app-2.ndjson", "app.ndjson"]
    assert lines_of(tmp_path / "out/app.ndjson")[0] == {"n": ord("x")}


def test_an_output_is_split_by_rows(tmp_path: Path) -> None:
    nodes = {
        **sources("a"),
        "o": {
            "output": {"input": "a", "path": str(tmp_path / "o-{}.ndjson"), "split": {"rows": 100}}
        },
    }
    run_of(nodes, {"a": numbered("a", 250)}).run()
    parts = [lines_of(tmp_path / f"o-0000{n}.ndjson") for n in range(3)]
    assert [len(part) for part in parts] == [100, 100, 50]
    assert [row["n"] for part in parts for row in part] == list(range(250))
    assert len(list(tmp_path.iterdir())) == 3


@given(
    st.lists(st.sampled_from(["a", "b", "../x", "", None, "a/b", ".h", "ü", "%41", "_null", "A"]))
)
def test_an_output_is_split_by_value_in_whose_files_rows_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory, values: list[str | None]
) -> None:
    folder = tmp_path_factory.mktemp("split")
    (folder / "deep").mkdir()
    table = pa.table(
        {"k": pa.array(values, pa.string()), "n": pa.array(range(len(values)), pa.int64())}
    )
    nodes = {
        **sources("a"),
        "o": {
            "output": {
                "input": "a",
                "path": str(folder / "deep/o-{}.ndjson"),
                "split": {"by": "k"},
            }
        },
    }
    run_of(nodes, {"a": table}).run()
    files = list((folder / "deep").iterdir())
    assert len(files) == len(set(values)) and list(folder.iterdir()) == [folder / "deep"]
    found = [lines_of(file) for file in files]
    for rows in found:
        assert len({row.get("k") for row in rows}) == 1
        assert [row["n"] for row in rows] == sorted(row["n"] for row in rows)
    assert sum(map(len, found)) == len(values)


def test_no_value_leads_out_of_the_folder() -> None:
    assert [_quoted(text) for text in ("../../etc", "a/b\\c", ".hidden", "_null", "x%2F", "a\0\n")] == [
        "%2E./..%2Fetc".replace("./", ".%2F"), "a%2Fb%5Cc", "%2Ehidden", "%5Fnull", "x%252F", "a%00%0A",
    ]  # fmt: skip


def test_too_many_values_are_an_error_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "MAX_FILES", 10)
    nodes = {
        **sources("a"),
        "o": {"output": {"input": "a", "path": str(tmp_path / "{}.csv"), "split": {"by": "n"}}},
    }
    with refuses(DataError):
        run_of(nodes, {"a": numbered("a", 11)}).run()
    assert not list(tmp_path.iterdir())


def test_a_fragment_is_written_sorted_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.frag"
    table = numbered("a", 5000).append_column("m", pa.array([n * 7 % 13 for n in range(5000)]))
    nodes = {
        **sources("a"),
        "o": {"output": {"input": "a", "path": str(path), "sort_by": "m:desc,n"}},
    }
    run_of(nodes, {"a": table}, memory={"limit": "1MiB"}).run()
    expected = sorted(table.to_pylist(), key=lambda row: (-row["m"], row["n"]))
    with open_table_file(str(path)) as file:
        assert [row for batch in file for row in batch.to_pylist()] == expected
    again = {
        "f": {"source": {"path": str(path)}},
        "out": {"output": {"input": "f", "path": str(tmp_path / "o.ndjson")}},
    }
    run_files(again).run()
    assert lines_of(tmp_path / "o.ndjson") == expected


def test_fragments_split_by_value_are_sorted_within(tmp_path: Path) -> None:
    table = numbered("a", 300).append_column("m", pa.array([n * 7 % 3 for n in range(300)]))
    nodes = {
        **sources("a"),
        "o": {
            "output": {
                "input": "a",
                "path": str(tmp_path / "{}.frag"),
                "sort_by": "n:desc",
                "split": {"by": "m"},
            }
        },
    }
    run_of(nodes, {"a": table}).run()
    for m in range(3):
        with open_table_file(str(tmp_path / f"{m}.frag")) as file:
            rows = [row["n"] for batch in file for row in batch.to_pylist()]
        assert rows == sorted((n for n in range(300) if n * 7 % 3 == m), reverse=True)


@pytest.mark.parametrize(
    "output",
    [
        {"path": "o.csv", "split": {"rows": 5}},
        {"path": "{}/o.csv", "split": {"rows": 5}},
        {"path": "{}{}.csv", "split": {"rows": 5}},
        {"path": "{}.csv", "split": {"rows": 5, "by": "n"}},
        {"path": "{}.csv", "split": {}},
        {"path": "{}.csv", "split": {"rows": 0}},
        {"path": "{}.csv", "split": {"column": "n"}},
        {"table": "t", "split": {"rows": 5}},
        {"path": "o.frag"},
        {"path": "{}.csv", "split": {"by": "x"}},
        {"path": "o.frag", "sort_by": "x"},
    ],
)  # fmt: skip
def test_mistakes_of_outputs_are_named(output: dict[str, Any]) -> None:
    nodes = {**sources("a"), "o": {"output": {"input": "a", **output}}}
    with refuses(ConfigError, "node 'o'"):
        run_of(nodes, {"a": numbered("a", 3)})
