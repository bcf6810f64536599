"""One Spark session for the suite; its workers find the S3 server by the environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from compactor.spark.session import open_session
from tests.support.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(s3_server: S3Server) -> Iterator[SparkSession]:
    session = open_session("local[2]")
    yield session
    session.stop()
