"""Maps events to metric changes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from compactor.fleet.state import State
from compactor.planner.debt import Debt, Pressure
from compactor.resources.stopwatch import STAGES
from compactor.rows.flags import REASONS
from compactor.table.observed_log import CommitEnd, CommitReport
from compactor.table.snapshot import Snapshot
from compactor.telemetry.metrics import catalog as c
from compactor.telemetry.metrics.catalog import Change, Metric

if TYPE_CHECKING:
    from compactor.compaction.backlog import Backlog
    from compactor.compaction.compaction import AttemptReport
    from compactor.compaction.driver import FinishedCompaction
    from compactor.entities.entity_report import EntityMergeReport
    from compactor.fleet.state import TableState
    from compactor.pipelines.run_report import RunReport
    from compactor.table.vacuum import VacuumReport
    from compactor.write.ingest import IngestReport

DRIVER: Final = "driver"
TASK: Final = "task"

_REQUESTS: Final[Mapping[str, tuple[Metric, tuple[str, ...]]]] = {
    "gets": (c.STORE_GETS, ()),
    "resumed_gets": (c.STORE_RESUMED, ()),
    "range_gets": (c.STORE_RANGE_GETS, ()),
    "puts": (c.STORE_PUTS, ()),
    "retries": (c.STORE_RETRIES, ()),
    "bytes_read": (c.READ_BYTES, ()),
    "bytes_written": (c.WRITTEN_BYTES, ()),
    "get_requests": (c.STORE_REQUESTS, ("get",)),
    "head_requests": (c.STORE_REQUESTS, ("head",)),
    "list_requests": (c.STORE_REQUESTS, ("list",)),
    "put_requests": (c.STORE_REQUESTS, ("put",)),
    "post_requests": (c.STORE_REQUESTS, ("post",)),
    "delete_requests": (c.STORE_REQUESTS, ("delete",)),
}
"""Metric and additional label values of each of `MeteredStore.counts`."""
_ENDS: Final = (CommitEnd.CONFLICT, CommitEnd.UNKNOWN, CommitEnd.FAILED)
_OUTCOMES: Final = ("done", "failed", "void")
_OF_COMPACTIONS: Final = (
    c.RETRIES, c.INPUT_FRAGMENTS, c.OUTPUT_FRAGMENTS, c.INPUT_ROWS, c.OUTPUT_ROWS, c.COPIED_ROWS,
    c.SECOND_PASSES, c.REPLAYED_INPUTS, c.SPILLED_BYTES, c.TASK_SECONDS,
)  # fmt: skip


def of_start(table: str) -> list[Change]:
    """Returns the compaction counters at zero, because a missing counter means unknown."""
    changes = [Change(metric, 0, (table,)) for metric in _OF_COMPACTIONS]
    changes += [Change(c.COMPACTIONS, 0, (table, outcome)) for outcome in _OUTCOMES]
    changes += [Change(c.DROPPED_ROWS, 0, (table, reason)) for reason in REASONS]
    changes += [Change(c.STAGE_SECONDS, 0, (table, stage)) for stage in STAGES]
    changes += of_requests(table, TASK, dict.fromkeys(_REQUESTS, 0))
    return [*changes, *of_log_start(table)]


def of_log_start(table: str) -> list[Change]:
    """Returns the counters of log reads and writes at zero."""
    changes = of_requests(table, DRIVER, dict.fromkeys(_REQUESTS, 0))
    changes += [Change(c.COMMIT_FAILURES, 0, (table, str(end))) for end in _ENDS]
    return [*changes, Change(c.CONFLICTS, 0, (table,)), Change(c.STEP_FAILURES, 0, (table,))]


def of_requests(table: str, role: str, counts: Mapping[str, int]) -> list[Change]:
    """Returns the changes for requests. counts: increments by name, as in `MeteredStore.counts`."""
    return [
        Change(metric, counts[name], (table, role, *labels))
        for name, (metric, labels) in _REQUESTS.items()
    ]


def of_finished(table: str, finished: FinishedCompaction) -> list[Change]:
    """Returns the changes for a finished attempt. Counts rows and fragments only if its outputs are live."""
    outcome = finished.outcome
    name = "void" if finished.is_void else "done" if outcome.failure is None else "failed"
    changes = [Change(c.COMPACTIONS, 1, (table, name))]
    if finished.attempt > 1:
        changes.append(Change(c.RETRIES, 1, (table,)))
    if outcome.record is not None:
        changes += of_requests(table, TASK, outcome.record.requests)
        changes.append(Change(c.TASK_SECONDS, outcome.record.seconds, (table,)))
    if outcome.report is None:
        return changes
    changes += _of_work(table, outcome.report)
    if name == "done":
        changes += _of_result(table, outcome.report)
        changes += [
            Change(c.INPUT_FRAGMENTS, len(finished.compaction.spec.inputs), (table,)),
            Change(c.OUTPUT_FRAGMENTS, len(outcome.outputs), (table,)),
        ]
    return changes


def _of_work(table: str, report: AttemptReport) -> list[Change]:
    """Returns the changes for an attempt's resources, whatever its outcome."""
    return [
        Change(c.SECOND_PASSES, report.restarts, (table,)),
        Change(c.REPLAYED_INPUTS, report.replayed_inputs, (table,)),
        Change(c.SPILLED_BYTES, report.spilled_bytes, (table,)),
        Change(c.PEAK_CHARGED_BYTES, report.peak_charged_bytes, (table,)),
        Change(c.PEAK_RSS_BYTES, report.peak_rss_bytes, (table,)),
        *(
            Change(c.STAGE_SECONDS, seconds, (table, stage))
            for stage, seconds in report.stage_seconds.items()
        ),
    ]


