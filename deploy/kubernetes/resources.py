"""Computes the resources of pods from their settings, as the manifests have them.

    python -m deploy.kubernetes.resources --memory-limit 1GiB --tasks 4

prints the values for other settings, and the number of workers for a table. `tests/deploy` compares manifests
and documentation with the same functions.

Three kinds of processes use a pod's memory:
- Spark's JVM: its heap, and Spark's overhead for the JVM itself;
- one Python worker per task: the task's memory limit, and the bare process;
- in a driver, the Python process that plans and commits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import yaml

from compactor.cli.shared_options import size_bytes
from compactor.common.counts import counted
from compactor.errors import ConfigError
from compactor.settings.compaction import CompactionSettings

MIB: Final = 1 << 20
GIB: Final = 1 << 30

_SIZES: Final[dict[str, int]] = yaml.safe_load(
    (Path(__file__).parent / "chart" / "sizes.yaml").read_text(encoding="utf-8")
)
"""What each process needs, with the reasons. The Helm chart computes from the same file."""

WORKER_OVERHEAD_BYTES: Final = _SIZES["workerOverheadMiB"] * MIB
DRIVER_PYTHON_BYTES: Final = _SIZES["driverPythonMiB"] * MIB
JVM_OVERHEAD_BYTES: Final = _SIZES["jvmOverheadMiB"] * MIB
HEAP_BYTES: Final = _SIZES["heapMiB"] * MIB
TMP_BYTES: Final = _SIZES["tmpMiB"] * MIB
_ROUND_BYTES: Final = _SIZES["roundMiB"] * MIB
STOP_SECONDS: Final = _SIZES["stopSeconds"]

TASK_BYTES_PER_SECOND: Final = 35e6
"""Stored bytes compacted per task on one core: docs/explanation/benchmarks.md."""
WRITE_AMPLIFICATION: Final = 10.5
"""Write amplification of `leveled` in the second half of a day at 1 TB, by `compactor simulate`
(docs/how-to/operations.md)."""
HEADROOM: Final = 1.5
"""Provision this multiple of the average number of busy tasks, for peaks."""
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Shape:
    """The workload of a pod, worker or executor."""

    tasks: int = 2
    memory_limit_bytes: int = 512 * MIB
    spool_limit_bytes: int = 25 * GIB
    """Holds the largest compaction at 1 TB a day, 26 GB: docs/how-to/operations.md."""
    drain_seconds: float = 120.0

    @property
    def settings(self) -> CompactionSettings:
        return CompactionSettings(
            memory_limit_bytes=self.memory_limit_bytes, spool_limit_bytes=self.spool_limit_bytes
        )


SHAPE: Final = Shape()


@dataclass(frozen=True, slots=True)
class PodResources:
    """Resource requests of a pod. Memory is both request and limit, because pods over their request are
    evicted first."""

    cpu: int
    memory_bytes: int
    spool_bytes: int
    tmp_bytes: int = TMP_BYTES

    @property
    def memory(self) -> str:
        """Returns the memory in Kubernetes notation."""
        return f"{self.memory_bytes // MIB}Mi"

    @property
    def spool(self) -> str:
        return f"{self.spool_bytes // GIB}Gi"


def workers_bytes(settings: CompactionSettings, tasks: int) -> int:
    """Returns the memory of `tasks` concurrent Python workers."""
    return tasks * (settings.memory_limit_bytes + WORKER_OVERHEAD_BYTES)


def spool_bytes(settings: CompactionSettings, tasks: int) -> int:
    """Returns the local disk, in whole GiB, of tasks with --spool-limit of inputs each: once for the inputs,
    and once for spills."""
    return -(-tasks * 2 * settings.spool_limit_bytes // GIB) * GIB


def local_worker(settings: CompactionSettings, tasks: int) -> PodResources:
    """Sizes a pod of `watch` or `compact` with --master local[tasks]: driver and tasks in one pod."""
    memory = HEAP_BYTES + JVM_OVERHEAD_BYTES + DRIVER_PYTHON_BYTES + workers_bytes(settings, tasks)
    return PodResources(tasks, _rounded(memory), spool_bytes(settings, tasks))


def driver() -> PodResources:
    """Sizes the pod of a driver whose tasks run elsewhere."""
    return PodResources(1, _rounded(HEAP_BYTES + driver_overhead_bytes()), 0)


def driver_overhead_bytes() -> int:
    """Returns spark.driver.memoryOverhead."""
    return JVM_OVERHEAD_BYTES + DRIVER_PYTHON_BYTES


def executor(settings: CompactionSettings, cores: int) -> PodResources:
    """Sizes a Spark executor with one task per core. Memory is Spark's own sum, not rounded."""
    memory = HEAP_BYTES + executor_overhead_bytes(settings, cores)
    return PodResources(cores, memory, spool_bytes(settings, cores))


