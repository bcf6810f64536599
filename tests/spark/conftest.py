"""One Spark session for the suite; its workers find the S3 server by the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compactor.spark.session import open_session
from tests.support.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(s3_server: S3Server) -> SparkSession:
    """The session that is open in this process, or a new one; it ends with the process."""
    return open_session("local[2]")
