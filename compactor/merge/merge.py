"""The streaming k-way merge, column at a time (the model is Datadog's Husky).

1. Keys: the sort columns of all inputs are merged a batch at a time into the row order, and the
   outputs' key sections are written on the way.
2. Columns, in lexicographic order: each is gathered by the row order one output row group at a time,
   encoded and appended to its output; inputs only ever move forward.
3. Checks: rows and commutative row hashes in equal those out, before any output is completed.

A row group that turns out far too heavy makes the rest of the pass a measurement; a second pass then
divides the row groups that need it. It is the last one: its row groups were measured.
"""

from __future__ import annotations

import contextlib
import heapq
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import CompactorError
from compactor.flow.budget import MemoryBudget
from compactor.flow.disk import LocalDisk
from compactor.flow.errors import MemoryLimitError
from compactor.flow.fetch import ClosableSource, FetchedSource, FetchSettings
from compactor.flow.tape import PagedNumbers, Tape
from compactor.flow.upload_memory import PARTS, BudgetedUploads
from compactor.memory_plan import (
    ORDER_ROW_BYTES,
    OVERSHOOT_FACTOR,
    MemorySettings,
    MergePlan,
)
from compactor.merge.decoded import STAGE as CHUNKS
from compactor.merge.decoded import DecodedRows
from compactor.merge.errors import MergeCheckError
from compactor.merge.key_merge import MergeWindow, merge_keys
from compactor.merge.merge_input import InputFragment, MergeInput
from compactor.merge.outputs import OpenOutput, Output, OutputSink
from compactor.merge.row_groups import SIZE_UNITS, CutRule, OutputGroup, cut_row_groups
from compactor.merge.row_order import GroupOrder, RowOrder
from compactor.merge.splits import Pieces, Splits, coded_bytes
from format.arrays import concat_storage
from format.blocks import Chunk, make_chunk
from format.emitter import FragmentEmitter
from format.errors import OrderError
from format.footer import FragmentSummary
from format.hashing import column_contributions, combine, fold_rows
from format.keys import Bound, KeyComparator, key_at, lower_bound, upper_bound
from format.schema import FragmentHeader, SortSchema
from format.sizes import cumulative_bytes
from format.types import storage_type
from format.writer import WriterOptions

ORDER = "order"
_CLOSE_SECONDS: Final = 5.0
"""How long all connections together may take to end; one that hangs is left to itself."""
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """What a merge needs to know beyond its inputs."""

    schema: pa.Schema
    sort: SortSchema
    options: WriterOptions
    """`max_rows` and `target_row_group_bytes` bound every output row group."""
    target_fragment_bytes: int
    cut_keys: Sequence[Bound] = ()
    """Lower bounds, ascending, before which outputs end if they are large enough."""
    memory: MemorySettings = field(default_factory=MemorySettings)


@dataclass(frozen=True, slots=True)
class MergedFragment:
    """A completed output."""

    sink: OutputSink
    schema: pa.Schema
    size_bytes: int
    summary: FragmentSummary


@dataclass(frozen=True, slots=True)
class MergeResult:
    outputs: list[MergedFragment]
    rows_in: int
    rows_out: int
    restarts: int
    """Second passes: 0 or 1."""
    replayed_inputs: int
    """Inputs that the second pass read from local disk."""
    spilled_bytes: int
    """Put on local disk in all, inputs that were kept included."""
    fetch_wait_seconds: float
    cpu_busy_ratio: float
    """CPU seconds of the merging thread for a second of the clock, from the first keys in order to the last
    chunk encoded."""
    peak_bytes: int
    """Most that was charged at a time."""
    stage_peak_bytes: dict[str, int]


