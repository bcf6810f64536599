"""Writes the rows of a snapshot to one file in sort order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from msgspec.structs import replace

from compactor.files.places import check_local
from compactor.files.write import SinkOptions, open_table_sink
from compactor.predicate.tree import Predicate
from compactor.read.read_reports import ExportReport, ScanReport
from compactor.read.scan import scan
from compactor.read.wanted import scan_schema
from compactor.stores.base import Store
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from lsm_fragment.keys.sort_schema import Order, SortColumn


def export_file(
    store: Store,
    snapshot: Snapshot,
    path: str,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    report: ScanReport | None = None,
    *,
    limit: int | None = None,
    threads: int = 1,
    on_progress: Callable[[int], None] = lambda _rows_read: None,
) -> ExportReport:
    """Writes rows to a file in the format of its suffix. The file appears whole or not at all.

    columns, where, report, limit, threads: see `scan`. on_progress: called with the number of rows read so
    far.
    Raises `UsageError` for an address, and what `scan` and `compactor.files.write.open_table_sink` raise.
    """
    check_local(path)
    schema = scan_schema(snapshot.table, columns)
    report = report or ScanReport()
    arrow_bytes = 0
    options = replace(sink_options(snapshot.table, schema), threads=threads)
    with open_table_sink(path, schema, options) as sink:
        for batch in scan(store, snapshot, columns, where, report, limit=limit, threads=threads):
            sink.write(batch)
            arrow_bytes += batch.nbytes
            on_progress(report.rows_read)
    return ExportReport(path, snapshot.version, report.rows, arrow_bytes)


def sink_options(table: TableMetadata, schema: pa.Schema) -> SinkOptions:
    """Returns options with the longest prefix of the sort schema that is exported."""
    kept: list[SortColumn] = []
    for column in table.sort:
        name = table.shown_name(column.column)
        if column.order is Order.NONE or name not in schema.names:
            break
        kept.append(replace(column, column=name))
    return SinkOptions(sort=tuple(kept) or None)
