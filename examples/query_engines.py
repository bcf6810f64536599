"""One table, many engines: a scan is an Arrow stream, which any Arrow consumer reads.

python query_engines.py        leaves ./trips and trips.parquet; needs duckdb, polars and pandas
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from compactor import IngestOptions, Table, WriterOptions

try:
    import duckdb
    import pandas  # noqa: F401 - PyArrow makes its frames
    import polars as pl
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install duckdb polars pandas") from None

DAY = datetime(2026, 11, 20, tzinfo=UTC)
ZONES = ["Airport", "Harbour", "Old Town", "Station", "University"]


def trips(rows: int, seed: int) -> pl.DataFrame:
    """Returns random taxi trips of a day."""
    random = np.random.default_rng(seed)
    seconds = np.sort(random.integers(0, 86_400, rows))
    kilometres = random.gamma(2.0, 2.5, rows).round(1)
    tips = pl.Series(random.gamma(2.0, 1.0, rows).round(2))
    return pl.DataFrame(
        {
            "zone": random.choice(ZONES, rows, p=[0.15, 0.1, 0.35, 0.3, 0.1]),
            "pickup": [DAY + timedelta(seconds=int(s)) for s in seconds],
            "km": kilometres,
            "fare": (3.5 + 1.9 * kilometres + random.normal(0, 0.5, rows)).round(2),
            "tip": tips.set(pl.Series(random.random(rows) < 0.4), None),
        }
    )


def main() -> None:
    # Appends Polars frames directly. Small row groups, so that scans have something to skip.
    options = IngestOptions(writer=WriterOptions(max_rows=1_000))
    table = Table.create("trips", trips(20_000, seed=1), "zone,pickup", options)
    table.append(trips(20_000, seed=2), options)

    # DuckDB sees the scan as a table named like its variable. Give columns and conditions to the scan, which
    # prunes by key ranges and statistics, and leave the computation to SQL.
    airport = table.scan(["zone", "pickup", "fare"], where="zone = 'Airport'")
    by_hour = duckdb.execute(
        "SELECT hour(timezone('UTC', pickup)) AS hour, count(*) AS trips, round(avg(fare), 2) AS fare "
        "FROM airport GROUP BY hour ORDER BY trips DESC, hour LIMIT 3"
    )
    print("busiest hours at the airport, by DuckDB:")
    for hour, count, fare in by_hour.fetchall():
        print(f"  {hour:02d}h: {count} trips, {fare:.2f} on average")
    print(f"  {airport.report}")

    # Polars: an eager frame of the requested columns only.
    tips = pl.DataFrame(table.scan(["zone", "fare", "tip"]))
    shares = (
        tips.group_by("zone")
        .agg((pl.col("tip").sum() / pl.col("fare").sum() * 100).round(1).alias("percent"))
        .sort("zone")
    )
    print("tips in percent of fares, by Polars:")
    for zone, percent in shares.iter_rows():
        print(f"  {zone}: {percent}")

    # PyArrow, batch by batch: memory does not grow with the table.
    longest = 0.0
    for batch in pa.RecordBatchReader.from_stream(table.scan(["km"])):
        longest = max(longest, batch["km"].to_numpy().max())
    print(f"longest trip, by PyArrow: {longest} km")

    # pandas, through PyArrow.
    frame = table.scan(["zone", "km"], where="km > 20").to_table().to_pandas()
    print(f"trips over 20 km, by pandas: {len(frame)}, most from {frame['zone'].mode()[0]}")

    # To Parquet, which records the sort order, and back without stating it.
    table.scan().to_file("trips.parquet")
    (count,) = duckdb.execute("SELECT count(*) FROM 'trips.parquet'").fetchall()[0]
    again = Table.create("trips_again", "trips.parquet")
    print(f"trips.parquet: {count:,} rows; a table made of it is sorted by {again.sort_by}")
    assert again.schema == table.schema
    assert len(again) == len(table)


if __name__ == "__main__":
    main()
