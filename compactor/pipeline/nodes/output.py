"""Rows to a file, or to a table. A file appears whole or not at all, when all outputs are written."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa

from compactor.files.names import FileFormat, kind_of
from compactor.files.source import FileBatches
from compactor.files.write import check_sink_path, open_table_sink
from compactor.ingest import IngestOptions, ingest_batches
from compactor.pipeline.binding import UnserializableMapValue, has_map, sort_schema
from compactor.pipeline.channel import Stopped
from compactor.pipeline.classify import is_live
from compactor.pipeline.config import Aggregate, Combine, Output, Source, inputs_of
from compactor.pipeline.provenance import Batches
from compactor.pipeline.report import Counted, OutputReport
from compactor.pipeline.work import Work
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog

HANDOFF_RECORDS: Final = 256
"""That wait between a merge and the writer of a live output."""


def check(node: Output, schema: pa.Schema, what: str) -> None:
    if node.sort_by is not None:
        sort_schema(node.sort_by, schema, what)
    if node.path is not None:
        check_sink_path(node.path)
        kind = kind_of(node.path)
        if kind is not None and kind.format in (FileFormat.CSV, FileFormat.XML):
            for column in schema:
                if has_map(column.type):
                    raise UnserializableMapValue(kind.format.value.lower(), column.name)


def write(work: Work, name: str, node: Output, stack: ExitStack) -> None:
    """stack: a file takes its place when this closes without an error."""
    report = work.report.outputs[name] = OutputReport(live=is_live(name, work.nodes)[0])
    counted = Counted(report, may_repeat=_may_repeat(work, name))
    schema = work.schemas[node.input]
    batches = work.stream(node.input)
    if node.table is not None:
        store = open_store(node.table)
        log = CommitLog(store)
        what = f"node {name!r}"
        sort = None if node.sort_by is None else sort_schema(node.sort_by, schema, what)
        table_rows = _TableRows(name, schema, counted.shown(batches))
        with work.clock.on(name):
            ingest_batches(store, log, log.refresh(), table_rows, sort, IngestOptions())
        return
    assert node.path is not None
    sink = stack.enter_context(open_table_sink(node.path, schema))
    if report.live:
        _write_live(work, name, batches, sink, counted)
    else:
        for batch in counted.shown(batches):
            with work.clock.on(name):
                sink.write(batch)


def _write_live(work: Work, name: str, batches: Batches, sink: Any, counted: Counted) -> None:
    handoff = work.channel(HANDOFF_RECORDS, name)
    failed: list[BaseException] = []

    def write() -> None:
        try:
            while (batch := handoff.take()) is not None:
                with work.clock.on(name):
                    sink.write(counted.one(batch))
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            failed.append(error)
            handoff.stop()

    writer = threading.Thread(target=write, name=f"write {name}", daemon=True)
    writer.start()
    try:
        for batch in batches:
            handoff.put(batch)
        handoff.close()
    except Stopped:
        pass
    except BaseException:
        handoff.stop()
        handoff.close()
        raise
    finally:
        writer.join()
    if failed:
        raise failed[0]


def _may_repeat(work: Work, output: str) -> bool:
    """Whether a row may reach it on several ways."""

    def ways(edge: str) -> dict[str, int]:
        name = edge.split(".")[0]
        node = work.nodes[name]
        if isinstance(node, (Source, Aggregate, Combine)):
            return {name: 1}
        found: dict[str, int] = {}
        for i in inputs_of(node):
            for source, count in ways(i).items():
                found[source] = found.get(source, 0) + count
        return found

    return any(count > 1 for count in ways(inputs_of(work.nodes[output])[0]).values())


class _TableRows(FileBatches):
    """Rows of a node, as a file that is ingested."""

    def __init__(self, name: str, schema: pa.Schema, batches: Batches) -> None:
        self.path = f"node {name!r}"
        self.schema = schema
        self.bytes_total = 0
        self._rows = batches

    @property
    def bytes_consumed(self) -> int:
        return 0

    def close(self) -> None:
        return

    def _batches(self) -> Batches:
        return self._rows

    def __iter__(self) -> Batches:
        return self._rows
