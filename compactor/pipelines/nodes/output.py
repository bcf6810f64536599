"""Writes rows to files or a table. Files appear whole or not at all, once all outputs are written."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.common import interrupts
from compactor.common.threads import started
from compactor.errors import ConfigError, InputError
from compactor.files.names import PARQUET, WITHOUT_MAPS, FileFormat
from compactor.files.places import addresses_of
from compactor.files.sinks import ROW_GROUP_BYTES
from compactor.files.staging import Staging
from compactor.files.write import SinkOptions, StagedSink, check_columns, check_sink_path
from compactor.pipelines.binding import (
    WIDENED,
    UnserializableMapValue,
    checked_order,
    sort_schema,
    unknown_kind,
)
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.channel import Stopped
from compactor.pipelines.classify import is_live
from compactor.pipelines.config import Aggregate, Combine, Node, Output, Source, inputs_of
from compactor.pipelines.database import GIVEN, Rows
from compactor.pipelines.provenance import GROUP, Batches, boundary_of
from compactor.pipelines.run_report import Counted, OutputReport
from compactor.pipelines.work import RunContext
from compactor.pipelines.writers import BesideWriter, Writer, writer_of
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.types import contains
from lsm_fragment.keys.sort_schema import SortColumn, SortSchema
from lsm_fragment.names import names_text

if TYPE_CHECKING:
    from compactor.pipelines.nodes.table_output import StagedFragments

HANDOFF_RECORDS: Final = 256
"""Maximum records queued between a merge and the writer of a live output."""
_MEMORY_DIVISOR: Final = 8
_MAX_PART_BYTES: Final = 256 << 20
_SORT_COPIES: Final = 3
"""Copies of rows while they are sorted into a fragment: as they came, concatenated, sorted."""


def check(node: Output, schema: pa.Schema, what: str) -> None:
    """Checks that an output can write these rows. Raises `CompactorError`."""
    written = written_schema(node, schema)
    if node.sort_by is not None:
        sort_schema(node.sort_by, written, what)
    if node.split is not None and node.split.by is not None:
        if node.split.by not in written.names:
            there = names_text(written.names)
            raise ConfigError(f"{what}: split: no column {node.split.by!r}; columns are: {there}")
        checked_order((SortColumn(node.split.by),), written, f"{what}: split")
    kind = node.kind
    if node.path is not None:
        if kind is None:
            raise unknown_kind(node.path, what)
        check_sink_path(node.path, node.layout, node.format)
    if kind is not None and kind.format in WITHOUT_MAPS:
        for column in written:
            if contains(column.type, pt.is_map):
                raise UnserializableMapValue(kind.format.value.lower(), column.name, what)
    if WIDENED in written.names and (kind is None or kind.format is not FileFormat.NDJSON):
        raise ConfigError(
            f"{what}: rows may have fields that a source's columns do not know ({WIDENED}), which only "
            "NDJSON has a place for: declare them in `fields` of the source, or leave them out by "
            "`drop_widened: true`"
        )
    if node.table is not None:
        # Imported here, since files need no tables.
        from compactor.pipelines.nodes.table_output import OutputTable

        OutputTable.of(node.table, written, what, node.sort)
    if node.path is not None:
        try:
            check_columns(node.path, written, node.layout, node.format)
        except InputError as error:
            raise ConfigError(f"{what}: {error}") from None


def written_schema(node: Output, schema: pa.Schema) -> pa.Schema:
    """Returns the columns that the output writes."""
    if not node.drop_widened:
        return schema
    return pa.schema([field for field in schema if field.name != WIDENED])


def open_sink(
    path: str,
    schema: pa.Schema,
    node: Output,
    row_group_bytes: int = ROW_GROUP_BYTES,
    staging: Staging | None = None,
    threads: int = 1,
) -> StagedSink:
    """Opens a file of an output.

    row_group_bytes: row group size of Parquet. staging: folder of unfinished files, if there are several.
    threads: render rows of text.
    """
    options = SinkOptions(
        threads=threads,
        text=node.text_options,
        layout=node.layout,
        ending=node.format,
        sort=node.sort,
        map_objects=True,
        expanded=WIDENED,
        row_group_bytes=row_group_bytes,
    )
    return StagedSink(path, schema, options, staging)


class Writing:
    """One output of a run: `hold` groups until their outcome is known, `write`, and `publish` once all
    outputs are written."""

    def __init__(self, work: RunContext, name: str, node: Output) -> None:
        self._work = work
        self.name = name
        self._node = node
        self._schema = written_schema(node, work.schemas[node.input])
        self._report = OutputReport(live=is_live(name, work.nodes, work.pipeline.init)[0])
        work.report.outputs[name] = self._report
        repeats = may_repeat(name, work.nodes)
        self._counted = Counted(self._report, self._schema.names, may_repeat=repeats)
        self._held: BatchBuffer | None = None
        self._writer: Writer | None = None
        self._staging: Staging | None = None
        self._staged: StagedFragments | None = None

    @property
    def holds(self) -> bool:
        """Whether rows wait for the outcome of their groups."""
        return self.name in self._work.forms

    @property
    def is_table(self) -> bool:
        return self._node.table is not None

    def hold(self) -> None:
        """Reads all rows; groups of more than `max_group_buffer` records fail."""
        work, limit = self._work, self._work.pipeline.max_group_buffer
        self._held = held = work.buffer(self.name, work.schemas[self._node.input])

        def groups() -> Batches:
            for batch in work.stream(self._node.input):
                held.append(batch)
                yield batch.select([GROUP])

        column = f'"{GROUP}"'
        sql = (
            f"SELECT {column} FROM {GIVEN} WHERE {column} IS NOT NULL GROUP BY {column} "
            f"HAVING count(*) > {limit} ORDER BY {column}"
        )
        given = Rows(pa.schema([(GROUP, pa.string())]), groups())
        for found in work.database.query(self.name, sql, given, work.batch_size):
            for group in found.column(0).to_pylist():
                work.dead_letters.fail_group(
                    group, f"group {group!r} has more than max_group_buffer ({limit:,}) records"
                )

    def write(self) -> None:
        held = self._part_bytes * (
            _SORT_COPIES if self.is_table else 1 if self._node.kind == PARQUET else 0
        )
        with Reservation(self._work.budget, self.name, held):
            if self._node.table is not None:
                self._write_fragments(self._node.table)
            else:
                self._write_files()

    def _write_files(self) -> None:
        assert self._node.path is not None
        if self._node.split is not None and addresses_of(self._node.path) is None:
            self._staging = Staging(Path(self._node.path).resolve())
        self._writer = writer_of(self._node.path, self._node.split, self._open_sink)
        if self._report.live:
            self._write_live(self._writer)
        elif self._has_free_cores:
            memory = Reservation(self._work.budget, self.name)
            self._writer = beside = BesideWriter(self._writer, memory)
            with beside.errors_first():
                self._write_rows(beside)
        else:
            self._write_rows(self._writer)
        with self._work.clock.on(self.name):
            self._writer.finish()

    @property
    def _has_free_cores(self) -> bool:
        """Whether a core is free for writing: while files are read ahead for these rows, all have work."""
        return self._work.pipeline.cores > 1 and not self._work.is_read_ahead(self._node.input)

    def _write_rows(self, writer: Writer) -> None:
        if order := self._order():
            self._write_sorted(writer, order)
            return
        for batch in self._rows(writer):
            with self._work.clock.on(self.name):
                writer.write(batch)

    def _order(self) -> SortSchema:
        """Returns the write order: by split value, then by `sort_by`; empty for the input order."""
        by = self._node.split and self._node.split.by
        inside = self._node.sort or ()
        if not by:
            return inside
        return (SortColumn(by), *(column for column in inside if column.column != by))

    def publish(self) -> None:
        """Makes the rows visible. Raises `CommitConflictError`."""
        with self._work.clock.on(self.name):
            if self._staged is not None:
                self._staged.publish()
            if self._writer is not None:
                self._writer.publish()

    def close(self) -> None:
        if self._staged is not None:
            self._staged.close()
        if self._writer is not None:
            self._writer.close()
        if self._staging is not None:
            self._staging.close()

    def _rows(self, writer: Writer | None) -> Batches:
        """Yields and counts the rows to write; passes boundaries to the writer."""
        batches = self._work.stream(self._node.input) if self._held is None else self._flushed()
        for batch in batches:
            interrupts.check()
            if (boundary := boundary_of(batch)) is not None:
                self._counted.boundary(boundary)
                if writer is not None:
                    writer.boundary(boundary)
            elif batch.num_rows:
                yield self._counted.rows(batch)

    def _flushed(self) -> Batches:
        assert self._held is not None
        for batch in self._held.drain():
            if not batch.num_rows:
                yield batch
            else:
                yield self._work.dead_letters.without_failed(batch, self.name)

    def _open_sink(self, path: str) -> StagedSink:
        if self._node.split is not None:
            self._work.claim(path, f"node {self.name!r}")
        row_group_bytes = min(ROW_GROUP_BYTES, self._part_bytes)
        # Rows that are sorted first are written once all files are read.
        threads = self._work.pipeline.cores if self._has_free_cores or self._order() else 1
        return open_sink(path, self._schema, self._node, row_group_bytes, self._staging, threads)

    def _write_fragments(self, table: str) -> None:
        # Imported here, since files need no tables.
        from compactor.pipelines.nodes.table_output import StagedFragments, TableRows

        rows = TableRows(self.name, self._schema, self._rows(None))
        with self._work.clock.on(self.name):
            self._staged = StagedFragments(table, rows, self._node.sort, self._part_bytes)
            self._staged.write()

    @property
    def _part_bytes(self) -> int:
        """Maximum bytes of rows per sorted fragment or Parquet row group."""
        return min(_MAX_PART_BYTES, self._work.pipeline.memory.limit // _MEMORY_DIVISOR)

    def _write_sorted(self, writer: Writer, sort: SortSchema) -> None:
        work = self._work
        with work.sorter(self.name, self._schema, sort) as sorter:
            for batch in self._rows(writer):
                sorter.append(batch)
            for batch in sorter.sorted():
                with work.clock.on(self.name):
                    writer.write(batch)

    def _write_live(self, writer: Writer) -> None:
        handoff = self._work.channel(HANDOFF_RECORDS, self.name)
        failed: list[BaseException] = []

        def write() -> None:
            try:
                while (batch := handoff.take()) is not None:
                    with self._work.clock.on(self.name):
                        writer.write(self._counted.rows(batch))
            except BaseException as error:  # noqa: BLE001 - raised in the main thread
                failed.append(error)
                handoff.stop()

        thread = threading.Thread(target=write, name=f"write {self.name}", daemon=True)
        if not started(thread):
            for batch in self._rows(None):
                with self._work.clock.on(self.name):
                    writer.write(batch)
            return
        try:
            for batch in self._work.stream(self._node.input):
                interrupts.check()
                if (boundary := boundary_of(batch)) is not None:
                    self._counted.boundary(boundary)
                else:
                    handoff.put(batch)
            handoff.close()
        except Stopped:
            pass
        except BaseException:
            handoff.stop()
            handoff.close()
            raise
        finally:
            thread.join()
        if failed:
            raise failed[0]


def may_repeat(output: str, nodes: Mapping[str, Node]) -> bool:
    """Returns whether a row may reach the output by several paths."""

    def ways(edge: str) -> dict[str, int]:
        name = edge.split(".")[0]
        node = nodes[name]
        if isinstance(node, (Source, Aggregate, Combine)):
            return {name: 1}
        found: dict[str, int] = {}
        for i in inputs_of(node):
            for source, count in ways(i).items():
                found[source] = found.get(source, 0) + count
        return found

    return any(count > 1 for count in ways(inputs_of(nodes[output])[0]).values())
