"""Spark: compactions as tasks, tables as the data source `fragments`, and shuffles for pipelines and
entities.

`session` opens or adopts a session; `engine` is the `Engine` that runs each compaction as one task. `source`
reads and writes tables from DataFrames; `register` adds it to a session, and `table` loads a table. `shuffle`
runs jobs whose tasks exchange rows in packets: a flow sends a job's feed to the tasks of a later job, divided
by key range, key hash or number. Only this room, and the Spark stages of pipelines and entities, import
PySpark.
"""

from typing import TYPE_CHECKING, Any

from compactor.errors import UsageError

if TYPE_CHECKING:
    from compactor.spark.source.source import register as register
    from compactor.spark.tables import table as table

__all__ = ["register", "table"]


def __getattr__(name: str) -> Any:
    """Imports them on demand: tasks do without the data source, other users without PySpark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from compactor.spark.source.source import register
        from compactor.spark.tables import table
    except ImportError as error:
        raise UsageError(
            f"the data source fragments needs PySpark 4.1 or newer ({error}): pip install 'pyspark>=4.1'"
        ) from error
    return {"register": register, "table": table}[name]


def __dir__() -> list[str]:
    return list(__all__)
