"""Claim: the time of a compaction is linear in rows, and in columns; with the number of inputs only the
ordering of keys grows, about as its logarithm.

    python -m bench.bench_scaling                                   all cases at 2 million rows, some minutes
    python -m bench.bench_scaling --cases fan-in --rows 8000000

rows     logs, 16 inputs, 1x to 64x rows: 1/16 of --rows to 4 times --rows
fan-in   logs, --rows rows from 4 to 512 inputs
columns  integers, all inputs have all columns: 16 inputs, 10 to 1,000 columns
sparse   integers, inputs have 100 columns each, out of 100 to 10,000: as many values in every case

Compactions run in a process of their own for every case, which merges a little first, on a local folder;
the best of --runs counts. `per unit` is the time a row (rows) or a column (columns), or all of it (fan-in,
sparse), as a multiple of the first case's: 1 is ideal. `order` is the time of ordering keys, `rest` all
other, each as a multiple of the first case's; in parentheses what its logarithm would make of `order`.
The figures go to scaling.json, in the folder that RESULTS names.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from bench.bench_memory import logs, wide
from bench.results import RESULTS, write_results
from bench.tables import LOG_SORT, compaction_of_all, write_table
from compactor.compaction.attempt import run_compaction
from compactor.settings.compaction import CompactionSettings
from compactor.stores.local import LocalStore

GROUPS: Final = ("rows", "fan-in", "columns", "sparse")
_INPUTS: Final = 16
_ORDER: Final = "order"
_WARM_ROWS: Final = 20_000
_COLUMN_DIVISOR: Final = 100
"""Of the rows: with a thousand columns a table of all of them would not be small any more."""


class Case(Struct, frozen=True):
    group: str
    name: str
    size: int
    """Rows, inputs or columns."""
    build: Callable[[], Iterator[pa.Table]]
    sort: str = LOG_SORT


def cases(rows: int) -> Iterator[Case]:
    for times in (1, 4, 16, 64):
        count = max(_INPUTS, rows * times // 16)
        yield Case("rows", f"{times}x", count, logs(count, _INPUTS))
    for inputs in (4, 16, 64, 256, 512):
        if inputs <= rows:
            yield Case("fan-in", f"{inputs} inputs", inputs, logs(rows, inputs))
    each = max(1, rows // _COLUMN_DIVISOR // _INPUTS)
    for columns in (10, 100, 1_000):
        yield Case("columns", f"{columns:,} columns", columns, _dense(columns, each), "k")
    for columns in (100, 1_000, 10_000):
        yield Case("sparse", f"{columns:,} columns", columns, _sparse(columns, each), "k")


def _dense(columns: int, rows: int) -> Callable[[], Iterator[pa.Table]]:
    return lambda: wide(columns, _INPUTS, columns, rows)


def _sparse(columns: int, rows: int) -> Callable[[], Iterator[pa.Table]]:
    return lambda: wide(columns, _INPUTS, 100, rows)


def measure(folder: Path, runs: int) -> dict[str, Any]:
    """Returns the best of several compactions of a table, in a process of its own."""
    with tempfile.TemporaryDirectory() as work:
        warm = Path(work) / "warm"
        write_table(warm, logs(_WARM_ROWS, 2)(), LOG_SORT)
        compact_all(LocalStore(warm))
    return min((compact_all(LocalStore(folder)) for _ in range(runs)), key=lambda f: f["seconds"])


def compact_all(store: LocalStore) -> dict[str, Any]:
    """Compacts all fragments; nothing is committed, the outputs are dropped."""
    compaction = compaction_of_all(store, CompactionSettings())
    cpu, started = time.process_time(), time.perf_counter()
    outcome = run_compaction(compaction, store)
    seconds = time.perf_counter() - started
    assert outcome.report is not None, outcome.failure
    for entry in outcome.outputs:
        store.delete(entry.key)
    return {
        "inputs": len(compaction.spec.inputs),
        "rows": outcome.report.rows_out,
        "columns": len(compaction.metadata.schema),
        "bytes_in": outcome.report.bytes_in,
        "row_groups": sum(entry.row_groups for entry in outcome.outputs),
        "spilled_bytes": outcome.report.spilled_bytes,
        "seconds": round(seconds, 4),
        "cpu_seconds": round(time.process_time() - cpu, 4),
        "stage_seconds": outcome.report.stage_seconds,
    }


def run_case(case: Case, runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "table"
        write_table(folder, case.build(), case.sort)
        command = [sys.executable, "-m", "bench.bench_scaling", "--child", str(folder),
                   "--runs", str(runs)]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    return {"group": case.group, "case": case.name, "size": case.size, **figures}


def compared(figures: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    """Returns the figures of a case, compared with the first case of its group."""
    grows = figures["group"] in ("rows", "columns")
    units = figures["size"] / first["size"] if grows else 1.0
    added: dict[str, Any] = {
        "rows_per_second": round(figures["rows"] / figures["seconds"]),
        "ratio_per_unit": round(figures["seconds"] / first["seconds"] / units, 3),
    }
    order, first_order = (f["stage_seconds"].get(_ORDER) for f in (figures, first))
    if order and first_order:
        rest, first_rest = figures["seconds"] - order, first["seconds"] - first_order
        added["order_ratio"] = round(order / first_order, 3)
        added["rest_ratio"] = round(rest / first_rest, 3)
        if figures["group"] == "fan-in":
            ideal = math.log2(figures["size"]) / math.log2(first["size"])
            added["ideal_order_ratio"] = round(ideal, 3)
    return figures | added


def line(case: dict[str, Any]) -> str:
    text = (
        f"{case['group'] + ' ' + case['case']:<24}{case['rows']:>12,}{case['inputs']:>8}"
        f"{case['columns']:>9,}{case['seconds']:>9.2f}s{case['rows_per_second']:>12,}"
        f"{case['ratio_per_unit']:>10.2f}"
    )
    if "order_ratio" in case:
        ideal = f" ({case['ideal_order_ratio']:.2f})" if "ideal_order_ratio" in case else ""
        seconds = case["stage_seconds"][_ORDER]
        text += f"{seconds:>9.2f}s{case['order_ratio']:>8.2f}{ideal:<7}{case['rest_ratio']:>7.2f}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS / "scaling.json")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child, options.runs)))
        return
    print(
        f"{'case':<24}{'rows':>12}{'inputs':>8}{'columns':>9}{'seconds':>10}{'rows/s':>12}"
        f"{'per unit':>10}{'order':>10}{'order x':>8}{'':<7}{'rest x':>7}"
    )
    first: dict[str, dict[str, Any]] = {}
    results = []
    for case in cases(options.rows):
        if case.group in options.cases:
            figures = run_case(case, options.runs)
            results.append(compared(figures, first.setdefault(case.group, figures)))
            print(line(results[-1]), flush=True)
    write_results(options.results, {"rows": options.rows, "runs": options.runs}, results)


if __name__ == "__main__":
    main()
