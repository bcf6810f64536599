"""What a task finds in Spark's Python worker: its cores, and objects of tasks before it."""

from __future__ import annotations

from compactor.common.garbage import freeze_for_good


def begin_task() -> None:
    """Freezes what the worker has when a task begins, above all modules; does nothing outside of tasks.

    PySpark collects all garbage of a worker after each task (`pyspark/daemon.py`), for which Python looks at
    every object that is not frozen: 0.05 s of CPU for the modules alone. A later task freezes what was
    imported since; there is no garbage then, as it was just collected.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        freeze_for_good()


def task_cores() -> int:
    """Returns `spark.task.cpus` of the running task; 1 outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else context.cpus()
