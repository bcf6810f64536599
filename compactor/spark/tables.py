"""Loads tables as DataFrames."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException

from compactor.spark.source.origin import rows_of
from compactor.spark.source.source import register
from lsm_fragment.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LEAVES_ROWS_OUT: Final = frozenset(("where", "skip_missing"))
"""Options with which a table has fewer rows than its log says."""


def table(
    spark: SparkSession,
    url: str | PathLike[str],
    columns: Iterable[str] | None = None,
    where: str | None = None,
    **options: str | int | bool,
) -> DataFrame:
    """Returns a table as a DataFrame, read in as many tasks as the session runs at a time, or more.

    Only these columns are read, and row groups are skipped by the condition: Spark does not tell a data
    source which columns a query needs. `count()` of the frame itself is answered by the log, unless there is
    a condition, or a row policy that merges rows. Registers the format `fragments` with the session.
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
    frame = spark_reader.options(**options).load(fspath(url))
    rows = rows_of(frame.schema)
    if (
        rows is not None
        and where is None
        and not _LEAVES_ROWS_OUT.intersection(map(str.lower, options))
    ):
        # Spark tells a source neither that rows are only counted nor which columns a query needs.
        frame.count = lambda: rows  # type: ignore[method-assign]
    return frame


def _tasks_at_a_time(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return 1  # a remote session does not tell
