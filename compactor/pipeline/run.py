"""A pipeline at work, in one task: nodes pull batches from those before them; sources of a merge read in
threads of their own.

Every row carries which source it came from and where it stood there, until an aggregate or a join makes
another of it: so outputs can say how many different rows reached them.
"""

from __future__ import annotations

import glob
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from compactor.errors import ConfigError, DataError, InputError, UsageError
from compactor.files.names import FileFormat, kind_of
from compactor.files.read import open_table_file
from compactor.files.sinks import without_dictionaries
from compactor.files.source import FileBatches
from compactor.files.write import check_sink_path, open_table_sink
from compactor.flow.budget import MemoryBudget
from compactor.flow.disk import LocalDisk
from compactor.flow.errors import MemoryLimitError
from compactor.flow.stage import Buffer, Stage, StagePlan
from compactor.ingest import IngestOptions, ingest_batches
from compactor.merge.decoded import STAGE as CHUNKS
from compactor.pipeline.aggregating import Grouper, parse_measures
from compactor.pipeline.buffer import BatchBuffer
from compactor.pipeline.channel import Channel, Stopped
from compactor.pipeline.classify import (
    Classified,
    Form,
    classify,
    is_live,
    is_sorted_by,
    order_of_work,
    takers,
)
from compactor.pipeline.combining import BuildTable, joined_schema, part_by_keys
from compactor.pipeline.config import (
    Aggregate,
    Combine,
    Merge,
    MergeMode,
    Node,
    Output,
    Pipeline,
    Route,
    Sort,
    Source,
    Transform,
    inputs_of,
)
from compactor.pipeline.expressions import Expression
from compactor.pipeline.merging import by_key, drawn, in_turn
from compactor.pipeline.sorting import Sorter
from compactor.predicate import condition_on, parse_where
from compactor.predicate.tree import Predicate, columns_of, matching
from compactor.scan import scan, scan_schema
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from format.errors import SchemaError
from format.schema import SortSchema, check_sort_schema, parse_sort_schema
from format.types import plain, to_logical, to_storage

CHANNEL_RECORDS: Final = 1024
"""That wait between a source and the merge that takes its rows."""
HANDOFF_RECORDS: Final = 256
"""That wait between a merge and the writer of a live output."""
SOURCE, ROW = "$source", "$row"
_SEQUENCE: Final = "$sequence"
_PARTS: Final = 32
_BUILD_COPIES: Final = 3
"""Of a build side, while its table is made: rows, rows end to end, hashes and positions."""
_HIDDEN: Final = pa.schema([(SOURCE, pa.int32()), (ROW, pa.int64())])
Batches = Iterator[pa.RecordBatch]


class UnserializableMapValue(InputError):  # noqa: N818 - the name that pipelines know it by
    """A writer was given a column that holds maps, and has no place for them."""

    def __init__(self, format_name: str, column: str) -> None:
        self.format = format_name
        self.column = column
        super().__init__(
            f"UnserializableMapValue{{format: {format_name}, column: {column}}}: {format_name} has no place "
            "for a map: choose its values in a transform, or write NDJSON; nothing was written"
        )


@dataclass(slots=True)
class OutputReport:
    records_written: int = 0
    ok_count: int = 0
    """Different rows of sources that reached the output."""
    live: bool = False


@dataclass(slots=True)
class RunReport:
    outputs: dict[str, OutputReport] = field(default_factory=dict)
    records_read: dict[str, int] = field(default_factory=dict)
    """By source."""
    dlq_count: int = 0
    """Bad records, put aside."""
    spills: int = 0
    peak_bytes: int = 0
    """Most that was charged at a time."""
    peak_waiting: dict[str, int] = field(default_factory=dict)
    """Most records that waited behind a source."""
    stage_seconds: dict[str, float] = field(default_factory=dict)
    """By node, without those before it; of all threads together."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "outputs": {
                name: {"records_written": o.records_written, "ok_count": o.ok_count, "live": o.live}
                for name, o in self.outputs.items()
            },
            "records_read": self.records_read,
            "dlq_count": self.dlq_count,
            "spills": self.spills,
            "peak_charged_bytes": self.peak_bytes,
            "peak_waiting_records": self.peak_waiting,
            "stage_seconds": {name: round(s, 4) for name, s in self.stage_seconds.items()},
            "seconds": round(self.seconds, 3),
        }


class SourceReader:
    """One source: its schema, and its rows once."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Batches]) -> None:
        self.schema = schema
        self.batches = batches


OpenSource = Callable[[str, Source], SourceReader]


