"""Compares a pipeline with DuckDB and Polars on the same job: read NDJSON and CSV logs, interleave, filter,
compute columns, and write Parquet.

    taskset -c 0 env POLARS_MAX_THREADS=1 python -m bench.bench_pipeline            1 million rows
    taskset -c 0 env POLARS_MAX_THREADS=1 python -m bench.bench_pipeline --rows 200000

Figures are input rows per second, the better of two runs each, in this process. All write the same number of
rows. DuckDB and Polars are left out if they are not installed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from bench.results import RESULTS, write_results
from bench.workload import make_overlapping_inputs
from compactor.common.counts import counted
from compactor.files.jsontext import json_lines
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.pipeline_run import PipelineRun

_RUNS: Final = 2
_COLUMNS: Final = ("timestamp", "service", "host", "level", "message")
_LEVELS: Final = ("ERROR", "WARN")


def write_inputs(folder: Path, rows: int) -> None:
    """Writes half of the rows as NDJSON, half as CSV."""
    first, second = make_overlapping_inputs(rows, 2, seed=5)
    for table, name in ((first, "a.ndjson"), (second, "b.csv")):
        plain = table.select(list(_COLUMNS)).cast(
            pa.schema(
                [(n, pa.timestamp("us") if n == "timestamp" else pa.string()) for n in _COLUMNS]
            )
        )
        if name.endswith("csv"):
            pa_csv.write_csv(plain, folder / name)
            continue
        with (folder / name).open("wb") as file:
            for batch in plain.to_batches(max_chunksize=65_536):
                file.write(json_lines(batch))


def ours(folder: Path, out: Path) -> None:
    columns = {"timestamp": "timestamp", "service": "upper(service)", "host": "host", "level": "level",
               "size": "length(message)"}  # fmt: skip
    nodes = {
        "a": {"source": {"path": str(folder / "a.ndjson")}},
        "b": {"source": {"path": str(folder / "b.csv")}},
        "both": {"merge": {"inputs": ["a", "b"], "mode": "interleave"}},
        "bad": {
            "transform": {
                "input": "both",
                "filter": "level IN ('ERROR', 'WARN')",
                "columns": columns,
            }
        },
        "out": {"output": {"input": "bad", "path": str(out)}},
    }
    PipelineRun(parse_pipeline(json.dumps({"nodes": nodes, "batch_size": 65_536}), "bench")).run()


def with_duckdb(folder: Path, out: Path) -> None:
    import duckdb

    chosen = ", ".join(_COLUMNS)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(
            f"COPY (SELECT timestamp, upper(service) AS service, host, level, length(message) AS size FROM ("
            f"SELECT {chosen} FROM read_json('{folder / 'a.ndjson'}') UNION ALL "
            f"SELECT {chosen} FROM read_csv('{folder / 'b.csv'}')) WHERE level IN {_LEVELS}) "
            f"TO '{out}' (FORMAT parquet, COMPRESSION zstd)"
        )


def with_polars(folder: Path, out: Path) -> None:
    import polars as pl

    both = pl.concat(
        [
            pl.scan_ndjson(folder / "a.ndjson").with_columns(pl.col("timestamp").str.to_datetime()),
            pl.scan_csv(folder / "b.csv", try_parse_dates=True),
        ],
        how="vertical_relaxed",
    )
    both.filter(pl.col("level").is_in(list(_LEVELS))).select(
        "timestamp", pl.col("service").str.to_uppercase(), "host", "level",
        pl.col("message").str.len_chars().alias("size"),
    ).sink_parquet(out, compression="zstd")  # fmt: skip


ENGINES: Final[dict[str, Callable[[Path, Path], None]]] = {
    "compactor run": ours,
    "DuckDB": with_duckdb,
    "Polars": with_polars,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--results", type=Path, default=RESULTS / "pipeline.json")
    options = parser.parse_args()
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        write_inputs(folder, options.rows)
        size = sum(path.stat().st_size for path in folder.iterdir())
        for name, run in ENGINES.items():
            best, out = float("inf"), folder / "out.parquet"
            try:
                for _ in range(_RUNS):
                    started = time.perf_counter()
                    run(folder, out)
                    best = min(best, time.perf_counter() - started)
            except ImportError:
                continue
            rows = pq.ParquetFile(out).metadata.num_rows
            cases.append({"engine": name, "seconds": round(best, 3), "rows_out": rows,
                          "rows_per_second": round(options.rows / best)})  # fmt: skip
    print(f"{counted(options.rows, 'row')}, {size / 1e6:.0f} MB of text")
    for case in cases:
        print(
            f"{case['engine']:<14}{case['seconds']:>8.2f} s{case['rows_per_second']:>12,} rows/s"
            f"{case['rows_out']:>12,} rows out"
        )
    write_results(options.results, {"rows": options.rows}, cases)


if __name__ == "__main__":
    main()