def _of_result(table: str, report: AttemptReport) -> list[Change]:
    return [
        Change(c.INPUT_ROWS, report.rows_in, (table,)),
        Change(c.OUTPUT_ROWS, report.rows_out, (table,)),
        Change(c.COPIED_ROWS, report.copied_rows, (table,)),
        Change(c.COMPACTION_SECONDS, report.seconds, (table,)),
        *(Change(c.DROPPED_ROWS, rows, (table, reason)) for reason, rows in report.dropped.items()),
    ]


def of_commit(table: str, commit: CommitReport) -> list[Change]:
    changes = [Change(c.CONFLICTS, commit.lost_races, (table,))]
    if commit.end is CommitEnd.COMMITTED and commit.changes is not None:
        changes += [
            Change(c.COMMITS, 1, (table, str(commit.changes.operation))),
            Change(c.COMMIT_SECONDS, commit.seconds, (table,)),
        ]
    if commit.end in _ENDS:
        changes.append(Change(c.COMMIT_FAILURES, 1, (table, str(commit.end))))
    return changes


def of_awaited(table: str, *, is_awaited: bool) -> list[Change]:
    return [Change(c.AWAITED, int(is_awaited), (table,))]


def of_backlog(table: str, backlog: Backlog) -> list[Change]:
    return [
        Change(c.COMPACTED_THROUGH, backlog.compacted_through, (table,)),
        Change(c.DUE_BYTES, backlog.due_bytes, (table,)),
        Change(c.WAITING_COMPACTIONS, backlog.waiting_compactions, (table,)),
    ]


def of_snapshot(
    table: str, snapshot: Snapshot, debt: Debt, levels: Iterable[int] = ()
) -> list[Change]:
    """Returns a table's gauges. levels: previously reported levels, which become zero if empty now."""
    found = _by_level(snapshot)
    changes = [
        Change(c.TABLE_VERSION, snapshot.version, (table,)),
        Change(c.DEBT_SCORE, debt.score, (table,)),
        Change(c.PENDING_BYTES, debt.pending_bytes, (table,)),
        Change(c.LEVEL0_RUNS, debt.level0_runs, (table,)),
        Change(c.QUARANTINED, len(snapshot.quarantine), (table,)),
        Change(c.LEASES, len(snapshot.leases), (table,)),
        Change(c.INGESTED_BYTES, snapshot.totals.ingested_bytes, (table,)),
        Change(c.COMPACTED_BYTES, snapshot.totals.compactions_bytes, (table,)),
        Change(c.WRITE_AMPLIFICATION, snapshot.totals.write_amplification, (table,)),
    ]
    changes += [
        Change(c.BACK_PRESSURE, state is debt.pressure, (table, str(state))) for state in Pressure
    ]
    for level in sorted({0, *levels, *found}):
        fragments, size_bytes, rows = found.get(level, (0, 0, 0))
        changes += [
            Change(c.LEVEL_FRAGMENTS, fragments, (table, str(level))),
            Change(c.LEVEL_BYTES, size_bytes, (table, str(level))),
            Change(c.LEVEL_ROWS, rows, (table, str(level))),
        ]
    return changes


