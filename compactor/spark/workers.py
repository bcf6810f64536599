"""What runs in Spark's Python workers: their Python, a task's cores, the objects that a worker keeps."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compactor.common.garbage import freeze_for_good
from compactor.spark.masters import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_frozen_with = 0
"""Number of modules when the worker's objects were last frozen."""


def freeze_worker() -> None:
    """Freezes what a Python worker of Spark has, above all modules. Does nothing in other processes.

    Call it when a task or a plan begins: PySpark collects all garbage of a worker after each
    (`pyspark/daemon.py`), for which Python looks at every object that is not frozen, 0.05 s of CPU for the
    modules alone. It freezes again only if modules were imported since: what the task has made so far is
    frozen, too, and if it has cycles, never freed.
    """
    global _frozen_with
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if (
        program is None
        or not program.name.startswith("pyspark.")
        or len(sys.modules) == _frozen_with
    ):
        return
    freeze_for_good()
    _frozen_with = len(sys.modules)


def task_cores() -> int:
    """Returns `spark.task.cpus` of the running task; 1 outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else context.cpus()


@contextmanager
def registered_with_this_python(spark: SparkSession) -> Iterator[None]:
    """What is registered within runs in this process's Python if Spark is local and nobody named another.

    PySpark would take the first `python3` on PATH, which need not have this package.
    """
    from pyspark.errors import PySparkException

    try:
        context = spark.sparkContext
    except PySparkException:
        yield  # a remote session
        return
    named = context.pythonExec
    if "PYSPARK_PYTHON" not in os.environ and is_local(context.master):
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = named
