"""Makes the row order of a merge that is over once more, from the keys of its inputs, and keeps it.

Only a delete during a compaction asks for it (`compactor.merge.order.places`), so a merge keeps nothing.
Equal inputs and settings give an equal order: sizes of batches and row groups do not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from compactor.merge.context import MergeContext
from compactor.merge.inputs.input_fragment import InputFragment
from compactor.merge.inputs.schemas import InputSchemas
from compactor.merge.inputs.sources import InputSources
from compactor.merge.merge_inputs import make_inputs
from compactor.merge.order.key_merge import CopiedRowGroup, MergedBatch, drop_keys, merge_keys
from compactor.merge.order.places import STARTS
from compactor.merge.order.row_order import GroupOrder
from compactor.merge.outputs.contract import MergeSettings
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_plan import MergePlan
from compactor.resources.merge_stages import ORDER, ROW_HASHES
from compactor.resources.reservation import Reservation
from compactor.resources.stopwatch import Stopwatch
from compactor.rows.flags import KEPT, Flags
from lsm_fragment.gather.origins import Origins
from lsm_fragment.keys.comparator import KeyComparator


class KeyOrder:
    """The row order of a merge, run-length coded and on local disk, until it is closed."""

    def __init__(
        self,
        fragments: Sequence[InputFragment],
        settings: MergeSettings,
        plan: MergePlan,
        on_rows: Callable[[int], None] = lambda _rows: None,
    ) -> None:
        """Reads the sort columns of all inputs. on_rows: is called with the rows of each batch.

        Raises what `merge_fragments` raises for inputs, memory and local disk.
        """
        disk = LocalDisk(settings.memory.spool_directory)
        plan = replace(plan, keeps_inputs=False)  # there is no second pass
        self._context = MergeContext(settings, plan, MemoryBudget(plan.stages), disk, Stopwatch())
        try:
            self._read(fragments, on_rows)
            self._context.order.spill()
        except BaseException:
            self.close()
            raise

    @property
    def budget(self) -> MemoryBudget:
        return self._context.budget

    def reserve(self, size: int) -> Reservation:
        """Reserves memory for bits of rows beside the order."""
        return Reservation(self.budget, ROW_HASHES, size)

    @property
    def size_bytes(self) -> int:
        """Bytes of the order."""
        return self._context.order.size_bytes

    def groups(self) -> Iterator[GroupOrder]:
        """Yields the order in pieces with whole keys; may be called many times."""
        return self._context.order.groups()

    def close(self) -> None:
        self._context.close()
        self._context.disk.close()

    def _read(self, fragments: Sequence[InputFragment], on_rows: Callable[[int], None]) -> None:
        """Fills the order, and closes all inputs again."""
        context = self._context
        sources = InputSources(
            fragments, context.settings, context.plan, context.budget, context.disk, None
        )
        try:
            context.inputs = make_inputs(context, fragments, sources)
            for inputs, flags in self._events():
                present, places = np.unique(inputs, return_inverse=True)
                origins = Origins.of(places.astype(np.uint16), len(present))
                context.order.append(present, origins, flags)
                on_rows(len(inputs))
        finally:
            context.tasks.close()
            sources.close()
            for source in context.inputs:
                source.close()

    def _events(self) -> Iterator[tuple[npt.NDArray[np.uint16], Flags | None]]:
        """Yields the input of each row, and flags unless all rows are written."""
        context = self._context
        settings, plan = context.settings, context.plan
        schemas = InputSchemas(settings.schema)
        for source in context.inputs:
            source.open(settings.sort, schemas)
        merged = merge_keys(
            context.inputs,
            KeyComparator(settings.schema, settings.sort),
            settings.sort,
            plan.batch_rows,
            plan.batch_bytes,
            settings.rule,
        )
        merges = settings.rule is not None and settings.rule.merges
        with Reservation(context.budget, ORDER, plan.order_bytes):
            for event in merged:
                if isinstance(event, CopiedRowGroup):
                    yield np.full(event.rows, event.input, dtype=np.uint16), None
                else:
                    yield event.inputs, _mapped_flags(event, merges=merges)
                    drop_keys(context.inputs, event)


def _mapped_flags(batch: MergedBatch, *, merges: bool) -> Flags | None:
    """Returns which rows are written and where keys start; without a policy each row stands for itself."""
    if batch.flags is None:
        return None
    starts = batch.starts_key.copy() if merges else np.ones(batch.rows, dtype=np.bool_)
    starts[0] = True
    return (batch.flags & np.uint8(KEPT)) | starts.astype(np.uint8) * np.uint8(STARTS)
