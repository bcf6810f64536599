"""Reports a run of compactions to users and machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from compactor.common.counts import counted
from compactor.common.message import Message
from compactor.compaction.compaction import AttemptReport
from compactor.compaction.driver import FinishedCompaction
from compactor.errors import ConfigError
from compactor.planner.estimate import Estimate, total
from compactor.planner.spec import CompactionPlan
from compactor.resources.stopwatch import STAGES
from compactor.rows.flags import REASONS


def total_report(reports: Sequence[AttemptReport]) -> dict[str, Any]:
    """Returns the sums over attempts; peaks are those of the largest."""
    fields = (
        "rows_in", "rows_out", "bytes_in", "bytes_out", "gets", "puts", "resumed_gets", "restarts",
        "replayed_inputs", "spilled_bytes", "copied_rows",
    )  # fmt: skip
    totals: dict[str, Any] = {name: sum(getattr(r, name) for r in reports) for name in fields}
    totals["dropped_rows"] = sum(sum(report.dropped.values()) for report in reports)
    totals["dropped_by_reason"] = {
        reason: sum(report.dropped.get(reason, 0) for report in reports) for reason in REASONS
    }
    totals["stage_seconds"] = {
        stage: round(sum(report.stage_seconds.get(stage, 0.0) for report in reports), 4)
        for stage in STAGES
    }
    totals["cpu_seconds"] = round(sum(report.cpu_seconds for report in reports), 3)
    totals["task_seconds"] = round(sum(report.seconds for report in reports), 3)
    for name in ("peak_rss_bytes", "peak_charged_bytes"):
        totals[name] = max((getattr(report, name) for report in reports), default=0)
    return totals


@dataclass(slots=True)
class CompactReport:
    """The outcomes of one table's compactions; `to_json` is the CLI's `--json` object."""

    version: int
    finished: list[FinishedCompaction] = field(default_factory=list, repr=False)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"version {self.version}: {counted(len(self.done), 'compaction')} done, {len(self.void):,} void, "
            f"{counted(len(self.failed), 'attempt')} failed"
        )

    @property
    def done(self) -> list[FinishedCompaction]:
        return [s for s in self.finished if s.outcome.failure is None and not s.is_void]

    @property
    def void(self) -> list[FinishedCompaction]:
        return [s for s in self.finished if s.is_void]

    @property
    def failed(self) -> list[FinishedCompaction]:
        """Attempts that failed; a later one may have succeeded."""
        return [s for s in self.finished if s.outcome.failure is not None and not s.is_void]

    @property
    def lost(self) -> list[FinishedCompaction]:
        """The last failed attempt at inputs that never succeeded, also with others beside them."""
        done = {key for s in self.done for key in _inputs(s)}
        tried_later = set[str]()
        last: list[FinishedCompaction] = []
        for attempt in reversed(self.failed):
            inputs = _inputs(attempt)
            if not done.issuperset(inputs) and tried_later.isdisjoint(inputs):
                last.append(attempt)
            tried_later.update(inputs)
        return last[::-1]

    @property
    def predicted(self) -> Estimate:
        return total(s.predicted for s in self.done)

    def to_json(self) -> dict[str, Any]:
        reports = [s.outcome.report for s in self.done if s.outcome.report is not None]
        return {
            "version": self.version,
            "tasks": len(self.done),
            "input_fragments": sum(len(s.compaction.spec.inputs) for s in self.done),
            "output_fragments": sum(len(s.outcome.outputs) for s in self.done),
            **total_report(reports),
            "seconds": round(self.seconds, 3),
            "predicted": self.predicted.to_json(),
            "void": len(self.void),
            "failures": [_failure_json(s) for s in self.failed],
        }


def _inputs(finished: FinishedCompaction) -> tuple[str, ...]:
    return tuple(entry.key for entry in finished.compaction.spec.inputs)


def _failure_json(finished: FinishedCompaction) -> dict[str, Any]:
    return {
        "compaction_id": finished.compaction.compaction_id,
        "inputs": list(_inputs(finished)),
        "reason": finished.outcome.failure,
        "quarantined": list(finished.quarantined),
    }


def refuse(plan: CompactionPlan) -> None:
    """Raises `ConfigError` if the memory limit does not allow a compaction of the plan."""
    if plan.refused:
        others = f" ({len(plan.refused) - 1} more like it)" if len(plan.refused) > 1 else ""
        raise ConfigError(plan.refused[0], f"{others}; it was not begun, and its inputs stay live")


def explain_lost(report: CompactReport) -> Message:
    """Returns the message about compactions that failed for good."""
    lost, done = report.lost, len(report.done)
    quarantined = sum(len(s.quarantined) for s in report.failed)
    state = (
        f"{counted(quarantined, 'fragment is', 'fragments are')} in quarantine now (restore from a backup "
        "and `compactor release`, or give the rows up by `compactor drop-fragment`)"
        if quarantined
        else "the inputs stay live, and the next run tries again"
    )
    others = f", the other {counted(done, 'is', 'are')} committed" if done else ""
    return Message(
        f"{len(lost):,} of {counted(done + len(lost), 'compaction')} failed for good after "
        f"{counted(len(report.failed), 'failed attempt')}, {state}{others}. ",
        lost[0].outcome.failure or "",
    )
