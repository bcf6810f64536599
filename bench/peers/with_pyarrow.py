"""PyArrow: read all, sort, write."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.contract import Task
from bench.peers.parquet import ROW_GROUP_ROWS, ParquetPeer, inputs, output, sync


class PyArrowSort(ParquetPeer):
    settings = "read_table of all files, sort_by, write_table, zstd 1"

    def version(self) -> str:
        return str(pa.__version__)

    def start(self, task: Task) -> None:
        pa.set_cpu_count(task.cores)
        pa.set_io_thread_count(task.cores)

    def compact(self, task: Task) -> None:
        table = pa.concat_tables([pq.read_table(path) for path in inputs(task)])
        table = table.sort_by([(name, "ascending") for name in task.sort])
        pq.write_table(
            table,
            output(task),
            compression="zstd",
            compression_level=1,
            row_group_size=ROW_GROUP_ROWS,
        )
        sync(output(task))
