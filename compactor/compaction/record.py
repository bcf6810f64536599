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
    return replace(
        record,
        rows_in=report.rows_in,
        rows_out=report.rows_out,
        bytes_in=report.bytes_in,
        bytes_out=report.bytes_out,
        seconds=report.seconds,
        cpu_seconds=report.cpu_seconds,
        system_cpu_seconds=report.system_cpu_seconds,
        stage_seconds={
            stage: round(seconds, _DIGITS)
            for stage, seconds in report.stage_seconds.items()
            if round(seconds, _DIGITS)
        },
        peak_charged_bytes=report.peak_charged_bytes,
        start_rss_bytes=report.start_rss_bytes,
        peak_rss_bytes=report.peak_rss_bytes,
        gets=report.gets,
        puts=report.puts,
        resumed_gets=report.resumed_gets,
        restarts=report.restarts,
        spilled_bytes=report.spilled_bytes,
        copied_rows=report.copied_rows,
        dropped_rows=sum(report.dropped.values()),
    )
