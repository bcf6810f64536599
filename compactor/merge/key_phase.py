"""Runs the key phase of a merge: turns the sort columns of all inputs into the row order and the outputs' key
sections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from compactor.merge.context import MergeContext
from compactor.merge.groups.group_work import KeyChunks, KeyGroup, make_key_chunks
from compactor.merge.groups.row_groups import (
    SIZE_UNITS,
    CopiedOutputGroup,
    CutRule,
    OutputGroup,
    cut_row_groups,
)
from compactor.merge.groups.splits import Splits
from compactor.merge.inputs.copied import CopiedRowGroups
from compactor.merge.inputs.schemas import InputSchemas
from compactor.merge.order.key_merge import CopiedRowGroup, MergedBatch, merge_keys
from compactor.merge.order.keys_in_order import KeyPieces, WaitingKeys
from compactor.merge.outputs.sinks import GroupNumbers, OpenOutput, OutputFragment, TimedSink
from compactor.merge.outputs.skips import OutputSkips
from compactor.resources.merge_plan import WORK_COPIES, WORK_ROW_BYTES
from compactor.resources.merge_stages import FOOTER, ORDER
from compactor.resources.record_buffer import NumberArrays, RecordBuffer
from compactor.resources.reservation import Reservation
from lsm_fragment.container.emitter import FragmentEmitter
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.keys.comparator import KeyComparator


class KeyPhase:
    """The key phase: merges keys a batch at a time, cuts row groups and outputs, and writes key sections."""

    def __init__(
        self,
        context: MergeContext,
        schemas: InputSchemas,
        open_output: OpenOutput,
        splits: Splits,
        max_group_rows: int,
    ) -> None:
        """schemas: those of the inputs, once these are open. splits: splits of row groups that an earlier
        pass found too heavy. max_group_rows: limit for a row group."""
        self._context = context
        self._open_output = open_output
        self._splits = splits
        self._max_group_rows = max_group_rows
        self._schemas = schemas
        settings, rule = context.settings, context.settings.rule
        self._compare = KeyComparator(settings.schema, settings.sort)
        self._key_order = (
            self._compare if rule is None else KeyComparator(settings.schema, rule.key)
        )
        """Compares keys by which outputs are cut: no two outputs have rows of the same key."""
        self._keys = WaitingKeys([source.keys for source in context.inputs], self._compare.layout)
        self._waiting = Reservation(context.budget, ORDER)
        """The memory of rows that wait until their row group is full."""
        self.began: tuple[float, float] | None = None
        """When the first keys were in order: seconds of the clock, and of this thread's CPU."""

    def run(self) -> None:
        """Runs the phase. Raises what `merge_fragments` raises; then outputs are open, and the caller must
        abort them."""
        batches = merge_keys(
            self._context.inputs,
            self._compare,
            self._context.settings.sort,
            self._context.plan.batch_rows,
            self._context.plan.batch_bytes,
            self._context.settings.rule,
        )
        # Reserved in advance for all batches, because a batch takes most memory while it is made.
        with Reservation(self._context.budget, ORDER, self._context.plan.order_bytes):
            groups = cut_row_groups(
                self._noted(batches), self._cut_rule(), self._keys, self._waiting
            )
            for number, whole in enumerate(groups):
                if isinstance(whole, CopiedOutputGroup):
                    self._copy_key_group(self._output_of(whole), whole.whole)
                    continue
                for group in self._splits.divide(number, whole):
                    self._write_key_group(self._output_of(group), group)
            self._context.tasks.flush()

    def _output_of(self, group: OutputGroup | CopiedOutputGroup) -> OutputFragment:
        if group.starts_fragment:
            self._context.outputs.append(self._start_output())
        return self._context.outputs[-1]

    def _noted(
        self, batches: Iterator[MergedBatch | CopiedRowGroup]
    ) -> Iterator[MergedBatch | CopiedRowGroup]:
        """Yields batches, and counts the rows that are not written."""
        for batch in batches:
            self.began = self.began or (time.perf_counter(), time.thread_time())
            if isinstance(batch, MergedBatch):
                self._context.order.note_dropped(batch.dropped)
            yield batch

    def _cut_rule(self) -> CutRule:
        sizes = np.array([s.fragment.size_bytes for s in self._context.inputs], dtype=np.int64)
        rows = np.array([s.fragment.rows for s in self._context.inputs], dtype=np.int64)
        total, options = max(1, int(sizes.sum())), self._context.settings.options
        # Divides evenly, so that outputs have equal sizes rather than leaving a small last one.
        fragments = max(1, round(total / self._context.settings.target_fragment_bytes))
        return CutRule(
            self._max_group_rows,
            options.target_row_group_bytes,
            max(1, total * SIZE_UNITS // fragments),
            -(-sizes * SIZE_UNITS // np.maximum(rows, 1)),
            [self._key_order.key(bound) for bound in self._context.settings.cut_keys],
        )

    def _start_output(self) -> OutputFragment:
        sink = self._open_output(self._context.uploads)
        present = self._schemas.column_names()
        schema = pa.schema(
            [column for column in self._context.settings.schema if column.name in present],
            metadata=self._context.settings.schema.metadata,
        )
        if self._context.outputs and self._context.outputs[0].emitter.header.schema.equals(
            schema, check_metadata=True
        ):
            schema = self._context.outputs[0].emitter.header.schema
        options = self._context.settings.options
        header = FragmentHeader(
            schema=schema,
            sort=self._context.settings.sort,
            max_rows=options.max_rows,
            writer=options.writer_json(),
            sources=tuple(source.fragment.source_id for source in self._context.inputs),
        )
        footer_records = RecordBuffer(self._context.budget, FOOTER, self._context.disk)
        try:
            numbers = NumberArrays(self._context.budget, self._context.disk)
            emitter = FragmentEmitter(TimedSink(sink, self._context.watch), header, footer_records)
            skips = OutputSkips(
                self._context.settings.skips, self._context.budget, self._context.disk
            )
            folded_numbers = NumberArrays(self._context.budget, self._context.disk)
            return OutputFragment(
                emitter=emitter,
                sink=sink,
                row_numbers=numbers,
                footer_records=footer_records,
                skips=skips,
                folded=folded_numbers,
            )
        except BaseException:
            sink.abort()
            raise

    def _write_key_group(self, output: OutputFragment, group: OutputGroup) -> None:
        settings = self._context.settings
        names = [column.column for column in settings.sort]
        level = settings.options.compression_level
        taken, size = self._taken(group)
        keys = KeyGroup(
            names=names,
            pieces=taken.columns,
            origins=taken.origins,
            flags=group.flags,
            rule=settings.rule,
            level=level,
        )
        self._context.tasks.put(
            partial(make_key_chunks, keys),
            partial(self._append, output),
            size=size,
            pins=taken.pins,
        )
        self._context.order.append(taken.inputs, taken.origins, group.flags)

    def _taken(self, group: OutputGroup) -> tuple[KeyPieces, int]:
        """Takes the sort columns of a row group. Returns them, and the bytes that the work on them takes.

        Other rows go to disk if there is no room for the work. If that is not enough, those to be taken go,
        too, and come back some at a time.
        """
        budget = self._context.budget
        keys = self._keys.borrow(group.origins)
        size = _work_bytes(keys)
        if not budget.make_room(size, is_urgent=True):
            counts = keys.counts
            keys.pins.free()
            del keys  # and with it their arrays
            self._keys.spill(counts)
            budget.make_room(size + size // WORK_COPIES)
            keys = self._keys.borrow(group.origins)
            size = _work_bytes(keys)
        self._keys.drop(keys.counts)
        return keys, size

    def _append(self, output: OutputFragment, made: KeyChunks) -> None:
        """Takes the chunks of a row group's keys, in output order."""
        self._context.watch.add(made.seconds)
        if made.chunks:
            output.emitter.key_group(made.chunks, made.first_key, made.last_key)
            output.groups += 1
            output.row_statistics += made.row_statistics
        is_folded = made.folded_contributions is not None
        output.row_groups.append(
            GroupNumbers(len(output.row_numbers), len(output.folded) if is_folded else None)
        )
        output.row_numbers.append(made.contributions)
        if made.folded_contributions is not None:
            output.folded.append(made.folded_contributions)

    def _copy_key_group(self, output: OutputFragment, whole: CopiedRowGroup) -> None:
        self._context.tasks.flush()
        group = whole.group
        assert group.stored is not None
        output.emitter.copy_key_group(group.stored.take(), group.first_key, group.last_key)
        output.copied_from[output.groups] = whole.input, group.number
        output.groups += 1
        output.row_groups.append(None)
        if (rule := self._context.settings.rule) is not None:
            output.row_statistics = sum(
                map(rule.row_statistics, whole.pieces), start=output.row_statistics
            )
        self._context.order.append_copied(whole.input, group.rows, group.number)
        self._context.copied.setdefault(whole.input, CopiedRowGroups()).add(group.number)

    def close(self) -> None:
        self._waiting.free()


def _work_bytes(keys: KeyPieces) -> int:
    gathered = sum(pieces.gathered_bytes() for pieces in keys.columns)
    return WORK_COPIES * gathered + WORK_ROW_BYTES * len(keys.origins)
