"""PyArrow: reads all, sorts, writes; and scans one sorted Parquet file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.contract import Task
from bench.peers.parquet import ParquetPeer, output, sorted_rows, sync, write_source

_BATCH_ROWS = 65_536


class PyArrowSort(ParquetPeer):
    settings = "read_table of all files, sort_by, write_table, zstd 1"

    def version(self) -> str:
        return str(pa.__version__)

    def start(self, task: Task) -> None:
        pa.set_cpu_count(task.cores)
        pa.set_io_thread_count(task.cores)

    def compact(self, task: Task) -> None:
        write_source(sorted_rows(task), output(task))
        sync(output(task))


class PyArrowScan:
    settings = f"ParquetFile.iter_batches of {_BATCH_ROWS:,} rows; one sorted file, zstd 1"

    def version(self) -> str:
        return str(pa.__version__)

    def prepare(self, task: Task) -> None:
        write_source(sorted_rows(task), _file(task))

    def start(self, task: Task) -> None:
        pa.set_cpu_count(task.cores)
        pa.set_io_thread_count(task.cores)
        self._file = pq.ParquetFile(_file(task), memory_map=True)

    def scan(self, task: Task) -> int:
        batches = self._file.iter_batches(
            _BATCH_ROWS, columns=list(task.columns), use_threads=task.cores > 1
        )
        return sum(batch.num_rows for batch in batches)

    def output_bytes(self, task: Task) -> int:
        return _file(task).stat().st_size


def _file(task: Task) -> Path:
    return task.prepared / "sorted.parquet"
