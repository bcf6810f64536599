"""Outputs, counts, dead letters and messages of a run do not depend on its number of threads."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.common.ahead import Ahead
from compactor.errors import CompactorError, InputError
from compactor.files import csv, ndjson, read, sinks
from compactor.files.write import open_table_sink
from compactor.pipelines import work
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.nodes import source
from compactor.pipelines.phases import run_pipeline
from compactor.pipelines.writers import FileWriter

ROWS: Final = 3000
BLOCK: Final = 4 << 10
NOT_ALIKE: Final = ("seconds", "stage_seconds", "peak_charged_bytes", "peak_waiting_records")


@pytest.fixture(autouse=True)
def many_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Divides small files into many blocks; no thread outlives a run."""
    monkeypatch.setattr(csv, "MAX_ROW_BYTES", BLOCK)
    monkeypatch.setattr(ndjson, "_BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(sinks, "_ROWS_FOR_THREADS", 1)
    monkeypatch.setattr(source, "_MIN_GUESSED", 1)
    monkeypatch.setattr(work, "_MAX_HELD", 2 * BLOCK)
    monkeypatch.setattr(read, "DEFAULT_BATCH_BYTES", BLOCK)
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def _csv(path: Path, row: Callable[[int], str], first: int = 0) -> None:
    lines = (row(n) for n in range(first, first + ROWS))
    path.write_text("id,level,text\n" + "".join(lines))


def _quoted(n: int) -> str:
    return f'{n},{("INFO", "WARN", "")[n % 3]},"line {n}\nand ""{n}"", too"\n'


def _drifting(n: int) -> str:
    return f"{n if n < ROWS - 5 else n + 0.5},{'a' if n < 2500 else n},{n % 7 or ''}\n"


def _spoiled(n: int) -> str:
    return f"{n},x,{n},too many\n" if n % 400 == 399 else f"{n},{n % 50},t\n"


def _make(folder: Path) -> None:
    _csv(folder / "quoted.csv", _quoted)
    _csv(folder / "drifting.csv", _drifting)
    _csv(folder / "spoiled.csv", _spoiled)
    for number in range(3):
        _csv(folder / f"many-{number}.csv", _quoted, number * ROWS)
    lines = [
        {"id": n, "level": "WARN" if n % 3 else None, "text": ["x"] * (n % 4)} for n in range(ROWS)
    ]
    texts = [json.dumps(line) if n % 500 else "[1]" for n, line in enumerate(lines, start=1)]
    (folder / "lines.ndjson").write_text("\n".join(texts))
    table = pa.table(
        {"id": range(ROWS), "level": ["WARN", "INFO"] * (ROWS // 2), "text": ["t"] * ROWS}
    )
    pq.write_table(table, folder / "groups.parquet", row_group_size=700)
    with open_table_sink(str(folder / "rows.arrow"), table.schema) as sink:
        for batch in table.to_batches(100):
            sink.write(batch)


def _chain(
    path: str, out: str, columns: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    chosen = columns or {"id": "id", "level": "level", "text": "text"}
    return {
        "rows": {"source": {"path": path, **more}},
        "made": {"transform": {"input": "rows", "filter": "id % 5 <> 1", "columns": chosen}},
        "out": {"output": {"input": "made", "path": out}},
    }


TEXTS: Final = {"id": "BIGINT", "level": "TEXT", "text": "TEXT"}
FAILING: Final = {"id": "id", "half": "100 / (id % 1000 - 500)"}
GRAPHS: Final[dict[str, dict[str, Any]]] = {
    "quotes": _chain("quoted.csv", "out.csv"),
    "declared types": _chain("quoted.csv", "out.ndjson", fields=TEXTS),
    "types that drift": _chain("drifting.csv", "out.csv", {"id": "id", "level": "level"}),
    "several files": _chain("many-*.csv", "out.parquet"),
    "a file for each": {
        "rows": {"source": {"path": "many-*.csv"}},
        "out": {"output": {"input": "rows", "path": "out-{}.csv", "split": {"documents": True}}},
    },
    "bad cells": _chain("spoiled.csv", "out.csv"),
    "bad cells of declared types": _chain("spoiled.csv", "out.csv", fields=TEXTS | {"text": "INT"}),
    "bad lines": _chain("lines.ndjson", "out.ndjson"),
    "rows that fail": _chain("quoted.csv", "out.csv", FAILING),
    "rows that fail among bad cells": _chain("spoiled.csv", "out.csv", FAILING, fields=TEXTS),
    "parquet": _chain("groups.parquet", "out.csv"),
    "arrow": _chain("rows.arrow", "out.arrow", FAILING),
    "sorted": {
        "rows": {"source": {"path": "many-*.csv"}},
        "sorted": {"sort": {"input": "rows", "by": "level,id:desc"}},
        "out": {"output": {"input": "sorted", "path": "out-{}.csv", "split": {"by": "level"}}},
    },
    "groups": {
        "rows": {"source": {"path": "groups.parquet"}},
        "sums": {"aggregate": {"input": "rows", "group_by": ["level"], "columns": {"n": "sum(id * 0.1)"}}},
        "out": {"output": {"input": "sums", "path": "out.csv"}},
    },
    "joined": {
        "rows": {"source": {"path": "quoted.csv"}},
        "others": {"source": {"path": "lines.ndjson"}},
        "both": {"combine": {"probe": "rows", "build": "others", "on": ["id"], "how": "left"}},
        "out": {"output": {"input": "both", "path": "out.ndjson"}},
    },
    "joined, with rows that fail before and behind": {
        "rows": {"source": {"path": "quoted.csv"}},
        "before": {"transform": {"input": "rows", "columns": {"id": "id", "q": "100 / (id % 97)"}}},
        "others": {"source": {"path": "groups.parquet"}},
        "both": {"combine": {"probe": "before", "build": "others", "on": ["id"]}},
        "behind": {"transform": {"input": "both", "columns": {"id": "id", "r": "q / (id % 89)"}}},
        "out": {"output": {"input": "behind", "path": "out.parquet"}},
    },
    "keyed": {
        "one": {"source": {"path": "many-0.csv", "correlation_key": "level"}},
        "two": {"source": {"path": "spoiled.csv", "correlation_key": "level", "fields": {"level": "TEXT"}}},
        "both": {"merge": {"inputs": ["one", "two"], "mode": "concat"}},
        "kept": {"transform": {"input": "both", "columns": FAILING}},
        "out": {"output": {"input": "kept", "path": "out.csv"}},
    },
}  # fmt: skip


def _outcome(folder: Path, **pipeline: Any) -> tuple[Any, dict[str, bytes]]:
    """Returns report or message, and the files that were written, which are removed."""
    try:
        report = run_pipeline(parse_pipeline(json.dumps(pipeline), str(folder / "p.json")))
        found = {key: value for key, value in report.to_json().items() if key not in NOT_ALIKE}
    except CompactorError as error:
        found = {"message": str(error.message)}
    written = {path.name: path.read_bytes() for path in folder.glob("out*")}
    for name in written:
        (folder / name).unlink()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    return found, written


@pytest.mark.parametrize("graph", GRAPHS)
def test_results_do_not_depend_on_threads(graph: str, tmp_path: Path) -> None:
    _make(tmp_path)
    for settings in ({}, {"on_error": "continue", "dead_letter": "out.letters.ndjson"}):
        one, two, four = (
            _outcome(tmp_path, nodes=GRAPHS[graph], threads=threads, batch_size=500, **settings)
            for threads in (1, 2, 4)
        )
        assert one == two == four


def test_an_error_of_writing_comes_before_those_of_later_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make(tmp_path)
    written: list[int] = []

    def write(self: FileWriter, batch: pa.RecordBatch, /) -> None:
        time.sleep(0.01)
        written.append(batch.num_rows)
        if len(written) == 2:
            raise InputError("the second batch")

    monkeypatch.setattr(FileWriter, "write", write)
    nodes = _chain("quoted.csv", "out.csv", {"id": "id", "e": "100 / (id - 1700)"}, fields=TEXTS)
    for threads in (1, 2):
        written.clear()
        found, files = _outcome(tmp_path, nodes=nodes, threads=threads, batch_size=10_000)
        assert found["message"].endswith("node 'out': the second batch") and not files


def test_sources_read_ahead_where_memory_allows_it(tmp_path: Path) -> None:
    nodes = {
        "a": {"source": {"path": "a.csv"}},
        "b": {"source": {"path": "b.csv"}},
        "m": {"merge": {"inputs": ["a", "b"], "mode": "concat"}},
        "o": {"output": {"input": "m", "path": "out.csv"}},
    }
    for limit, threads in (("255MiB", 1), ("256MiB", 3)):
        text = json.dumps({"nodes": nodes, "threads": 3, "memory": {"limit": limit}})
        context = work.RunContext(
            parse_pipeline(text, str(tmp_path / "p.json")), lambda _: iter(())
        )
        assert context.reading.threads == threads


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_with_threads_leaves_nothing(number: int, tmp_path: Path) -> None:
    with (tmp_path / "in.csv").open("w") as file:
        file.write("id,text\n")
        file.writelines(f'{n},"text {n}"\n' for n in range(3_000_000))
    nodes = {
        "rows": {"source": {"path": "in.csv", "fields": {"id": "BIGINT", "text": "TEXT"}}},
        "out": {"output": {"input": "rows", "path": "out.csv"}},
    }
    (tmp_path / "p.json").write_text(json.dumps({"nodes": nodes, "threads": 4}))
    command = [sys.executable, "-m", "compactor.cli.main", "run", str(tmp_path / "p.json")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        while not _has_threads(run.pid):
            assert run.poll() is None
        run.send_signal(number)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 130 and b"Traceback" not in said
    assert {path.name for path in tmp_path.iterdir()} == {"in.csv", "p.json"}


def _has_threads(pid: int) -> bool:
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) >= 3
    except FileNotFoundError:
        return False


def test_items_come_in_order_and_the_error_after_them() -> None:
    def items() -> Iterator[int]:
        yield from range(100)
        raise ValueError("after them")

    made = Ahead(items(), 3, "items")
    assert [next(made) for _ in range(100)] == list(range(100))
    with pytest.raises(ValueError, match="after them"):
        next(made)
    assert list(made) == []
    made.close()


def test_a_bounded_number_of_items_is_made_ahead() -> None:
    asked: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            asked.append(number)
            yield number

    made = Ahead(items(), 2, "items")
    taken = [next(made) for _ in range(10)]
    made.close()
    assert taken == list(range(10)) and len(asked) <= 13


def test_without_a_thread_items_are_made_where_they_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    made = Ahead(iter("abc"), 1, "items")
    assert list(made) == ["a", "b", "c"]
    made.close()
