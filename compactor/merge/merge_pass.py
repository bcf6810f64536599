"""One way through all inputs of a merge: keys, then column by column, then the checks."""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import CompactorError
from compactor.merge.chunk_encoder import ChunkEncoder
from compactor.merge.contract import MergedFragment, MergeResult, MergeSettings
from compactor.merge.copied import CopiedRowGroups
from compactor.merge.decoded import STAGE as CHUNKS
from compactor.merge.decoded import DecodedRows
from compactor.merge.errors import MergeCheckError
from compactor.merge.gather import Gatherer
from compactor.merge.key_merge import CopiedRowGroup, MergeWindow, decided, merge_keys
from compactor.merge.merge_input import InputFragment, MergeInput, PassingRule
from compactor.merge.merged_dictionary import MergedDictionary
from compactor.merge.outputs import OpenOutput, OutputFragment, Page, TimedSink
from compactor.merge.row_groups import (
    SIZE_UNITS,
    CopiedOutputGroup,
    CutRule,
    OutputGroup,
    cut_row_groups,
)
from compactor.merge.row_numbers import STAGE as ROW_HASHES
from compactor.merge.row_numbers import RowNumbers
from compactor.merge.row_order import GroupOrder, RowOrder
from compactor.merge.skips import OutputSkips
from compactor.merge.splits import Splits
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.fetch import ClosableSource, FetchedSource, FetchSettings
from compactor.resources.merge_plan import (
    GATHER_ROW_BYTES,
    OVERSHOOT_FACTOR,
    MergePlan,
)
from compactor.resources.stopwatch import STAGES, Stopwatch
from compactor.resources.tape import Tape
from compactor.resources.upload_memory import PARTS, BudgetedUploads
from compactor.rows.flags import DELETED, KEPT, Flags
from compactor.rows.fold import chooses, folded, kept_rows, merged_rows
from format.emitter import FragmentEmitter
from format.encode import by_dictionary
from format.footer import ValueStats, with_values
from format.hashing import combine
from format.keys import KeyComparator, key_at
from format.limits import max_written_bytes, most_written_bytes
from format.schema import FragmentHeader
from format.sizes import nulls_bytes
from format.types import storage_type

ORDER = "order"
_BOOK_BYTES: Final = 4 << 20
"""Of a column's distinct values, while they are moved as codes."""
_CLOSE_SECONDS: Final = 5.0
"""How long all connections together may take to end; one that hangs is left to itself."""
_MANY_ROWS: Final = 1024
I64 = npt.NDArray[np.int64]


