"""One run of one engine, in a process of its own; a JSON object on standard output.

python -m bench.peers.run ORDER      ORDER being JSON, see `Order`; bench.vs_peers writes it
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from bench.peers import usage

if TYPE_CHECKING:
    from bench.peers.contract import Peer, Task


@dataclass(frozen=True)
class Order:
    """What to do; travels as JSON."""

    target: str
    """The engine's class, as module:Class."""
    action: Literal["prepare", "compact"]
    arrow_files: Sequence[str]
    sort: Sequence[str]
    prepared: str
    folder: str
    cpus: Sequence[int]
    """Cores this process may use."""
    waits: bool = False
    """Says that it is ready, and begins when a line comes in: for runs that begin at one time."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    # Before the engine is imported: libraries count the cores once, and threads inherit theirs.
    os.sched_setaffinity(0, order.cpus)
    module, name = order.target.split(":")
    peer = cast("Peer", getattr(importlib.import_module(module), name)())
    found = _prepare(peer, order) if order.action == "prepare" else _compact(peer, order)
    print(json.dumps(found), flush=True)
    # Engines take their time to stop, and some wait for threads that wait for them.
    os._exit(0)


def _task(order: Order) -> Task:
    from bench.peers.contract import Task

    return Task(
        [Path(file) for file in order.arrow_files],
        order.sort,
        Path(order.prepared),
        Path(order.folder),
        len(order.cpus),
    )


def _prepare(peer: Peer, order: Order) -> dict[str, Any]:
    peer.prepare(_task(order))
    return {}


def _compact(peer: Peer, order: Order) -> dict[str, Any]:
    from bench.peers.order import is_sorted

    task = _task(order)
    peer.start(task)
    _warm_page_cache(task.prepared)
    os.sync()  # nobody pays for what others left to be written
    if order.waits:
        print("ready", flush=True)
        sys.stdin.readline()
    usage.forget_peak()
    cpu, started = usage.cpu_seconds(), time.perf_counter()
    used = peer.compact(task)
    ended, cpu = time.perf_counter(), usage.cpu_seconds() - cpu
    peak = usage.peak_rss_bytes()
    columns = peer.sort_columns(task)
    return {
        "wall_seconds": used.wall_seconds if used else ended - started,
        "cpu_seconds": used.cpu_seconds if used else cpu,
        "peak_rss_bytes": peak,
        "output_bytes": peer.output_bytes(task),
        "output_rows": peer.output_rows(task),
        "is_sorted": columns is None or is_sorted(columns, task.sort),
        "started": started,
        "ended": ended,
        "version": peer.version(),
        "settings": peer.settings,
    }


def _warm_page_cache(folder: Path) -> None:
    """Warms the page cache, so that all engines find their inputs there: disks are not compared."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb", buffering=0) as source:
                while source.read(1 << 20):
                    pass


if __name__ == "__main__":
    main()
