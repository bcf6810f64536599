"""Claim: a LIKE that few templates match takes a fraction of the CPU of decoding all messages.

    python -m bench.bench_templates --lines /path/to/loghub          1,000,000 rows of real log lines
    python -m bench.bench_templates --lines /path/to/loghub --rows 200000 --runs 3

Rows are those of `bench/real_logs.py`, sorted by service, host and timestamp: in a table that was compacted
to one fragment, and in a Parquet file with row groups of as many rows, both with zstd at level 3. Each count
and reading is taken `--runs` times with one thread; the least CPU seconds of the process count. Counts have
to agree.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import duckdb
import pyarrow.parquet as pq

from bench.real_logs import read_lines, real_log_rows
from bench.tables import LOG_SORT, write_table
from compactor import CompactionSettings, Policy, Strategy, Table

_INPUTS: Final = 4
_ROW_GROUP_ROWS: Final = 131_072
_LEVEL: Final = 3
_PATTERNS: Final = (
    "%no such words%",
    "%authentication failure%",
    "%Exception%",
    "%mod_jk child workerEnv%",
    "%blk_-12%",
    "%10.251.%",
)
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lines", type=Path, required=True, help="folder of .log files")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table, parquet = _write(Path(folder), args.lines, args.rows)
        _compare(table, parquet, args.runs)


def _write(folder: Path, lines: Path, rows: int) -> tuple[Table, Path]:
    """Writes the rows to a compacted table and to a Parquet file."""
    logs = read_lines(lines)
    made = real_log_rows(logs, rows, _INPUTS, has_disjoint_times=False, seed=1)
    write_table(folder / "table", made, LOG_SORT)
    table = Table.open(folder / "table")
    settings = CompactionSettings(compression_level=_LEVEL)
    table.compact(policy=Policy(strategy=Strategy.FULL), settings=settings)
    path = folder / "rows.parquet"
    with pq.ParquetWriter(
        path, table.schema, compression="zstd", compression_level=_LEVEL
    ) as writer:
        writer.write_table(table.scan().to_table(), row_group_size=_ROW_GROUP_ROWS)
    return table, path


def _compare(table: Table, parquet: Path, runs: int) -> None:
    everything, read = _cpu(partial(_messages, table, None), runs)
    print(f"all messages decoded: {1000 * everything:.1f} ms, {read / 1e6:.1f} MB")
    print(
        f"{'pattern':28} {'rows':>9} {'count':>9} {'of all':>7} {'messages':>9} {'DuckDB':>9}  ms of CPU"
    )
    with duckdb.connect() as database:
        database.execute("SET threads = 1")
        for pattern in _PATTERNS:
            where = f"message LIKE '{pattern}'"
            count, rows = _cpu(partial(_count, table, where), runs)
            some, _ = _cpu(partial(_messages, table, where), runs)
            query = f"SELECT count(*) FROM '{parquet}' WHERE {where}"
            peer, found = _cpu(partial(_rows_of, database, query), runs)
            if found != [(rows,)]:
                raise AssertionError(f"{pattern}: {rows:,} rows here, {found} in DuckDB")
            ms = [f"{1000 * seconds:9.1f}" for seconds in (count, some, peer)]
            print(f"{pattern:28} {rows:9,} {ms[0]} {everything / count:6.1f}x {ms[1]} {ms[2]}")


def _count(table: Table, where: str) -> int:
    return sum(batch.num_rows for batch in table.scan([], where, threads=1))


def _messages(table: Table, where: str | None) -> int:
    """Returns the bytes of the messages."""
    return sum(batch.nbytes for batch in table.scan(["message"], where, threads=1))


def _rows_of(database: duckdb.DuckDBPyConnection, query: str) -> list[tuple[int]]:
    return database.execute(query).fetchall()


def _cpu(work: Callable[[], T], runs: int) -> tuple[float, T]:
    """Returns the least CPU seconds of several runs, and what the last one gave."""
    best = float("inf")
    for _ in range(runs):
        before = time.process_time()
        result = work()
        best = min(best, time.process_time() - before)
    return best, result


if __name__ == "__main__":
    main()
