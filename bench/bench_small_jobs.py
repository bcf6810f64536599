"""Claim: small jobs cost little on Spark once it is up. A thousand compactions of two fragments of a hundred
rows take 20 ms each or less, planning and commits included; 22 MB of logs in 16 fragments take under 3 s.

    python -m bench.bench_small_jobs                                    local[1] and local[2]
    python -m bench.bench_small_jobs --masters local[4] --compactions 5000
    python -m bench.bench_small_jobs --masters in-process --profile     where the time of a tiny one goes

Every master is a process of its own. Start-up, which is the session and a first compaction on it, is shown
and not counted. The figures go to small_jobs.json, in the folder that RESULTS names.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from bench.results import RESULTS, write_results
from bench.tables import LOG_SORT, write_table
from bench.workload import make_batch, make_overlapping_inputs
from compactor.cli.spark_options import IN_PROCESS
from compactor.compaction.compact_report import CompactReport
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.engine import Engine, InProcessEngine
from compactor.compaction.worker import compact
from compactor.settings.compaction import Policy, Strategy
from compactor.spark.engine import SparkEngine
from compactor.spark.session import open_session, task_slots
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TimeWindows
from compactor.write.ingest import IngestOptions

_HOUR_SECONDS: Final = 3600
_MAX_MS: Final = 20.0
_MAX_SECONDS: Final = 3.0
_FIRST: Final = 2
"""Compactions of the start-up: a session is up when the first one has run."""


class Tables(Struct, frozen=True):
    """Folders of the tables to compact; they are copied first."""

    first: Path
    many: Path
    one: Path


def build_tables(work: Path, compactions: int, rows_each: int, rows: int, inputs: int) -> Tables:
    tables = Tables(work / "first", work / "many", work / "one")
    write_hours(tables.first, _FIRST, rows_each)
    write_hours(tables.many, compactions, rows_each)
    write_table(tables.one, make_overlapping_inputs(rows, inputs, seed=7), LOG_SORT)
    return tables


def write_hours(folder: Path, hours: int, rows_each: int) -> None:
    """Writes a table in time windows of an hour with two fragments each, which are merged; windows never
    are."""
    halves = (make_batch(hours * rows_each // 2, seed=seed, hours=hours) for seed in (1, 2))
    windows = TimeWindows("timestamp", _HOUR_SECONDS)
    write_table(folder, halves, LOG_SORT, IngestOptions(windows=windows))


def compact_copy(table: Path, engine: Engine) -> CompactReport:
    """Compacts a fresh copy: planning, compactions and commits."""
    copy = table.with_name(f"{table.name}-copy")
    shutil.copytree(table, copy)
    try:
        settings = DriverSettings(policy=Policy(strategy=Strategy.FULL))
        report = compact(Driver(CommitLog(LocalStore(copy)), settings), engine)
    finally:
        shutil.rmtree(copy)
    assert report.done
    assert len(report.done) == len(report.finished)
    return report


def measure(tables: Tables, engine: Engine) -> list[dict[str, Any]]:
    """Measures both cases on a running engine."""
    many = compact_copy(tables.many, engine)
    one = compact_copy(tables.one, engine)
    return [
        {
            "case": "many tiny",
            **_figures(many),
            "ms_each": round(1000 * many.seconds / len(many.done), 2),
        },
        {"case": "one small", **_figures(one)},
    ]


def _figures(report: CompactReport) -> dict[str, Any]:
    attempts = [s.outcome.report for s in report.done if s.outcome.report is not None]
    return {
        "compactions": len(report.done),
        "rows": sum(attempt.rows_out for attempt in attempts),
        "bytes_in": sum(attempt.bytes_in for attempt in attempts),
        "seconds": round(report.seconds, 3),
        "attempt_seconds": round(sum(attempt.seconds for attempt in attempts), 3),
        "versions_committed": report.version - report.finished[0].compaction.base_version,
    }


def run_master(tables: Tables, master: str) -> list[dict[str, Any]]:
    """Runs both cases on a master, in this process."""
    started = time.perf_counter()
    engine: Engine = InProcessEngine()
    if master != IN_PROCESS:
        session = open_session(master)
        engine = SparkEngine(session, task_slots(session))
    compact_copy(tables.first, engine)
    start_seconds = round(time.perf_counter() - started, 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cases = measure(tables, engine)
    shared = {"master": master, "start_seconds": start_seconds, "driver_peak_rss_bytes": peak}
    return [shared | case for case in cases]


def profile(table: Path) -> None:
    """Prints the functions in which tiny compactions spend their time, without Spark."""
    compact_copy(table, InProcessEngine())
    profiler = cProfile.Profile()
    profiler.enable()
    compact_copy(table, InProcessEngine())
    profiler.disable()
    for order in ("tottime", "cumtime"):
        pstats.Stats(profiler).strip_dirs().sort_stats(order).print_stats(40)


def within_targets(case: dict[str, Any]) -> bool:
    if case["case"] == "many tiny":
        return bool(case["ms_each"] <= _MAX_MS)
    return bool(case["seconds"] < _MAX_SECONDS)


def show(cases: list[dict[str, Any]]) -> None:
    print(
        f"{'master':<12}{'case':<11}{'start':>8}{'compactions':>13}{'rows':>11}{'MB':>8}"
        f"{'seconds':>9}{'ms each':>9}{'in attempts':>13}{'commits':>9}"
    )
    for case in cases:
        each = f"{case['ms_each']:.1f}" if "ms_each" in case else ""
        print(
            f"{case['master']:<12}{case['case']:<11}{case['start_seconds']:>7.1f}s"
            f"{case['compactions']:>13,}{case['rows']:>11,}{case['bytes_in'] / 1e6:>8.1f}"
            f"{case['seconds']:>8.2f}s{each:>9}{case['attempt_seconds']:>12.2f}s"
            f"{case['versions_committed']:>9}  {'' if within_targets(case) else 'OVER'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--compactions", type=int, default=1_000)
    parser.add_argument("--rows-each", type=int, default=200, help="of a tiny compaction")
    parser.add_argument("--rows", type=int, default=600_000, help="of the small one")
    parser.add_argument("--inputs", type=int, default=16)
    parser.add_argument("--masters", nargs="*", default=["local[1]", "local[2]"])
    parser.add_argument("--profile", action="store_true", help="only that, and without Spark")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target is missed")
    parser.add_argument("--results", type=Path, default=RESULTS / "small_jobs.json")
    parser.add_argument("--child", nargs=2, metavar=("WORK", "MASTER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        work, master = Path(options.child[0]), options.child[1]
        tables = Tables(work / "first", work / "many", work / "one")
        print(json.dumps(run_master(tables, master)))
        return
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if options.profile:
            write_hours(work / "many", options.compactions, options.rows_each)
            profile(work / "many")
            return
        build_tables(work, options.compactions, options.rows_each, options.rows, options.inputs)
        for master in options.masters:
            command = [sys.executable, "-m", "bench.bench_small_jobs", "--child", folder, master]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            cases += json.loads(done.stdout.splitlines()[-1])
    show(cases)
    arguments = {
        name: getattr(options, name) for name in ("compactions", "rows_each", "rows", "inputs")
    }
    write_results(options.results, arguments, cases)
    if options.strict and not all(map(within_targets, cases)):
        sys.exit(1)


if __name__ == "__main__":
    main()