class MergePass:
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
        before: MergePass | None = None,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._open_output = open_output
        self._budget = budget
        self._disk = disk
        self._splits = splits
        self._before = before
        self._watch: Stopwatch = before._watch if before else Stopwatch()
        self._compare = KeyComparator(settings.schema, settings.sort)
        rule = settings.rule
        self._key_order = (
            self._compare if rule is None else KeyComparator(settings.schema, rule.key)
        )
        """By which rows are of one key: no two outputs have rows of the same."""
        self._dropped: dict[str, int] = {}
        """Rows, by reason."""
        self._order_tape = Tape(budget, "row order", disk)
        self._order = RowOrder(self._order_tape)
        self._uploads = BudgetedUploads(budget, plan.upload_bytes)
        self._encoder = ChunkEncoder(
            budget,
            self._watch,
            settings.options.compression_level,
            in_thread=settings.encode_thread,
        )
        self._outputs: list[OutputFragment] = []
        self._schemas: list[pa.Schema] = []
        self._copied: dict[int, CopiedRowGroups] = {}
        self._origins_of_copied: dict[int, dict[int, tuple[int, int]]] = {}
        """By output and row group: input and row group."""
        self._waiting_bytes = self._book_bytes = self._bounds_bytes = 0
        self._began: tuple[float, float] | None = None
        """When the first keys were in order: by the clock, and of this thread's CPU."""
        budget.spill_by("row order", lambda _: self._order_tape.spill())
        budget.spill_by(ROW_HASHES, self._spill_row_hashes)
        budget.spill_by(
            "footer", lambda _: sum(o.shelf.spill() + o.skips.spill() for o in self._outputs)
        )
        budget.spill_by(CHUNKS, self._spill_chunks)
        budget.spill_by(PARTS, self._spill_parts)
        replays = before.replays(inputs) if before else [None] * len(inputs)
        self.replayed_inputs = sum(replay is not None for replay in replays)
        size_bytes = sum(fragment.size_bytes for fragment in inputs)
        self._keeps_inputs = (
            plan.keeps_inputs and before is None and disk.free_bytes() > 2 * size_bytes
        )
        self._sources: list[ClosableSource] = []
        try:
            for fragment, replay in zip(inputs, replays, strict=True):
                self._sources.append(replay or self._fetch(fragment))
        except BaseException:  # a thread that can't be started, of a thousand
            for source in self._sources:
                source.close()
            raise
        options = settings.options
        self._most_rows = min(options.max_rows, self._most_null_rows())
        passing = PassingRule(
            self._most_rows, options.target_row_group_bytes, options.compression_level
        )
        self._inputs = [
            MergeInput(
                fragment,
                source,
                budget,
                self._new_rows,
                settings.options.target_row_group_bytes,
                passing,
                self._watch,
                disk,
            )
            for fragment, source in zip(inputs, self._sources, strict=True)
        ]
        self._gatherer = Gatherer(self._inputs, budget, settings.options.target_row_group_bytes)

    @property
    def splits(self) -> Splits:
        """Of row groups that were too heavy; once there are any, the rest of the pass only measures."""
        return self._gatherer.splits

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

    def replays(self, inputs: Sequence[InputFragment]) -> list[ClosableSource | None]:
        """Of every input, what can be read again without a GET."""
        return [
            fragment.read_again()
            if fragment.read_again is not None
            else (source.replay() if isinstance(source, FetchedSource) else None)
            for fragment, source in zip(inputs, self._sources, strict=True)
        ]

    @property
    def fetch_wait_seconds(self) -> float:
        own = sum(s.wait_seconds for s in self._sources if isinstance(s, FetchedSource))
        return own + (self._before.fetch_wait_seconds if self._before else 0.0)

    def _run(self) -> MergeResult | None:
        for source in self._inputs:
            source.open(self._settings.schema, self._settings.sort, self._shared)
        with self._watch.on("order"):
            self._merge_keys()
        for name, present in self._columns():
            self._merge_column(name, present)
        self._encoder.flush()
        busy = self._busy_ratio()
        ends = [self._finish(index, source) for index, source in enumerate(self._inputs)]
        if self.splits:
            return None
        orders = self._order.groups()
        row_hashes = [self._row_hashes(output, orders) for output in self._outputs]
        self._check(ends, row_hashes)
        places = self._write_skips()
        outputs = [
            self._complete(output, hashes, place)
            for output, hashes, place in zip(self._outputs, row_hashes, places, strict=True)
            if output.groups
        ]
        self._abort_empty()
        deleted = sum(source.dropped_rows for source in self._inputs)
        if deleted:
            self._dropped[DELETED] = deleted
        return MergeResult(
            outputs,
            sum(rows for rows, _ in ends) + deleted,
            sum(output.summary.rows for output in outputs),
            1 if self._before else 0,
            self.replayed_inputs,
            self._disk.written_bytes,
            self.fetch_wait_seconds,
            busy,
            self._budget.peak_bytes,
            self._budget.peaks,
            self._order.copied_rows,
            self._dropped,
            self._stage_seconds(),
        )

    def _finish(self, index: int, source: MergeInput) -> tuple[int, int]:
        copied = self._copied.get(index)
        end = source.finish(copied)
        if copied is not None:
            self._budget.charge("footer", copied.nbytes)
            self._bounds_bytes += copied.nbytes
        return end

    def _stage_seconds(self) -> dict[str, float]:
        self._watch.move(self.fetch_wait_seconds, "decode", "fetch wait")
        return {stage: self._watch.seconds.get(stage, 0.0) for stage in STAGES}

    def _busy_ratio(self) -> float:
        if self._began is None:
            return 0.0
        clock, cpu = self._began
        busy = time.thread_time() - cpu + self._encoder.wait_seconds
        return busy / max(1e-9, time.perf_counter() - clock)

    def _abort(self) -> None:
        for output in self._outputs:
            # What can't be dropped now is for a vacuum; the error to be seen is the one that led here.
            with contextlib.suppress(CompactorError):
                output.sink.abort()

    def _abort_empty(self) -> None:
        """Those of whose rows none is written."""
        for output in self._outputs:
            if not output.groups:
                with contextlib.suppress(CompactorError):
                    output.sink.abort()

    def _close(self) -> None:
        self._encoder.close()
        for source in self._sources:
            if isinstance(source, FetchedSource):
                source.stop()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for source, decoded in zip(self._sources, self._inputs, strict=True):
            if isinstance(source, FetchedSource):
                source.close(max(0.0, deadline - time.monotonic()))
            decoded.close()
        self._charge_waiting(0)
        self._charge_dictionary(0)
        self._budget.discharge("footer", self._bounds_bytes)
        self._order_tape.close()
        for output in self._outputs:
            output.row_numbers.close()
            output.folded.close()
            output.skips.close()
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
        return DecodedRows(
            self._budget, self._disk, self._plan.slice_bytes, self._plan.reserve_bytes
        )

    def _spill_row_hashes(self, _size: int) -> int:
        freed = sum(o.row_numbers.spill() + o.folded.spill() for o in self._outputs)
        return freed + sum(source.spill_row_hashes() for source in self._inputs)

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
            self._inputs,
            self._compare,
            self._settings.sort,
            self._plan.batch_rows,
            self._plan.batch_bytes,
            self._settings.rule,
        )
        # Charged beforehand for all windows: a window takes most while it is made.
        with self._budget.holding(ORDER, self._plan.order_bytes):
            groups = cut_row_groups(self._noted(windows), self._cut_rule(), self._charge_waiting)
            for number, whole in enumerate(groups):
                if isinstance(whole, CopiedOutputGroup):
                    self._copy_key_group(self._output_of(whole), whole.whole)
                    continue
                for group in self._splits.divide(number, whole):
                    self._write_key_group(self._output_of(group), group)

    def _output_of(self, group: OutputGroup | CopiedOutputGroup) -> OutputFragment:
        if group.starts_fragment:
            self._outputs.append(self._start_output())
        return self._outputs[-1]

    def _noted(
        self, windows: Iterator[MergeWindow | CopiedRowGroup]
    ) -> Iterator[MergeWindow | CopiedRowGroup]:
        """With what becomes of the rows, which is counted."""
        for window in windows:
            self._began = self._began or (time.perf_counter(), time.thread_time())
            if isinstance(window, CopiedRowGroup):
                yield window
                continue
            flagged, dropped = decided(window, self._settings.rule)
            for reason, rows in dropped.items():
                self._dropped[reason] = self._dropped.get(reason, 0) + rows
            yield flagged

    def _charge_waiting(self, size: int) -> None:
        """What waits for its row group to be full."""
        if size > self._waiting_bytes:
            self._budget.charge(ORDER, size - self._waiting_bytes)
        else:
            self._budget.discharge(ORDER, self._waiting_bytes - size)
        self._waiting_bytes = size

    def _charge_dictionary(self, size: int) -> None:
        """What a column's distinct values take."""
        if size > self._book_bytes:
            self._budget.charge("gather", size - self._book_bytes)
        else:
            self._budget.discharge("gather", self._book_bytes - size)
        self._book_bytes = size

    def _cut_rule(self) -> CutRule:
        sizes = np.array([s.fragment.size_bytes for s in self._inputs], dtype=np.int64)
        rows = np.array([s.fragment.rows for s in self._inputs], dtype=np.int64)
        total, options = max(1, int(sizes.sum())), self._settings.options
        # Outputs of equal size rather than full ones and a small rest.
        fragments = max(1, round(total / self._settings.target_fragment_bytes))
        return CutRule(
            self._most_rows,
            options.target_row_group_bytes,
            max(1, total * SIZE_UNITS // fragments),
            -(-sizes * SIZE_UNITS // np.maximum(rows, 1)),
            [self._key_order.key(bound) for bound in self._settings.cut_keys],
            lambda window, row: self._compare.key(key_at(window.keys, row)),
        )

    def _most_null_rows(self) -> int:
        """Returns the most rows of which the nulls are no heavier than values may be, in every column: those
        of a wide type take as much as values, and a column may have no others."""
        types = [storage_type(field.type) for field in self._settings.schema]
        widest = max(nulls_bytes(_MANY_ROWS, dtype) for dtype in types)
        most_bytes = OVERSHOOT_FACTOR * self._settings.options.target_row_group_bytes
        return max(1, min(max_written_bytes(), most_bytes) * _MANY_ROWS // max(1, widest))

    def _start_output(self) -> OutputFragment:
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
        versions = [source.stream.version for source in self._inputs]
        try:
            numbers = RowNumbers(self._budget, self._disk, versions)
            emitter = FragmentEmitter(TimedSink(sink, self._watch), header, shelf)
            skips = OutputSkips(self._settings.skips, self._budget, self._disk)
            folded_numbers = RowNumbers(self._budget, self._disk, ())
            return OutputFragment(emitter, sink, numbers, shelf, skips, folded_numbers)
        except BaseException:
            sink.abort()
            raise

    def _write_key_group(self, output: OutputFragment, group: OutputGroup) -> None:
        names = [column.column for column in self._settings.sort]
        keys = group.keys
        if group.flags is not None:
            keys = [
                merged_rows(array, group.flags, name, self._settings.rule)
                for name, array in zip(names, keys, strict=True)
            ]
        if rows := len(keys[0]):
            size = sum(key.nbytes for key in keys)
            with self._budget.holding("encode", 2 * size):
                output.emitter.key_group(
                    [self._encoder.encode(array) for array in keys],
                    key_at(keys, 0),
                    key_at(keys, rows - 1),
                )
            output.groups += 1
            if (rule := self._settings.rule) is not None:
                output.row_statistics += rule.row_statistics(keys)
        is_folded = self._is_folded and group.flags is not None and rows > 0
        output.pages.append(
            Page(len(output.row_numbers), len(output.folded) if is_folded else None)
        )
        with self._watch.on("hash"):
            output.row_numbers.append(names, group.keys)
            if is_folded:
                output.folded.append(names, keys)
        self._order.append(group.origins, group.flags)

    def _copy_key_group(self, output: OutputFragment, whole: CopiedRowGroup) -> None:
        group = whole.group
        assert group.stored is not None
        output.emitter.pass_key_group(group.stored.take(), group.first_key, group.last_key)
        origins = self._origins_of_copied.setdefault(id(output), {})
        origins[output.groups] = whole.input, group.number
        output.groups += 1
        output.pages.append(None)
        if (rule := self._settings.rule) is not None:
            output.row_statistics = sum(
                map(rule.row_statistics, whole.pieces), start=output.row_statistics
            )
        self._order.append_copied(whole.input, group.rows, group.number)
        self._copied.setdefault(whole.input, CopiedRowGroups()).add(group.number)

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
        most_bytes = min(_BOOK_BYTES, self._settings.options.target_row_group_bytes)
        dictionary = MergedDictionary(name, dtype, most_bytes)
        orders = self._order.groups()
        number = 0
        for output in self._outputs:
            if not self.splits:
                self._encoder.then(partial(output.emitter.begin_column, name))
            for page in output.pages:
                order = next(orders)
                if page is None:
                    self._pass_chunk(name, dtype, order, present, output)
                else:
                    self._merge_chunk(name, dictionary, order, present, output, page, number)
                    self._charge_dictionary(dictionary.nbytes)
                number += 1
            if output.skips.wants(name):
                output.skips.end_column(name)
        self._charge_dictionary(0)

    def _pass_chunk(
        self,
        name: str,
        dtype: pa.DataType,
        order: GroupOrder,
        present: npt.NDArray[np.bool_],
        output: OutputFragment,
    ) -> None:
        index = int(order.inputs[0])
        block = self._inputs[index].next_block() if present[index] else None
        if self.splits:
            return
        self._encoder.flush()
        if output.skips.wants(name):
            with self._watch.on("decode"):
                nulls = pa.nulls(order.rows, dtype)
                array = nulls if block is None else block.decode(dtype, keep_dictionary=True)
            output.skips.add(name, array)
        if block is None:
            output.emitter.chunk(self._encoder.encode(pa.nulls(order.rows, dtype)))
        elif block.header.raw_bytes > most_written_bytes(block.header.stored_bytes):
            # Only this process may read it, by a larger limit than that of all.
            with self._budget.holding("decode", block.header.raw_bytes):
                array = block.decode(dtype, keep_dictionary=True)
                output.emitter.chunk(self._encoder.encode(array))
        else:
            with self._watch.on("pass on"):
                output.emitter.pass_chunk(block)

    def _merge_chunk(
        self,
        name: str,
        dictionary: MergedDictionary,
        order: GroupOrder,
        present: npt.NDArray[np.bool_],
        output: OutputFragment,
        page: Page,
        number: int,
    ) -> None:
        """One output row group of one column."""
        sources = [self._inputs[i] for i in order.inputs[present[order.inputs]]]
        size = 0
        try:
            with self._watch.on("gather"):
                gathered = self._gatherer.gather(dictionary, order, present, number)
            if gathered is None or self.splits:
                return
            array, codes = gathered
            is_decided = codes is not None
            if not pt.is_dictionary(array.type):
                # Before the rows are hashed: only distinct values need to be.
                with self._watch.on("encode"):
                    array, is_decided = by_dictionary(array), True
            in_work = 2 * array.nbytes + GATHER_ROW_BYTES * len(array)
            self._budget.charge("gather", in_work)
            size = in_work
            for source in sources:
                source.settle()
            sources = []
            if array.null_count < len(array):
                with self._watch.on("hash"):
                    known = None if codes is None else dictionary.contributions(codes)
                    output.row_numbers.add(page.number, name, array, known)
            if order.flags is not None:
                array, is_same = self._written(name, array, order.flags, output, page)
                is_decided &= is_same
            if len(array):
                if output.skips.wants(name):
                    with self._watch.on("encode"):
                        output.skips.add(name, array)
                self._encoder.put(array, output.emitter.chunk, is_decided=is_decided)
        finally:
            for source in sources:
                source.settle()
            self._budget.discharge("gather", size)

    @property
    def _is_folded(self) -> bool:
        """Whether rows that are written may be none of those taken."""
        rule = self._settings.rule
        return rule is not None and rule.policy.folds

    def _written(
        self, name: str, array: pa.Array, flags: Flags, output: OutputFragment, page: Page
    ) -> tuple[pa.Array, bool]:
        """What is written of the rows taken; and whether its values are some of theirs."""
        if page.folded is None:
            return kept_rows(array, flags), True
        assert self._settings.rule is not None
        function = self._settings.rule.policy.function(name)
        with self._watch.on("gather"):
            array = folded(array, flags, function, name)
        if array.null_count < len(array):
            with self._watch.on("hash"):
                output.folded.add(page.folded, name, array)
        return array, chooses(function)

    # --- checks ---

    def _check(self, ends: Sequence[tuple[int, int]], row_hashes: Sequence[Sequence[int]]) -> None:
        rows_in = sum(rows for rows, _ in ends)
        rows_out = sum(output.emitter.rows for output in self._outputs)
        rows_out += sum(self._dropped.values())
        hash_in = combine(*(row_hash for _, row_hash in ends))
        hash_out = combine(*(value for hashes in row_hashes for value in hashes))
        has_old = any(output.row_numbers.has_old for output in self._outputs)
        if has_old or self._dropped:
            # Of all rows taken: those that are not written went through the columns as well.
            orders = self._order.groups()
            hash_out = combine(
                *(
                    self._hash_taken(output, page, next(orders))
                    for output in self._outputs
                    for page in output.pages
                )
            )
        if (rows_in, hash_in) != (rows_out, hash_out):
            raise MergeCheckError(
                f"the merge of {len(ends)} fragments took {rows_in} rows of hash {hash_in:016x} "
                f"and gave {rows_out} rows of hash {hash_out:016x}; its outputs were dropped, the "
                "inputs are untouched"
            )

    def _row_hashes(self, output: OutputFragment, orders: Iterator[GroupOrder]) -> list[int]:
        """Of the row groups written."""
        hashes = (self._row_hash(output, page, next(orders)) for page in output.pages)
        return [value for value in hashes if value is not None]

    def _row_hash(self, output: OutputFragment, page: Page | None, order: GroupOrder) -> int | None:
        """Of a row group as it is written; None if no row of it is."""
        if page is None:
            assert order.copied is not None
            return self._copied[int(order.inputs[0])].row_hash(order.copied)
        if page.folded is not None:
            return output.folded.hash_of(page.folded)
        if order.flags is not None and not (order.flags & KEPT).any():
            return None
        return output.row_numbers.hash_of(page.number, order.flags)

    def _hash_taken(self, output: OutputFragment, page: Page | None, order: GroupOrder) -> int:
        """Of a row group as it was taken, by the rules that the inputs' hashes were made by."""
        if page is None:
            assert order.copied is not None
            return self._copied[int(order.inputs[0])].row_hash(order.copied)
        return output.row_numbers.comparable_hash(page.number, order.origins())

    def _with_values(self, output: OutputFragment) -> Callable[[bytes], bytes]:
        """Puts into a column's statistics what only the inputs' footers know of copied chunks."""
        if None not in output.pages:
            return lambda column: column
        origins = self._origins_of_copied[id(output)]

        def known(column: str, group: int) -> ValueStats | None:
            origin = origins.get(group)
            return None if origin is None else self._copied[origin[0]].values(column, origin[1])

        return lambda column: with_values(column, known)

    def _write_skips(self) -> list[dict[str, tuple[int, int]]]:
        """Of each output, where its skip indexes are."""
        open_sink = self._settings.open_skips
        if open_sink is None or not self._settings.skips.columns:
            return [{} for _ in self._outputs]
        sink, offset, places = open_sink(self._uploads), 0, []
        try:
            for output in self._outputs:
                columns = dict.fromkeys(output.skips.columns, (0, 0))
                for name, block in output.skips.blocks():
                    sink.write(block)
                    columns[name] = offset, len(block)
                    offset += len(block)
                places.append(columns)
            if offset:
                sink.complete()
            else:
                sink.abort()
        except BaseException:
            with contextlib.suppress(CompactorError):
                sink.abort()
            raise
        return places

    def _complete(
        self, output: OutputFragment, row_hashes: Sequence[int], skips: dict[str, tuple[int, int]]
    ) -> MergedFragment:
        with (
            self._watch.on("encode"),
            self._budget.holding("encode", 2 * output.shelf.size_bytes),
        ):
            summary = output.emitter.finish(row_hashes, self._with_values(output))
        for index, group in self._origins_of_copied.get(id(output), {}).values():
            copied_bytes = self._copied[index].heaviest_bytes(group)
            summary.peak_chunk_bytes = max(summary.peak_chunk_bytes, copied_bytes)
        with self._watch.on("upload wait"):
            output.sink.complete()
        emitter = output.emitter
        return MergedFragment(
            output.sink,
            emitter.header.schema,
            emitter.bytes_written,
            summary,
            output.row_statistics,
            skips,
        )
