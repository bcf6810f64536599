"""Runs the column phase of a merge: replays the row order on one column and one output row group at a
time."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.merge.context import MergeContext
from compactor.merge.groups.column_cursors import ColumnCursors
from compactor.merge.groups.column_pieces import ColumnPieces
from compactor.merge.groups.group_work import ColumnChunk, ColumnRows, make_column_chunk
from compactor.merge.groups.splits import Splits, stops_within
from compactor.merge.order.row_order import GroupOrder
from compactor.merge.outputs.sinks import GroupNumbers, OutputFragment
from compactor.resources.merge_plan import OVERSHOOT_FACTOR, WORK_COPIES, WORK_ROW_BYTES
from compactor.resources.merge_stages import DECODE
from compactor.resources.reservation import Reservation
from compactor.rows.flags import is_divisible
from compactor.rows.fold import FoldError
from compactor.rows.policy import RowFunction
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.container.block import Block
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.encodings.registry import LESS_THAN_TEXT
from lsm_fragment.gather.nested import positions_by_source
from lsm_fragment.limits import max_chunk_bytes, max_written_bytes, written_limit_bytes


class _GroupFoldError(Exception):
    """A `FoldError` of one output row group."""

    def __init__(self, group: int, cause: FoldError) -> None:
        super().__init__(str(cause))
        self.group = group
        self.cause = cause


def _made(rows: ColumnRows, group: int) -> ColumnChunk:
    try:
        return make_column_chunk(rows)
    except FoldError as error:
        raise _GroupFoldError(group, error) from None


class ColumnPhase:
    """The column phase: takes each column's rows from the inputs in the row order; threads make chunks."""

    def __init__(self, context: MergeContext) -> None:
        self._context = context
        self._target_bytes = context.settings.options.target_row_group_bytes
        self.splits = Splits()
        """Splits of row groups that were too heavy; once there are any, the rest of the pass only
        measures."""

    def run(self) -> None:
        """Runs the phase. Raises what `make_column_chunk` raises; a `FoldError` says which row of which input
        it is about."""
        try:
            for name, present in self._columns():
                self._merge_column(name, present)
            self._context.tasks.flush()
        except _GroupFoldError as error:
            raise self._of_input(error.group, error.cause) from None

    def _of_input(self, group: int, error: FoldError) -> FoldError:
        """Returns the error of an output row group with the input of its row."""
        orders = self._context.order.groups()
        before = list(islice(orders, group))
        order = next(orders)
        sources = order.origins().sources
        place = int(sources[error.row])
        error.input = int(order.inputs[place])
        earlier = (int(o.counts[o.inputs == error.input].sum()) for o in before)
        error.row = sum(earlier) + int(np.count_nonzero(sources[: error.row] == place))
        return error

    def _columns(self) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """Yields names in lexicographic order, each with the inputs that have the column.

        All rows of a column must be taken before the next.
        """
        waiting: dict[bytes, list[int]] = {}
        names: list[bytes] = []

        def add(index: int, column: str | None) -> None:
            if column is not None:
                name = column.encode()
                if name not in waiting:
                    heapq.heappush(names, name)
                waiting.setdefault(name, []).append(index)

        for index, source in enumerate(self._context.inputs):
            add(index, source.columns.column)
        while names:
            name = heapq.heappop(names)
            indices = waiting.pop(name)
            present = np.zeros(len(self._context.inputs), dtype=np.bool_)
            present[indices] = True
            yield name.decode(), present
            for index in indices:
                add(index, self._context.inputs[index].columns.end_column())

    def _merge_column(self, name: str, present: npt.NDArray[np.bool_]) -> None:
        dtype = storage_type(self._context.settings.schema.field(name).type)
        orders = self._context.order.groups()
        number = 0
        with self._context.column_cursors(present, dtype) as cursors:
            for output in self._context.outputs:
                self._context.tasks.then(partial(self._begin_column, output, name))
                for group in output.row_groups:
                    order = next(orders)
                    if group is None:
                        self._copy_chunk(name, dtype, order, present, output)
                    else:
                        self._merge_chunk(name, dtype, order, cursors, output, group, number)
                    number += 1
                if output.skips.wants(name):
                    self._context.tasks.then(partial(output.skips.end_column, name))

    def _begin_column(self, output: OutputFragment, name: str) -> None:
        if not self.splits:
            output.emitter.begin_column(name)

    def _copy_chunk(
        self,
        name: str,
        dtype: pa.DataType,
        order: GroupOrder,
        present: npt.NDArray[np.bool_],
        output: OutputFragment,
    ) -> None:
        index = int(order.inputs[0])
        block = self._context.inputs[index].columns.next_block() if present[index] else None
        self._context.tasks.flush()
        if self.splits:
            return
        level = self._context.settings.options.compression_level
        if output.skips.wants(name):
            with self._context.watch.on("decode"):
                nulls = pa.nulls(order.rows, dtype)
                array = nulls if block is None else block.decode(dtype, keep_dictionary=True)
            output.skips.add(output.skips.summary(name, array))
        if block is None:
            output.emitter.chunk(make_chunk(pa.nulls(order.rows, dtype), level=level))
        elif _is_read_only_here(block):
            with Reservation(self._context.budget, DECODE, block.header.raw_bytes):
                array = block.decode(dtype, keep_dictionary=True)
                output.emitter.chunk(make_chunk(array, level=level))
        else:
            with self._context.watch.on("pass on"):
                output.emitter.copy_chunk(block)

    def _merge_chunk(
        self,
        name: str,
        dtype: pa.DataType,
        order: GroupOrder,
        cursors: ColumnCursors,
        output: OutputFragment,
        group: GroupNumbers,
        number: int,
    ) -> None:
        """Takes the rows of one output row group of one column; threads make its chunk."""
        max_bytes = OVERSHOOT_FACTOR * self._target_bytes
        divisible = is_divisible(order.flags, order.rows)
        limit = max_bytes if divisible else sys.maxsize
        pieces = ColumnPieces(dtype, limit, only_weighs=bool(self.splits))
        pins = cursors.take(order, pieces)
        if (bits := pieces.row_bits) is not None:
            if divisible and int(bits.sum()) > 8 * max_bytes:
                bits = bits[positions_by_source(order.origins().sources)]
                self.splits.add(number, stops_within(bits, self._target_bytes, order.flags))
            self._context.tasks.then(pins.free)
            return
        rows = ColumnRows(
            name=name,
            pieces=pieces.pieces,
            origins=order.origins(),
            flags=order.flags,
            function=self._function(name, group),
            max_bytes=max_bytes,
            level=self._context.settings.options.compression_level,
            summarise=partial(output.skips.summary, name) if output.skips.wants(name) else None,
            only_weighs=bool(self.splits),
            precedent=cursors.precedent(order),
        )
        self._context.tasks.put(
            partial(_made, rows, number),
            partial(self._write, name, output, group, number),
            size=self._work_bytes(pieces, order.rows),
            pins=pins,
        )

    def _work_bytes(self, pieces: ColumnPieces, rows: int) -> int:
        """Returns the bytes to be reserved while a chunk of the rows is made."""
        size = WORK_COPIES * pieces.work_bytes(rows, is_exact=False)
        if not self._context.budget.has_room(size):
            size = WORK_COPIES * pieces.work_bytes(rows, is_exact=True)
        return size + WORK_ROW_BYTES * rows

    def _function(self, name: str, group: GroupNumbers) -> RowFunction | None:
        """Returns how rows of the column are folded; None where rows are written as they are."""
        if group.folded is None:
            return None
        assert self._context.settings.rule is not None
        return self._context.settings.rule.policy.function(name)

    def _write(
        self,
        name: str,
        output: OutputFragment,
        group: GroupNumbers,
        number: int,
        made: ColumnChunk,
    ) -> None:
        """Takes the chunk of a row group, in output order."""
        self._context.watch.add(made.seconds)
        self.splits.add(number, made.stops)
        if self.splits:
            return
        if made.contributions is not None:
            output.row_numbers.add(group.number, made.contributions)
        if group.folded is not None and made.folded_contributions is not None:
            output.folded.add(group.folded, made.folded_contributions)
        if made.chunk is None:
            return
        if output.skips.wants(name):
            output.skips.add(made.summary)
        output.emitter.chunk(made.chunk)


def _is_read_only_here(block: Block) -> bool:
    """Returns whether maybe only this process may read a chunk, because of a larger limit than readers have
    by default."""
    if block.header.raw_bytes > written_limit_bytes(block.header.stored_bytes):
        return True
    return block.encoding in LESS_THAN_TEXT and max_chunk_bytes() > max_written_bytes()
