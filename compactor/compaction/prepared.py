"""Prepares the merge of a compaction: its settings, memory plan, limits and row rule, as one value. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from compactor.compaction.compaction import Compaction
from compactor.merge.outputs.contract import MergeSettings
from compactor.merge.outputs.sinks import OpenOutput
from compactor.planner.shape import memory_plan
from compactor.planner.spec import max_rows_per_group
from compactor.resources.merge_plan import MergePlan, output_count
from compactor.rows.flags import RowRule, is_needed

_OTHER_FILES: Final = 256
"""Open files beside inputs and outputs: those of libraries and Spark."""


class PreparedMerge(Struct, frozen=True):
    """All that an attempt hands over to the merge beside its inputs and outputs."""

    settings: MergeSettings
    plan: MergePlan
    open_files: int
    """The number of files that the process may have open at a time."""


def prepare_merge(
    compaction: Compaction, open_skips: OpenOutput | None, *, are_local: bool
) -> PreparedMerge:
    """Returns the merge of a compaction; the compaction alone decides it, so every attempt merges alike.

    open_skips: begins the object of the skip indexes; None for an order of keys alone. are_local: whether the
    inputs are on local disk.
    """
    spec, metadata, settings = compaction.spec, compaction.metadata, compaction.settings
    target_bytes = settings.target_fragment_bytes
    max_rows = max_rows_per_group(
        spec.inputs, target_fragment_bytes=target_bytes, max_rows=settings.max_rows_per_row_group
    )
    merge = MergeSettings(
        schema=metadata.schema,
        sort=metadata.sort,
        options=settings.writer_options(max_rows, spec.output_level),
        target_fragment_bytes=target_bytes,
        cut_keys=spec.cut_keys,
        memory=settings.memory(),
        skips=metadata.skips,
        open_skips=open_skips,
        rule=_row_rule(compaction),
    )
    plan = memory_plan(spec.inputs, metadata, settings, are_local=are_local)
    outputs = output_count(spec.rows, spec.size_bytes, target_bytes)
    return PreparedMerge(merge, plan, len(spec.inputs) + 2 * outputs + _OTHER_FILES)


def _row_rule(compaction: Compaction) -> RowRule | None:
    """Returns the rule by which rows are dropped or folded; None if all rows stay."""
    table = compaction.metadata
    if not is_needed(table.rows, table.ttl):
        return None
    return RowRule(
        table.rows,
        table.ttl,
        table.schema,
        table.sort,
        is_bottom=compaction.spec.is_bottom,
        now_unix_ms=compaction.now_unix_ms,
    )
