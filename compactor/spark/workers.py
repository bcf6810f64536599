"""What runs in Spark's Python workers: the cores of a task, and the objects that a worker keeps."""

from __future__ import annotations

import sys

from compactor.common.garbage import freeze_for_good

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
