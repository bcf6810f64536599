"""Runs the column phase of a merge: replays the row order on one column and one output row group at a
time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.merge.context import MergeContext
from compactor.merge.gather import Gatherer
from compactor.merge.merged_dictionary import MergedDictionary
from compactor.merge.outputs import OutputFragment, Page
from compactor.merge.row_order import GroupOrder
from compactor.merge.splits import Splits
from compactor.resources.merge_plan import GATHER_ROW_BYTES
from compactor.rows.flags import Flags
from compactor.rows.fold import chooses, folded, kept_rows
from format.encode import by_dictionary
from format.limits import most_written_bytes
from format.types import storage_type

_DICTIONARY_BYTES: Final = 4 << 20
"""The most bytes of a column's distinct values while rows are moved as codes."""


class ColumnPhase:
    """The column phase: gathers each column's values from the inputs in the row order, encodes and writes
    them."""

    def __init__(self, context: MergeContext) -> None:
        self._context = context
        self._gatherer = Gatherer(
            context.inputs, context.budget, context.settings.options.target_row_group_bytes
        )
        self._dictionary_bytes = 0

    @property
    def splits(self) -> Splits:
        """Splits of row groups that were too heavy; once there are any, the rest of the pass only
        measures."""
        return self._gatherer.splits

    def run(self) -> None:
        for name, present in self._columns():
            self._merge_column(name, present)
        self._context.encoder.flush()

    def close(self) -> None:
        self._charge_dictionary(0)

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
            add(index, source.column)
        while names:
            name = heapq.heappop(names)
            indices = waiting.pop(name)
            present = np.zeros(len(self._context.inputs), dtype=np.bool_)
            present[indices] = True
            yield name.decode(), present
            for index in indices:
                add(index, self._context.inputs[index].end_column())

    def _merge_column(self, name: str, present: npt.NDArray[np.bool_]) -> None:
        dtype = storage_type(self._context.settings.schema.field(name).type)
        most_bytes = min(_DICTIONARY_BYTES, self._context.settings.options.target_row_group_bytes)
        dictionary = MergedDictionary(name, dtype, most_bytes)
        orders = self._context.order.groups()
        number = 0
        for output in self._context.outputs:
            if not self.splits:
                self._context.encoder.then(partial(output.emitter.begin_column, name))
            for page in output.pages:
                order = next(orders)
                if page is None:
                    self._copy_chunk(name, dtype, order, present, output)
                else:
                    self._merge_chunk(name, dictionary, order, present, output, page, number)
                    self._charge_dictionary(dictionary.nbytes)
                number += 1
            if output.skips.wants(name):
                output.skips.end_column(name)
        self._charge_dictionary(0)

    def _copy_chunk(
        self,
        name: str,
        dtype: pa.DataType,
        order: GroupOrder,
        present: npt.NDArray[np.bool_],
        output: OutputFragment,
    ) -> None:
        index = int(order.inputs[0])
        block = self._context.inputs[index].next_block() if present[index] else None
        if self.splits:
            return
        self._context.encoder.flush()
        if output.skips.wants(name):
            with self._context.watch.on("decode"):
                nulls = pa.nulls(order.rows, dtype)
                array = nulls if block is None else block.decode(dtype, keep_dictionary=True)
            output.skips.add(name, array)
        if block is None:
            output.emitter.chunk(self._context.encoder.encode(pa.nulls(order.rows, dtype)))
        elif block.header.raw_bytes > most_written_bytes(block.header.stored_bytes):
            # Only this process may read the chunk, because of a larger limit than readers have by default.
            with self._context.budget.holding("decode", block.header.raw_bytes):
                array = block.decode(dtype, keep_dictionary=True)
                output.emitter.chunk(self._context.encoder.encode(array))
        else:
            with self._context.watch.on("pass on"):
                output.emitter.copy_chunk(block)

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
        """Merges one output row group of one column."""
        sources = [self._context.inputs[i] for i in order.inputs[present[order.inputs]]]
        size = 0
        try:
            with self._context.watch.on("gather"):
                gathered = self._gatherer.gather(dictionary, order, present, number)
            if gathered is None or self.splits:
                return
            array, codes = gathered
            is_decided = codes is not None
            if not pt.is_dictionary(array.type):
                # Done before the rows are hashed, because only distinct values need hashing.
                with self._context.watch.on("encode"):
                    array, is_decided = by_dictionary(array), True
            in_work = 2 * array.nbytes + GATHER_ROW_BYTES * len(array)
            self._context.budget.charge("gather", in_work)
            size = in_work
            for source in sources:
                source.settle()
            sources = []
            if array.null_count < len(array):
                with self._context.watch.on("hash"):
                    known = None if codes is None else dictionary.contributions(codes)
                    output.row_numbers.add(page.number, name, array, known)
            if order.flags is not None:
                array, is_same = self._written(name, array, order.flags, output, page)
                is_decided &= is_same
            if len(array):
                if output.skips.wants(name):
                    with self._context.watch.on("encode"):
                        output.skips.add(name, array)
                self._context.encoder.put(array, output.emitter.chunk, is_decided=is_decided)
        finally:
            for source in sources:
                source.settle()
            self._context.budget.discharge("gather", size)

    def _written(
        self, name: str, array: pa.Array, flags: Flags, output: OutputFragment, page: Page
    ) -> tuple[pa.Array, bool]:
        """Returns what is written of the rows taken, and whether all its values are among theirs."""
        if page.folded is None:
            return kept_rows(array, flags), True
        assert self._context.settings.rule is not None
        function = self._context.settings.rule.policy.function(name)
        with self._context.watch.on("gather"):
            array = folded(array, flags, function, name)
        if array.null_count < len(array):
            with self._context.watch.on("hash"):
                output.folded.add(page.folded, name, array)
        return array, chooses(function)

    def _charge_dictionary(self, size: int) -> None:
        """Charges the bytes of a column's distinct values."""
        if size > self._dictionary_bytes:
            self._context.budget.charge("gather", size - self._dictionary_bytes)
        else:
            self._context.budget.discharge("gather", self._dictionary_bytes - size)
        self._dictionary_bytes = size
