"""All metrics, with kind, labels and meaning. Tests compare docs/reference/metrics.md, the dashboard and the
alerts with it.

Names follow Prometheus conventions: base units, `_total` for counters. Labels have low cardinality: `table`
is one of the process's tables.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(Struct, frozen=True):
    """A Prometheus metric."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ("table",)
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets."""


def _counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.COUNTER, help, ("table", *labels))


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, help, ("table", *labels))


_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_COMMIT_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

# --- the store ---
STORE_GETS = _counter(
    "compactor_store_gets_total",
    "GETs of whole objects; role is task (compactions) or driver (log and commits).",
    "role",
)
STORE_RESUMED = _counter(
    "compactor_store_resumed_gets_total",
    "GETs that resumed a broken one at its offset.",
    "role",
)
STORE_RANGE_GETS = _counter("compactor_store_range_gets_total", "Range GETs.", "role")
STORE_PUTS = _counter("compactor_store_puts_total", "Objects written completely.", "role")
STORE_RETRIES = _counter(
    "compactor_store_retries_total", "Requests retried by the S3 client.", "role"
)
STORE_REQUESTS = _counter(
    "compactor_store_requests_total",
    "Requests sent to the store; kind is get, head, list, put, post or delete.",
    "role",
    "kind",
)
READ_BYTES = _counter("compactor_read_bytes_total", "Bytes read from the store.", "role")
WRITTEN_BYTES = _counter(
    "compactor_written_bytes_total",
    "Bytes sent to the store, including objects given up.",
    "role",
)

# --- compactions ---
COMPACTIONS = _counter(
    "compactor_compactions_total",
    "Ended attempts at compactions; outcome is done, failed, or void (overtaken by others).",
    "outcome",
)
RETRIES = _counter(
    "compactor_compaction_retries_total", "Attempts after a failed one with the same inputs."
)
INPUT_FRAGMENTS = _counter("compactor_input_fragments_total", "Fragments merged into others.")
OUTPUT_FRAGMENTS = _counter("compactor_output_fragments_total", "Fragments written by compactions.")
INPUT_ROWS = _counter("compactor_input_rows_total", "Rows merged by compactions.")
OUTPUT_ROWS = _counter("compactor_output_rows_total", "Rows written by compactions.")
COPIED_ROWS = _counter(
    "compactor_copied_rows_total", "Rows copied as stored, without decompression."
)
DROPPED_ROWS = _counter(
    "compactor_dropped_rows_total",
    "Rows left out: deleted, expired, superseded or tombstones.",
    "reason",
)
SECOND_PASSES = _counter(
    "compactor_second_passes_total", "Second passes of merges, because a row group was too heavy."
)
REPLAYED_INPUTS = _counter(
    "compactor_replayed_inputs_total", "Inputs read from local disk by a second pass."
)
SPILLED_BYTES = _counter(
    "compactor_spilled_bytes_total", "Bytes spilled to local disk by compactions."
)
STAGE_SECONDS = _counter(
    "compactor_stage_seconds_total", "Seconds of merging threads, by stage.", "stage"
)
TASK_SECONDS = _counter(
    "compactor_task_seconds_total", "Seconds of attempts, including failed ones."
)
COMPACTION_SECONDS = Metric(
    "compactor_compaction_seconds",
    MetricKind.HISTOGRAM,
    "Duration of successful attempts.",
    buckets=_SECONDS,
)
PEAK_CHARGED_BYTES = _gauge(
    "compactor_peak_charged_bytes", "Peak memory charged by the last attempt."
)
PEAK_RSS_BYTES = _gauge(
    "compactor_peak_rss_bytes", "Peak resident set of the process that ran the last attempt."
)
MEMORY_LIMIT_BYTES = _gauge("compactor_memory_limit_bytes", "Memory limit of attempts.")
INFLIGHT = _gauge("compactor_inflight_compactions", "Running compactions of this process.")
LAST_SUCCESS = _gauge(
    "compactor_last_success_timestamp_seconds",
    "Time of the last compaction committed by watch, or of the last successful batch command.",
)

# --- commits ---
COMMITS = _counter("compactor_commits_total", "Versions committed.", "operation")
CONFLICTS = _counter(
    "compactor_commit_conflicts_total",
    "Versions taken first by another writer, each causing a retry.",
)
COMMIT_FAILURES = _counter(
    "compactor_commit_failures_total",
    "Commits given up; end is conflict, unknown or failed.",
    "end",
)
COMMIT_SECONDS = Metric(
    "compactor_commit_seconds",
    MetricKind.HISTOGRAM,
    "Duration of commits, including retries.",
    buckets=_COMMIT_SECONDS,
)
STEP_FAILURES = _counter(
    "compactor_step_failures_total",
    "Failed reads of a table's log and failed commits, to be retried later.",
)

# --- the table ---
TABLE_VERSION = _gauge("compactor_table_version", "Latest known version.")
DEBT_SCORE = _gauge(
    "compactor_debt_score", "Compaction debt; from 0.5 writers should slow down, from 1 wait."
)
PENDING_BYTES = _gauge(
    "compactor_pending_bytes", "Bytes to write until every level is within its target."
)
LEVEL0_RUNS = _gauge(
    "compactor_level0_runs", "Sorted runs at level 0, in the time window with the most."
)
BACK_PRESSURE = _gauge(
    "compactor_back_pressure", "1 for the current state: healthy, slow or stop.", "state"
)
LEVEL_FRAGMENTS = _gauge("compactor_level_fragments", "Live fragments.", "level")
LEVEL_BYTES = _gauge("compactor_level_bytes", "Bytes of live fragments.", "level")
LEVEL_ROWS = _gauge("compactor_level_rows", "Rows of live fragments.", "level")
COMPACTED_THROUGH = _gauge(
    "compactor_compacted_through_version",
    "Version up to which all that came in is compacted; the latest one if nothing is due.",
)
DUE_BYTES = _gauge(
    "compactor_due_bytes", "Bytes of fragments to be compacted or moved now, or being so."
)
WAITING_COMPACTIONS = _gauge(
    "compactor_waiting_compactions", "Compactions that are due and that no worker has begun."
)
WAITING_SECONDS = _gauge(
    "compactor_waiting_seconds",
    "Time for which compactions of a fleet's table have been due without one that began.",
)
AWAITED = _gauge(
    "compactor_table_awaited",
    "1 while there is no table at the address, or no folder of the pattern, else 0.",
)
QUARANTINED = _gauge("compactor_quarantined_fragments", "Quarantined live fragments.")
LEASES = _gauge("compactor_leases", "Leased compactions of all workers.")
INGESTED_BYTES = _gauge("compactor_ingested_bytes", "Bytes ever ingested into the table.")
COMPACTED_BYTES = _gauge("compactor_compacted_bytes", "Bytes ever written by its compactions.")
WRITE_AMPLIFICATION = _gauge(
    "compactor_write_amplification_ratio", "Bytes ever written per byte ingested."
)

# --- the process ---
LAST_TURN = Metric(
    "compactor_last_turn_timestamp_seconds",
    MetricKind.GAUGE,
    "Time of the loop's last iteration.",
    (),
)
FLEET_TABLES = Metric(
    "compactor_fleet_tables",
    MetricKind.GAUGE,
    "Tables of a fleet, by state: new, awaited, at rest, waiting, quiet, merging or failing.",
    ("state",),
)
BUILD_INFO = Metric("compactor_build_info", MetricKind.GAUGE, "1, by version.", ("version",))

# --- batch commands ---
RUN_SUCCESS = _gauge("compactor_run_success", "1 if the last run succeeded, else 0.", "command")
RUN_SECONDS = _gauge("compactor_run_seconds", "Duration of the last run.", "command")
RUN_TIMESTAMP = _gauge("compactor_run_timestamp_seconds", "End of the last run.", "command")
RUN_LAST_SUCCESS = _gauge(
    "compactor_run_last_success_timestamp_seconds",
    "End of the last successful run, also of a fleet's vacuums and publications.",
    "command",
)
INGESTED_ROWS = _counter("compactor_ingested_rows_total", "Rows ingested.")
INGESTED_FILES = _counter("compactor_ingested_files_total", "Files ingested.")
INGESTED_FRAGMENTS = _counter("compactor_ingested_fragments_total", "Fragments written by ingests.")
VACUUMED_OBJECTS = _counter(
    "compactor_vacuumed_objects_total",
    "Objects removed; kind is fragment, log_file, checkpoint or unfinished_upload.",
    "kind",
)
VACUUMED_BYTES = _counter("compactor_vacuumed_bytes_total", "Bytes of fragments removed.")
READ_RECORDS = Metric(
    "compactor_read_records_total",
    MetricKind.COUNTER,
    "Records read by a pipeline.",
    ("table", "node"),
)
WRITTEN_RECORDS = Metric(
    "compactor_written_records_total",
    MetricKind.COUNTER,
    "Records written by a pipeline.",
    ("table", "node"),
)
BAD_RECORDS = _counter("compactor_bad_records_total", "Bad records set aside by a pipeline.")
PIPELINE_SPILLS = _counter("compactor_pipeline_spills_total", "Spills of a pipeline to local disk.")
ENTITIES = _counter(
    "compactor_entities_total",
    "Entities of a merge; kind is read, merged, new, changed, replaced or unchanged.",
    "kind",
)

METRICS: Final = tuple(value for value in globals().values() if isinstance(value, Metric))


class Change(Struct, frozen=True):
    """A value to add to a counter, set a gauge to, or observe in a histogram."""

    metric: Metric
    value: float
    labels: tuple[str, ...]
    """Label values in the order of `metric.labels`."""

    def by_label(self) -> dict[str, str]:
        return dict(zip(self.metric.labels, self.labels, strict=True))
