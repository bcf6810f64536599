"""Checks the names of Spark masters, whether spark-submit chose one, and what Spark lacks here."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path
from typing import Final

from compactor.errors import UsageError
from compactor.resources.packages import Extra, required

_MASTER: Final = re.compile(
    r"local(\[([1-9]\d*|\*)(\s*,\s*[1-9]\d*)?\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+"
)


def is_submitted() -> bool:
    """Returns whether spark-submit started this process and chose master and settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_local(master: str | None) -> bool:
    """Returns whether Spark's driver and all tasks run on this machine."""
    return master is not None and master.startswith("local")


def lacking() -> str | None:
    """Returns why Spark can't start on this machine, as far as can be seen at once; None if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed"
    home = os.environ.get("JAVA_HOME")
    if not (Path(home, "bin", "java").exists() if home else shutil.which("java")):
        return "there is no Java"
    return None


def check_installed() -> None:
    """Raises `UsageError` without PySpark."""
    with required(Extra.SPARK, "Spark", ", or run without it by --master in-process"):
        import pyspark  # noqa: F401 - imported here, since it is an extra


def check_master(master: str | None) -> None:
    """Raises `UsageError` for a master unknown to Spark."""
    if master is not None and not _MASTER.fullmatch(master):
        raise UsageError(
            f"--master {master}: not a Spark master; use local[2], local[*], yarn, "
            "spark://host:port or k8s://https://host:port"
        )