def merge_fragments(
    inputs: Sequence[InputFragment],
    settings: MergeSettings,
    plan: MergePlan,
    open_output: OpenOutput,
) -> MergeResult:
    """Merges sorted fragments into disjoint sorted ones; `open_output` gives each next one a sink.

    Equal keys keep the order of `inputs`, then of position. One `open_source` call an input, and a
    second one only where a second pass finds it not kept on disk.
    Raises `FormatError` for damaged inputs, `InputMismatchError`, `MergeCheckError`, `MemoryLimitError`,
    `LocalDiskError`. On any error all outputs are aborted.
    """
    if plan.stages.need_bytes > plan.stages.limit_bytes:
        raise MemoryLimitError(
            f"a merge of {len(inputs)} fragments needs {plan.stages.need_bytes / 2**20:.0f} MiB, the memory "
            f"limit is {plan.stages.limit_bytes / 2**20:.0f} MiB: raise --memory-limit to "
            f"{-(-plan.stages.need_bytes // 2**20)} MiB or more"
        )
    budget = MemoryBudget(plan.stages)
    disk = LocalDisk(settings.memory.spool_directory)
    try:
        first = _Pass(inputs, settings, plan, open_output, budget, disk, Splits())
        result = first.run()
        if result is not None:
            return result
        second = _Pass(
            inputs, settings, plan, open_output, budget, disk, first.splits, before=first
        )
        result = second.run()
        if result is None:
            raise MergeCheckError(
                "row groups were too heavy again although all were measured: this is a defect; the "
                "inputs are untouched"
            )
        return result
    finally:
        disk.close()


