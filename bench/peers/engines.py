"""The engines by name: where they are, what must be installed, what form their inputs have."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FORMS: Final = {
    "fragments": "bench.peers.with_floor:CodecFloor",
    "parquet": "bench.peers.parquet:ParquetPeer",
    "clickhouse": "bench.peers.with_clickhouse:ClickHouseMerge",
    "clickhouse-low-cardinality": "bench.peers.with_clickhouse:ClickHouseLowCardinality",
}
"""Who prepares the inputs in each form. Engines share a form where they can."""

OURS: Final = "ours"
FLOOR: Final = "floor"


@dataclass(frozen=True)
class Engine:
    name: str
    label: str
    target: str
    """Its class, as module:Class."""
    form: str
    family: str
    """Engines of one family are ways of one peer; the better one counts."""
    package: str = "pyarrow"
    """What must be installed."""

    def missing(self) -> str | None:
        """Returns why the engine cannot run here; None if it can."""
        if importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed: pip install 'lsm-compactor[peers,spark]'"
        if self.family == "Spark" and shutil.which("java") is None:
            return "there is no java"
        return None


ENGINES: Final = (
    Engine(FLOOR, "codec floor", "bench.peers.with_floor:CodecFloor", "fragments", FLOOR),
    Engine(OURS, "lsm-compactor", "bench.peers.with_ours:Ours", "fragments", OURS),
    Engine("clickhouse", "ClickHouse", "bench.peers.with_clickhouse:ClickHouseMerge",
           "clickhouse", "ClickHouse", "chdb"),
    Engine("clickhouse-low-cardinality", "ClickHouse, LowCardinality",
           "bench.peers.with_clickhouse:ClickHouseLowCardinality",
           "clickhouse-low-cardinality", "ClickHouse", "chdb"),
    Engine("datafusion", "DataFusion", "bench.peers.with_datafusion:DataFusionMerge",
           "parquet", "DataFusion", "datafusion"),
    Engine("duckdb", "DuckDB", "bench.peers.with_duckdb:DuckDbSort", "parquet", "DuckDB", "duckdb"),
    Engine("polars-sort", "Polars, sort", "bench.peers.with_polars:PolarsSort",
           "parquet", "Polars", "polars"),
    Engine("polars-merge", "Polars, merge_sorted", "bench.peers.with_polars:PolarsMerge",
           "parquet", "Polars", "polars"),
    Engine("pyarrow", "PyArrow", "bench.peers.with_pyarrow:PyArrowSort", "parquet", "PyArrow"),
    Engine("spark", "Spark", "bench.peers.with_spark:SparkSort", "parquet", "Spark", "pyspark"),
)  # fmt: skip


def choose(names: Sequence[str]) -> list[Engine]:
    """Engines by name, or by the name of their family; module:Class is one of your own, on Parquet.

    Raises ValueError for a name that is none of these.
    """
    chosen: list[Engine] = []
    for name in names:
        if ":" in name:
            found = [Engine(name, name.rpartition(":")[2], name, "parquet", name)]
        else:
            found = [e for e in ENGINES if name in (e.name, e.family.lower())]
        if not found:
            known = ", ".join(engine.name for engine in ENGINES)
            raise ValueError(f"no engine {name!r}; there are {known}")
        chosen += [engine for engine in found if engine not in chosen]
    return chosen
