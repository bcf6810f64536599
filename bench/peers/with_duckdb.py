"""DuckDB: ORDER BY to Parquet."""

from __future__ import annotations

from pathlib import Path

import duckdb

from bench.peers.contract import Task
from bench.peers.parquet import ROW_GROUP_ROWS, ParquetPeer, inputs, output, sync
from bench.peers.texts import text_inputs


class DuckDbSort(ParquetPeer):
    settings = "COPY (SELECT * FROM read_parquet(...) ORDER BY ...) TO Parquet, zstd level 1"

    def version(self) -> str:
        return str(duckdb.__version__)

    def start(self, task: Task) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {task.cores}")
        self._connection.execute(f"SET temp_directory = '{task.folder / 'spill'}'")

    def compact(self, task: Task) -> None:
        self._copy(f"read_parquet({inputs(task)})", task, output(task))

    def _copy(self, rows: str, task: Task, path: Path) -> None:
        self._connection.execute(
            f"COPY (SELECT * FROM {rows} ORDER BY {', '.join(task.sort)}) "
            f"TO '{path}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, "
            f"ROW_GROUP_SIZE {ROW_GROUP_ROWS})"
        )
        sync(path)


class DuckDbTextIngest(DuckDbSort):
    settings = DuckDbSort.settings.replace(
        "read_parquet(...)", "read_csv or read_json of each file"
    )

    def ingest(self, task: Task) -> None:
        output(task).mkdir()
        for number, path in enumerate(text_inputs(task)):
            read = "read_csv" if path.endswith(".csv") else "read_json"
            self._copy(f"{read}('{path}')", task, output(task) / f"{number:03d}.parquet")
