"""Holds what the phases of one pass share: settings, memory, inputs, the row order, the outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.merge.groups.column_cursors import ColumnCursors
from compactor.merge.inputs.copied import CopiedRowGroups
from compactor.merge.inputs.input import MergeInput
from compactor.merge.order.row_order import RowOrder
from compactor.merge.outputs.contract import MergeSettings
from compactor.merge.outputs.sinks import OutputFragment
from compactor.merge.tasks import OrderedTasks
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_plan import MergePlan
from compactor.resources.merge_stages import CHUNKS, FOOTER, PARTS, ROW_HASHES, ROW_ORDER
from compactor.resources.stopwatch import Stopwatch
from compactor.resources.upload_memory import BudgetedUploads


class MergeContext:
    """The owner of one pass's row order and outputs. It decides how each stage spills to local disk."""

    def __init__(
        self,
        settings: MergeSettings,
        plan: MergePlan,
        budget: MemoryBudget,
        disk: LocalDisk,
        watch: Stopwatch,
    ) -> None:
        self.settings = settings
        self.plan = plan
        self.budget = budget
        self.disk = disk
        self.watch = watch
        self.uploads = BudgetedUploads(budget, plan.upload_bytes)
        self.tasks = OrderedTasks(budget, settings.memory.threads)
        self.inputs: Sequence[MergeInput] = ()
        self.order = RowOrder(budget, disk)
        self.outputs: list[OutputFragment] = []
        self.copied: dict[int, CopiedRowGroups] = {}
        """Copied row groups by input."""
        self._cursors: ColumnCursors | None = None
        budget.spill_by(ROW_ORDER, lambda _: self.order.spill())
        budget.spill_by(ROW_HASHES, self._spill_row_hashes)
        budget.spill_by(
            FOOTER, lambda _: sum(o.footer_records.spill() + o.skips.spill() for o in self.outputs)
        )
        budget.spill_by(CHUNKS, self._spill_chunks)
        budget.spill_by(PARTS, self._spill_parts)

    @contextmanager
    def column_cursors(
        self, present: npt.NDArray[np.bool_], dtype: pa.DataType
    ) -> Iterator[ColumnCursors]:
        """Gives the cursors of one column, whose chunks may spill until they are closed."""
        columns = [source.columns for source in self.inputs]
        cursors = ColumnCursors(columns, present, dtype, self.budget, self.plan.slice_bytes)
        self._cursors = cursors
        try:
            yield cursors
        finally:
            self._cursors = None
            cursors.close()

    def close(self) -> None:
        """Releases the memory and the disk space of the row order and the outputs."""
        self.order.close()
        for output in self.outputs:
            output.close()

    def _spill_row_hashes(self, _size: int) -> int:
        freed = sum(o.row_numbers.spill() + o.folded.spill() for o in self.outputs)
        return freed + sum(source.spill_row_hashes() for source in self.inputs)

    def _spill_chunks(self, size: int) -> int:
        """Spills decoded rows, the most bytes first."""
        spills = [(source.spillable_bytes, source.spill) for source in self.inputs]
        if self._cursors is not None:
            spills += self._cursors.spillable()
        freed = 0
        for spillable, spill in sorted(spills, key=lambda pair: -pair[0]):
            if freed >= size or not spillable:
                break
            freed += spill()
        return freed

    def _spill_parts(self, _size: int) -> int:
        before = self.budget.held_bytes(PARTS)
        for output in self.outputs:
            output.sink.spill(self.disk)
        return before - self.budget.held_bytes(PARTS)
