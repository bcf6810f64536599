"""Creates a bucket and a table of overlapping fragments, for workers to compact.

    python demo_table.py s3://demo/logs

Leaves an existing table alone, so that retries are harmless.
"""

from __future__ import annotations

import sys
from typing import Final

import boto3
import numpy as np
import pyarrow as pa

from compactor import Table
from compactor.errors import TableNotFoundError

FILES: Final = 16
ROWS: Final = 10_000
START: Final = np.datetime64("2026-11-01T00:00:00", "us")


def rows_of(file: int) -> pa.Table:
    """Returns logs of one writer; its times overlap with those of all others."""
    random = np.random.default_rng(file)
    services = np.array(["api", "billing", "search", "web"])
    return pa.table(
        {
            "service": services[random.integers(0, len(services), ROWS)],
            "timestamp": START + random.integers(0, 86_400_000_000, ROWS),
            "status": random.choice([200, 404, 500], ROWS, p=[0.9, 0.08, 0.02]),
        }
    )


def main(url: str) -> None:
    s3 = boto3.client("s3")
    bucket = url.removeprefix("s3://").partition("/")[0]
    if bucket not in {found["Name"] for found in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=bucket)
    try:
        Table.open(url)
    except TableNotFoundError:
        table = Table.create(url, rows_of(0), sort_by="service,timestamp")
        for file in range(1, FILES):
            table.append(rows_of(file))
        print(f"{url}: {FILES * ROWS:,} rows in {FILES} fragments")
    else:
        print(f"{url}: is there already")


if __name__ == "__main__":
    main(sys.argv[1])
