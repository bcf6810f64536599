"""The common part of the engines on Parquet files."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.contract import Task

ROW_GROUP_ROWS = 131_072


def write_source(table: pa.Table, path: Path) -> None:
    """Writes sorted rows as Parquet, zstd 1, with PyArrow's defaults (dictionaries where they pay)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table, path, compression="zstd", compression_level=1, row_group_size=ROW_GROUP_ROWS
    )


def sorted_rows(task: Task) -> pa.Table:
    """Returns the rows of all sources in order; equal keys keep their order."""
    table = pa.concat_tables([pq.read_table(path) for path in task.sources])
    return table.sort_by([(name, "ascending") for name in task.sort])


def inputs(task: Task) -> list[str]:
    return [str(path) for path in task.sources]


def output(task: Task) -> Path:
    return task.folder / "output.parquet"


def sync(path: Path) -> None:
    """Syncs a file, or a folder with all its files, and its directory entry."""
    for file in [path, path.parent, *(sorted(path.rglob("*")) if path.is_dir() else [])]:
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def files_of(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


class ParquetPeer:
    """Reads the sources directly and measures Parquet; engines add `start` and `compact`."""

    def prepare(self, task: Task) -> None:
        pass

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
