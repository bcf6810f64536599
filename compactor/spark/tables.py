"""Loads tables as DataFrames."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, PySparkException

from compactor.errors import CompactorError
from compactor.spark.source.origin import rows_of
from compactor.spark.source.source import register
from lsm_fragment.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ALL_ROWS: Final = frozenset(("version", "as_of", "tag", "min_tasks", "task_bytes"))
"""Options with which a table has the rows that its log says, and which a read does not refuse."""

_TASK_BYTES: Final = "512MiB"
"""Decoded bytes of a task at most, if it is known how many tasks run at a time. Spark reads 128 MiB of
stored Parquet in a task, which decode to about as much."""

_OURS: Final = re.compile(
    rf"^{re.escape(CompactorError.__module__)}\.(\w+): (.*?)(?:\n SQLSTATE: \w+)?\Z",
    re.DOTALL | re.MULTILINE,
)


def table(
    spark: SparkSession,
    url: str | PathLike[str],
    columns: Iterable[str] | None = None,
    where: str | None = None,
    **options: str | int | bool,
) -> DataFrame:
    """Returns a table as a DataFrame, read in as many tasks as the session runs at a time, or more.

    Only these columns are read, and row groups are skipped by the condition: Spark does not tell a data
    source which columns a query needs. `count()` of the frame itself returns what the log says and reads no
    fragment, unless the frame is cached, or there is a condition, a row policy that merges rows, or another
    option than those of versions and tasks. Registers the format `fragments` with the session.
    url: a folder, or s3://bucket/prefix. columns: names; None means all. where: an SQL condition, as in
    `Table.scan`. options: those of the format, such as `as_of="2h"`.
    Raises `TableNotFoundError`, `VersionNotFoundError`, `StoreError`, and `UsageError` for an unknown column
    or option.
    """
    register(spark)
    spark_reader = spark.read.format("fragments").options(**_division(spark))
    if columns is not None:
        spark_reader = spark_reader.option("columns", ",".join(map(quoted, columns)))
    if where is not None:
        spark_reader = spark_reader.option("where", where)
    spark_reader = spark_reader.options(**options)
    try:
        frame = spark_reader.load(fspath(url))
    except AnalysisException as error:
        raise _own(error) or error from None
    rows = rows_of(frame.schema)
    if rows is not None and where is None and _ALL_ROWS.issuperset(map(str.lower, options)):
        _count_by_log(frame, rows)
    return frame


def _own(error: AnalysisException) -> CompactorError | None:
    """Returns the error of ours that Spark passes on as the text of a traceback."""
    last = str(error).rpartition("Traceback (most recent call last):\n")[2]
    if (found := _OURS.search(last)) is None:
        return None
    kind = getattr(sys.modules[CompactorError.__module__], found[1], None)
    return None if kind is None else kind(found[2].rstrip())


def _count_by_log(frame: DataFrame, rows: int) -> None:
    """Lets `count` of this object return the rows until it is cached: people fill caches by it.

    Spark tells a source neither that rows are only counted nor which columns a query needs.
    """

    def kept(keep: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
        def keep_counted(*level: Any, **named: Any) -> DataFrame:
            for method in ours:
                vars(frame).pop(method, None)
            return keep(*level, **named)

        return keep_counted

    ours = {"count": lambda: rows, "cache": kept(frame.cache), "persist": kept(frame.persist)}
    vars(frame).update(ours)


def _division(spark: SparkSession) -> dict[str, str | int]:
    """Returns the options that divide a read among the tasks that the session runs at a time."""
    try:
        return {"min_tasks": spark.sparkContext.defaultParallelism, "task_bytes": _TASK_BYTES}
    except PySparkException:
        return {}  # a remote session does not tell
