"""Checks the names of Spark masters, and whether spark-submit chose one."""

from __future__ import annotations

import os
import re
from typing import Final

from compactor.errors import UsageError

_MASTER: Final = re.compile(
    r"local(\[([1-9]\d*|\*)(\s*,\s*[1-9]\d*)?\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+"
)


def is_submitted() -> bool:
    """Returns whether spark-submit started this process and chose master and settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def check_master(master: str | None) -> None:
    """Raises `UsageError` for a master unknown to Spark."""
    if master is not None and not _MASTER.fullmatch(master):
        raise UsageError(
            f"--master {master}: not a Spark master; use local[2], local[*], yarn, "
            "spark://host:port or k8s://https://host:port"
        )
