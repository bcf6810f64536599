"""What the engines that work on Parquet files share."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.contract import Task

ROW_GROUP_ROWS = 131_072


def write_inputs(task: Task) -> None:
    """Writes one Parquet file per input, zstd 1, by PyArrow with its defaults (dictionaries where they
    pay)."""
    for number, path in enumerate(task.arrow_files):
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
            pq.write_table(
                table,
                task.prepared / f"input-{number:03d}.parquet",
                compression="zstd",
                compression_level=1,
                row_group_size=ROW_GROUP_ROWS,
                sorting_columns=[
                    pq.SortingColumn(table.schema.get_field_index(name)) for name in task.sort
                ],
            )


def inputs(task: Task) -> list[str]:
    return sorted(str(path) for path in task.prepared.glob("input-*.parquet"))


def output(task: Task) -> Path:
    return task.folder / "output.parquet"


def sync(path: Path) -> None:
    """Puts a file, or a folder and all files in it, on the disk for good, and the name itself."""
    for file in [path, path.parent, *(sorted(path.rglob("*")) if path.is_dir() else [])]:
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def files_of(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


class ParquetPeer:
    """Prepares and measures Parquet; engines add `start` and `compact`."""

    def prepare(self, task: Task) -> None:
        write_inputs(task)

    def start(self, task: Task) -> None:
        pass

    def output_bytes(self, task: Task) -> int:
        return sum(file.stat().st_size for file in files_of(output(task)))

    def output_rows(self, task: Task) -> int:
        files = files_of(output(task))
        return sum(int(pq.ParquetFile(file).metadata.num_rows) for file in files)

    def sort_columns(self, task: Task) -> pa.Table:
        columns = list(task.sort)
        return pa.concat_tables(
            [pq.ParquetFile(file).read(columns) for file in files_of(output(task))]
        )
