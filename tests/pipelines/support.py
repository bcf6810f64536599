"""Pipelines of rows in memory, whose sources can be held up."""

from __future__ import annotations

import itertools
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from compactor.pipelines.config import Source, parse_pipeline
from compactor.pipelines.nodes.source import SourceReader, open_source
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.provenance import one_document
from compactor.pipelines.work import Reading

MIB = 1 << 20
_FILES = tempfile.TemporaryDirectory(prefix="sources-")
_NUMBERS = itertools.count()


class Gated:
    """Batches of a source, given out one by one as they are let through."""

    def __init__(self, table: pa.Table, batch_rows: int = 64, *, is_open: bool = True) -> None:
        self._batches = table.to_batches(max_chunksize=batch_rows)
        self.schema = table.schema
        self.gate = threading.Event()
        if is_open:
            self.gate.set()
        self.given = 0
        self.delay: Callable[[], float] = lambda: 0.0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.gate.wait(30)
            if (seconds := self.delay()) > 0:
                time.sleep(seconds)
            self.given += batch.num_rows
            yield batch


def numbered(name: str, rows: int, **more: Any) -> pa.Table:
    return pa.table({"from": [name] * rows, "n": range(rows), **more})


def run_of(
    nodes: Mapping[str, Any], tables: Mapping[str, pa.Table | Gated], **settings: Any
) -> PipelineRun:
    """A run of nodes; a source of a path in `tables` reads a file of those rows, unless they are gated."""
    gated = {name: table for name, table in tables.items() if isinstance(table, Gated)}
    files = {name: file_of(table) for name, table in tables.items() if not isinstance(table, Gated)}

    def opener(name: str, source: Source, how: Reading, /) -> SourceReader:
        assert source.path is not None
        if source.path not in gated:
            moved = source.model_copy(update={"path": files.get(source.path, source.path)})
            return open_source(name, moved, how)
        given = gated[source.path]
        return SourceReader(given.schema, lambda: one_document(name, iter(given), given.schema))

    document = {"nodes": nodes, **settings}
    return PipelineRun(parse_pipeline(json.dumps(document), "test.yaml"), opener)


def file_of(table: pa.Table) -> str:
    """Returns the path of an Arrow file of these rows, which lasts as long as the process."""
    path = f"{_FILES.name}/{next(_NUMBERS)}.arrow"
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    return path


def sources(*names: str) -> dict[str, Any]:
    return {name: {"source": {"path": name}} for name in names}


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


def in_background(run: PipelineRun) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(run.run())
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, results
