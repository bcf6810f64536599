"""Makes the inputs of a pass over its sources: all that a full merge and a merge of keys alone share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compactor.merge.context import MergeContext
from compactor.merge.inputs.decoding import DecodingAhead
from compactor.merge.inputs.input import MergeInput
from compactor.merge.inputs.input_fragment import InputFragment
from compactor.merge.inputs.key_reader import CopyRule, InputSettings
from compactor.merge.inputs.sources import InputSources
from compactor.merge.outputs.contract import MergeSettings
from compactor.resources.merge_plan import OVERSHOOT_FACTOR
from lsm_fragment.arrays.sizes import nulls_bytes
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.limits import max_written_bytes

_MANY_ROWS: Final = 1024
"""Measure the nulls of a type on this many rows."""


def make_inputs(
    context: MergeContext, fragments: Sequence[InputFragment], sources: InputSources
) -> list[MergeInput]:
    """Returns the inputs, not opened yet."""
    settings, plan, budget = context.settings, context.plan, context.budget
    options = settings.options
    copying = CopyRule(
        max_rows_of_group(settings), options.target_row_group_bytes, options.compression_level
    )
    shared = InputSettings(budget, context.disk, copying, plan.slice_bytes, plan.reserve_bytes)
    ahead = None
    if context.tasks.has_threads:
        ahead = DecodingAhead(context.tasks, budget, plan.payload_bytes)
    return [
        MergeInput(fragment, source, shared, context.watch, ahead)
        for fragment, source in zip(fragments, sources.all, strict=True)
    ]


def max_rows_of_group(settings: MergeSettings) -> int:
    """Returns the most rows of an output row group."""
    return min(settings.options.max_rows, _max_null_rows(settings))


def _max_null_rows(settings: MergeSettings) -> int:
    """Returns the rows per group at which an all-null column of the widest type stays within the size limit.

    Nulls of a wide type take as much as values.
    """
    types = [storage_type(field.type) for field in settings.schema]
    widest = max(nulls_bytes(_MANY_ROWS, dtype) for dtype in types)
    max_bytes = OVERSHOOT_FACTOR * settings.options.target_row_group_bytes
    return max(1, min(max_written_bytes(), max_bytes) * _MANY_ROWS // max(1, widest))
