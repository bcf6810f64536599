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

from collections.abc import Sequence

from compactor.common.setting_keys import MEMORY_LIMIT_BYTES
from compactor.merge.contract import MergedFragment, MergeResult, MergeSettings
from compactor.merge.errors import MergeCheckError
from compactor.merge.merge_input import InputFragment
from compactor.merge.merge_pass import MergePass
from compactor.merge.outputs import OpenOutput
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.errors import MemoryLimitError
from compactor.resources.merge_plan import MergePlan


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
            f"limit is {plan.stages.limit_bytes / 2**20:.0f} MiB: raise ",
            MEMORY_LIMIT_BYTES,
            f" to {-(-plan.stages.need_bytes // 2**20)} MiB or more",
        )
    budget = MemoryBudget(plan.stages)
    disk = LocalDisk(settings.memory.spool_directory)
    try:
        first = MergePass(inputs, settings, plan, open_output, budget, disk)
        result = first.run()
        if result is not None:
            return result
        second = MergePass(inputs, settings, plan, open_output, budget, disk, before=first)
        result = second.run()
        if result is None:
            raise MergeCheckError(
                "row groups were too heavy again although all were measured: this is a defect; the "
                "inputs are untouched"
            )
        return result
    finally:
        disk.close()


__all__ = [
    "InputFragment",
    "MergeResult",
    "MergeSettings",
    "MergedFragment",
    "merge_fragments",
]
