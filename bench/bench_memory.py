"""Measures the memory of a compaction, beyond that of the bare process.

Each case runs in its own process, which first merges a little to warm libraries and allocators up, records
its resident set, merges, and reports the peak above that (Linux's VmHWM).

    python -m bench.bench_memory                         all cases, some minutes
    python -m bench.bench_memory --cases size fan-in     some
    python -m bench.bench_memory --memory-limit 128 --json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict

from bench.slow_store import SlowStore
from bench.tables import LOG_SORT, compaction_of_all, write_table
from bench.workload import make_overlapping_inputs
from compactor.compaction.attempt import run_compaction
from compactor.planner.shape import memory_plan
from compactor.resources.trimmer import trim
from compactor.settings.compaction import CompactionSettings
from compactor.stores.base import Store
from compactor.stores.local import LocalStore
from compactor.write.ingest import IngestOptions
from lsm_fragment.container.writer import WriterOptions

MIB: Final = 1 << 20


class Case(Struct, frozen=True, kw_only=True):
    group: str
    name: str
    build: Callable[[], Iterator[pa.Table]]
    sort: str
    row_group_bytes: int = 4 * MIB
    memory_limit_mib: int | None = None
    """Overrides the default: low enough for the smallest case to fill it."""
    slow: bool = False


def logs(rows: int, inputs: int) -> Callable[[], Iterator[pa.Table]]:
    return lambda: make_overlapping_inputs(rows, inputs, seed=7)


def wide(
    columns: int, inputs: int = 32, present: int = 100, rows: int = 5_000
) -> Iterator[pa.Table]:
    """Writes inputs of 100 out of `columns` columns each; the number of values is constant."""
    rng = np.random.default_rng(1)
    for _ in range(inputs):
        chosen = rng.choice(columns, present, replace=False)
        values = {f"c{n:05d}": rng.integers(0, 1 << 40, rows) for n in chosen}
        yield pa.table({"k": rng.integers(0, 1 << 40, rows), **values})


def heavy(heavy_rows: int, inputs: int = 16, rows: int = 40_000) -> Iterator[pa.Table]:
    """Messages of 75 KiB among tiny ones: adjacent in key order, but far apart in every input's row
    groups."""
    rng = np.random.default_rng(2)
    for number in range(inputs):
        keys = rng.integers(0, 1 << 30, rows)
        which = rng.choice(rows, heavy_rows, replace=False)
        keys[which] = (1 << 31) + rng.integers(0, 1 << 20, heavy_rows)
        text = np.array([f"message {n}" for n in range(rows)], dtype=object)
        for row in which:
            text[row] = rng.bytes(38_400).hex()
        yield pa.table({"k": keys, "text": pa.array(text, pa.string()), "n": np.full(rows, number)})


def cases(divisor: int = 1) -> Iterator[Case]:
    """Yields the cases, with rows divided by `divisor`. Heavy rows are ingested into large row groups, so
    that only the merge can divide them."""
    for times in (1, 4, 16):
        yield Case(
            group="size",
            name=f"{times}x",
            build=logs(600_000 * times // divisor, 16),
            sort=LOG_SORT,
            row_group_bytes=MIB // 2,
            memory_limit_mib=32,
        )
    for inputs in (4, 64, 512):
        rows = max(inputs, 2_000_000 // divisor)
        yield Case(group="fan-in", name=f"{inputs} inputs", build=logs(rows, inputs), sort=LOG_SORT)
    for columns in (100, 1_000, 10_000):
        build = partial(wide, columns, rows=-(-5_000 // divisor))
        yield Case(group="columns", name=f"{columns} columns", build=build, sort="k")
    for heavy_rows in (25, 100, 400):
        build = partial(heavy, -(-heavy_rows // divisor), rows=40_000 // divisor)
        yield Case(
            group="heavy",
            name=f"{heavy_rows} of 75 KiB",
            build=build,
            sort="k",
            row_group_bytes=256 * MIB,
        )
    yield Case(
        group="cpu",
        name="50 ms, 100 MB/s",
        build=logs(2_000_000 // divisor, 16),
        sort=LOG_SORT,
        slow=True,
    )


def build(case: Case, folder: Path) -> None:
    options = IngestOptions(writer=WriterOptions(target_row_group_bytes=case.row_group_bytes))
    write_table(folder, case.build(), case.sort, options)


def measure(folder: Path, limit_bytes: int, *, slow: bool) -> dict[str, Any]:
    """Merges the fragments of a folder in this process. Returns the figures."""
    import boto3  # noqa: F401 - part of the bare process

    with tempfile.TemporaryDirectory() as work:
        warm = Path(work) / "warm"
        build(Case(group="", name="", build=logs(20_000, 2), sort=LOG_SORT), warm)
        compact_all(LocalStore(warm), CompactionSettings())
    store: Store = SlowStore(LocalStore(folder)) if slow else LocalStore(folder)
    trim()  # memory freed by the warm-up would count as part of the bare process
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    cpu, started = time.process_time(), time.perf_counter()
    figures = compact_all(store, CompactionSettings(memory_limit_bytes=limit_bytes))
    seconds = time.perf_counter() - started
    figures["process_cpu_seconds"] = round(time.process_time() - cpu, 3)
    figures["wall_seconds"] = round(seconds, 3)
    figures["peak_rss_over_baseline_bytes"] = _status("VmHWM") - before
    return figures


class RefusedError(Exception):
    """The compaction failed; here, for lack of memory."""


def compact_all(store: Store, settings: CompactionSettings) -> dict[str, Any]:
    """Runs one compaction of all fragments; commits nothing and drops the outputs."""
    compaction = compaction_of_all(store, settings)
    entries = compaction.spec.inputs
    plan = memory_plan(entries, compaction.metadata, settings)
    outcome = run_compaction(compaction, store)
    if outcome.report is None:
        raise RefusedError(outcome.failure)
    for entry in outcome.outputs:
        store.delete(entry.key)
    return {
        "inputs": len(entries),
        "need_bytes": plan.stages.need_bytes,
        **asdict(outcome.report),
        "row_groups": sum(entry.row_groups for entry in outcome.outputs),
    }


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(name)


def run_case(case: Case, limit_bytes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "table"
        build(case, folder)
        command = [sys.executable, "-m", "bench.bench_memory", "--child", str(folder),
                   "--memory-limit", str(limit_bytes // MIB)]  # fmt: skip
        if case.slow:
            command.append("--slow")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {
            "group": case.group,
            "case": case.name,
            "refused": done.stderr.strip().splitlines()[-1],
        }
    figures: dict[str, Any] = {
        "group": case.group,
        "case": case.name,
        "memory_limit_bytes": limit_bytes,
    }
    figures.update(json.loads(done.stdout.splitlines()[-1]))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    groups = list(dict.fromkeys(case.group for case in cases()))
    parser.add_argument("--cases", nargs="*", choices=groups, default=groups)
    parser.add_argument(
        "--fewer",
        type=int,
        default=1,
        help="divide the rows by this, to try the bench",
    )
    parser.add_argument("--memory-limit", type=int, help="MiB  (default: 512, for size 32)")
    parser.add_argument("--json", action="store_true", help="an object a line, all figures")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--slow", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        limit_bytes = arguments.memory_limit * MIB
        print(json.dumps(measure(arguments.child, limit_bytes, slow=arguments.slow)))
        return
    header = (
        f"{'case':<22}{'limit':>8}{'need':>8}{'charged':>9}{'RSS over':>10}{'on disk':>9}{'GETs':>6}"
        f"{'passes':>8}{'wall':>8}{'merge CPU':>11}"
    )
    chosen = (case for case in cases(arguments.fewer) if case.group in arguments.cases)
    for number, case in enumerate(chosen):
        limit_bytes = (arguments.memory_limit or case.memory_limit_mib or 512) * MIB
        figures = run_case(case, limit_bytes)
        if arguments.json:
            print(json.dumps(figures), flush=True)
            continue
        if number == 0:
            print(header)
        if "refused" in figures:
            print(f"{case.group + ' ' + case.name:<22}{_mib(limit_bytes):>8} {figures['refused']}")
            continue
        print(
            f"{case.group + ' ' + case.name:<22}{_mib(limit_bytes):>8}{_mib(figures['need_bytes']):>8}"
            f"{_mib(figures['peak_charged_bytes']):>9}{_mib(figures['peak_rss_over_baseline_bytes']):>10}"
            f"{_mib(figures['spilled_bytes']):>9}{figures['gets']:>6}{1 + figures['restarts']:>8}"
            f"{figures['wall_seconds']:>7.1f}s{figures['cpu_busy_ratio']:>10.0%}",
            flush=True,
        )
    if not arguments.json:
        print("limit to on disk in MiB; merge CPU: of the time since the first row group was there")


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f}"


if __name__ == "__main__":
    main()
