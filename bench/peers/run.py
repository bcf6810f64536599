"""Runs one engine once, in its own process, and prints a JSON object.

python -m bench.peers.run ORDER      ORDER is JSON, see `Order`; written by bench.vs_peers
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct
from msgspec.structs import asdict

from bench.peers import usage
from compactor.cli.frugal import frugal_imports
from compactor.common.heap import set_up_heap

if TYPE_CHECKING:
    from bench.peers.contract import Ingester, Measure, Merger, Scanner, Task, Used

_OURS: Final = "bench.peers.with_ours"


class Order(Struct, frozen=True, kw_only=True):
    """A request for one run, as JSON."""

    target: str
    """The engine's class, as module:Class."""
    action: str
    """`prepare`, or a measure."""
    sources: Sequence[str]
    sort: Sequence[str]
    prepared: str
    folder: str
    cpus: Sequence[int]
    """CPUs that this process may use."""
    waits: bool = False
    """Reports that it is ready, and starts on a line of input: for simultaneous runs."""
    columns: Sequence[str] = ()
    """The columns to scan."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def _start_of_commands() -> contextlib.AbstractContextManager[None]:
    set_up_heap()
    return frugal_imports()


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    # Before the engine is imported: libraries read the number of cores once, and threads inherit the
    # affinity.
    os.sched_setaffinity(0, order.cpus)
    module, name = order.target.split(":")
    # Measure ours as its commands run it; import peers as users do.
    with _start_of_commands() if module == _OURS else contextlib.nullcontext():
        peer = getattr(importlib.import_module(module), name)()
    found = _prepare(peer, order) if order.action == "prepare" else _measured(peer, order)
    print(json.dumps(found), flush=True)
    # Skip the engines' slow shutdown; some wait for threads that wait for them.
    os._exit(0)


def _task(order: Order) -> Task:
    from bench.peers.contract import Task

    return Task(
        sources=[Path(file) for file in order.sources],
        sort=order.sort,
        prepared=Path(order.prepared),
        folder=Path(order.folder),
        cores=len(order.cpus),
        columns=order.columns,
    )


def _prepare(peer: Any, order: Order) -> dict[str, Any]:
    peer.prepare(_task(order))
    return {}


def _measured(peer: Any, order: Order) -> dict[str, Any]:
    from bench.peers.contract import Measure
    from bench.peers.order import is_sorted

    task, measure = _task(order), Measure(order.action)
    peer.start(task)
    for file in (*task.sources, *task.prepared.rglob("*")):
        _warm_page_cache(file)
    os.sync()  # do not charge this run for others' dirty pages
    if order.waits:
        print("ready", flush=True)
        sys.stdin.readline()
    usage.forget_peak()
    cpu, started = usage.cpu_seconds(), time.perf_counter()
    done = _work(peer, task, measure)
    ended, cpu = time.perf_counter(), usage.cpu_seconds() - cpu
    peak = usage.peak_rss_bytes()
    used = None if isinstance(done, int) else done
    columns = peer.sort_columns(task) if measure is Measure.MERGE else None
    return {
        "wall_seconds": used.wall_seconds if used else ended - started,
        "cpu_seconds": used.cpu_seconds if used else cpu,
        "peak_rss_bytes": peak,
        "output_bytes": peer.output_bytes(task),
        "output_rows": done if isinstance(done, int) else peer.output_rows(task),
        "is_sorted": columns is None or is_sorted(columns, task.sort),
        "started": started,
        "ended": ended,
        "version": peer.version(),
        "settings": peer.settings,
    }


def _work(peer: Any, task: Task, measure: Measure) -> Used | int | None:
    """Runs the measured work; returns the rows of a scan."""
    if measure.is_scan:
        return cast("Scanner", peer).scan(task)
    if measure.is_ingest:
        cast("Ingester", peer).ingest(task)
        return None
    return cast("Merger", peer).compact(task)


def _warm_page_cache(file: Path) -> None:
    """Reads a file, because every engine should find its inputs in the page cache: disks are not compared."""
    if file.is_file():
        with file.open("rb", buffering=0) as source:
            while source.read(1 << 20):
                pass


if __name__ == "__main__":
    main()
