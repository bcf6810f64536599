"""Work as Spark tasks, and tables in Spark."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compactor.spark.data_source import register as register

__all__ = ["register"]


def __getattr__(name: str) -> Any:
    """`register`, imported when it is asked for: tasks need no data source, and other users no PySpark."""
    if name == "register":
        from compactor.spark.data_source import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
