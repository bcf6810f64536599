"""The context that the nodes of a run share: memory, local disk, channels, clock and report."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from compactor.common.threads import started
from compactor.errors import ConfigError
from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.channel import Channel, Stopped, Unthreaded
from compactor.pipelines.classify import (
    Classified,
    Form,
    ancestors,
    classify,
    consumers,
    has_groups,
    held_by_consumer,
    topological_order,
)
from compactor.pipelines.config import Combine, Merge, Node, Output, Pipeline, Source, Transform
from compactor.pipelines.config.graph import MAX_CHAIN
from compactor.pipelines.database import Database, database_stage
from compactor.pipelines.dead_letters import DeadLetters
from compactor.pipelines.provenance import Batches, full_schema, numbered
from compactor.pipelines.run_report import NodeClock, RunReport
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_stages import CHUNKS
from compactor.resources.reservation import Reservation
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from compactor.settings.paths import identity
from lsm_fragment.keys.sort_schema import SortSchema
from lsm_fragment.threads import ThreadPool

if TYPE_CHECKING:
    from compactor.pipelines.sorting import Sorter

CHANNEL_RECORDS: Final = 1024
"""Maximum records queued between a source and its merge."""
_BATCHES_OF_LIMIT: Final = 64
"""A batch may take one part in this many of `memory.limit`, or less in a long graph."""
_BATCHES_OF_NODE: Final = 4
"""The batches in flight, one at each node, may take one part in this many of `memory.limit` together."""
_HELD_OF_LIMIT: Final = 4
_MAX_HELD: Final = 64 << 20
"""Sources keep at most one part in `_HELD_OF_LIMIT` of `memory.limit`, and at most `_MAX_HELD`: this comes on
top of what nodes hold."""
AHEAD_BYTES: Final = 32 << 20
"""Charged for the blocks of a source that threads read ahead. They do so if all sources together need at most
one part in `_HELD_OF_LIMIT` of `memory.limit` for that."""
_MAX_CODES: Final = 4_096
"""Let a filter see texts as codes up to this many different ones: it tests each of them once a batch."""
_STREAM_SECONDS: Final = 1.0
"""Leave a thread behind that still waits for a pipe then: its next row ends it, or the end of the process."""
_CALLS: Final = 1000 + 20 * MAX_CHAIN
"""Python's calls within each other, for expressions and the longest chain: an aggregate takes almost 20."""
_LIGHT_ROW_BYTES: Final = 64
"""Assume rows of this size where their weight is not known yet."""


class Reading(NamedTuple):
    """How a source reads its files."""

    leaves_out_bad_rows: bool
    held_bytes: int
    """How much of their rows the files may keep together from the pass that tells their types."""
    threads: int
    """With more than one, threads read ahead of the node."""
    max_codes: int = 0
    """Texts of Parquet come as codes where their dictionaries have no more values than this."""


