"""What a pod needs, worked out from the settings of what runs in it: the source of the manifests' numbers.

    python -m deploy.kubernetes.resources --memory-limit 1GiB --tasks 4

prints what to write for other settings. `tests/deploy` holds the manifests against the same functions.

Three kinds of processes make up a pod's memory:
- Spark's JVM: its heap, and what Spark itself adds for a JVM's own needs;
- one Python worker a task: the memory limit of a task, and the bare process;
- in a driver, the Python process that plans and commits.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Final

from compactor.cli.options import size_bytes
from compactor.config import CompactionSettings, compaction_settings

MIB: Final = 1 << 20
GIB: Final = 1 << 30

WORKER_OVERHEAD_BYTES: Final = 150 * MIB
"""The bare process of a Python worker: docs/memory.md."""
DRIVER_PYTHON_BYTES: Final = 448 * MIB
"""The process that plans: 436 MB at its most with a thousand compactions waiting (docs/benchmarks.md)."""
JVM_OVERHEAD_BYTES: Final = 384 * MIB
"""Spark's own minimum for what a JVM takes beside its heap (spark.executor.minMemoryOverhead)."""
HEAP_BYTES: Final = 512 * MIB
"""Of driver and executors: rows never pass through the JVM, only texts of what to do."""
STOP_SECONDS: Final = 30
"""From the end of --drain to the end of the process: claims are freed, Spark stops."""
TMP_BYTES: Final = 1 * GIB
"""Spark's local directories and whatever else goes to /tmp: small files, as nothing is shuffled."""
_ROUND_BYTES: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class PodResources:
    """memory is request and limit: a pod over its request would be the first to be evicted."""

    cpu: int
    memory_bytes: int
    spool_bytes: int
    tmp_bytes: int = TMP_BYTES

    @property
    def memory(self) -> str:
        """As Kubernetes writes it."""
        return f"{self.memory_bytes // MIB}Mi"

    @property
    def spool(self) -> str:
        return f"{self.spool_bytes // GIB}Gi"


def workers_bytes(settings: CompactionSettings, tasks: int) -> int:
    """Memory of the Python workers of so many tasks at a time."""
    return tasks * (settings.memory_limit_bytes + WORKER_OVERHEAD_BYTES)


def spool_bytes(settings: CompactionSettings, tasks: int) -> int:
    """Local disk for tasks whose inputs are of --spool-limit each: the inputs once, and once more what memory
    does not hold. Whole GiB."""
    return -(-tasks * 2 * settings.spool_limit_bytes // GIB) * GIB


def local_worker(settings: CompactionSettings, tasks: int) -> PodResources:
    """`watch` or `compact` with --master local[tasks]: driver and tasks in one pod."""
    memory = HEAP_BYTES + JVM_OVERHEAD_BYTES + DRIVER_PYTHON_BYTES + workers_bytes(settings, tasks)
    return PodResources(tasks, _rounded(memory), spool_bytes(settings, tasks))


def driver() -> PodResources:
    """A driver with tasks elsewhere."""
    return PodResources(1, _rounded(HEAP_BYTES + driver_overhead_bytes()), 0)


def driver_overhead_bytes() -> int:
    """spark.driver.memoryOverhead."""
    return JVM_OVERHEAD_BYTES + DRIVER_PYTHON_BYTES


def executor(settings: CompactionSettings, cores: int) -> PodResources:
    """An executor of Spark with a task a core. Its memory is that of Spark's own sum, not rounded."""
    memory = HEAP_BYTES + executor_overhead_bytes(settings, cores)
    return PodResources(cores, memory, spool_bytes(settings, cores))


def executor_overhead_bytes(settings: CompactionSettings, cores: int) -> int:
    """spark.executor.memoryOverhead."""
    return JVM_OVERHEAD_BYTES + workers_bytes(settings, cores)


def in_process() -> PodResources:
    """A command without Spark that holds no rows, such as `vacuum`."""
    return PodResources(1, DRIVER_PYTHON_BYTES, 0)


def grace_seconds(drain_seconds: float) -> int:
    """terminationGracePeriodSeconds, at least."""
    return int(drain_seconds) + STOP_SECONDS


def _rounded(count: int) -> int:
    return -(-count // _ROUND_BYTES) * _ROUND_BYTES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    defaults = CompactionSettings()
    parser.add_argument("--memory-limit", type=size_bytes, default=defaults.memory_limit_bytes)
    parser.add_argument("--spool-limit", type=size_bytes, default=defaults.spool_limit_bytes)
    parser.add_argument("--tasks", type=int, default=2, help="at a time in one pod")
    parser.add_argument("--drain-seconds", type=float, default=25.0)
    options = parser.parse_args()
    settings = compaction_settings(
        memory_limit_bytes=options.memory_limit, spool_limit_bytes=options.spool_limit
    )
    worker, runs, drives = (
        local_worker(settings, options.tasks),
        executor(settings, options.tasks),
        driver(),
    )
    overhead = executor_overhead_bytes(settings, options.tasks) // MIB
    grace = grace_seconds(options.drain_seconds)
    print(
        f"watch --master local[{options.tasks}]: cpu {worker.cpu}, memory {worker.memory}, "
        f"spool {worker.spool}, terminationGracePeriodSeconds {grace}"
    )
    print(
        f"driver: cpu {drives.cpu}, memory {drives.memory}; spark.driver.memory "
        f"{HEAP_BYTES // MIB}m, spark.driver.memoryOverhead {driver_overhead_bytes() // MIB}m"
    )
    print(
        f"executor of {options.tasks} cores: memory {runs.memory}, spool {runs.spool}; "
        f"spark.executor.memory {HEAP_BYTES // MIB}m, spark.executor.memoryOverhead {overhead}m"
    )


if __name__ == "__main__":
    main()
