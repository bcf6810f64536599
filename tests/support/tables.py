"""Tables for tests: rows, files of them, and what the table says afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from compactor.api.table import Table
from compactor.common.clock import Clock
from compactor.compaction.attempt import run_compaction
from compactor.compaction.compact_report import CompactReport
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.engine import Engine, InProcessEngine
from compactor.compaction.worker import compact
from compactor.files.stream import StreamBatches
from compactor.read.scan import scan
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.object_names import parse_version
from compactor.write.ingest import IngestOptions, ingest_batches, ingest_file
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.sort_schema import SortSchema
from tests.faults import calls
from tests.support.fragments import sort_schema

SORT = sort_schema("service,ts:desc")
COMMITS = calls("create", where=lambda call: parse_version(call.key) is not None)


def log_rows(rows: int, seed: int) -> pa.Table:
    """Makes rows whose keys collide often, within a table and between seeds."""
    rng = np.random.default_rng(seed)
    services = [f"service-{n}" for n in rng.integers(0, 4, rows)]
    return pa.table(
        {
            "service": pa.array(services, mask=rng.random(rows) < 0.05),
            "ts": pa.array(rng.integers(0, 50, rows), pa.timestamp("ms", "UTC")),
            "id": pa.array([f"{seed}-{n}" for n in range(rows)]),
            "value": pa.array(rng.random(rows), mask=rng.random(rows) < 0.3),
        }
    )


def ingest_tables(
    store: Store,
    tables: Sequence[pa.Table],
    folder: Path,
    *,
    sort: SortSchema = SORT,
    rows_per_fragment: int = 1_000_000,
    max_rows: int = 64,
) -> CommitLog:
    """Ingests each table as one file and one commit."""
    log = CommitLog(store)
    options = IngestOptions(rows_per_fragment=rows_per_fragment, writer=WriterOptions(max_rows))
    for index, table in enumerate(tables):
        path = folder / f"in-{index}.parquet"
        pq.write_table(table, path)
        ingest_file(store, log, str(path), sort, options)
    return log


def append_table(
    store: Store,
    table: pa.Table,
    sort_by: str | None,
    options: IngestOptions | None = None,
    *,
    max_rows: int = 64,
) -> CommitLog:
    """Appends rows in memory as one commit. Returns the log, which knows of it."""
    log = CommitLog(store)
    sort = None if sort_by is None else sort_schema(sort_by)
    options = options or IngestOptions()
    with StreamBatches(table, 1 << 20) as batches:
        ingest_batches(
            store,
            log,
            log.refresh(),
            batches,
            sort,
            replace(options, writer=WriterOptions(max_rows)),
        )
    return log


def open_table(store: Store, clock: Clock | None = None) -> Table:
    log = CommitLog(store, clock)
    return Table(log, log.refresh())


def keys_in(table: Table, **options: Any) -> list[int]:
    keys: list[int] = table.scan(["k"], **options).to_table()["k"].to_pylist()
    return keys


def table_rows(store: Store) -> list[dict[str, Any]]:
    """Reads all rows in sort order, as a fresh reader sees them."""
    snapshot = CommitLog(store).current()
    return [row for batch in scan(store, snapshot) for row in batch.to_pylist()]


def compact_table(
    store: Store,
    settings: CompactionSettings | None = None,
    *,
    strategy: Strategy = Strategy.OVERLAPPING,
    engine: Engine | None = None,
    **options: Any,
) -> CompactReport:
    """Compacts until nothing is due, in this process unless an engine is given."""
    chosen = DriverSettings(
        policy=options.pop("policy", Policy(strategy=strategy)),
        compaction=settings or CompactionSettings(),
        **{"gives_up": True, "retry_seconds": 0.001, **options},
    )
    engine = engine or InProcessEngine(lambda compaction: run_compaction(compaction, store))
    return compact(Driver(CommitLog(store), chosen), engine)