class RunContext:
    """The context of one run. `stream` yields the rows of a node or branch to a consumer."""

    def __init__(self, pipeline: Pipeline, stream: Callable[[str], Batches]) -> None:
        self.pipeline = pipeline
        self.nodes: Mapping[str, Node] = pipeline.nodes
        self.stream = stream
        self.order = topological_order(self.nodes)
        self.forms: dict[str, Classified] = classify(self.nodes)
        self.consumers = consumers(self.nodes)
        self.numbers = {name: number for number, name in enumerate(self.nodes)}
        self.has_groups = has_groups(self.nodes)
        self.schemas: dict[str, pa.Schema] = {}
        self.report = RunReport()
        self.clock, self.scan_clock = NodeClock(), NodeClock()
        self.budget = MemoryBudget(self.stage_plan())
        self.places: dict[str, str] = {}
        """What each file is used for, by real path."""
        self.read_ahead: set[str] = set()
        """The sources whose files are read ahead by threads."""
        self.has_streams = False
        """Whether a thread may wait for what another program writes into a pipe."""
        self.disk: LocalDisk
        self.database: Database
        self.dead_letters: DeadLetters
        self.pool = ThreadPool(pipeline.cores)
        """Works on the columns of batches."""
        self._threads: list[threading.Thread] = []
        self._channels: list[Channel] = []
        self._buffers: dict[str, list[BatchBuffer]] = {}

    def claim(self, path: str, what: str) -> None:
        """Reserves a file to write, or a stream to read. Raises `ConfigError` if the run uses it already."""
        place = identity(path)
        if self.places.setdefault(place, what) != what:
            raise ConfigError(
                f"{what}: {path} is the place of {self.places[place]} too: choose another name"
            )

    def full(self, schema: pa.Schema) -> pa.Schema:
        """Returns the schema with the hidden columns."""
        return full_schema(schema, has_groups=self.has_groups)

    def made(self, name: str, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """Adds hidden columns to new rows of the node, numbered from `row`, without a group."""
        groups = pa.nulls(batch.num_rows, pa.string()) if self.has_groups else None
        return numbered(batch, self.numbers[name], row, groups)

    @property
    def batch_size(self) -> BatchSize:
        """The size of a batch: fewer rows than the pipeline's `batch_size` where memory is short."""
        parts = max(_BATCHES_OF_LIMIT, _BATCHES_OF_NODE * len(self.nodes))
        size = self.pipeline.memory.limit // parts
        rows = min(self.pipeline.batch_size, max(1, size // _LIGHT_ROW_BYTES))
        return BatchSize(rows, size)

    @property
    def reading(self) -> Reading:
        """How each source reads its files."""
        sources = max(1, sum(isinstance(node, Source) for node in self.nodes.values()))
        part = self.pipeline.memory.limit // _HELD_OF_LIMIT
        return Reading(
            leaves_out_bad_rows=self.pipeline.on_error == "continue",
            held_bytes=min(part, _MAX_HELD) // sources,
            threads=self.pipeline.cores if sources * AHEAD_BYTES <= part else 1,
        )

    def reading_of(self, name: str) -> Reading:
        """How this source reads its files. A filter that alone takes its rows looks at codes of texts, and
        decodes only what it keeps."""
        takers = [self.nodes[taker] for taker in self.consumers[name]]
        is_filtered = [
            isinstance(t, Transform) and t.filter is not None and t.window is None for t in takers
        ]
        takes_codes = is_filtered == [True] and self.is_fused_chain(name) and not self.has_groups
        return self.reading._replace(max_codes=_MAX_CODES if takes_codes else 0)

    def stage_plan(self) -> StagePlan:
        limit = self.pipeline.memory.limit
        stages = []
        for name in (*self.order, CHUNKS):
            form = (
                Form.FUSED if name == CHUNKS else getattr(self.forms.get(name), "form", Form.FUSED)
            )
            held = form is not Form.FUSED or name == CHUNKS
            held |= isinstance(self.nodes.get(name), (Combine, Merge, Output))
            held |= self._has_window(name)
            priority = {Form.BUILT: 1, Form.MATERIALIZED: 0}.get(form, 2) if held else None
            stages.append(
                MemoryStage(
                    name=name,
                    holds=form,
                    buffer=Buffer(form.buffer),
                    memory_bytes=limit,
                    spill_priority=priority,
                    applies_back_pressure=form is Form.FUSED,
                )
            )
        return StagePlan(limit, 0, (*stages, database_stage(limit)))

    def is_held_by_consumer(self, name: str) -> bool:
        """Returns whether the node's only consumer holds all its rows, so that they need no other buffer."""
        return held_by_consumer(name, self.nodes, self.consumers[name]) is not None

    def _has_window(self, name: str) -> bool:
        node = self.nodes.get(name)
        return isinstance(node, Transform) and node.window is not None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Provides local disk, database and room for calls; on exit stops all threads and releases all
        memory."""
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _CALLS))  # stays: other runs may need it
        with (
            closing(LocalDisk()) as self.disk,
            closing(Database(self.budget, self.disk)) as self.database,
            closing(self.pool),
        ):
            try:
                yield
            finally:
                self._stop()

    def end_threads(self) -> None:
        """Waits for the threads that read ahead; their rows are needed no more. Idempotent."""
        for channel in self._channels:
            channel.stop()
        for thread in self._threads:
            thread.join(_STREAM_SECONDS if self.has_streams else None)

    def _stop(self) -> None:
        self.end_threads()
        for buffers in self._buffers.values():
            self.report.spills += sum(buffer.spills for buffer in buffers)
            for buffer in buffers:
                buffer.close()
        self.database.close()
        self.report.spills += self.database.spills

    # --- buffered rows ---

    def buffer(self, name: str, schema: pa.Schema) -> BatchBuffer:
        """Makes a buffer for a node; schema: row schema without the hidden columns."""
        buffer = BatchBuffer(self.full(schema), self.budget, name, self.disk)
        self.keep(name, buffer)
        self.budget.spill_by(name, lambda size: self.spill_buffers(name, size))
        return buffer

    def keep(self, name: str, *buffers: BatchBuffer) -> None:
        """Registers buffers to spill when the node must, and to close at the end of the run."""
        self._buffers.setdefault(name, []).extend(buffers)

    @contextmanager
    def sorter(
        self, name: str, schema: pa.Schema, sort: SortSchema, batch_size: BatchSize | None = None
    ) -> Iterator[Sorter]:
        """Provides a sorter to a node. The sorter spills before the node's buffers."""
        with self.sorters(name, [(schema, sort)], batch_size) as [sorter]:
            yield sorter

    @contextmanager
    def sorters(
        self,
        name: str,
        sorts: Sequence[tuple[pa.Schema, SortSchema]],
        batch_size: BatchSize | None = None,
    ) -> Iterator[list[Sorter]]:
        """Provides sorters, of these schemas and orders, which may emit rows at the same time."""
        # Imported here, since many pipelines sort nothing.
        from compactor.pipelines.sorting import Sorter

        size = batch_size or self.batch_size
        with ExitStack() as stack:
            sorters = [
                Sorter(
                    *sort, size, self.budget, name, self.disk, at_once=len(sorts), pool=self.pool
                )
                for sort in sorts
            ]
            for sorter in sorters:
                stack.enter_context(closing(sorter))
            self.budget.spill_by(
                name,
                lambda size: (
                    sum(sorter.spill(size) for sorter in sorters) or self.spill_buffers(name, size)
                ),
            )
            try:
                yield sorters
            finally:
                self.report.spills += sum(sorter.spills for sorter in sorters)

    def spill_buffers(self, name: str, size: int) -> int:
        form = self.forms.get(name)
        # A streaming edge frees only what is asked for, a blocking stage all it holds.
        wanted = size if form is not None and form.form is Form.BUILT else 1 << 62
        freed = 0
        for buffer in self._buffers.get(name, ()):
            if freed < wanted:
                freed += buffer.spill(wanted - freed)
        return freed

    def in_flight(self, name: str, batches: Batches) -> Batches:
        """Charges each batch that a node passes on, until the next one is asked for."""
        with Reservation(self.budget, name) as memory:
            for batch in batches:
                memory.free()
                memory.grow_beyond(batch.nbytes)
                yield batch

    def rows(self, edge: str) -> Batches:
        """Yields rows as `stream` does, without document boundaries."""
        return (batch for batch in self.stream(edge) if batch.num_rows)

    # --- threads ---

    def channel(
        self, records: int, stage: str, changed: threading.Condition | None = None
    ) -> Channel:
        channel = Channel(records, self.budget, stage, changed)
        self._channels.append(channel)
        return channel

    def reading_ahead(
        self, consumer: str, edge: str, changed: threading.Condition | None = None
    ) -> Channel:
        """Reads the rows of an edge in a thread."""
        channel = self.channel(CHANNEL_RECORDS, consumer, changed)
        return self._read_by_thread(channel, consumer, edge, self.stream(edge))

    def taken_ahead(self, consumer: str, edge: str) -> Batches:
        """Yields the rows of an edge, read in a thread where possible: whole batches, one of which may wait.

        That is possible for sources, also through transforms, unless their files are read ahead already; and
        for buffered results once they are complete: only one thread may compute results and charge them.
        """
        name = edge.split(".")[0]
        if self.is_read_ahead(edge):
            return self.rows(edge)
        if self.is_fused_chain(name):
            return self._whole_batches(consumer, edge, self.stream(edge))
        if not self._rests_on_held(name):
            return self.rows(edge)
        batches = self.rows(edge)
        first = next(batches, None)
        if first is None:
            return iter(())
        return self._whole_batches(consumer, edge, chain([first], batches))

    def _whole_batches(self, consumer: str, edge: str, batches: Batches) -> Batches:
        channel = self.channel(max(CHANNEL_RECORDS, self.batch_size.rows), consumer)
        return taken(self._read_by_thread(channel, consumer, edge, batches))

    def _rests_on_held(self, name: str) -> bool:
        """Returns whether a node's rows come from a buffered result, directly or through transforms."""
        node = self.nodes[name]
        if self.forms[name].form is not Form.FUSED:
            return not self.is_held_by_consumer(name)
        return (
            isinstance(node, Transform)
            and node.window is None
            and self._rests_on_held(node.input.split(".")[0])
        )

    def _read_by_thread(
        self, channel: Channel, consumer: str, edge: str, batches: Batches
    ) -> Channel:
        def read() -> None:
            error: BaseException | None = None
            try:
                for batch in batches:
                    channel.put(batch)
            except Stopped:
                return
            except BaseException as problem:  # noqa: BLE001 - raised where rows are taken
                error = problem
            finally:
                self.report.peak_waiting[edge] = channel.peak_records
                channel.close(error)

        thread = threading.Thread(target=read, name=f"read {edge}", daemon=True)
        if not started(thread):
            return Unthreaded(batches, self.budget, consumer)
        self._threads.append(thread)
        return channel

    def is_read_ahead(self, edge: str) -> bool:
        """Returns whether the rows come straight from a source, or through transforms, whose files are read
        ahead."""
        name = edge.split(".")[0]
        if not self.is_fused_chain(name):
            return False
        return bool(self.read_ahead.intersection(ancestors([name], self.nodes)))

    def is_fused_chain(self, name: str) -> bool:
        """Returns whether a thread can read the node: a source, or transforms of one."""
        node = self.nodes[name]
        if self.forms[name].form is not Form.FUSED:
            return False
        return isinstance(node, Source) or (
            isinstance(node, Transform) and self.is_fused_chain(node.input.split(".")[0])
        )


def taken(channel: Channel) -> Batches:
    while (batch := channel.take()) is not None:
        yield batch
