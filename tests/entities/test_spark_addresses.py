"""Staging has an address that Spark's file systems read."""

from __future__ import annotations

import pytest

from compactor.entities.spark_labels import spark_url
from compactor.errors import UsageError
from tests.support.wording import refuses


@pytest.mark.parametrize(
    ("url", "for_spark"),
    [
        ("/data/staging", "/data/staging"),
        ("s3://bucket/staging", "s3a://bucket/staging"),
        ("gs://bucket/staging", "gs://bucket/staging"),
        (
            "abfss://container@account.dfs.core.windows.net/staging",
            "abfss://container@account.dfs.core.windows.net/staging",
        ),
    ],
)
def test_an_address_is_that_of_sparks_file_system(url: str, for_spark: str) -> None:
    assert spark_url(url) == for_spark


def test_an_address_without_a_file_system_of_spark_is_refused() -> None:
    with refuses(UsageError, "abfss://"):
        spark_url("az://container/staging")
