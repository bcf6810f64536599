"""Tells a Spark task how many cores it has."""

from __future__ import annotations

from pyspark import TaskContext


def task_cores() -> int:
    """Returns the cores of the running task, `spark.task.cpus`; 1 where no task runs."""
    context = TaskContext.get()
    return 1 if context is None else context.cpus()
