"""Opens the Spark session of a process, or adopts that of spark-submit."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct

from compactor.errors import JobError, UsageError
from compactor.resources.scratch import ScratchFolder
from compactor.spark.masters import check_installed, check_master, is_local, is_submitted
from compactor.spark.starting import starting_jvm
from compactor.stores.open import open_store
from compactor.stores.parts import remove_parts
from compactor.stores.s3_encryption import settings as encryption_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CONNECT_SLOTS: Final = 16
_UNSEEN: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.retainedExecutions": "10",
}
"""Spark shows nothing, so it need not keep a thousand plans, which after some dozens of entity merges fill a
heap of 1 GiB."""
_JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseParallelGC")
"""Keep a local JVM from compiling again what it has compiled: our tasks compute in Python, and a session of
minutes does not earn that back (docs/decisions/0102). And from giving each packet of 1 MiB two regions of G1,
which doubles what a heap of 1 GiB has to hold."""


def _scratch_folder() -> str:
    """Returns a folder for the files of a local session, in case its JVM is killed."""
    folder = ScratchFolder("compactor-spark-")
    atexit.register(folder.close)
    return folder.path


def open_session(master: str | None) -> SparkSession:
    """Adopts the session of `spark-submit`, or opens one on `master`.

    Raises `UsageError` if PySpark or Java is missing, or the master is unknown.
    """
    check_master(master)
    check_installed()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # Python workers of a local master must run the interpreter that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("lsm-compactor")
    if master is not None:
        builder = builder.master(master)
    if not is_submitted():
        for name, value in _UNSEEN.items():
            builder = builder.config(name, value)
        if "SPARK_CONF_DIR" not in os.environ:
            os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "conf")
            if is_local(master):
                java_options = [*_JVM_OPTIONS]
                if "SPARK_LOCAL_DIRS" not in os.environ:
                    folder = _scratch_folder()
                    builder = builder.config("spark.local.dir", folder)
                    java_options.append(f"-Djava.io.tmpdir={shlex.quote(folder)}")
                builder = builder.config("spark.driver.extraJavaOptions", " ".join(java_options))
    encryption = encryption_settings(os.environ)
    for name, value in encryption.items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    try:
        with starting_jvm():
            session = builder.getOrCreate()
        check_tasks_have(session, encryption)
        return session
    except PySparkException as error:
        raise UsageError(
            f"Spark did not start on master {master!r}: {first_cause(error)}. It needs Java 17 or "
            "newer (on Debian: apt-get install openjdk-17-jre-headless)"
        ) from error
    except Exception as error:
        if type(error).__module__.startswith("py4j"):
            raise UsageError(
                f"Spark did not start on master {master!r}: {first_cause(error)}"
            ) from error
        raise


def is_lost(spark: SparkSession) -> bool:
    """Returns whether the session's JVM or context has ended; always False for Spark Connect."""
    try:
        context = spark.sparkContext
    except Exception:  # noqa: BLE001 - Spark Connect has no context.
        return False
    try:
        jvm_context: Any = context._jsc
        return jvm_context is None or bool(jvm_context.sc().isStopped())
    except Exception:  # noqa: BLE001 - Whatever Py4J raises, the JVM does not answer.
        return True


@contextlib.contextmanager
def unless_lost(spark: SparkSession) -> Iterator[None]:
    """Passes over errors of a session that has ended: there is nothing to be put in order any more, and the
    error that ended it must be told."""
    try:
        yield
    except Exception:
        if not is_lost(spark):
            raise


def check_tasks_have(spark: SparkSession, environment: Mapping[str, str]) -> None:
    """Raises `UsageError` if tasks lack the encryption settings of this process.

    That happens with sessions and Spark Connect servers whose executors have already started.
    """
    if not environment:
        return

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            found = json.dumps(encryption_settings(os.environ))
            yield pa.RecordBatch.from_pydict({"found": [found]})

    rows = spark.range(0, 1, 1, 1).mapInArrow(look, "found string").toArrow()
    found = json.loads(rows.column("found")[0].as_py())
    for name, value in environment.items():
        if found.get(name) != value:
            raise UsageError(
                f"{name} is set here but not where tasks run: begin the Spark session with "
                f"spark.executorEnv.{name}={value}"
            )


def check_shuffles(spark: SparkSession, what: str) -> None:
    """Raises `UsageError` if Spark cannot route rows to chosen tasks. what: subject of the message."""
    if not hasattr(spark, "range"):
        raise UsageError(f"spark: {spark!r} is not a SparkSession")
    if not hasattr(spark.range(1), "repartitionById"):
        raise UsageError(f"{what} need PySpark 4.1 or newer: pip install 'pyspark>=4.1'")


def staging_place(
    spark: SparkSession, staging: str | None, run_id: str, waiting: str, stack: contextlib.ExitStack
) -> str:
    """Returns the address of the staging store of a run; closing `stack` removes its contents.

    staging: the user's choice. waiting: the staged data, for the message. Raises `UsageError` if `staging` is
    missing on a master that is not local.
    """
    if staging is not None:
        store = open_store(staging)
        stack.callback(remove_parts, store, f"{run_id}/")
        return store.url
    if not str(spark.conf.get("spark.master", "")).startswith("local"):
        raise UsageError(
            "--staging is missing: an s3://bucket/prefix, or a folder that tasks and this process share, "
            f"where {waiting}"
        )
    return stack.enter_context(tempfile.TemporaryDirectory(prefix="compactor-"))


def task_slots(spark: SparkSession) -> int:
    """Returns the number of concurrent tasks; dynamic allocation may add more."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - Spark Connect has no context to ask.
        return _CONNECT_SLOTS


@contextlib.contextmanager
def as_job_error(work: str) -> Iterator[None]:
    """Turns failures of Spark into a one-line `JobError`. work: subject of the message, such as "the
    task"."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise JobError(f"Spark gave up on {work}: {first_cause(error)}") from error
    except Exception as error:
        if type(error).__module__.startswith("py4j"):
            raise JobError(
                f"Spark stopped during {work}: {first_cause(error)}; if it has ended for lack of memory, "
                "give its JVM more, as by PYSPARK_SUBMIT_ARGS='--driver-memory 4g pyspark-shell'"
            ) from error
        raise


def first_cause(error: Exception) -> str:
    """Returns the most informative line of an error, which may contain pages of Java."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    caused = [line for line in lines if "Error:" in line or "Exception:" in line]
    return (caused or lines or [type(error).__name__])[-1][:400]


class SparkOptions(Struct, frozen=True):
    """Options of a run on Spark."""

    staging: str | None = None
    """Store shared by tasks and Spark's driver; None for a temporary folder on local masters."""
    shuffle_partitions: int | None = None
    """Tasks after a shuffle; None to derive them from the shuffled size."""
