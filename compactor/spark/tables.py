"""Loads tables as DataFrames."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from compactor.spark.source.source import register
from lsm_fragment.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(
    spark: SparkSession,
    url: str | PathLike[str],
    columns: Iterable[str] | None = None,
    where: str | None = None,
    **options: str | int | bool,
) -> DataFrame:
    """Returns a table as a DataFrame, read in as many tasks as the session runs at a time, or more.

    Only these columns are read, and row groups are skipped by the condition: Spark does not tell a data
    source which columns a query needs. Registers the format `fragments` with the session.
    url: a folder, or s3://bucket/prefix. columns: names; None means all. where: an SQL condition, as in
    `Table.scan`. options: those of the format, such as `as_of="2h"`.
    Raises Spark's `AnalysisException` with our text for an unknown table, column or option.
    """
    register(spark)
    spark_reader = spark.read.format("fragments").option("min_tasks", _tasks_at_a_time(spark))
    if columns is not None:
        spark_reader = spark_reader.option("columns", ",".join(map(quoted, columns)))
    if where is not None:
        spark_reader = spark_reader.option("where", where)
    spark_reader = spark_reader.options(**options)
    return spark_reader.load(fspath(url))


def _tasks_at_a_time(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return 1  # a remote session does not tell
