"""Keys of the settings that messages refer to; `compactor.settings.names` maps them to each front's names."""

from __future__ import annotations

from typing import Final

from compactor.common.message import Setting

AGGREGATE: Final = Setting("aggregate")
ALLOW_SHRINKING: Final = Setting("allow_shrinking")
BACK_PRESSURE: Final = Setting("back_pressure")
DELETE_MARKER: Final = Setting("delete_marker")
GRACE_SECONDS: Final = Setting("grace_seconds")
KEEP_SECONDS: Final = Setting("keep_seconds")
KEEP_TOMBSTONES: Final = Setting("keep_tombstones")
LEVEL0_TRIGGER_RUNS: Final = Setting("level0_trigger_runs")
LEVEL1_TARGET_BYTES: Final = Setting("level1_target_bytes")
LOSE_ROWS: Final = Setting("lose_rows")
MEMORY_LIMIT_BYTES: Final = Setting("memory_limit_bytes")
MOVE: Final = Setting("move")
NOT_NULL: Final = Setting("not_null")
ON_CONFLICT: Final = Setting("on_conflict")
ORDER: Final = Setting("order")
PROMOTE: Final = Setting("promote")
RETAIN_SECONDS: Final = Setting("retain_seconds")
RETENTION: Final = Setting("retention")
ROW_POLICY: Final = Setting("row_policy")
SEQUENCE: Final = Setting("sequence")
SHUFFLE_PARTITIONS: Final = Setting("shuffle_partitions")
SINCE: Final = Setting("since")
SKIP_INDEX: Final = Setting("skip_index")
SKIP_MISSING: Final = Setting("skip_missing")
SLOW_RUNS: Final = Setting("slow_runs")
SORT_BY: Final = Setting("sort_by")
SPOOL_DIRECTORY: Final = Setting("spool_directory")
STOP_PENDING_BYTES: Final = Setting("stop_pending_bytes")
STOP_RUNS: Final = Setting("stop_runs")
TARGET_FRAGMENT_BYTES: Final = Setting("target_fragment_bytes")
TIME_COLUMN: Final = Setting("time_column")
TIME_WINDOW: Final = Setting("time_window")
TTL: Final = Setting("ttl")
TTL_COLUMN: Final = Setting("ttl_column")
