"""Runs a pipeline in one process: nodes pull batches from upstream; a merge reads its sources in threads."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack, closing
from typing import Any

import pyarrow as pa

from compactor.common import interrupts
from compactor.errors import CompactorError, ConfigError
from compactor.files.source import TypesDifferError
from compactor.files.write import check_sink_path
from compactor.pipelines.binding import WIDENED, WIDENED_TYPE, plain_schema
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.classify import (
    Classified,
    Form,
    correlated_source,
    passes_documents_on,
)
from compactor.pipelines.config import (
    Aggregate,
    Combine,
    Merge,
    Node,
    Output,
    Pipeline,
    Route,
    Source,
    inputs_of,
)
from compactor.pipelines.dead_letters import DeadLetters, opened_dead_letters
from compactor.pipelines.located import at_node, at_setting, publishing, rows_at
from compactor.pipelines.nodes import output, route, source
from compactor.pipelines.nodes.rows import bound, rows_of
from compactor.pipelines.nodes.source import OpenSource, SourceReader, open_source
from compactor.pipelines.projection import reading_used_columns
from compactor.pipelines.provenance import HIDDEN_NAMES, Batches, one_document
from compactor.pipelines.run_report import RunReport
from compactor.pipelines.work import RunContext
from compactor.settings.mistakes import with_others
from compactor.settings.paths import identity


class PipelineRun:
    """One execution of a pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        opener: OpenSource = open_source,
        *,
        dead_letters_sink: Any | None = None,
        reported: Collection[str] = (),
    ) -> None:
        """Opens sources for their schemas, and binds all nodes to them. Raises `CompactorError`.

        dead_letters_sink: where bad records go; None to open the pipeline's `dead_letter` file.
        reported: nodes that an earlier phase ran, with its bad records already written.
        """
        started = time.perf_counter()
        self._dead_letters_sink = dead_letters_sink
        self._reported = reported
        self._work = RunContext(pipeline, self._stream)
        self._nodes = self._work.nodes
        self._opener = opener
        self._readers: dict[str, SourceReader] = {}
        with ExitStack() as opened:
            opened.callback(self.close)
            mistakes, _ = self._bind_all(reading_used_columns(self._nodes))
            if any(isinstance(mistake, ConfigError) for mistake in mistakes.values()):
                self.close()
                # Messages name all columns of a source; other nodes may not go with those that nobody uses.
                found, right = self._bind_all(self._nodes)
                mistakes = {
                    name: found.get(name, mistake)
                    for name, mistake in mistakes.items()
                    if name not in right
                } or found
            if mistakes:
                raise with_others(list(mistakes.values()))
            self._check_keys(pipeline)
            self._claim_places()
            opened.pop_all()
        self._results: dict[str, BatchBuffer] = {}
        self._left: dict[str, int] = {}
        self.report.seconds = time.perf_counter() - started

    @property
    def forms(self) -> Mapping[str, Classified]:
        return self._work.forms

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """Result schemas by node; route branches as `route.branch`."""
        return self._work.schemas

    @property
    def report(self) -> RunReport:
        return self._work.report

    def close(self) -> None:
        """Closes the sources of a run that does not take place. Idempotent."""
        for reader in self._readers.values():
            reader.close()

    def _bind_all(self, nodes: Mapping[str, Node]) -> tuple[dict[str, CompactorError], set[str]]:
        """Binds all nodes but those behind mistakes. Returns the mistakes by node, and the other nodes that
        were bound."""
        mistakes: dict[str, CompactorError] = {}
        done: set[str] = set()
        for name in self._work.order:
            if {edge.split(".")[0] for edge in inputs_of(nodes[name])} <= done:
                try:
                    with at_node(self._work.pipeline, name):
                        self._bind(name, nodes[name])
                        self._check_names(name)
                    done.add(name)
                except CompactorError as mistake:
                    mistakes[name] = mistake
        return mistakes, done

    def _bind(self, name: str, node: Node) -> None:
        schemas = self._work.schemas
        given = [schemas[i] for i in inputs_of(node)]
        what = f"node {name!r}"
        match node:
            case Source():
                with self._work.scan_clock.on(name):
                    self._readers[name] = self._opener(name, node, self._work.reading_of(name))
                if self._readers[name].reads_ahead:
                    self._work.read_ahead.add(name)
                schemas[name] = plain_schema(self._readers[name].schema, what)
            case Route():
                schemas[name] = route.bound(node, given[0], what)
                schemas.update(dict.fromkeys(route.edges_of(name, node), given[0]))
            case Output():
                output.check(node, given[0], what)
            case _:
                schemas[name] = bound(self._work, name, node, given)

    def _check_names(self, name: str) -> None:
        for field in self.schemas.get(name, ()):
            if field.name in HIDDEN_NAMES or (field.name == WIDENED and field.type != WIDENED_TYPE):
                raise ConfigError(
                    f"node {name!r}: the column name {field.name!r} is reserved: choose another"
                )

    def _claim_places(self) -> None:
        """Checks that no output overwrites an input or another output."""
        work = self._work
        if (path := work.pipeline.path) is not None:
            work.places[identity(path)] = "the pipeline itself"
        for name, node in self._nodes.items():
            if isinstance(node, Merge) and node.entity is not None:
                for path in node.entity.pair_files:
                    work.places[identity(path)] = f"pairs of {name!r}"
            elif isinstance(node, Source):
                reader = self._readers[name]
                for path in reader.paths:
                    if reader.is_stream:
                        work.has_streams = True
                        with at_node(work.pipeline, name):
                            work.claim(path, f"node {name!r}")
                    else:
                        work.places[identity(path)] = f"the rows of {name!r}"
        if (letters := work.pipeline.dead_letter) is not None:
            with at_setting(work.pipeline, "dead_letter"):
                check_sink_path(letters)
                work.claim(letters, "dead_letter")
        for name, node in self._nodes.items():
            if isinstance(node, Output) and node.path is not None and node.split is None:
                with at_node(work.pipeline, name):
                    work.claim(node.path, f"node {name!r}")

    def _check_keys(self, pipeline: Pipeline) -> None:
        types: dict[pa.DataType, str] = {}
        for name, node in self._nodes.items():
            with at_node(pipeline, name):
                if isinstance(node, Source):
                    dtype = source.check_key(node, self.schemas[name], f"node {name!r}")
                    if dtype is not None:
                        types.setdefault(dtype, name)
                elif isinstance(node, (Aggregate, Combine)) or getattr(node, "entity", None):
                    self._check_mixes_no_groups(name, node)
        if len(types) > 1:
            [(one, first), (other, second), *_] = types.items()
            with at_node(pipeline, second):
                raise ConfigError(
                    f"the correlation keys of {first!r} and {second!r} are {one} and {other}: give both one "
                    "type by `fields`"
                )

    def _check_mixes_no_groups(self, name: str, node: Node) -> None:
        for edge in inputs_of(node):
            if (key := correlated_source(edge, self._nodes)) is not None:
                raise ConfigError(
                    f"node {name!r}: its rows come from {key!r}, which declares a correlation key, "
                    "and it makes rows of several groups: do that in a pipeline after this one"
                )

    def run(self) -> RunReport:
        """Runs the pipeline. On `CompactorError`, and on `TypesDifferError` if sources may have guesses, no
        output contains anything of this run, except those that the message names as published."""
        started = time.perf_counter()
        work = self._work
        with ExitStack() as whole, ExitStack() as stack:
            stack.callback(self.close)
            stack.push(self._settle_after)
            stack.enter_context(work.opened())
            sink = self._dead_letters_sink or stack.enter_context(
                opened_dead_letters(work.pipeline)
            )
            work.dead_letters = DeadLetters(
                list(self._nodes), work.report, sink, self._reported, file_of=self._file_of
            )
            outputs = [
                stack.enter_context(closing(output.Writing(work, name, node)))
                for name, node in self._nodes.items()
                if isinstance(node, Output)
            ]
            for each in outputs:
                if each.holds:
                    with at_node(work.pipeline, each.name):
                        each.hold()
            for each in outputs:
                with at_node(work.pipeline, each.name):
                    each.write()
            self._settle()
            whole.enter_context(interrupts.deferred())  # the dead letters appear last
            # Tables first: a concurrent writer can make a commit fail, but not a file's move.
            published: list[str] = []
            for each in sorted(outputs, key=lambda each: not each.is_table):
                with at_node(work.pipeline, each.name), publishing(each.name, published):
                    each.publish()
        work.report.scan_seconds = dict(work.scan_clock.seconds)
        work.report.node_seconds = dict(work.clock.seconds)
        work.report.peak_bytes = work.budget.peak_bytes
        work.report.seconds += time.perf_counter() - started
        return work.report

    def _settle_after(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (CompactorError, TypesDifferError)):
            self._settle()

    def _settle(self) -> None:
        """Raises `TypesDifferError` if types that were guessed do not hold, and the errors of the rows that
        were not read."""
        guesses = {name: reader for name, reader in self._readers.items() if reader.is_guess}
        if guesses:
            self._work.end_threads()
        for name, reader in guesses.items():
            with at_node(self._work.pipeline, name):
                reader.settle()
        if not all(reader.settle() for reader in self._readers.values()):
            raise TypesDifferError

    def _file_of(self, name: str, row: int) -> tuple[str, int] | None:
        reader = self._readers.get(name)
        return None if reader is None else reader.file_of(row)

    # --- row transport between nodes ---

    def _stream(self, edge: str) -> Batches:
        """Yields the rows of a node or branch, for one consumer."""
        name = edge.split(".")[0]
        node, form = self._nodes[name], self._work.forms[name].form
        if isinstance(node, Route):
            return self._branch(name, node, edge)
        if form is Form.FUSED:
            return self._work.in_flight(name, self._rows(name, node))
        if self._work.is_held_by_consumer(name):
            return self._rows(name, node)
        if form is Form.BUILT:
            return self._built(name, node)
        return self._materialized(name, node)

    def _rows(self, name: str, node: Node) -> Batches:
        """Runs the node. Call at most once: a source can be read only once."""
        if isinstance(node, Source):
            rows = source.rows(self._work, name, self._readers[name])
            return self._work.clock.timed(name, rows_at(self._work.pipeline, name, rows))
        rows = rows_at(self._work.pipeline, name, rows_of(self._work, name, node))
        rows = self._work.clock.timed(name, rows)
        if passes_documents_on(node):
            return rows
        return one_document(name, rows, self._work.full(self.schemas[name]))

    def _built(self, name: str, node: Node) -> Batches:
        buffer = self._work.buffer(name, self.schemas[name])
        for batch in self._rows(name, node):
            buffer.append(batch)
        yield from buffer.drain()

    def _materialized(self, name: str, node: Node) -> Batches:
        if name not in self._results:
            self._results[name] = buffer = self._work.buffer(name, self.schemas[name])
            self._left[name] = len(self._work.consumers[name])
            for batch in self._rows(name, node):
                buffer.append(batch)
        yield from self._shared(name)

    def _branch(self, name: str, node: Route, edge: str) -> Batches:
        taken = [edge for n in self._nodes.values() for edge in inputs_of(n)]
        if edge not in self._results:
            for each in route.edges_of(name, node):
                self._results[each] = self._work.buffer(name, self.schemas[name])
                self._left[each] = taken.count(each)
            for to, rows in route.divided(self._work, name, node):
                if self._left[to]:
                    self._results[to].append(rows)
        yield from self._shared(edge)

    def _shared(self, name: str) -> Batches:
        """Yields a buffered result; drops it after its last consumer."""
        yield from self._results[name]
        self._left[name] -= 1
        if self._left[name] == 0:
            self._results[name].close()
