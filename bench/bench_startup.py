"""Claim: commands start quickly. `compactor --help` and `--version` take at most 0.1 s of CPU; a look at a
small local table, an ingest of one row and a compaction with nothing to do at most 0.4 s.

    python -m bench.bench_startup
    python -m bench.bench_startup --repeat 20 --strict

CPU seconds are user and system time of the process with all its threads, which a busy machine disturbs less
than it does wall time; the best of several runs counts. Every run is a process of its own, after one that
compiles and caches the modules. The figures go to startup.json, in the folder that RESULTS names.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from bench.results import RESULTS, write_results
from bench.tables import LOG_SORT, write_table
from bench.workload import make_overlapping_inputs

_MAX_SECONDS: Final = {
    "--version": 0.1,
    "--help": 0.1,
    "head": 0.4,
    "inspect": 0.4,
    "ingest": 0.4,
    "compact": 0.4,
}
"""Targets, in seconds of CPU."""


def cpu_seconds(arguments: list[str]) -> float:
    """Runs the command in a process of its own. Returns its user and system time."""
    command = [sys.executable, "-m", "compactor", *arguments]
    # Compiled modules are cached, as they are wherever the command is installed.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(arguments: list[str], repeat: int) -> dict[str, Any]:
    """Returns the best and the median CPU seconds of a command, whose name is the first argument."""
    cpu_seconds(arguments)
    seconds = sorted(cpu_seconds(arguments) for _ in range(repeat))
    return {
        "case": arguments[0],
        "best_cpu_seconds": round(seconds[0], 3),
        "median_cpu_seconds": round(seconds[repeat // 2], 3),
        "target_cpu_seconds": _MAX_SECONDS[arguments[0]],
    }


def show(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        print(
            f"{case['case']:9} {case['best_cpu_seconds']:.3f} s of CPU at best, "
            f"{case['median_cpu_seconds']:.3f} s in the median; target {case['target_cpu_seconds']} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=9, help="runs of each command")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of the table")
    parser.add_argument("--inputs", type=int, default=4, help="fragments of the table")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target is missed")
    parser.add_argument("--results", type=Path, default=RESULTS / "startup.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table"
        write_table(table, make_overlapping_inputs(options.rows, options.inputs, seed=7), LOG_SORT)
        rows = Path(folder) / "rows.ndjson"
        rows.write_text('{"k": 1}\n')
        commands = [
            ["--version"],
            ["--help"],
            ["head", str(table)],
            ["inspect", str(table)],
            ["ingest", str(Path(folder) / "ingested"), str(rows), "--sort-by", "k"],
            ["compact", str(table), "--master", "in-process"],
        ]
        cases = [measure(command, options.repeat) for command in commands]
    show(cases)
    arguments = {name: getattr(options, name) for name in ("repeat", "rows", "inputs")}
    write_results(options.results, arguments, cases)
    if options.strict and any(c["best_cpu_seconds"] > c["target_cpu_seconds"] for c in cases):
        sys.exit(1)


if __name__ == "__main__":
    main()
