"""Merges k sorted fragments in a stream, column by column (the model is Datadog's Husky).

1. Keys: the sort columns of all inputs are merged a batch at a time into the row order, and the outputs' key
   sections are written on the way.
2. Columns, in lexicographic order: each is gathered by the row order one output row group at a time,
   encoded and appended to its output; inputs only ever move forward.
3. Checks: rows and commutative row hashes of the inputs must equal those of the outputs.
4. Completion: skip indexes, footers and uploads of the outputs.

If a row group turns out far too heavy, the rest of the pass only measures, and a second pass divides the row
groups that need it. There is no third pass, because all row groups were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from compactor.common.counts import counted
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
    """Merges sorted fragments into disjoint sorted ones; `open_output` opens the sink of each.

    Rows of equal keys keep the order of `inputs`, then of position. `open_source` is called once for each
    input, and a second time only if a second pass needs an input that is not on local disk.
    Raises `FormatError` for damaged inputs, `InputMismatchError`, `MergeCheckError`, `MemoryLimitError`,
    `LocalDiskError`. On any error all outputs are aborted.
    """
    if plan.stages.need_bytes > plan.stages.limit_bytes:
        raise MemoryLimitError(
            f"a merge of {counted(len(inputs), 'fragment')} needs {plan.stages.need_bytes / 2**20:.0f} MiB, "
            f"the memory limit is {plan.stages.limit_bytes / 2**20:.0f} MiB: raise ",
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
