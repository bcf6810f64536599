"""Starts Spark, and says so, since that takes seconds."""

from __future__ import annotations

from typing import Any

from compactor.cli.display import status, terminal
from compactor.cli.output import tell
from compactor.spark.masters import check_installed, is_submitted
from compactor.spark.session import open_session


def start_spark(master: str | None) -> Any:
    """Opens a `SparkSession`, and shows a line on stderr meanwhile, on terminals until it is open.

    Says nothing under spark-submit, whose session has started. Raises what `open_session` raises.
    """
    if is_submitted():
        return open_session(master)
    check_installed()  # before a start is said that can't be
    text = f"starting Spark on {master} ..."
    if terminal() is None:
        tell(text)
    with status(text):
        return open_session(master)
