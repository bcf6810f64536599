"""ministack, an S3 server that is not moto, which deploy/setup/ministack.sh installs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import boto3

from tests.support.emulators import emulator

INSTALLED: Final = Path(__file__).parents[2] / ".venv/ministack"


@contextmanager
def ministack() -> Iterator[str]:
    """Yields the endpoint of an S3 without buckets, in memory."""

    def environment(port: str) -> dict[str, str]:
        served = {"GATEWAY_PORT": port, "BIND_HOST": "127.0.0.1", "SERVICES": "s3"}
        return {**served, "PYTHONPATH": str(INSTALLED)}

    program = "from ministack.app import main; main()"
    with emulator(lambda _port: [sys.executable, "-c", program], environment) as endpoint:
        yield endpoint


def create_bucket(endpoint: str, name: str) -> str:
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
    return name
