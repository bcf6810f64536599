"""Merges many small fragments in Spark tasks: one task per compaction, without a shuffle.

    python compact_on_spark.py        leaves ./clicks; needs lsm-compactor[spark] and Java 17

From a shell: `compactor compact ./clicks --master 'local[2]'`, or deploy/spark-submit/submit.sh on a cluster.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from compactor import Policy, Strategy, Table

try:
    import pandas  # noqa: F401 - PySpark's tasks need it
    from pyspark.sql import SparkSession

    from compactor.spark import register
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"{missing.name} is not installed: pip install 'lsm-compactor[spark]'"
    ) from None

if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
    raise SystemExit("there is no Java: install 17 or newer, such as openjdk-17-jre-headless")


def clicks(seed: int, rows: int = 2_000) -> pa.Table:
    """Returns clicks of a few minutes. Users return, so the key ranges of all batches overlap."""
    random = np.random.default_rng(seed)
    times = random.integers(seed * 10**6, (seed + 2) * 10**6, rows)
    return pa.table(
        {
            "user": random.integers(0, 500, rows),
            "at": pa.array(times, pa.timestamp("ms", "UTC")),
            "page": random.choice(
                ["/", "/search", "/cart", "/pay"], rows, p=[0.4, 0.4, 0.15, 0.05]
            ),
        }
    )


def main() -> None:
    table = Table.create("clicks", clicks(0), sort_by="user,at")
    for seed in range(1, 12):
        table.append(clicks(seed))
    print(f"fragments before: {len(table.fragments())}")

    # Make Spark's workers use this Python, which has the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    try:
        # The driver decides and commits; tasks merge. Retried and speculative tasks are harmless.
        report = table.compact(policy=Policy(strategy=Strategy.OVERLAPPING), spark=spark)
        print(f"fragments after: {len(table.fragments())}, tasks: {len(report.done)}")

        # The table as a data source. What `columns` and `where` leave out is not read; Spark's own
        # conditions are applied after reading (docs/how-to/spark.md says why).
        register(spark)
        frame = (
            spark.read.format("fragments")
            .option("columns", "user,page")
            .option("where", "page IN ('/cart', '/pay')")
            .load(str(Path("clicks").resolve()))
        )
        for row in frame.groupBy("page").count().orderBy("page").collect():
            print(f"  {row['page']}: {row['count']}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
