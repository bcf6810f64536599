"""Runs work as Spark tasks, and reads and writes tables from Spark."""

from typing import TYPE_CHECKING, Any

from compactor.errors import UsageError

if TYPE_CHECKING:
    from compactor.spark.source.source import register as register

__all__ = ["register"]


def __getattr__(name: str) -> Any:
    """Imports `register` on demand: tasks do not need the data source, and other users no PySpark."""
    if name != "register":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from compactor.spark.source.source import register
    except ImportError as error:
        raise UsageError(
            f"the data source fragments needs PySpark 4.1 or newer ({error}): pip install 'pyspark>=4.1'"
        ) from error
    return register
