"""Says that Spark starts, since that takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compactor.cli.display import status, terminal
from compactor.cli.output import tell
from compactor.spark.masters import check_installed, is_submitted


@contextmanager
def saying_that_spark_starts(master: str | None) -> Iterator[None]:
    """Shows a line on stderr while the block opens a session, on terminals until that is open.

    Says nothing under spark-submit, whose session has started. Raises `UsageError` without PySpark.
    """
    if is_submitted():
        yield
        return
    check_installed()
    text = f"starting Spark on {master} ..."
    if terminal() is None:
        tell(text)
    with status(text):
        yield
