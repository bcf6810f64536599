"""Claim: one Spark task compacts 16 overlapping fragments of 4 million rows x 10 columns of logs, on a local
folder, at 0.3 million rows per second or more, and its Python process stays below 1 GiB.

    python -m bench.bench_compaction [--rows 4000000] [--inputs 16] [--runs 2] [--master local[1]] [--json]

Times are those of `compactor compact --json`: planning, Spark job and commit, on a running session. With
`--master in-process` there is no Spark.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.tables import LOG_SORT, write_table
from bench.workload import make_overlapping_inputs
from compactor.cli.main import run


def compact_once(table: Path, copy: Path, master: str) -> dict[str, Any]:
    """Compacts a fresh copy of the table; returns the command's report."""
    shutil.copytree(table, copy)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(["compact", str(copy), "--strategy", "full", "--master", master, "--json"])
    assert code == 0
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(["verify", str(copy)]) == 0
    shutil.rmtree(copy)
    report: dict[str, Any] = json.loads(out.getvalue())
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--inputs", type=int, default=16)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        table = Path(work) / "table"
        inputs = make_overlapping_inputs(arguments.rows, arguments.inputs, seed=7)
        arrow_bytes = write_table(table, inputs, LOG_SORT)
        reports = [
            compact_once(table, Path(work) / f"copy-{n}", arguments.master)
            for n in range(arguments.runs)
        ]
    seconds = [report["seconds"] for report in reports]
    figures = {
        "rows": reports[0]["rows_out"],
        "inputs": reports[0]["input_fragments"],
        "tasks": reports[0]["tasks"],
        "gets": reports[0]["gets"],
        "arrow_bytes": arrow_bytes,
        "bytes_in": reports[0]["bytes_in"],
        "bytes_out": reports[0]["bytes_out"],
        "seconds": seconds,
        "rows_per_second": round(arguments.rows / statistics.median(seconds)),
        "peak_rss_bytes": max(report["peak_rss_bytes"] for report in reports),
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:>16}  {value:,}" if isinstance(value, int) else f"{name:>16}  {value}")


if __name__ == "__main__":
    main()
