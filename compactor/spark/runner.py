"""Compactions as Spark tasks: one compaction, one task, one core, by `mapInArrow`; no shuffle.

Works on Spark Connect too, since it uses no RDD. Attempts that Spark retries or doubles are harmless:
they write under names of their own, and only the driver commits.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor.errors import JobError, UsageError
from compactor.job import Compaction, Outcome, run_compaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MASTER: Final = re.compile(
    r"local(\[([1-9]\d*|\*)(\s*,\s*[1-9]\d*)?\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+"
)


class SparkRunner:
    """A `Runner` on a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, compactions: Sequence[Compaction]) -> list[Outcome]:
        """Raises `JobError` if Spark gave up on a task."""
        from pyspark.errors import PySparkException

        specs = [compaction.to_json() for compaction in compactions]

        def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    outcome = run_compaction(Compaction.from_json(specs[index]))
                    yield pa.RecordBatch.from_pydict({"outcome": [outcome.to_json()]})

        # One row a partition, so one compaction a task.
        tasks = self._spark.range(0, len(specs), 1, len(specs))
        try:
            rows = tasks.mapInArrow(run_tasks, "outcome string").collect()
        except PySparkException as error:
            raise JobError(
                f"Spark gave up on the job, the table is as it was: {_first_cause(error)}"
            ) from error
        except Exception as error:
            if type(error).__module__.startswith("py4j"):
                raise JobError(f"Spark stopped during the job: {_first_cause(error)}") from error
            raise
        return [Outcome.from_json(row["outcome"]) for row in rows]


def is_submitted() -> bool:
    """Whether spark-submit started this process, and so chose master and settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def open_session(master: str | None) -> SparkSession:
    """The session of this process: that of `spark-submit`, else a new one on `master`.

    Raises `UsageError` where PySpark or Java is missing, or the master is not understood.
    """
    if master is not None and not _MASTER.fullmatch(master):
        raise UsageError(
            f"--master {master}: not a Spark master; use local[2], local[*], yarn, "
            "spark://host:port or k8s://https://host:port"
        )
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError(
            f"Spark is not installed ({error}): pip install 'lsm-compactor[spark]', or run without "
            "it by --master in-process"
        ) from error
    # Workers of a local master must run the interpreter that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("lsm-compactor")
    if master is not None:
        builder = builder.master(master)
    if not is_submitted():
        builder = builder.config("spark.ui.enabled", "false").config(
            "spark.ui.showConsoleProgress", "false"
        )
        if "SPARK_CONF_DIR" not in os.environ:
            os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "conf")
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise UsageError(
            f"Spark did not start on master {master!r}: {_first_cause(error)}. It needs Java 17 or "
            "newer (on Debian: apt-get install openjdk-17-jre-headless)"
        ) from error
    except Exception as error:
        if type(error).__module__.startswith("py4j"):
            raise UsageError(
                f"Spark did not start on master {master!r}: {_first_cause(error)}"
            ) from error
        raise


def _first_cause(error: Exception) -> str:
    """The telling line of an error that may hold pages of Java."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    caused = [line for line in lines if "Error:" in line or "Exception:" in line]
    return (caused or lines or [type(error).__name__])[-1][:400]
