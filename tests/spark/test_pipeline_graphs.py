"""Random graphs of pipelines in Spark stages; `python -m tests.generated.graphs --spark 200` runs more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.generated.graphs.spark import check_on
from tests.spark.stand_in import FakeSpark, as_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_graphs_in_stages_give_the_rows_that_duckdb_gives() -> None:
    """A stand-in runs the stages."""
    findings = [
        (seed, fault) for seed in range(10) if (fault := check_on(as_session(FakeSpark()), seed))
    ]
    assert not findings


@pytest.mark.spark
def test_graphs_on_spark_give_the_rows_that_duckdb_gives(spark: SparkSession) -> None:
    findings = [(seed, fault) for seed in range(10, 15) if (fault := check_on(spark, seed))]
    assert not findings