def open_source(name: str, source: Source) -> SourceReader:
    """Of a file, whose types are read first, or of a table's newest version."""
    if source.table is not None:
        store = open_store(source.table)
        snapshot = CommitLog(store).current()
        where = None if source.where is None else condition_on(snapshot.table, source.where)
        columns = source.columns
        return SourceReader(
            scan_schema(snapshot.table, columns), lambda: scan(store, snapshot, columns, where)
        )
    assert source.path is not None
    paths = _matching_paths(source.path)
    if not paths:
        raise InputError(f"node {name!r}: {source.path}: no such file")
    with ExitStack() as opened:
        # Text is read through for its types here, and for its rows later.
        files = [opened.enter_context(open_table_file(path)) for path in paths]
        schema = _alike(paths, [file.schema for file in files], f"node {name!r}")
        for column in source.columns or ():
            if column not in schema.names:
                there = ", ".join(schema.names[:50])
                raise ConfigError(
                    f"node {name!r}: {source.path} has no column {column!r}; it has: {there}"
                )
        opened.pop_all()
    wanted = (
        schema if source.columns is None else pa.schema([schema.field(c) for c in source.columns])
    )

    def batches() -> Batches:
        for file in files:
            with file:
                for batch in file:
                    yield _fitted(batch, wanted)

    return SourceReader(wanted, batches)


def _plain_schema(schema: pa.Schema, what: str) -> pa.Schema:
    """Without dictionaries, and with room for nulls: what merges, joins and spills make of it has either."""
    for name in schema.names:
        if name in _HIDDEN.names:
            raise ConfigError(
                f"{what}: a column is called {name!r}, which is ours: choose other `columns`"
            )
    return pa.schema([pa.field(f.name, without_dictionaries(f.type)) for f in schema])


