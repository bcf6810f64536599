"""Polars, streaming engine: sorts all rows, or merges sorted inputs in a tree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from bench.peers.contract import Task
from bench.peers.parquet import ROW_GROUP_ROWS, ParquetPeer, inputs, output
from bench.peers.texts import text_inputs


class PolarsSort(ParquetPeer):
    settings = (
        f"scan_parquet, sort, sink_parquet; streaming engine, row groups of {ROW_GROUP_ROWS:,} rows, zstd 1, "
        "sync_on_close=all"
    )

    def version(self) -> str:
        return str(pl.__version__)

    def start(self, task: Task) -> None:
        assert pl.thread_pool_size() == int(os.environ["POLARS_MAX_THREADS"]) == task.cores

    def compact(self, task: Task) -> None:
        _write(pl.scan_parquet(inputs(task)).sort(list(task.sort)), output(task))


class PolarsMerge(PolarsSort):
    settings = (
        "scan_parquet of each input, merge_sorted two by two, sink_parquet; streaming engine, row groups of "
        f"{ROW_GROUP_ROWS:,} rows, zstd 1, sync_on_close=all"
    )

    def compact(self, task: Task) -> None:
        frames = [pl.scan_parquet(path) for path in inputs(task)]
        while len(frames) > 1:
            merged = [
                a.merge_sorted(b, list(task.sort))
                for a, b in zip(frames[::2], frames[1::2], strict=False)
            ]
            frames = merged + frames[2 * len(merged) :]
        _write(frames[0], output(task))


class PolarsIngest(PolarsSort):
    settings = (
        "scan_parquet, sort, sink_parquet of one file after the other; streaming engine, row groups of "
        f"{ROW_GROUP_ROWS:,} rows, zstd 1, sync_on_close=all"
    )

    def ingest(self, task: Task) -> None:
        output(task).mkdir()
        for number, rows in enumerate(self.frames(task)):
            _write(rows.sort(list(task.sort)), output(task) / f"{number:03d}.parquet")

    def frames(self, task: Task) -> Iterator[pl.LazyFrame]:
        return map(pl.scan_parquet, inputs(task))


class PolarsTextIngest(PolarsIngest):
    settings = PolarsIngest.settings.replace("scan_parquet", "scan_csv with dates or scan_ndjson")

    def frames(self, task: Task) -> Iterator[pl.LazyFrame]:
        for path in text_inputs(task):
            is_csv = path.endswith(".csv")
            yield pl.scan_csv(path, try_parse_dates=True) if is_csv else pl.scan_ndjson(path)


def _write(frame: pl.LazyFrame, path: Path) -> None:
    frame.sink_parquet(
        path,
        compression="zstd",
        compression_level=1,
        row_group_size=ROW_GROUP_ROWS,
        sync_on_close="all",
        engine="streaming",
    )
