"""The number of cores of a Spark task."""

from __future__ import annotations


def task_cores() -> int:
    """Returns `spark.task.cpus` of the running task; 1 outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else context.cpus()