def executor_overhead_bytes(settings: CompactionSettings, cores: int) -> int:
    """Returns spark.executor.memoryOverhead."""
    return JVM_OVERHEAD_BYTES + workers_bytes(settings, cores)


def in_process() -> PodResources:
    """Sizes the pod of a command without Spark and rows, such as `vacuum`."""
    return PodResources(1, DRIVER_PYTHON_BYTES, 0)


def workers_for(ingest_bytes_per_day: float, tasks: int) -> int:
    """Returns the number of pods with this many tasks that keep up with the ingest rate."""
    written = ingest_bytes_per_day / _DAY_SECONDS * WRITE_AMPLIFICATION
    return math.ceil(math.ceil(written / TASK_BYTES_PER_SECOND * HEADROOM) / tasks)


def grace_seconds(drain_seconds: float) -> int:
    """Returns the minimum terminationGracePeriodSeconds."""
    return int(drain_seconds) + STOP_SECONDS


def _rounded(count: int) -> int:
    return -(-count // _ROUND_BYTES) * _ROUND_BYTES


@click.command()
@click.option("--memory-limit", type=size_bytes, default=str(SHAPE.memory_limit_bytes))
@click.option("--spool-limit", type=size_bytes, default=str(SHAPE.spool_limit_bytes))
@click.option("--tasks", type=click.IntRange(1), default=SHAPE.tasks, help="At a time in one pod.")
@click.option("--drain-seconds", type=click.FloatRange(0), default=SHAPE.drain_seconds)
def main(memory_limit: int, spool_limit: int, tasks: int, drain_seconds: float) -> None:
    """Print requests and limits of pods by their settings; without options, those of the manifests."""
    shape = Shape(tasks, memory_limit, spool_limit, drain_seconds)
    try:
        _print_pods(shape)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    print()
    _print_fleets(shape)


def _print_pods(shape: Shape) -> None:
    worker, drives = local_worker(shape.settings, shape.tasks), driver()
    runs = executor(shape.settings, shape.tasks)
    overhead = executor_overhead_bytes(shape.settings, shape.tasks) // MIB
    print(
        f"watch --master local[{shape.tasks}]: cpu {worker.cpu}, memory {worker.memory}, "
        f"spool {worker.spool}, terminationGracePeriodSeconds {grace_seconds(shape.drain_seconds)}"
    )
    print(
        f"driver: cpu {drives.cpu}, memory {drives.memory}; spark.driver.memory "
        f"{HEAP_BYTES // MIB}m, spark.driver.memoryOverhead {driver_overhead_bytes() // MIB}m"
    )
    print(
        f"executor of {counted(shape.tasks, 'core')}: memory {runs.memory}, spool {runs.spool}; "
        f"spark.executor.memory {HEAP_BYTES // MIB}m, spark.executor.memoryOverhead {overhead}m"
    )


def _print_fleets(shape: Shape) -> None:
    worker = local_worker(shape.settings, shape.tasks)
    print("ingested a day  workers  cores    memory  local disk")
    for terabytes in (0.1, 1, 3):
        pods = workers_for(terabytes * 1e12, shape.tasks)
        memory, disk = pods * worker.memory_bytes / GIB, pods * worker.spool_bytes // GIB
        print(
            f"{terabytes:>11g} TB  {pods:>7}  {pods * worker.cpu:>5}  {memory:>6.1f}Gi  {disk:>8}Gi"
        )


if __name__ == "__main__":
    main()
