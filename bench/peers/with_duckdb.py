"""DuckDB: ORDER BY to Parquet."""

from __future__ import annotations

import duckdb

from bench.peers.contract import Task
from bench.peers.parquet import ROW_GROUP_ROWS, ParquetPeer, inputs, output, sync


class DuckDbSort(ParquetPeer):
    settings = "COPY (SELECT * FROM read_parquet(...) ORDER BY ...) TO Parquet, zstd level 1"

    def version(self) -> str:
        return str(duckdb.__version__)

    def start(self, task: Task) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(f"SET threads = {task.cores}")
        self._connection.execute(f"SET temp_directory = '{task.folder / 'spill'}'")

    def compact(self, task: Task) -> None:
        self._connection.execute(
            f"COPY (SELECT * FROM read_parquet({inputs(task)}) ORDER BY {', '.join(task.sort)}) "
            f"TO '{output(task)}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, "
            f"ROW_GROUP_SIZE {ROW_GROUP_ROWS})"
        )
        sync(output(task))