class _Pass:
    """One way through all inputs."""

    def __init__(
        self,
        inputs: Sequence[InputFragment],
        settings: MergeSettings,
        plan: MergePlan,
        open_output: OpenOutput,
        budget: MemoryBudget,
        disk: LocalDisk,
        splits: Splits,
        before: _Pass | None = None,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._open_output = open_output
        self._budget = budget
        self._disk = disk
        self._splits = splits
        self.splits = Splits()
        """Found in this pass; once there are any, the rest of it only measures."""
        self._before = before
        self._compare = KeyComparator(settings.schema, settings.sort)
        self._order_tape = Tape(budget, "row order", disk)
        self._order = RowOrder(self._order_tape)
        self._uploads = BudgetedUploads(budget, plan.upload_bytes)
        self._outputs: list[Output] = []
        self._schemas: list[pa.Schema] = []
        self._began: tuple[float, float] | None = None
        """When the first keys were in order: by the clock, and of this thread's CPU."""
        budget.spill_by("row order", lambda _: self._order_tape.spill())
        budget.spill_by("row hashes", self._spill_row_hashes)
        budget.spill_by("footer", lambda _: sum(o.shelf.spill() for o in self._outputs))
        budget.spill_by(CHUNKS, self._spill_chunks)
        budget.spill_by(PARTS, self._spill_parts)
        replays = before.replays() if before else [None] * len(inputs)
        self.replayed_inputs = sum(replay is not None for replay in replays)
        size_bytes = sum(fragment.size_bytes for fragment in inputs)
        self._most_bytes = OVERSHOOT_FACTOR * settings.options.target_row_group_bytes
        """Of a row group of more than one row in one column."""
        self._keeps_inputs = (
            plan.keeps_inputs and before is None and disk.free_bytes() > 2 * size_bytes
        )
        self._sources = [
            replay or self._fetch(fragment)
            for fragment, replay in zip(inputs, replays, strict=True)
        ]
        self._inputs = [
            MergeInput(
                fragment, source, budget, self._new_rows, settings.options.target_row_group_bytes
            )
            for fragment, source in zip(inputs, self._sources, strict=True)
        ]

    def run(self) -> MergeResult | None:
        """None if row groups were too heavy: `splits` has them, and nothing is left of the outputs."""
        try:
            result = self._run()
            if result is None:
                self._abort()
            return result
        except BaseException:
            self._abort()
            raise
        finally:
            self._close()

    def replays(self) -> list[ClosableSource | None]:
        """Of every input, what can be read again without a GET."""
        return [s.replay() if isinstance(s, FetchedSource) else None for s in self._sources]

    @property
    def fetch_wait_seconds(self) -> float:
        own = sum(s.wait_seconds for s in self._sources if isinstance(s, FetchedSource))
        return own + (self._before.fetch_wait_seconds if self._before else 0.0)

    def _run(self) -> MergeResult | None:
        for source in self._inputs:
            source.open(self._settings.schema, self._settings.sort, self._shared)
        self._merge_keys()
        for name, present in self._columns():
            self._merge_column(name, present)
        busy = self._busy_ratio()
        ends = [source.finish() for source in self._inputs]
        if self.splits:
            return None
        row_hashes = [self._row_hashes(output) for output in self._outputs]
        self._check(ends, row_hashes)
        outputs = [
            self._complete(output, hashes)
            for output, hashes in zip(self._outputs, row_hashes, strict=True)
        ]
        rows = sum(rows for rows, _ in ends)
        return MergeResult(
            outputs,
            rows,
            sum(output.summary.rows for output in outputs),
            1 if self._before else 0,
            self.replayed_inputs,
            self._disk.written_bytes,
            self.fetch_wait_seconds,
            busy,
            self._budget.peak_bytes,
            self._budget.peaks,
        )

    def _busy_ratio(self) -> float:
        if self._began is None:
            return 0.0
        clock, cpu = self._began
        return (time.thread_time() - cpu) / max(1e-9, time.perf_counter() - clock)

    def _abort(self) -> None:
        for output in self._outputs:
            # What can't be dropped now is for a vacuum; the error to be seen is the one that led here.
            with contextlib.suppress(CompactorError):
                output.sink.abort()

    def _close(self) -> None:
        for source in self._sources:
            if isinstance(source, FetchedSource):
                source.stop()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for source, decoded in zip(self._sources, self._inputs, strict=True):
            if isinstance(source, FetchedSource):
                source.close(max(0.0, deadline - time.monotonic()))
            decoded.clear()
        self._order_tape.close()
        for output in self._outputs:
            output.row_numbers.close()
            output.shelf.close()

    # --- memory ---

    def _fetch(self, fragment: InputFragment) -> FetchedSource:
        memory = self._settings.memory
        settings = FetchSettings(
            self._plan.window_bytes,
            self._plan.piece_bytes,
            memory.spool_after_seconds,
            keeps_all=self._keeps_inputs,
        )
        return FetchedSource(
            fragment.open_source, settings, self._budget, self._disk, fragment.size_bytes
        )

    def _new_rows(self) -> DecodedRows:
        return DecodedRows(self._budget, self._disk, self._plan.slice_bytes)

    def _spill_row_hashes(self, _size: int) -> int:
        return sum(output.row_numbers.spill() for output in self._outputs)

    def _spill_chunks(self, size: int) -> int:
        """The largest first."""
        freed = 0
        for source in sorted(self._inputs, key=lambda source: -source.spillable_bytes):
            if freed >= size or not source.spillable_bytes:
                break
            freed += source.spill()
        return freed

    def _spill_parts(self, _size: int) -> int:
        before = self._budget.held_bytes(PARTS)
        for output in self._outputs:
            output.sink.spill(self._disk)
        return before - self._budget.held_bytes(PARTS)

    def _shared(self, header: FragmentHeader) -> FragmentHeader:
        """With a schema that earlier inputs have too, if one does: a thousand copies would add up."""
        for schema in self._schemas:
            if schema.equals(header.schema, check_metadata=True):
                return header.with_schema(schema)
        self._schemas.append(header.schema)
        return header

    # --- keys ---

    def _merge_keys(self) -> None:
        windows = merge_keys(
            self._inputs, self._compare, self._settings.sort, self._plan.batch_rows
        )
        for number, whole in enumerate(cut_row_groups(self._charged(windows), self._cut_rule())):
            for group in self._splits.divide(number, whole):
                if group.starts_fragment:
                    self._outputs.append(self._start_output())
                self._write_key_group(self._outputs[-1], group)

    def _charged(self, windows: Iterator[MergeWindow]) -> Iterator[MergeWindow]:
        """While a window is in use, what was needed to make it is charged."""
        for window in windows:
            self._began = self._began or (time.perf_counter(), time.thread_time())
            size = sum(key.nbytes for key in window.keys) + window.rows * ORDER_ROW_BYTES
            with self._budget.holding(ORDER, 2 * size):
                yield window

    def _cut_rule(self) -> CutRule:
        sizes = np.array([s.fragment.size_bytes for s in self._inputs], dtype=np.int64)
        rows = np.array([s.fragment.rows for s in self._inputs], dtype=np.int64)
        total, options = max(1, int(sizes.sum())), self._settings.options
        # Outputs of equal size rather than full ones and a small rest.
        fragments = max(1, round(total / self._settings.target_fragment_bytes))
        return CutRule(
            options.max_rows,
            options.target_row_group_bytes,
            max(1, total * SIZE_UNITS // fragments),
            -(-sizes * SIZE_UNITS // np.maximum(rows, 1)),
            [self._compare.key(bound) for bound in self._settings.cut_keys],
            lambda window, row: self._compare.key(key_at(window.keys, row)),
        )

    def _start_output(self) -> Output:
        sink = self._open_output(self._uploads)
        present = {name for schema in self._schemas for name in schema.names}
        schema = pa.schema(
            [column for column in self._settings.schema if column.name in present],
            metadata=self._settings.schema.metadata,
        )
        if self._outputs and self._outputs[0].emitter.header.schema.equals(
            schema, check_metadata=True
        ):
            schema = self._outputs[0].emitter.header.schema
        options = self._settings.options
        header = FragmentHeader(
            schema,
            self._settings.sort,
            options.max_rows,
            options.writer_json(),
            tuple(source.fragment.source_id for source in self._inputs),
        )
        shelf = Tape(self._budget, "footer", self._disk)
        numbers = PagedNumbers(self._budget, "row hashes", self._disk)
        try:
            return Output(FragmentEmitter(sink, header, shelf), sink, numbers, shelf)
        except BaseException:
            sink.abort()
            raise

    def _write_key_group(self, output: Output, group: OutputGroup) -> None:
        schema, sort = self._settings.schema, self._settings.sort
        size = sum(key.nbytes for key in group.keys)
        with self._budget.holding("encode", 2 * size):
            output.emitter.key_group(
                [self._encode(array) for array in group.keys],
                lower_bound(key_at(group.keys, 0), schema, sort),
                upper_bound(key_at(group.keys, group.rows - 1), schema, sort),
            )
        numbers = np.zeros(group.rows, dtype=np.uint64)
        for column, array in zip(sort, group.keys, strict=True):
            numbers += column_contributions(column.column, array)
        output.row_numbers.append(numbers)
        self._order.append(group.origins)

    # --- columns ---

    def _columns(self) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """Names in lexicographic order, each with the inputs that have it; all must have taken it before
        the next."""
        waiting: dict[bytes, list[int]] = {}
        names: list[bytes] = []

        def add(index: int, column: str | None) -> None:
            if column is not None:
                name = column.encode()
                if name not in waiting:
                    heapq.heappush(names, name)
                waiting.setdefault(name, []).append(index)

        for index, source in enumerate(self._inputs):
            add(index, source.column)
        while names:
            name = heapq.heappop(names)
            indices = waiting.pop(name)
            present = np.zeros(len(self._inputs), dtype=np.bool_)
            present[indices] = True
            yield name.decode(), present
            for index in indices:
                add(index, self._inputs[index].end_column())

    def _merge_column(self, name: str, present: npt.NDArray[np.bool_]) -> None:
        dtype = storage_type(self._settings.schema.field(name).type)
        orders = self._order.groups()
        number = 0
        for output in self._outputs:
            if not self.splits:
                output.emitter.begin_column(name)
            for page in range(len(output.row_numbers)):
                self._merge_chunk(name, dtype, next(orders), present, output, page, number)
                number += 1

    def _merge_chunk(
        self,
        name: str,
        dtype: pa.DataType,
        order: GroupOrder,
        present: npt.NDArray[np.bool_],
        output: Output,
        page: int,
        number: int,
    ) -> None:
        """One output row group of one column."""
        sources = [self._inputs[i] for i in order.inputs[present[order.inputs]]]
        size = 0
        try:
            array = self._gather(dtype, order, present, number)
            if array is None or self.splits:
                return
            self._budget.charge("gather", 2 * array.nbytes)
            size = 2 * array.nbytes
            for source in sources:
                source.settle()
            sources = []
            if array.null_count < len(array):
                numbers = output.row_numbers.get(page)
                numbers += column_contributions(name, array)
                output.row_numbers.put(page, numbers)
            with self._budget.holding("encode", size):
                output.emitter.chunk(self._encode(array))
        finally:
            for source in sources:
                source.settle()
            self._budget.discharge("gather", size)

    def _gather(
        self,
        dtype: pa.DataType,
        order: GroupOrder,
        present: npt.NDArray[np.bool_],
        number: int,
    ) -> pa.Array | None:
        """The row group's values; None if it is too heavy, or was only to be measured: `splits` knows."""
        has_rows = present[order.inputs]
        if not has_rows.any():
            return pa.nulls(order.rows, dtype)
        pieces = self._take(dtype, order, has_rows)
        positions = _positions(order, has_rows)
        if (sizes := pieces.sizes) is not None:
            if order.rows > 1 and int(sizes.sum()) > self._most_bytes:
                self._split(number, sizes, positions)
            return None
        arrays = pieces.arrays
        size = sum(array.nbytes for array in arrays) if len(arrays) > 1 else 0
        with self._budget.holding("gather", size):
            array = concat_storage(arrays)
            if positions is not None:
                array = pc.take(array, positions, boundscheck=False)
        if (
            pieces.is_coded
            and order.rows > 1
            and array.nbytes > self._most_bytes < coded_bytes(array)
        ):
            self._split(number, np.diff(cumulative_bytes(array)), None)
            return None
        return array

    def _take(
        self, dtype: pa.DataType, order: GroupOrder, has_rows: npt.NDArray[np.bool_]
    ) -> Pieces:
        """The rows of those inputs that have the column, end to end."""
        most = self._most_bytes if order.rows > 1 else sys.maxsize
        pieces = Pieces(most, only_weighs=bool(self.splits))
        for index, count in zip(order.inputs[has_rows], order.counts[has_rows], strict=True):
            source, left = self._inputs[index], int(count)
            while left:
                piece = source.take_piece(dtype, left)
                left -= len(piece)
                if not pieces.add(piece):
                    del piece
                    source.settle()
        return pieces

    def _split(self, number: int, sizes: I64, positions: pa.Array | None) -> None:
        if positions is not None:
            sizes = pc.take(pa.array(sizes), positions).fill_null(0).to_numpy()
        running = np.concatenate(([0], np.cumsum(sizes)))
        self.splits.add(number, running, self._settings.options.target_row_group_bytes)

    def _encode(self, array: pa.Array) -> Chunk:
        return make_chunk(array, level=self._settings.options.compression_level)

    # --- checks ---

    def _row_hashes(self, output: Output) -> list[int]:
        numbers = output.row_numbers
        return [fold_rows(numbers.get(page)) for page in range(len(numbers))]

    def _check(self, ends: Sequence[tuple[int, int]], row_hashes: Sequence[Sequence[int]]) -> None:
        rows_in = sum(rows for rows, _ in ends)
        rows_out = sum(output.emitter.rows for output in self._outputs)
        hash_in = combine(*(row_hash for _, row_hash in ends))
        hash_out = combine(*(value for hashes in row_hashes for value in hashes))
        if (rows_in, hash_in) != (rows_out, hash_out):
            raise MergeCheckError(
                f"the merge of {len(ends)} fragments took {rows_in} rows of hash {hash_in:016x} "
                f"and gave {rows_out} rows of hash {hash_out:016x}; its outputs were dropped, the "
                "inputs are untouched"
            )

    def _complete(self, output: Output, row_hashes: Sequence[int]) -> MergedFragment:
        with self._budget.holding("encode", 2 * output.shelf.size_bytes):
            summary = output.emitter.finish(row_hashes)
        output.sink.complete()
        emitter = output.emitter
        return MergedFragment(output.sink, emitter.header.schema, emitter.bytes_written, summary)


def _positions(order: GroupOrder, has_rows: npt.NDArray[np.bool_]) -> pa.Array | None:
    """Where each output row lies in the rows of those inputs that have the column, laid end to end; null
    where its input has not. None: all as they lie."""
    positions = order.positions()
    if has_rows.all():
        return None if positions is None else pa.array(positions)
    if positions is None:
        positions = np.arange(order.rows)
    counts = order.counts.astype(np.int64)
    owner = np.searchsorted(np.cumsum(counts), positions, side="right")
    skipped = np.cumsum(np.where(has_rows, 0, counts))
    return pa.array(positions - skipped[owner], mask=~has_rows[owner])


__all__ = [
    "InputFragment",
    "MergeResult",
    "MergeSettings",
    "MergedFragment",
    "OrderError",
    "OutputSink",
    "merge_fragments",
]
