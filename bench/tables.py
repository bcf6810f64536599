"""Creates benchmark tables from overlapping level-0 fragments, and compacts them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from compactor.common.clock import random_id
from compactor.compaction.compaction import Compaction
from compactor.planner.spec import CompactionSpec
from compactor.settings.compaction import CompactionSettings
from compactor.settings.writers import Reaction
from compactor.stores.base import Store
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.write.ingest import IngestOptions, ingest_file
from lsm_fragment.keys.sort_schema import parse_sort_schema

LOG_SORT: Final = "service,host,timestamp"


def write_table(
    folder: Path, tables: Iterable[pa.Table], sort: str, options: IngestOptions | None = None
) -> int:
    """Writes a table in `folder`, ingesting each of `tables` as one file, whatever is left to compact.

    Returns the Arrow size of all rows.
    """
    log = CommitLog(LocalStore(folder))
    file = folder.with_suffix(".arrow")
    size = 0
    for table in tables:
        size += table.nbytes
        ingest_table(log, table, file, sort, options or IngestOptions())
    file.unlink(missing_ok=True)
    return size


def ingest_table(
    log: CommitLog, table: pa.Table, file: Path, sort: str, options: IngestOptions
) -> None:
    """Ingests a table through an Arrow file, whatever is left to compact."""
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=65_536)
    options = replace(options, back_pressure=Reaction.OFF)
    ingest_file(log.store, log, str(file), parse_sort_schema(sort), options)


def compaction_of_all(store: Store, settings: CompactionSettings) -> Compaction:
    """Returns a compaction of all fragments of a table, without a lease."""
    snapshot = CommitLog(store).refresh()
    entries = tuple(sorted(snapshot.fragments.all(), key=lambda entry: entry.age))
    return Compaction(
        compaction_id=random_id(),
        base_version=snapshot.version,
        table_url=store.url,
        metadata=snapshot.table,
        spec=CompactionSpec(inputs=entries, output_level=1),
        settings=settings,
    )
