"""Measures what a row policy costs: compacts the same rows under each policy, and by other engines.

    taskset -c 0 python -m bench.bench_row_policies                    2 million rows, half of them updates
    taskset -c 0 python -m bench.bench_row_policies --rows 500000

There are 16 inputs. A key is in several of them, so that row order, flags and folding all have work. Seconds
are the better of two runs on one core, on a local folder. Polars and DuckDB read the same rows from Parquet
files and write a sorted Parquet file with the newest row of each key (zstd 1); they are left out if they are
not installed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.results import RESULTS, write_results
from bench.tables import compaction_of_all, write_table
from compactor.compaction.attempt import run_compaction
from compactor.rows.policy import APPEND, RowFunction, RowKind, RowPolicy
from compactor.settings.compaction import CompactionSettings
from compactor.stores.local import LocalStore
from compactor.write.ingest import IngestOptions

POLICIES: Final = {
    "append": APPEND,
    "last": RowPolicy(RowKind.LAST),
    "last by sequence": RowPolicy(RowKind.LAST, sequence="version"),
    "last, tombstones": RowPolicy(RowKind.LAST, delete_marker="gone"),
    "partial-update": RowPolicy(RowKind.PARTIAL_UPDATE),
    "aggregate": RowPolicy(
        RowKind.AGGREGATE,
        aggregates=(
            ("amount", RowFunction.SUM),
            ("price", RowFunction.MAX),
            ("note", RowFunction.LAST),
            ("tags", RowFunction.SET),
        ),
    ),
}
_RUNS: Final = 2


def updates(rows: int, inputs: int, seed: int = 11) -> Iterator[pa.Table]:
    """Makes rows of half as many keys, in random order of time; each input has a key at most once."""
    rng = np.random.default_rng(seed)
    words = np.array([f"word{n:04d}" for n in rng.integers(0, 9999, 3000)])
    each = rows // inputs
    for number in range(inputs):
        keys = rng.choice(rows // 2, each, replace=False)
        note = [" ".join(words[w]) for w in rng.integers(0, len(words), (each, 6))]
        yield pa.table(
            {
                "id": keys,
                "version": rng.integers(0, 10**9, each),
                "gone": rng.random(each) < 0.05,
                "state": pa.array(rng.choice(["new", "open", "done"], each), mask=rng.random(each) < 0.3),
                "note": pa.array(note, mask=rng.random(each) < 0.2),
                "amount": rng.integers(0, 10_000, each),
                "price": np.round(rng.random(each) * 100, 2),
                "tags": pa.array([[f"t{n % 50}", f"t{number}"] for n in keys]),
            }
        )  # fmt: skip


def ours(folder: Path) -> tuple[float, dict[str, Any]]:
    best, figures = float("inf"), {}
    for _ in range(_RUNS):
        store = LocalStore(folder)
        compaction = compaction_of_all(store, CompactionSettings())
        compaction = replace(compaction, spec=replace(compaction.spec, is_bottom=True))
        outcome = run_compaction(compaction, store)
        assert outcome.report is not None, outcome.failure
        for entry in outcome.outputs:
            store.delete(entry.key)
        if outcome.report.seconds < best:
            best = outcome.report.seconds
            figures = {
                "rows_in": outcome.report.rows_in,
                "rows_out": outcome.report.rows_out,
                "bytes_out": outcome.report.bytes_out,
                "peak_rss_bytes": outcome.report.peak_rss_bytes,
                "stages": outcome.report.stage_seconds,
            }
    return best, figures


def with_polars(files: list[Path], out: Path) -> None:
    import polars as pl

    frame = pl.scan_parquet(files)
    newest = frame.sort("id", "version").unique(subset="id", keep="last", maintain_order=True)
    newest.sink_parquet(out, compression="zstd", compression_level=1)


def with_duckdb(files: list[Path], out: Path) -> None:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(
            f"COPY (SELECT DISTINCT ON (id) * FROM read_parquet({[str(f) for f in files]}) "
            f"ORDER BY id, version DESC) TO '{out}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"
        )


PEERS: Final[dict[str, Callable[[list[Path], Path], None]]] = {
    "Polars, newest": with_polars,
    "DuckDB, newest": with_duckdb,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--inputs", type=int, default=16)
    parser.add_argument("--results", type=Path, default=RESULTS / "row_policies.json")
    options = parser.parse_args()
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for name, policy in POLICIES.items():
            folder = Path(work) / name.replace(" ", "-")
            chosen = IngestOptions(rows=None if policy is APPEND else policy)
            write_table(folder, updates(options.rows, options.inputs), "id", chosen)
            seconds, figures = ours(folder)
            cases.append({"case": name, "seconds": round(seconds, 3), **figures})
        files = []
        for number, table in enumerate(updates(options.rows, options.inputs)):
            files.append(Path(work) / f"{number}.parquet")
            pq.write_table(table, files[-1], compression="zstd", compression_level=1)
        for name, run in PEERS.items():
            out, best = Path(work) / "out.parquet", float("inf")
            try:
                for _ in range(_RUNS):
                    started = time.perf_counter()
                    run(files, out)
                    best = min(best, time.perf_counter() - started)
            except ImportError:
                continue
            rows_out = pq.ParquetFile(out).metadata.num_rows
            cases.append({"case": name, "seconds": round(best, 3), "rows_out": rows_out,
                          "bytes_out": out.stat().st_size})  # fmt: skip
    base = cases[0]["seconds"]
    print(f"{'':<18}{'seconds':>8}{'of append':>11}{'rows out':>12}{'MB out':>8}")
    for case in cases:
        print(
            f"{case['case']:<18}{case['seconds']:>8.2f}{case['seconds'] / base:>11.2f}"
            f"{case['rows_out']:>12,}{case['bytes_out'] / 1e6:>8.1f}"
        )
    write_results(options.results, {"rows": options.rows, "inputs": options.inputs}, cases)


if __name__ == "__main__":
    main()
