"""Writes sources as CSV and NDJSON, as `compactor export` does, for engines that ingest text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.contract import Task
from compactor.files.csvtext import csv_header, csv_lines
from compactor.files.jsontext import json_lines


def text_inputs(task: Task) -> list[str]:
    return [str(path) for path in sorted(task.prepared.iterdir())]


class CsvSources:
    def prepare(self, task: Task) -> None:
        _write(task, "csv", csv_header, csv_lines)


class NdjsonSources:
    def prepare(self, task: Task) -> None:
        _write(task, "ndjson", lambda _names: b"", json_lines)


def _write(
    task: Task,
    ending: str,
    header: Callable[[list[str]], bytes],
    lines: Callable[[pa.RecordBatch], bytes],
) -> None:
    for path in map(Path, task.sources):
        source = pq.ParquetFile(path)
        with (task.prepared / f"{path.stem}.{ending}").open("wb") as file:
            file.write(header(source.schema_arrow.names))
            for batch in source.iter_batches():
                file.write(lines(batch))
