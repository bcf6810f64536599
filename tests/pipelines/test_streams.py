"""Pipelines that read standard input, pipes and devices, and print rows."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import zstandard

from compactor.errors import CompactorError, ConfigError, UsageError
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.phases import check_pipeline, run_pipeline
from tests.pipelines.support import lines_of
from tests.support.wording import refuses

FIELDS = {"n": "BIGINT", "s": "TEXT"}


def written(folder: Path, nodes: dict[str, Any], **settings: Any) -> str:
    (folder / "p.json").write_text(json.dumps({"nodes": nodes, **settings}))
    return str(folder / "p.json")


def command(*arguments: str, given: bytes | Path) -> subprocess.CompletedProcess[bytes]:
    """Runs a pipeline in a process. given: what comes through a pipe, or a file as standard input."""
    run = [sys.executable, "-m", "compactor", "run", *arguments]
    if isinstance(given, Path):
        with given.open("rb") as file:
            return subprocess.run(run, stdin=file, capture_output=True, check=False)
    return subprocess.run(run, input=given, capture_output=True, check=False)


def through(source: dict[str, Any], output: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "a": {"source": {"path": "-", **source}},
        "t": {"transform": {"input": "a", "filter": "n > 1"}},
        "o": {"output": {"input": "t", "path": "-", "format": "ndjson", **(output or {})}},
    }


def test_rows_pass_from_standard_input_to_standard_output_and_nothing_else_is_printed(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, through({"format": "csv", "fields": FIELDS}))
    done = command(file, given=b"n,s,x\n1,a,7\n2,,8\n3,c,\n")
    assert done.stdout == b'{"n":2,"s":null,"x":"8"}\n{"n":3,"s":"c"}\n', done.stderr
    assert b"o: 2 records" in done.stderr and done.returncode == 0
    done = command(file, "--json", given=b"n\n2\n")
    assert done.stdout == b'{"n":2,"s":null}\n'
    assert json.loads(done.stderr)["outputs"]["o"]["records_written"] == 1


def test_standard_input_that_is_closed_is_told_as_such(tmp_path: Path) -> None:
    file = written(tmp_path, through({"format": "csv", "fields": FIELDS}))
    run = [sys.executable, "-m", "compactor", "run", file]
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *run]
    done = subprocess.run(closed, capture_output=True, check=False)
    assert b"node 'a': standard input is closed: " in done.stderr and not done.stdout


def test_a_failed_run_prints_no_row(tmp_path: Path) -> None:
    file = written(tmp_path, through({"format": "csv", "fields": FIELDS}))
    rows = b"".join(b"%d,x\n" % n for n in range(300_000))
    done = command(file, given=b"n,s\n" + rows + b"no,x\n")
    assert (done.returncode, done.stdout) == (3, b"")
    [line] = done.stderr.decode().splitlines()
    assert "/dev/stdin, row 300,001: column 'n': 'no' can't be read as int64" in line


def test_a_file_as_standard_input_needs_no_fields(tmp_path: Path) -> None:
    file = written(tmp_path, through({"format": "csv.gz"}, {"format": "csv"}))
    (tmp_path / "in").write_bytes(gzip.compress(b"n,s\n1,a\n2,b\n"))
    done = command(file, given=tmp_path / "in")
    assert done.stdout == b'"n","s"\n2,"b"\n', done.stderr


def fed(path: Path, data: bytes) -> threading.Thread:
    os.mkfifo(path)

    def feed() -> None:
        with path.open("wb", buffering=0) as pipe:
            for start in range(0, len(data), 1000):  # in pieces, as a program writes them
                pipe.write(data[start : start + 1000])

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["ndjson", "csv", "csv.gz"])
def test_a_pipe_is_read_as_the_same_file(tmp_path: Path, kind: str) -> None:
    count = 60_000
    if kind == "ndjson":
        lines = [f'{{"n": {n}, "s": "{"é" * (n % 50)}"}}' for n in range(count)]
        lines[40_000] = '{"n": "no", "k": 4}'
        lines[10] = '{"n": 10, "new": [1, 2]}'
    else:
        lines = ["n,s,new", *(f"{n},{'é' * (n % 50)},{n % 7 or ''}" for n in range(count))]
        lines[40_000], lines[50_000] = "no,,", "too few"
    data = "\n".join(lines).encode()
    data = gzip.compress(data) if kind.endswith("gz") else data
    (tmp_path / "file").write_bytes(data)
    found = []
    source = {"format": kind, "fields": FIELDS, "only_fields": True}
    for name in ("file", "pipe"):
        feeding = fed(tmp_path / "pipe", data) if name == "pipe" else None
        nodes = {
            "a": {"source": {**source, "path": str(tmp_path / name)}},
            "o": {"output": {"input": "a", "path": str(tmp_path / f"{name}.ndjson")}},
        }
        letters = tmp_path / f"{name}-bad.ndjson"
        text = json.dumps({"nodes": nodes, "on_error": "continue", "dead_letter": str(letters)})
        report = run_pipeline(parse_pipeline(text, "p.json"))
        if feeding is not None:
            feeding.join(10)
        bad = [letter["row"] for letter in lines_of(letters)]
        found.append((lines_of(tmp_path / f"{name}.ndjson"), bad, report.records_read))
    if kind != "ndjson":
        for row in found[0][0]:  # columns that are not declared stay texts
            row |= {"new": str(row["new"])} if "new" in row else {}
    assert found[0] == found[1]
    assert found[0][1] == ([40_001] if kind == "ndjson" else [40_000, 50_000])


@pytest.mark.parametrize(
    ("settings", "data"),
    [
        ({"lines": {"pattern": "(?P<s>\\w+) (?P<n>\\d+) (?P<x>.*)"}}, b"a 1 7\nno\nb 2 \n"),
        (
            {"fixed": {"columns": [{"name": "s", "width": 1}, {"name": "n", "width": 2}]}},
            b"a 1\nb x\nc 2\n",
        ),
        ({"format": "json"}, b'[{"n": 1, "s": "a", "x": 7}, {"n": []}, {"n": 2, "s": "b"}]'),
        ({"format": "csv.zst"}, zstandard.compress(b"n,s,x\n1,a,7\nno,,\n2,b,\n")),
        ({"format": "csv", "encoding": "utf-16"}, "n,s,x\n1,a,7\nno,,\n2,b,\n".encode("utf-16")),
    ],
    ids=["lines", "fixed", "array", "zstd", "utf-16"],
)
@pytest.mark.parametrize("columns", [None, ["n", "s"], ["s"]])
def test_every_kind_of_text_comes_through_a_pipe_with_only_the_columns_used(
    tmp_path: Path, settings: dict[str, Any], data: bytes, columns: list[str] | None
) -> None:
    (tmp_path / "file").write_bytes(data)
    found = []
    for name in ("file", "pipe"):
        if name == "pipe":
            fed(tmp_path / "pipe", data)
        source = {"path": str(tmp_path / name), "fields": FIELDS, "only_fields": True, **settings}
        transform = {"input": "a"} if columns is None else {"input": "a", "columns": columns}
        nodes = {
            "a": {"source": source},
            "t": {"transform": transform},
            "o": {"output": {"input": "t", "path": str(tmp_path / f"{name}.ndjson")}},
        }
        letters = {"on_error": "continue", "dead_letter": str(tmp_path / f"{name}-bad.ndjson")}
        report = run_pipeline(parse_pipeline(json.dumps({"nodes": nodes, **letters}), "p.json"))
        rows = lines_of(tmp_path / f"{name}.ndjson")
        for row in rows:
            row |= {"x": str(row["x"])} if "x" in row else {}
        found.append((rows, report.dlq_count))
    assert found[0] == found[1] and len(found[0][0]) >= 2


@pytest.mark.parametrize(
    "change",
    [
        {"fields": None},
        {"format": "xml"},
        {"format": "parquet"},
        {"format": "xlsx"},
        {"format": None},
    ],
)
def test_a_pipe_that_cannot_be_read_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    os.mkfifo(tmp_path / "pipe")
    given = {"path": str(tmp_path / "pipe"), "format": "csv", "fields": FIELDS} | change
    nodes = {
        "a": {"source": {k: v for k, v in given.items() if v is not None}},
        "o": {"output": {"input": "a", "path": str(tmp_path / "o.ndjson")}},
    }
    with refuses(CompactorError, "p.json, line 1: node 'a'"):
        check_pipeline(parse_pipeline(json.dumps({"nodes": nodes}), "p.json"))


def test_a_pipe_is_read_once_in_a_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    source = {"path": str(tmp_path / "pipe"), "format": "ndjson", "fields": FIELDS}
    nodes = {
        "a": {"source": source},
        "o": {"output": {"input": "a", "path": str(tmp_path / "o.ndjson")}},
        "p": {"output": {"input": "a", "path": str(tmp_path / "p.ndjson")}},
    }
    check_pipeline(parse_pipeline(json.dumps({"nodes": nodes}), "p.json"))
    with refuses(ConfigError, "node 'a'"):
        check_pipeline(parse_pipeline(json.dumps({"nodes": nodes, "init": ["o"]}), "p.json"))
    nodes["b"] = {"source": source}
    nodes["p"] = {"output": {"input": "b", "path": str(tmp_path / "p.ndjson")}}
    with refuses(ConfigError, "node 'b'"):
        check_pipeline(parse_pipeline(json.dumps({"nodes": nodes}), "p.json"))


@pytest.mark.parametrize(
    "nodes",
    [
        {"a": {"source": {"path": "-"}}},
        {"a": {"source": {"table": "t", "format": "csv"}}},
        {"a": {"source": {"path": "-", "format": "xlsx"}}},
        {"o": {"output": {"input": "a", "path": "-"}}},
        {"o": {"output": {"input": "a", "path": "-", "format": "csv", "split": {"rows": 1}}}},
        {"p": {"output": {"input": "a", "path": "-", "format": "csv"}}},
    ],
)
def test_settings_of_streams_are_checked(nodes: dict[str, Any]) -> None:
    good = {
        "a": {"source": {"path": "a.csv"}},
        "o": {"output": {"input": "a", "path": "-", "format": "csv"}},
    }
    parse_pipeline(json.dumps({"nodes": good}), "p.json")
    with refuses(ConfigError, "p.json, line 1: node"):
        parse_pipeline(json.dumps({"nodes": good | nodes}), "p.json")


@pytest.mark.parametrize("replaced", [None, io.StringIO()], ids=["closed", "for text alone"])
def test_an_output_to_a_standard_output_that_takes_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: io.StringIO | None
) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    nodes = {
        "a": {"source": {"path": str(tmp_path / "a.csv")}},
        "o": {"output": {"input": "a", "path": "-", "format": "csv"}},
    }
    pipeline = parse_pipeline(json.dumps({"nodes": nodes}), "p.json")
    monkeypatch.setattr(sys, "stdout", replaced)
    with refuses(UsageError, "node 'o'"):
        check_pipeline(pipeline)


def test_an_interrupted_run_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    names = ("p", "q")
    nodes = {
        name: {"source": {"path": f"{name}.fifo", "format": "ndjson", "fields": FIELDS}}
        for name in names
    } | {
        "m": {"merge": {"inputs": list(names), "mode": "interleave"}},
        "o": {"output": {"input": "m", "path": "o.ndjson"}},
    }
    file = written(tmp_path, nodes)
    for name in names:
        os.mkfifo(tmp_path / f"{name}.fifo")
    command = [sys.executable, "-m", "compactor", "run", file]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
        (tmp_path / "p.fifo").open("wb"),  # opens once the run reads it
        (tmp_path / "q.fifo").open("wb"),
    ):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in said
    assert not (tmp_path / "o.ndjson").exists()
