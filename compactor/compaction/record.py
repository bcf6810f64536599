"""Turns the outcome of a compaction into the record that the log keeps."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from compactor.common.escaping import shortened
from compactor.compaction.compaction import AttemptReport, Compaction, Outcome
from compactor.planner.cost_model import modelled_cost
from compactor.planner.estimate import Estimate
from compactor.table.compaction_record import MAX_TEXT, CompactionRecord

_DIGITS: Final = 3
MEASURED: Final = {*AttemptReport.__struct_fields__} & {*CompactionRecord.__struct_fields__}
"""The figures of an attempt that its record keeps."""


def compaction_record(
    compaction: Compaction, predicted: Estimate, outcome: Outcome, attempt: int
) -> CompactionRecord:
    """Returns the record. attempt: counts the driver's attempts at these inputs, from 1."""
    spec = compaction.spec
    cost = modelled_cost(spec.inputs, spec.output_level, compaction.metadata, compaction.settings)
    record = CompactionRecord(
        compaction_id=compaction.compaction_id,
        output_level=spec.output_level,
        attempt=attempt,
        reason=shortened(spec.reason, MAX_TEXT),
        failure=shortened(str(outcome.failure or ""), MAX_TEXT),
        inputs=len(spec.inputs),
        outputs=len(outcome.outputs),
        predicted_seconds=round(predicted.task_seconds.likely, _DIGITS),
        predicted_memory_bytes=round(predicted.resident_bytes.likely),
        model_cpu_seconds=cost.cpu_seconds,
        model_grown_bytes=cost.grown_bytes,
        live_rows=cost.live_rows,
        fresh_bytes=cost.fresh_bytes,
        settled_bytes=cost.settled_bytes,
        memory_limit_bytes=compaction.settings.memory_limit_bytes,
        compression_level=cost.compression_level,
    )
    return record if outcome.report is None else _with_figures(record, outcome.report)


def _with_figures(record: CompactionRecord, report: AttemptReport) -> CompactionRecord:
    figures = {name: getattr(report, name) for name in MEASURED}
    figures["stage_seconds"] = {
        stage: round(seconds, _DIGITS)
        for stage, seconds in report.stage_seconds.items()
        if round(seconds, _DIGITS)
    }
    return replace(record, **figures, dropped_rows=sum(report.dropped.values()))
