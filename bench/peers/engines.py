"""The engines by name: their modules, required packages, measures and formats."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.peers.contract import Measure

OURS: Final = "ours"
FLOOR: Final = "floor"
_SCANS: Final = (Measure.SCAN_ALL, Measure.SCAN_STRING, Measure.SCAN_NUMBERS)


@dataclass(frozen=True)
class Engine:
    name: str
    label: str
    target: str
    """The engine's class, as module:Class."""
    form: str
    """The input format. Engines with the same format use the same prepared inputs."""
    family: str
    """Engines of one family are variants of one peer; the better one counts."""
    package: str = "pyarrow"
    """The required package."""
    measures: Sequence[Measure] = (Measure.MERGE,)

    def missing(self) -> str | None:
        """Returns why the engine cannot run here; None if it can."""
        if importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed: pip install 'lsm-compactor[peers,spark]'"
        if self.family == "Spark" and shutil.which("java") is None:
            return "there is no java"
        return None


_INGEST: Final = (Measure.INGEST,)
SOURCES: Final = "parquet"
"""The format of engines that read the sources directly."""
PREPARED_BY: Final = {
    "fragments": "bench.peers.with_floor:CodecFloor",
    "clickhouse": "bench.peers.with_clickhouse:ClickHouseMerge",
    "clickhouse-low-cardinality": "bench.peers.with_clickhouse:ClickHouseLowCardinality",
    "sorted-run": "bench.peers.with_ours:OursScan",
    "sorted-parquet": "bench.peers.with_pyarrow:PyArrowScan",
    "sorted-vortex": "bench.peers.with_vortex:VortexScan",
    "sorted-vortex-compact": "bench.peers.with_vortex:VortexCompactScan",
}
"""The engine that prepares each format except the sources'."""
ENGINES: Final = (
    Engine(FLOOR, "codec floor", "bench.peers.with_floor:CodecFloor", "fragments", FLOOR),
    Engine(OURS, "lsm-compactor", "bench.peers.with_ours:Ours", "fragments", OURS),
    Engine(OURS, "lsm-compactor", "bench.peers.with_ours:OursIngest", SOURCES, OURS, measures=_INGEST),
    Engine(OURS, "lsm-compactor", "bench.peers.with_ours:OursScan", "sorted-run", OURS, measures=_SCANS),
    Engine("clickhouse", "ClickHouse", "bench.peers.with_clickhouse:ClickHouseMerge",
           "clickhouse", "ClickHouse", "chdb"),
    Engine("clickhouse", "ClickHouse", "bench.peers.with_clickhouse:ClickHouseIngest",
           SOURCES, "ClickHouse", "chdb", _INGEST),
    Engine("clickhouse-low-cardinality", "ClickHouse, LowCardinality",
           "bench.peers.with_clickhouse:ClickHouseLowCardinality",
           "clickhouse-low-cardinality", "ClickHouse", "chdb"),
    Engine("datafusion", "DataFusion", "bench.peers.with_datafusion:DataFusionMerge",
           SOURCES, "DataFusion", "datafusion"),
    Engine("duckdb", "DuckDB", "bench.peers.with_duckdb:DuckDbSort", SOURCES, "DuckDB", "duckdb"),
    Engine("polars-sort", "Polars, sort", "bench.peers.with_polars:PolarsSort",
           SOURCES, "Polars", "polars"),
    Engine("polars-sort", "Polars, sort", "bench.peers.with_polars:PolarsIngest",
           SOURCES, "Polars", "polars", _INGEST),
    Engine("polars-merge", "Polars, merge_sorted", "bench.peers.with_polars:PolarsMerge",
           SOURCES, "Polars", "polars"),
    Engine("pyarrow", "PyArrow", "bench.peers.with_pyarrow:PyArrowSort", SOURCES, "PyArrow"),
    Engine("pyarrow", "PyArrow, Parquet", "bench.peers.with_pyarrow:PyArrowScan", "sorted-parquet",
           "PyArrow", measures=_SCANS),
    Engine("vortex", "Vortex", "bench.peers.with_vortex:VortexScan", "sorted-vortex",
           "Vortex", "vortex", _SCANS),
    Engine("vortex-compact", "Vortex, compact", "bench.peers.with_vortex:VortexCompactScan",
           "sorted-vortex-compact", "Vortex, compact", "vortex", _SCANS),
    Engine("spark", "Spark", "bench.peers.with_spark:SparkSort", SOURCES, "Spark", "pyspark"),
)  # fmt: skip


def choose(names: Sequence[str]) -> list[Engine]:
    """Returns engines by name or family; module:Class is a custom merger, on Parquet.

    Raises ValueError for an unknown name.
    """
    chosen: list[Engine] = []
    for name in names:
        if ":" in name:
            found = [Engine(name, name.rpartition(":")[2], name, SOURCES, name)]
        else:
            found = [e for e in ENGINES if name in (e.name, e.family.lower())]
        if not found:
            known = ", ".join(dict.fromkeys(engine.name for engine in ENGINES))
            raise ValueError(f"there is no engine {name!r}; there are {known}")
        chosen += [engine for engine in found if engine not in chosen]
    return chosen
