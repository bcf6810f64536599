"""The compaction driver: plan on a snapshot, run, commit. Knows no engine; a runner is handed in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from compactor.clock import Ids, random_id
from compactor.commit_log import Changes, CommitLog
from compactor.config import CompactionSettings
from compactor.errors import CompactionVoidError, JobError
from compactor.job import Compaction, Outcome, Runner, total_report
from compactor.planner.overlap import PlanLimits, plan_full, plan_overlapping
from compactor.planner.spec import CompactionPlan
from compactor.snapshot import Operation, Snapshot
from compactor.stores.base import Store

_MAX_PASSES: Final = 16


@dataclass(slots=True)
class CompactReport:
    """The result of `compact`; `to_json` is the CLI's `--json` object."""

    version: int
    tasks: int = 0
    input_fragments: int = 0
    output_fragments: int = 0
    totals: dict[str, Any] = field(default_factory=lambda: total_report([]))
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "tasks": self.tasks,
            "input_fragments": self.input_fragments,
            "output_fragments": self.output_fragments,
            **self.totals,
            "seconds": round(self.seconds, 3),
        }


def compact(
    store: Store,
    log: CommitLog,
    runner: Runner,
    settings: CompactionSettings,
    *,
    full: bool = False,
    ids: Ids = random_id,
    on_pass: Callable[[Sequence[Compaction]], None] = lambda _: None,
) -> CompactReport:
    """Compacts until nothing is left to do, in passes where a group is too large for one task.

    Each pass commits once. Raises `JobError` if a compaction failed (nothing of its pass is visible),
    `CompactionVoidError` if another compaction took the inputs.
    """
    started = time.monotonic()
    snapshot = log.current()
    report = CompactReport(snapshot.version)
    outcomes: list[Outcome] = []
    for number in range(_MAX_PASSES):
        plan = plan_compactions(snapshot, settings, full=full)
        if not plan:
            break
        job_id = ids()
        compactions = [
            Compaction(ids(), f"{job_id}-{spec.part}", store.url, snapshot.table, spec, settings)
            for spec in plan.specs
        ]
        on_pass(compactions)
        finished = _run(runner, compactions, passes_done=number)
        snapshot = _install(log, compactions, finished)
        outcomes += finished
        report.input_fragments += sum(len(c.spec.inputs) for c in compactions)
    else:
        raise JobError(
            f"still not done after {_MAX_PASSES} passes, all of them committed: run it again with a "
            "larger max_fan_in"
        )
    report.version = snapshot.version
    report.tasks = len(outcomes)
    report.output_fragments = sum(len(outcome.outputs) for outcome in outcomes)
    report.totals = total_report([o.report for o in outcomes if o.report is not None])
    report.seconds = time.monotonic() - started
    return report


def plan_compactions(
    snapshot: Snapshot, settings: CompactionSettings, *, full: bool
) -> CompactionPlan:
    """What `compact` would run next on this snapshot; falsy if nothing."""
    limits = PlanLimits(
        settings.target_fragment_bytes, settings.max_fan_in, settings.merge_memory_bytes
    )
    return (plan_full if full else plan_overlapping)(snapshot, limits)


def _run(runner: Runner, compactions: Sequence[Compaction], *, passes_done: int) -> list[Outcome]:
    # A speculative twin may report too: one outcome a compaction counts, its objects are its own.
    outcomes = {outcome.compaction_id: outcome for outcome in runner(compactions)}
    failures = [outcome.failure for outcome in outcomes.values() if outcome.failure]
    missing = len(compactions) - len(outcomes)
    if failures or missing:
        reason = failures[0] if failures else "the engine returned no result"
        state = f"keeps the {passes_done} passes before" if passes_done else "is as it was"
        raise JobError(
            f"{len(failures) + missing} of {len(compactions)} compactions failed, the table {state}. "
            f"{reason}"
        )
    return list(outcomes.values())


def _install(
    log: CommitLog, compactions: Sequence[Compaction], outcomes: Sequence[Outcome]
) -> Snapshot:
    removes = tuple(entry.key for c in compactions for entry in c.spec.inputs)
    adds = tuple(entry for outcome in outcomes for entry in outcome.outputs)

    def prepare(snapshot: Snapshot) -> Changes:
        gone = [key for key in removes if key not in snapshot.fragments]
        if gone:
            raise CompactionVoidError(
                f"{len(gone)} of {len(removes)} inputs were compacted by somebody else meanwhile "
                f"(first: {gone[0]}); the table keeps their result, this run's outputs are garbage"
            )
        return Changes(Operation.COMPACT, adds, removes)

    return log.commit(prepare)
