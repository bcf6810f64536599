"""Spark reads a published folder of Parquet files. For Delta and Iceberg it needs packages of Maven."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from compactor.lakes.lake import LakeKind
from tests.read.test_changes import FULL, created
from tests.support.lakes import Copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_reads_the_folder_row_for_row(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "k": [3, 1, 2],
            "name": ["c", None, "ä"],
            "at": pa.array([1, 2, None], pa.timestamp("us", "UTC")),
            "tags": [["x"], [], None],
        }
    )
    table = created(rows)
    table.append(pa.table({"k": [7, 8]}))
    table.compact(policy=FULL)
    table.delete("k = 8")
    Copy(table._log, tmp_path / "copy", LakeKind.PARQUET).publish()
    found = spark.read.parquet(str(tmp_path / "copy")).orderBy("k")
    assert found.columns == ["k", "name", "at", "tags"]
    read = [
        (row.k, row["name"], row.us, row.tags)
        for row in found.selectExpr("k", "name", "unix_micros(at) AS us", "tags").collect()
    ]
    assert read == [
        (1, None, 2, []),
        (2, "ä", None, None),
        (3, "c", 1, ["x"]),
        (7, None, None, None),
    ]
