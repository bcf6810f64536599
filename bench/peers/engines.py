"""The engines by name: their modules, required packages, measures and formats."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from bench.peers.contract import Measure

OURS: Final = "ours"
FLOOR: Final = "floor"
_SCANS: Final = (Measure.SCAN_ALL, Measure.SCAN_STRING, Measure.SCAN_NUMBERS)


class Engine(Struct, frozen=True, kw_only=True):
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
_TEXTS: Final = {"csv": Measure.INGEST_CSV, "ndjson": Measure.INGEST_NDJSON}
SOURCES: Final = "parquet"
"""The format of engines that read the sources directly."""
PREPARED_BY: Final = {
    "fragments": "bench.peers.with_floor:CodecFloor",
    "clickhouse": "bench.peers.with_clickhouse:ClickHouseMerge",
    "clickhouse-low-cardinality": "bench.peers.with_clickhouse:ClickHouseLowCardinality",
    "csv": "bench.peers.texts:CsvSources",
    "ndjson": "bench.peers.texts:NdjsonSources",
    "sorted-run": "bench.peers.with_ours:OursScan",
    "sorted-parquet": "bench.peers.with_pyarrow:PyArrowScan",
    "sorted-vortex": "bench.peers.with_vortex:VortexScan",
    "sorted-vortex-compact": "bench.peers.with_vortex:VortexCompactScan",
}
"""The engine that prepares each format except the sources'."""
ENGINES: Final = (
    Engine(
        name=FLOOR,
        label="codec floor",
        target="bench.peers.with_floor:CodecFloor",
        form="fragments",
        family=FLOOR,
    ),
    Engine(
        name=OURS,
        label="lsm-compactor",
        target="bench.peers.with_ours:Ours",
        form="fragments",
        family=OURS,
    ),
    Engine(
        name=OURS,
        label="lsm-compactor",
        target="bench.peers.with_ours:OursIngest",
        form=SOURCES,
        family=OURS,
        measures=_INGEST,
    ),
    Engine(
        name=OURS,
        label="lsm-compactor",
        target="bench.peers.with_ours:OursScan",
        form="sorted-run",
        family=OURS,
        measures=_SCANS,
    ),
    Engine(
        name="clickhouse",
        label="ClickHouse",
        target="bench.peers.with_clickhouse:ClickHouseMerge",
        form="clickhouse",
        family="ClickHouse",
        package="chdb",
    ),
    Engine(
        name="clickhouse",
        label="ClickHouse",
        target="bench.peers.with_clickhouse:ClickHouseIngest",
        form=SOURCES,
        family="ClickHouse",
        package="chdb",
        measures=_INGEST,
    ),
    Engine(
        name="clickhouse-low-cardinality",
        label="ClickHouse, LowCardinality",
        target="bench.peers.with_clickhouse:ClickHouseLowCardinality",
        form="clickhouse-low-cardinality",
        family="ClickHouse",
        package="chdb",
    ),
    Engine(
        name="datafusion",
        label="DataFusion",
        target="bench.peers.with_datafusion:DataFusionMerge",
        form=SOURCES,
        family="DataFusion",
        package="datafusion",
    ),
    Engine(
        name="duckdb",
        label="DuckDB",
        target="bench.peers.with_duckdb:DuckDbSort",
        form=SOURCES,
        family="DuckDB",
        package="duckdb",
    ),
    Engine(
        name="polars-sort",
        label="Polars, sort",
        target="bench.peers.with_polars:PolarsSort",
        form=SOURCES,
        family="Polars",
        package="polars",
    ),
    Engine(
        name="polars-sort",
        label="Polars, sort",
        target="bench.peers.with_polars:PolarsIngest",
        form=SOURCES,
        family="Polars",
        package="polars",
        measures=_INGEST,
    ),
    Engine(
        name="polars-merge",
        label="Polars, merge_sorted",
        target="bench.peers.with_polars:PolarsMerge",
        form=SOURCES,
        family="Polars",
        package="polars",
    ),
    Engine(
        name="pyarrow",
        label="PyArrow",
        target="bench.peers.with_pyarrow:PyArrowSort",
        form=SOURCES,
        family="PyArrow",
    ),
    Engine(
        name="pyarrow",
        label="PyArrow, Parquet",
        target="bench.peers.with_pyarrow:PyArrowScan",
        form="sorted-parquet",
        family="PyArrow",
        measures=_SCANS,
    ),
    Engine(
        name="vortex",
        label="Vortex",
        target="bench.peers.with_vortex:VortexScan",
        form="sorted-vortex",
        family="Vortex",
        package="vortex",
        measures=_SCANS,
    ),
    Engine(
        name="vortex-compact",
        label="Vortex, compact",
        target="bench.peers.with_vortex:VortexCompactScan",
        form="sorted-vortex-compact",
        family="Vortex, compact",
        package="vortex",
        measures=_SCANS,
    ),
    Engine(
        name="spark",
        label="Spark",
        target="bench.peers.with_spark:SparkSort",
        form=SOURCES,
        family="Spark",
        package="pyspark",
    ),
    *(
        Engine(
            name=name,
            label=label,
            target=target,
            form=form,
            family=family,
            package=package,
            measures=(measure,),
        )
        for form, measure in _TEXTS.items()
        for name, label, target, family, package in (
            (OURS, "lsm-compactor", "bench.peers.with_ours:OursTextIngest", OURS, "pyarrow"),
            ("duckdb", "DuckDB", "bench.peers.with_duckdb:DuckDbTextIngest", "DuckDB", "duckdb"),
            (
                "polars-sort",
                "Polars, sort",
                "bench.peers.with_polars:PolarsTextIngest",
                "Polars",
                "polars",
            ),
        )
    ),
)


def choose(names: Sequence[str]) -> list[Engine]:
    """Returns engines by name or family; module:Class is a custom merger, on Parquet.

    Raises ValueError for an unknown name.
    """
    chosen: list[Engine] = []
    for name in names:
        if ":" in name:
            found = [
                Engine(
                    name=name, label=name.rpartition(":")[2], target=name, form=SOURCES, family=name
                )
            ]
        else:
            found = [e for e in ENGINES if name in (e.name, e.family.lower())]
        if not found:
            known = ", ".join(dict.fromkeys(engine.name for engine in ENGINES))
            raise ValueError(f"there is no engine {name!r}; there are {known}")
        chosen += [engine for engine in found if engine not in chosen]
    return chosen
