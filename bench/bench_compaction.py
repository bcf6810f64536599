"""Claim: one Spark task compacts 16 overlapping fragments of 4 million rows x 10 columns of logs, on a
local folder, at 0.3 million rows a second or more, its Python process peaking below 1 GiB.

    python -m bench.bench_compaction [--rows 4000000] [--inputs 16] [--runs 2] [--master local[1]] [--json]

Times are those of `compactor compact --json`: planning, the Spark job and the commit, with a session
that is up. `in-process` as master leaves Spark out.
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

import pyarrow as pa

from bench.workload import make_overlapping_inputs
from compactor.cli.main import run
from compactor.ingest import IngestOptions, ingest_file
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from format.schema import parse_sort_schema

SORT = parse_sort_schema("service,host,timestamp")


def build_table(folder: Path, rows: int, inputs: int) -> int:
    """A table of overlapping level-0 fragments; bytes of its rows as Arrow."""
    log = CommitLog(store := LocalStore(folder))
    size = 0
    file = folder.with_suffix(".arrow")
    for table in make_overlapping_inputs(rows, inputs, seed=7):
        size += table.nbytes
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=65_536)
        ingest_file(store, log, str(file), SORT, IngestOptions())
    file.unlink()
    return size


def compact_once(table: Path, copy: Path, master: str) -> dict[str, Any]:
    """Compacts a fresh copy of the table; the command's report."""
    shutil.copytree(table, copy)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(["compact", str(copy), "--full", "--master", master, "--json"])
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
        arrow_bytes = build_table(table, arguments.rows, arguments.inputs)
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