def _by_level(snapshot: Snapshot) -> dict[int, tuple[int, int, int]]:
    """Returns fragments, bytes and rows by level."""
    sums: pa.Table = (
        snapshot.fragments.table()
        .group_by("level", use_threads=False)
        .aggregate([([], "count_all"), ("size_bytes", "sum"), ("rows", "sum")])
    )
    return {
        row["level"]: (row["count_all"], row["size_bytes_sum"], row["rows_sum"])
        for row in sums.to_pylist()
    }


def of_run(
    table: str, command: str, *, succeeded: bool, seconds: float, now_unix_seconds: float
) -> list[Change]:
    """Returns the changes for a finished batch command."""
    changes = of_chore(
        table, command, succeeded=succeeded, seconds=seconds, now_unix_seconds=now_unix_seconds
    )
    if succeeded:
        changes.append(Change(c.LAST_SUCCESS, now_unix_seconds, (table,)))
    return changes


def of_chore(
    table: str, command: str, *, succeeded: bool, seconds: float, now_unix_seconds: float
) -> list[Change]:
    """Returns the changes for what a worker did that is a command, too, such as a vacuum."""
    changes = [
        Change(c.RUN_SUCCESS, succeeded, (table, command)),
        Change(c.RUN_SECONDS, seconds, (table, command)),
        Change(c.RUN_TIMESTAMP, now_unix_seconds, (table, command)),
    ]
    if succeeded:
        changes.append(Change(c.RUN_LAST_SUCCESS, now_unix_seconds, (table, command)))
    return changes


def of_fleet(states: Sequence[TableState]) -> list[Change]:
    """Returns the changes for a fleet's tables as they are now."""
    counts = Counter(each.state for each in states)
    return [
        *(Change(c.FLEET_TABLES, counts[state], (str(state),)) for state in State),
        *(Change(c.WAITING_SECONDS, each.waiting_seconds, (each.table,)) for each in states),
    ]


def of_ingest(table: str, report: IngestReport) -> list[Change]:
    """Returns the changes for ingested files."""
    return [
        Change(c.INGESTED_FILES, len(report.paths), (table,)),
        Change(c.INGESTED_ROWS, report.rows, (table,)),
        Change(c.INGESTED_FRAGMENTS, report.fragments, (table,)),
    ]


def of_vacuum(table: str, report: VacuumReport) -> list[Change]:
    """Returns the changes for a vacuum; none for a dry run."""
    if report.dry_run:
        return []
    removed = {
        "fragment": report.fragments,
        "log_file": report.log_files,
        "checkpoint": report.checkpoints,
        "unfinished_upload": report.unfinished_uploads,
    }
    return [
        *(Change(c.VACUUMED_OBJECTS, count, (table, kind)) for kind, count in removed.items()),
        Change(c.VACUUMED_BYTES, report.fragment_bytes, (table,)),
    ]


def of_pipeline(pipeline: str, report: RunReport) -> list[Change]:
    """Returns the changes for a pipeline run. pipeline: its file's name, the value of label `table`."""
    read = [
        Change(c.READ_RECORDS, count, (pipeline, node))
        for node, count in report.records_read.items()
    ]
    written = [
        Change(c.WRITTEN_RECORDS, output.records_written, (pipeline, node))
        for node, output in report.outputs.items()
    ]
    return [
        *read,
        *written,
        Change(c.BAD_RECORDS, report.dlq_count, (pipeline,)),
        Change(c.PIPELINE_SPILLS, report.spills, (pipeline,)),
    ]


def of_entity_merge(table: str, report: EntityMergeReport) -> list[Change]:
    counts = {
        "read": report.entities_read,
        "merged": report.clusters,
        "new": report.new,
        "changed": report.changed,
        "replaced": report.replaced,
        "unchanged": report.unchanged,
    }
    return [Change(c.ENTITIES, count, (table, kind)) for kind, count in counts.items()]
