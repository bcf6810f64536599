"""Claim: Spark reads a table in at most 1.6 times the seconds of Parquet, one column in at most twice as
many, and a value of the key in fewer. Its sources in Python hand over rows, and are not told which columns a
query needs.

    python -m bench.bench_spark_read                      4 million log lines, two cores
    python -m bench.bench_spark_read --rows 100000 --rounds 3

A compacted table beside one Parquet file, zstd 1, in a local folder. Queries:

    column   rows by `level`, of which only that column is read
    key      one service and host, which begin the sort key: counts one column, and takes a maximum
    all      all columns and rows, to Spark's `noop`, which writes nothing
    count    the number of rows

The session is one that a user would open: `local[N]`, defaults, 2 GiB for Java. Both take turns. The first
rounds, in which Java compiles, don't count; of the others the best does. Seconds are from loading to the
result. The figures go to spark-read.json, in the folder that RESULTS names.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bench.bench_memory import logs
from bench.results import RESULTS, write_results
from bench.tables import LOG_SORT, write_table
from compactor import Policy, Strategy, Table
from compactor.spark import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INPUTS: Final = 4
_WARMING: Final = 2
_GROUP_ROWS: Final = 160_000
_KEY: Final = "service = '{}' AND host = '{}'"

Load = Callable[[list[str] | None, str | None], "DataFrame"]
"""Loads the rows. Arguments: columns, condition."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS / "spark-read.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        service, host = write_inputs(Path(work), options.rows)
        spark = _session(options.cores)
        cases = measured(spark, Path(work), _KEY.format(service, host), options.rounds)
        spark.stop()
    print(f"{'query':<10}{'table':>9}{'Parquet':>9}{'ratio':>8}")
    for case in cases:
        ours, parquet = case["seconds"], case["parquet_seconds"]
        print(f"{case['query']:<10}{ours:>8.2f}s{parquet:>8.2f}s{ours / parquet:>8.2f}")
    arguments = {"rows": options.rows, "rounds": options.rounds, "cores": options.cores}
    write_results(options.results, arguments, cases)


def write_inputs(folder: Path, rows: int) -> tuple[str, str]:
    """Writes a table and a Parquet file. Returns a service and a host."""
    tables = list(logs(rows, _INPUTS)())
    write_table(folder / "table", tables, LOG_SORT)
    Table.open(folder / "table").compact(policy=Policy(strategy=Strategy.FULL))
    whole = pa.concat_tables(tables).sort_by([(name, "ascending") for name in LOG_SORT.split(",")])
    pq.write_table(
        whole,
        folder / "rows.parquet",
        compression="zstd",
        compression_level=1,
        row_group_size=_GROUP_ROWS,
    )
    middle = whole.slice(len(whole) // 2, 1)
    return middle["service"][0].as_py(), middle["host"][0].as_py()


def measured(spark: SparkSession, folder: Path, key: str, rounds: int) -> list[dict[str, Any]]:
    """Returns the best seconds of each query on the table and on the Parquet file."""

    def ours(columns: list[str] | None, where: str | None) -> DataFrame:
        return table(spark, folder / "table", columns, where)

    def parquet(columns: list[str] | None, where: str | None) -> DataFrame:
        frame = spark.read.parquet(str(folder / "rows.parquet"))
        frame = frame if where is None else frame.where(where)
        return frame if columns is None else frame.select(columns)

    queries: dict[str, Callable[[Load], Any]] = {
        "column": lambda load: load(["level"], None).groupBy("level").count().collect(),
        "key": lambda load: (
            load(["duration_us", "message"], key)
            .selectExpr("count(message)", "max(duration_us)")
            .collect()
        ),
        "all": lambda load: load(None, None).write.format("noop").mode("overwrite").save(),
        "count": lambda load: load(None, None).count(),
    }
    cases = []
    for query, run in queries.items():
        seconds: list[list[float]] = [[], []]
        for _ in range(_WARMING + rounds):
            found = [
                _timed(run, load, times)
                for load, times in zip((ours, parquet), seconds, strict=True)
            ]
            assert found[0] == found[1], query
        best, other = (min(times[_WARMING:]) for times in seconds)
        cases.append({"query": query, "seconds": best, "parquet_seconds": other})
    return cases


def _timed(run: Callable[[Load], Any], load: Load, times: list[float]) -> Any:
    started = time.perf_counter()
    found = run(load)
    times.append(round(time.perf_counter() - started, 4))
    return sorted(found) if isinstance(found, list) else found


def _session(cores: int) -> SparkSession:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


if __name__ == "__main__":
    main()
