"""What runs in Spark's Python workers: the cores of a task, and the objects that a worker keeps."""

from __future__ import annotations

import sys

from compactor.common.garbage import freeze_for_good


def freeze_worker() -> None:
    """Freezes what a Python worker of Spark has, above all modules. Does nothing in other processes.

    Call it when a task or a plan begins: PySpark collects all garbage of a worker after each
    (`pyspark/daemon.py`), for which Python looks at every object that is not frozen, 0.05 s of CPU for the
    modules alone. What was imported since is frozen the next time; what came before is no garbage, as it was
    just collected.
    """
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name.startswith("pyspark."):
        freeze_for_good()


def task_cores() -> int:
    """Returns `spark.task.cpus` of the running task; 1 outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else context.cpus()
