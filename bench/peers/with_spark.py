"""Spark: sorted partitions to Parquet, one per core."""

from __future__ import annotations

import shutil

import pyspark
from pyspark.sql import DataFrame, SparkSession

from bench.peers.contract import Task
from bench.peers.parquet import ParquetPeer, inputs, output, sync


class SparkSort(ParquetPeer):
    settings = (
        "local[cores], one partition a core (coalesce on one, repartitionByRange on two), "
        "sortWithinPartitions, Parquet, zstd 1, driver memory 6g; session up, JVM warmed on one input"
    )

    def version(self) -> str:
        return str(pyspark.__version__)

    def start(self, task: Task) -> None:
        self._spark = (
            SparkSession.builder.master(f"local[{task.cores}]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "6g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.parquet.compression.codec", "zstd")
            .config("spark.hadoop.parquet.compression.codec.zstd.level", "1")
            .config("spark.local.dir", str(task.folder / "spill"))
            .getOrCreate()
        )
        warm = task.folder / "warm.parquet"
        self._sorted(inputs(task)[:1], task).write.parquet(str(warm))
        shutil.rmtree(warm)

    def compact(self, task: Task) -> None:
        self._sorted(inputs(task), task).write.parquet(str(output(task)))
        sync(output(task))

    def _sorted(self, files: list[str], task: Task) -> DataFrame:
        rows = self._spark.read.parquet(*files)
        one = (
            rows.coalesce(1) if task.cores == 1 else rows.repartitionByRange(task.cores, *task.sort)
        )
        return one.sortWithinPartitions(*task.sort)