def _decoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        c if c.type == f.type else to_logical(plain(to_storage(c)), f.type)
        for c, f in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _matching_paths(pattern: str) -> list[str]:
    """The file of that name; or those that match, by name."""
    if Path(pattern).exists() or not glob.has_magic(pattern):
        return [pattern]
    return sorted(glob.glob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With these columns in this order; what has no values in any type."""
    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(field.name) for field in schema]
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(len(c), f.type) if pt.is_null(c.type) else c
            for c, f in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


class Run:
    """One execution of a pipeline."""

    def __init__(self, pipeline: Pipeline, opener: OpenSource = open_source) -> None:
        """Opens sources for their schemas, and binds everything to them. Raises `CompactorError`."""
        self._pipeline = pipeline
        self._nodes: Mapping[str, Node] = pipeline.nodes
        try:
            self._order = order_of_work(self._nodes)
        except RecursionError:
            raise ConfigError(
                "the nodes are chained too deeply: several hundred in a row are too many"
            ) from None
        self._forms: dict[str, Classified] = classify(self._nodes)
        self._takers = takers(self._nodes)
        self._readers = {
            name: opener(name, node)
            for name, node in self._nodes.items()
            if isinstance(node, Source)
        }
        self._numbers = {name: number for number, name in enumerate(self._nodes)}
        self.schemas: dict[str, pa.Schema] = {}
        for name in self._order:
            self._bind(name, self._nodes[name])
        self.report = RunReport()
        self._budget = MemoryBudget(self._plan())
        self._threads: list[threading.Thread] = []
        self._channels: list[Channel] = []
        self._buffers: dict[str, list[BatchBuffer]] = {}
        self._results: dict[str, BatchBuffer] = {}
        self._left: dict[str, int] = {}
        self._clock = _Clock()

    @property
    def forms(self) -> Mapping[str, Classified]:
        return self._forms

    # --- before anything runs ---

    def _bind(self, name: str, node: Node) -> None:
        given = [self.schemas[i] for i in inputs_of(node)]
        what = f"node {name!r}"
        match node:
            case Source():
                self.schemas[name] = _plain_schema(self._readers[name].schema, what)
            case Transform():
                self.schemas[name] = _Transformer(node, given[0], what).schema
            case Merge():
                self.schemas[name] = _alike(node.inputs, given, what)
                if node.sort_by is not None:
                    _sort_schema(node.sort_by, self.schemas[name], what)
            case Route():
                for branch, condition in node.branches.items():
                    _condition(condition, given[0], f"{what}, branch {branch!r}")
                    self.schemas[f"{name}.{branch}"] = given[0]
                if node.otherwise is not None:
                    self.schemas[f"{name}.{node.otherwise}"] = given[0]
                self.schemas[name] = given[0]
            case Sort():
                _sort_schema(node.by, given[0], what)
                self.schemas[name] = given[0]
            case Aggregate():
                self.schemas[name] = self._grouper(name, node, given[0], None).schema
            case Combine():
                self.schemas[name] = joined_schema(given[0], given[1], _on(node), what)
            case Output():
                self._check_output(node, given[0], what)

    def _check_output(self, node: Output, schema: pa.Schema, what: str) -> None:
        if node.sort_by is not None:
            _sort_schema(node.sort_by, schema, what)
        if node.path is not None:
            check_sink_path(node.path)
            kind = kind_of(node.path)
            if kind is not None and kind.format in (FileFormat.CSV, FileFormat.XML):
                for column in schema:
                    if _has_map(column.type):
                        raise UnserializableMapValue(kind.format.value.lower(), column.name)

    def _plan(self) -> StagePlan:
        limit = self._pipeline.memory.limit
        stages = []
        for name in (*self._order, CHUNKS):
            form = (
                Form.FUSED if name == CHUNKS else getattr(self._forms.get(name), "form", Form.FUSED)
            )
            held = form is not Form.FUSED or name == CHUNKS
            held |= isinstance(self._nodes.get(name), Merge)
            priority = {Form.BUILT: 1, Form.MATERIALIZED: 0}.get(form, 2) if held else None
            stages.append(
                Stage(name, form, Buffer(form.buffer), limit, spill_priority=priority,
                      applies_back_pressure=form is Form.FUSED)
            )  # fmt: skip
        return StagePlan(limit, 0, tuple(stages))

    # --- the run ---

    def run(self) -> RunReport:
        """Raises `CompactorError`; then no output has anything of this run."""
        started = time.perf_counter()
        # Tables last: what is committed stays, files take their places when all is written.
        outputs = sorted(
            (name for name, node in self._nodes.items() if isinstance(node, Output)),
            key=self._is_table,
        )
        with ExitStack() as stack:
            self._disk = stack.enter_context(closing(LocalDisk()))
            stack.callback(self._stop)
            self._letters = stack.enter_context(self._dead_letters())
            try:
                for name in outputs:
                    self._write(name, stack)
            except MemoryLimitError as error:
                raise MemoryLimitError(
                    str(error).replace("--memory-limit", "memory.limit")
                ) from error
        self.report.stage_seconds = dict(self._clock.seconds)
        self.report.peak_bytes = self._budget.peak_bytes
        self.report.seconds = time.perf_counter() - started
        return self.report

    def _is_table(self, name: str) -> bool:
        node = self._nodes[name]
        return isinstance(node, Output) and node.table is not None

    def _stop(self) -> None:
        for channel in self._channels:
            channel.stop()
        for thread in self._threads:
            thread.join()
        for buffers in self._buffers.values():
            self.report.spills += sum(buffer.spills for buffer in buffers)
            for buffer in buffers:
                buffer.close()

    def _write(self, name: str, stack: ExitStack) -> None:
        node = self._nodes[name]
        assert isinstance(node, Output)
        report = self.report.outputs[name] = OutputReport(live=is_live(name, self._nodes)[0])
        counted = _Counted(report, may_repeat=self._may_repeat(name))
        schema = self.schemas[node.input]
        batches = self._stream(node.input)
        if node.table is not None:
            rows = _TableRows(name, schema, counted.shown(batches))
            store = open_store(node.table)
            log = CommitLog(store)
            sort = (
                None
                if node.sort_by is None
                else _sort_schema(node.sort_by, schema, f"node {name!r}")
            )
            with self._clock.on(name):
                ingest_batches(store, log, log.refresh(), rows, sort, IngestOptions())
            return
        assert node.path is not None
        # Takes its place when all outputs are written: an error leaves none of them.
        sink = stack.enter_context(open_table_sink(node.path, schema))
        if report.live:
            self._write_live(name, batches, sink, counted)
        else:
            for batch in counted.shown(batches):
                with self._clock.on(name):
                    sink.write(batch)

    def _write_live(self, name: str, batches: Batches, sink: Any, counted: _Counted) -> None:
        handoff = Channel(HANDOFF_RECORDS, self._budget, name)
        self._channels.append(handoff)
        failed: list[BaseException] = []

        def write() -> None:
            try:
                while (batch := handoff.take()) is not None:
                    with self._clock.on(name):
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

    # --- nodes ---

    def _stream(self, edge: str) -> Batches:
        """Rows of a node, or of a branch, for one that takes them."""
        name = edge.split(".")[0]
        node, form = self._nodes[name], self._forms[name].form
        if isinstance(node, Route):
            return self._branch(name, node, edge)
        if form is Form.FUSED:
            return self._timed(name, self._rows(name, node))
        if form is Form.BUILT:
            return self._built(name, node)
        return self._materialized(name, node)

    def _built(self, name: str, node: Node) -> Batches:
        buffer = self._buffer(name, self.schemas[name])
        for batch in self._timed(name, self._rows(name, node)):
            buffer.append(batch)
        yield from buffer.drain()

    def _materialized(self, name: str, node: Node) -> Batches:
        if name not in self._results:
            self._results[name] = buffer = self._buffer(name, self.schemas[name])
            self._left[name] = len(self._takers[name])
            for batch in self._timed(name, self._rows(name, node)):
                buffer.append(batch)
        yield from self._shared(name)

    def _shared(self, name: str) -> Batches:
        """What is held for several, until the last of them has taken all of it."""
        yield from self._results[name]
        self._left[name] -= 1
        if self._left[name] == 0:
            self._results[name].close()

    def _branch(self, name: str, node: Route, edge: str) -> Batches:
        edges = [f"{name}.{branch}" for branch in node.branches]
        if node.otherwise is not None:
            edges.append(f"{name}.{node.otherwise}")
        wanted = {taken for n in self._nodes.values() for taken in inputs_of(n)}
        if edges[0] not in self._results:
            for each in edges:
                self._results[each] = self._buffer(name, self.schemas[name])
                self._left[each] = sum(inputs_of(n).count(each) for n in self._nodes.values())
            conditions = [parse_where(text, self.schemas[name]) for text in node.branches.values()]
            for batch in self._timed(name, self._stream(node.input)):
                rest = batch
                for branch, condition in zip(edges, conditions, strict=False):
                    arrays = {c: to_storage(rest.column(c)) for c in columns_of(condition)}
                    holds = pc.fill_null(matching(condition, arrays, rest.num_rows), False)
                    if branch in wanted:
                        self._results[branch].append(rest.filter(holds))
                    rest = rest.filter(pc.invert(holds))
                if node.otherwise is not None and edges[-1] in wanted:
                    self._results[edges[-1]].append(rest)
        yield from self._shared(edge)

    def _rows(self, name: str, node: Node) -> Batches:
        match node:
            case Source():
                return self._read(name)
            case Transform():
                return self._transform(name, node)
            case Merge():
                return self._merge(name, node)
            case Sort():
                return self._sort(name, node)
            case Aggregate():
                return self._aggregate(name, node)
            case Combine():
                return self._combine(name, node)
        raise AssertionError(node)

    def _read(self, name: str) -> Batches:
        number, row = self._numbers[name], 0
        schema = self.schemas[name]
        for given in self._readers[name].batches():
            whole = _decoded(given, schema)
            for start in range(0, whole.num_rows, self._pipeline.batch_size):
                batch = _numbered(whole.slice(start, self._pipeline.batch_size), number, row)
                row += batch.num_rows
                self.report.records_read[name] = row
                yield batch
        self.report.records_read.setdefault(name, 0)

    def _transform(self, name: str, node: Transform) -> Batches:
        transformer = _Transformer(node, self.schemas[node.input], f"node {name!r}")
        for batch in self._stream(node.input):
            size = node.batch_size or batch.num_rows
            for start in range(0, batch.num_rows, max(1, size)):
                yield from self._transformed(transformer, batch.slice(start, size), name)

    def _transformed(self, transformer: _Transformer, batch: pa.RecordBatch, name: str) -> Batches:
        """What becomes of a batch; rows that an expression is not defined of are put aside if need be."""
        try:
            yield transformer(batch)
        except pa.ArrowException as error:
            if batch.num_rows > 1:
                half = batch.num_rows // 2
                yield from self._transformed(transformer, batch.slice(0, half), name)
                yield from self._transformed(transformer, batch.slice(half), name)
                return
            self._put_aside(batch, name, str(error).splitlines()[0])

    def _put_aside(self, batch: pa.RecordBatch, name: str, reason: str) -> None:
        source = list(self._nodes)[batch.column(SOURCE)[0].as_py()]
        row = batch.column(ROW)[0].as_py() + 1
        if self._letters is None:
            raise DataError(
                f"node {name!r}: row {row} of {source!r}: {reason}; no file was written "
                "(`on_error: continue` puts such rows aside)"
            )
        letter = {"source": source, "row": row, "node": name, "reason": reason}
        self._letters.write(pa.RecordBatch.from_pylist([letter], _LETTERS))
        self.report.dlq_count += 1

    def _sort(self, name: str, node: Sort) -> Batches:
        schema = _full(self.schemas[name])
        sort = _sort_schema(node.by, self.schemas[name], f"node {name!r}")
        with closing(
            Sorter(schema, sort, self._pipeline.batch_size, self._budget, name, self._disk)
        ) as sorter:
            self._budget.spill_by(
                name, lambda size: sorter.spill(size) or self._spill_buffers(name, size)
            )
            for batch in self._stream(node.input):
                sorter.append(batch)
            self.report.spills += sorter.spills
            yield from sorter.sorted()

    def _grouper(
        self,
        name: str,
        node: Aggregate,
        schema: pa.Schema,
        disk: LocalDisk | None,
        *,
        keeps_order: bool = False,
    ) -> Grouper:
        what = f"node {name!r}"
        for key in node.group_by:
            if key not in schema.names:
                there = ", ".join(schema.names[:50])
                raise ConfigError(f"{what}: no column {key!r} to group by; there are: {there}")
        measures = parse_measures(node.columns, schema, what)
        budget = self._budget if disk is not None else MemoryBudget(self._plan())
        try:
            return Grouper(
                node.group_by,
                measures,
                schema,
                budget,
                name,
                disk or LocalDisk(),
                keeps_order=keeps_order,
            )
        except pa.ArrowException as error:
            raise ConfigError(f"{what}: {str(error).splitlines()[0]}") from None

    def _aggregate_sorted(self, name: str, node: Aggregate) -> Batches:
        """Group by group, in the order in which they come."""
        schema = self.schemas[node.input]
        number, row = self._numbers[name], 0
        with closing(self._grouper(name, node, schema, self._disk, keeps_order=True)) as grouper:

            def given(table: pa.Table) -> Batches:
                nonlocal row
                for batch in table.combine_chunks().to_batches():
                    yield _numbered(batch, number, row)
                    row += batch.num_rows

            for batch in self._stream(node.input):
                grouper.append(batch.select(schema.names))
                yield from given(grouper.finished())
            for table in grouper.results():
                yield from given(table)

    def _aggregate(self, name: str, node: Aggregate) -> Batches:
        if is_sorted_by(node.input, node.group_by, self._nodes):
            yield from self._aggregate_sorted(name, node)
            return
        schema = self.schemas[node.input]
        grouper = self._grouper(name, node, schema, self._disk)
        result = _full(self.schemas[name])
        # Groups come out by their keys: so the result is the same whether any were on disk or not.
        sort = _sort_schema(",".join(node.group_by), self.schemas[name], f"node {name!r}")
        with (
            closing(grouper),
            closing(
                Sorter(result, sort, self._pipeline.batch_size, self._budget, name, self._disk)
            ) as sorter,
        ):
            self._budget.spill_by(
                name, lambda size: grouper.spill(size) or self._spill_buffers(name, size)
            )
            for batch in self._stream(node.input):
                grouper.append(batch.select(schema.names))
            number, row = self._numbers[name], 0
            for table in grouper.results():
                for batch in table.to_batches(max_chunksize=self._pipeline.batch_size):
                    sorter.append(_numbered(batch, number, row))
                    row += batch.num_rows
            self.report.spills += grouper.spills + sorter.spills
            yield from sorter.sorted()

    def _combine(self, name: str, node: Combine) -> Batches:
        build, names = self.schemas[node.build], self.schemas[name].names
        held = self._buffer(name, build)
        size = 0
        for batch in self._stream(node.build):
            size += batch.nbytes
            held.append(batch)
        joined = (
            self._joined(name, node, held, size)
            if self._budget.has_room(_BUILD_COPIES * size)
            else self._joined_in_parts(name, node, held)
        )
        number, row = self._numbers[name], 0
        for found in joined:
            yield _numbered(found.select(names), number, row)
            row += found.num_rows

    def _joined(self, name: str, node: Combine, held: BatchBuffer, size: int) -> Batches:
        """The build side at once; then the probe side, read in a thread of its own where that can be."""
        with self._budget.holding(name, _BUILD_COPIES * size):
            table = self._build_table(node, held)
            held.close()
            ahead = self._is_fused_chain(node.probe.split(".")[0])
            probe = self._reading_ahead(name, node.probe) if ahead else None
            batches = self._stream(node.probe) if probe is None else _taken(probe)
            columns, keys = self.schemas[node.probe].names, [left for left, _ in _on(node)]
            for batch in batches:
                yield from table.probe(batch.select(columns), keys, keeps_all=node.how == "left")

    def _joined_in_parts(self, name: str, node: Combine, held: BatchBuffer) -> Batches:
        """Both sides on local disk, divided by the hash of their keys; rows in the probe side's order."""
        on, probe = _on(node), self.schemas[node.probe]
        numbered = pa.schema([*probe, (_SEQUENCE, pa.int64())])
        lefts = [BatchBuffer(numbered, self._budget, name, self._disk) for _ in range(_PARTS)]
        rights = [BatchBuffer(held.schema, self._budget, name, self._disk) for _ in range(_PARTS)]
        self._buffers[name] += [*lefts, *rights]
        _divide(held.drain(), [right for _, right in on], rights)
        _divide(_sequenced(self._stream(node.probe), probe.names), [left for left, _ in on], lefts)
        full = joined_schema(numbered, self.schemas[node.build], on, f"node {name!r}")
        order = parse_sort_schema(_SEQUENCE)
        rows = self._pipeline.batch_size
        with closing(Sorter(full, order, rows, self._budget, name, self._disk)) as sorter:
            for left, right in zip(lefts, rights, strict=True):
                size = sum(batch.nbytes for batch in right)
                with self._budget.holding(name, _BUILD_COPIES * size):
                    table = self._build_table(node, right)
                    right.close()
                    for batch in left.drain():
                        keys = [key for key, _ in on]
                        for found in table.probe(batch, keys, keeps_all=node.how == "left"):
                            sorter.append(found.select(full.names))
            self.report.spills += sorter.spills
            yield from sorter.sorted()

    def _build_table(self, node: Combine, held: BatchBuffer) -> BuildTable:
        schema = self.schemas[node.build]
        rows = pa.Table.from_batches(held, held.schema).select(schema.names)
        return BuildTable(rows, [right for _, right in _on(node)])

    # --- merges ---

    def _merge(self, name: str, node: Merge) -> Batches:
        match node.mode:
            case MergeMode.KEY:
                return self._merge_by_key(name, node)
            case MergeMode.CONCAT:
                return self._concat(name, node)
        if node.interleave_seed is None and self._forms[name].form is Form.FUSED:
            return self._polled(name, node)
        return self._interleave(name, node)

    def _merge_by_key(self, name: str, node: Merge) -> Batches:
        assert node.sort_by is not None
        schema = self.schemas[name]
        sort = _sort_schema(node.sort_by, schema, f"node {name!r}")
        inputs = [
            (f"node {name!r}: {i}", self._aligned(self._stream(i), schema)) for i in node.inputs
        ]
        return by_key(
            inputs, _full(schema), sort, self._pipeline.batch_size, self._budget, self._disk
        )

    def _interleave(self, name: str, node: Merge) -> Batches:
        schema = self.schemas[name]
        buffers = []
        for i in node.inputs:
            buffer = self._buffer(name, schema)
            for batch in self._aligned(self._stream(i), schema):
                buffer.append(batch)
            buffers.append(buffer)
        inputs = [buffer.drain() for buffer in buffers]
        if node.interleave_seed is None:
            return in_turn(inputs)
        return drawn(inputs, [buffer.rows for buffer in buffers], node.interleave_seed)

    def _concat(self, name: str, node: Merge) -> Batches:
        """Inputs that are read without holding anything produce meanwhile, each into its channel."""
        schema = self.schemas[name]
        ahead = {
            i: self._reading_ahead(name, i)
            for i in node.inputs[1:]
            if self._is_fused_chain(i.split(".")[0])
        }
        for i in node.inputs:
            batches = _taken(ahead[i]) if i in ahead else self._stream(i)
            yield from self._aligned(batches, schema)

    def _polled(self, name: str, node: Merge) -> Batches:
        """Whatever is there, of any source; a source that has nothing holds up none."""
        changed = threading.Condition()
        schema = self.schemas[name]
        channels = [self._reading_ahead(name, i, changed) for i in node.inputs]
        first = 0
        while channels:
            _wait_for_any(channels, changed)
            for offset in range(len(channels)):
                channel = channels[(first + offset) % len(channels)]
                batch = channel.poll()
                if batch is not None:
                    first = (channels.index(channel) + 1) % len(channels)
                    yield from self._aligned(iter([batch]), schema)
                    break
            channels = [channel for channel in channels if not channel.is_done]

    def _is_fused_chain(self, name: str) -> bool:
        """Whether it can be read in a thread of its own: a source, or transforms of one."""
        node = self._nodes[name]
        if self._forms[name].form is not Form.FUSED:
            return False
        return isinstance(node, Source) or (
            isinstance(node, Transform) and self._is_fused_chain(node.input.split(".")[0])
        )

    def _reading_ahead(
        self, merge: str, edge: str, changed: threading.Condition | None = None
    ) -> Channel:
        channel = Channel(CHANNEL_RECORDS, self._budget, merge, changed)
        self._channels.append(channel)

        def read() -> None:
            error: BaseException | None = None
            try:
                for batch in self._stream(edge):
                    channel.put(batch)
            except Stopped:
                return
            except BaseException as problem:  # noqa: BLE001 - raised where rows are taken
                error = problem
            finally:
                self.report.peak_waiting[edge] = channel.peak_records
                channel.close(error)

        thread = threading.Thread(target=read, name=f"read {edge}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return channel

    def _aligned(self, batches: Batches, schema: pa.Schema) -> Batches:
        full = _full(schema)
        return (_fitted(batch, full) for batch in batches)

    # --- help ---

    def _buffer(self, name: str, schema: pa.Schema) -> BatchBuffer:
        buffer = BatchBuffer(_full(schema), self._budget, name, self._disk)
        self._buffers.setdefault(name, []).append(buffer)
        self._budget.spill_by(name, lambda size: self._spill_buffers(name, size))
        return buffer

    def _spill_buffers(self, name: str, size: int) -> int:
        # A streaming edge gives up as much as is asked for, a blocking stage all it holds.
        wanted = size if self._forms[name].form is Form.BUILT else 1 << 62
        freed = 0
        for buffer in self._buffers.get(name, ()):
            if freed < wanted:
                freed += buffer.spill(wanted - freed)
        return freed

    def _may_repeat(self, output: str) -> bool:
        """Whether a row may reach it on several ways."""

        def ways(edge: str) -> dict[str, int]:
            node = self._nodes[edge.split(".")[0]]
            if isinstance(node, (Source, Aggregate, Combine)):
                return {edge.split(".")[0]: 1}
            found: dict[str, int] = {}
            for i in inputs_of(node):
                for name, count in ways(i).items():
                    found[name] = found.get(name, 0) + count
            return found

        return any(count > 1 for count in ways(inputs_of(self._nodes[output])[0]).values())

    def _timed(self, name: str, batches: Batches) -> Batches:
        while True:
            with self._clock.on(name):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    @contextmanager
    def _dead_letters(self) -> Iterator[Any]:
        if self._pipeline.on_error != "continue" or self._pipeline.dead_letter is None:
            yield None
            return
        with open_table_sink(self._pipeline.dead_letter, _LETTERS) as sink:
            yield sink


_LETTERS: Final = pa.schema(
    [("source", pa.string()), ("row", pa.int64()), ("node", pa.string()), ("reason", pa.string())]
)


class _Transformer:
    """A transform bound to its input."""

    def __init__(self, node: Transform, schema: pa.Schema, what: str) -> None:
        self._where = None if node.filter is None else _condition(node.filter, schema, what)
        chosen = node.columns if node.columns is not None else tuple(schema.names)
        texts = chosen if isinstance(chosen, dict) else {name: f'"{name}"' for name in chosen}
        self._columns = {name: Expression(text, schema, what) for name, text in texts.items()}
        if not self._columns:
            raise ConfigError(f"{what}: `columns` names none")
        for name in self._columns:
            if name in _HIDDEN.names:
                raise ConfigError(f"{what}: a column cannot be called {name!r}: the name is ours")
        self.schema = pa.schema([(name, column.type) for name, column in self._columns.items()])

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._where is not None:
            arrays = {c: to_storage(batch.column(c)) for c in columns_of(self._where)}
            batch = batch.filter(pc.fill_null(matching(self._where, arrays, batch.num_rows), False))
        columns = [column(batch) for column in self._columns.values()]
        hidden = [batch.column(name) for name in _HIDDEN.names]
        return pa.RecordBatch.from_arrays([*columns, *hidden], schema=_full(self.schema))


class _Counted:
    """Counts the rows that reach an output, and takes off what people are not shown."""

    def __init__(self, report: OutputReport, *, may_repeat: bool) -> None:
        self._report = report
        self._seen: dict[int, Any] | None = {} if may_repeat else None
        """A bit for every row of each source."""

    def shown(self, batches: Batches) -> Batches:
        for batch in batches:
            if batch.num_rows:
                yield self.one(batch)

    def one(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._report.records_written += batch.num_rows
        self._report.ok_count += batch.num_rows if self._seen is None else self._new_rows(batch)
        return batch.select([n for n in batch.schema.names if n not in _HIDDEN.names])

    def _new_rows(self, batch: pa.RecordBatch) -> int:
        assert self._seen is not None
        sources, rows = (batch.column(name).to_numpy() for name in _HIDDEN.names)
        new = 0
        for source in np.unique(sources).tolist():
            mine = np.unique(rows[sources == source])
            bits = self._seen.get(source, np.zeros(0, dtype=np.uint8))
            if int(mine[-1]) // 8 >= len(bits):
                bits = np.concatenate([bits, np.zeros(int(mine[-1]) // 8 + 1, dtype=np.uint8)])
            flags = np.uint8(1) << (mine % 8).astype(np.uint8)
            new += int(np.count_nonzero((bits[mine // 8] & flags) == 0))
            np.bitwise_or.at(bits, mine // 8, flags)
            self._seen[source] = bits
        return new


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


class _Clock:
    """Seconds by node, each counted once: what runs within another's time is its own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._local = threading.local()
        self._lock = threading.Lock()

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        stack = self._local.__dict__.setdefault("inner", [])
        stack.append(0.0)
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            own = spent - stack.pop()
            if stack:
                stack[-1] += spent
            with self._lock:
                self.seconds[name] = self.seconds.get(name, 0.0) + own


def _sequenced(batches: Batches, names: Sequence[str]) -> Batches:
    """These columns, and the number of each row."""
    row = 0
    for batch in batches:
        numbers = pa.array(np.arange(row, row + batch.num_rows))
        row += batch.num_rows
        yield batch.select(names).append_column(_SEQUENCE, numbers)


def _divide(batches: Batches, keys: Sequence[str], parts: Sequence[BatchBuffer]) -> None:
    """Rows of equal keys into the same part, on disk."""
    for batch in batches:
        part_of = part_by_keys(batch, keys, len(parts))
        for number, part in enumerate(parts):
            rows = batch.filter(pa.array(part_of == number))
            part.append(rows)
            part.spill(rows.nbytes)


def _wait_for_any(channels: Sequence[Channel], changed: threading.Condition) -> None:
    with changed:
        changed.wait_for(lambda: any(channel.has_something for channel in channels))


def _taken(channel: Channel) -> Batches:
    while (batch := channel.take()) is not None:
        yield batch


def _full(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *_HIDDEN])


def _numbered(batch: pa.RecordBatch, number: int, row: int) -> pa.RecordBatch:
    count = batch.num_rows
    hidden = [
        pa.repeat(pa.scalar(number, pa.int32()), count),
        pa.array(np.arange(row, row + count)),
    ]
    return pa.RecordBatch.from_arrays([*batch.columns, *hidden], schema=_full(batch.schema))


def _on(node: Combine) -> list[tuple[str, str]]:
    return list(node.on.items()) if isinstance(node.on, dict) else [(n, n) for n in node.on]


def _condition(text: str, schema: pa.Schema, what: str) -> Predicate:
    try:
        return parse_where(text, schema)
    except UsageError as error:
        raise ConfigError(f"{what}: {error}") from None


def _sort_schema(text: str, schema: pa.Schema, what: str) -> SortSchema:
    try:
        sort = parse_sort_schema(text)
        check_sort_schema(schema, sort)
    except SchemaError as error:
        raise ConfigError(f"{what}: {error}") from None
    return sort


def _alike(inputs: Sequence[str], schemas: Sequence[pa.Schema], what: str) -> pa.Schema:
    """The one schema of all; a column without values is of any type. Raises `ConfigError`."""
    first = schemas[0]
    for name, schema in zip(inputs[1:], schemas[1:], strict=True):
        for column in dict.fromkeys((*first.names, *schema.names)):
            types = [s.field(column).type if column in s.names else None for s in (first, schema)]
            if types[0] == pa.null() and types[1] is not None:
                place = first.get_field_index(column)
                first = first.set(place, first.field(column).with_type(types[1]))
            elif types[0] != types[1] and (types[1] != pa.null() or types[0] is None):
                raise ConfigError(
                    f"{what}: its inputs do not agree: column {column!r} is {types[0] or 'not there'} in "
                    f"{inputs[0]!r}, {types[1] or 'not there'} in {name!r}; a transform can make them alike"
                )
    return first


def _has_map(dtype: pa.DataType) -> bool:
    return pt.is_map(dtype) or any(_has_map(dtype.field(n).type) for n in range(dtype.num_fields))
