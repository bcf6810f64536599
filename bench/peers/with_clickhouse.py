"""ClickHouse (chdb): a MergeTree of one part an input, merged into one by OPTIMIZE FINAL."""

from __future__ import annotations

import shutil
from typing import Any

import pyarrow as pa
from chdb.session import Session

from bench.peers.contract import Task

_TYPES = {
    "timestamp": "DateTime64(6, 'UTC')",
    "status": "Nullable(Int64)",
    "duration_us": "Int64",
    "trace_id": "Nullable(String)",
    "tags": "Array(String)",
    "cpu_ratio": "Float64",
}
_LOW_CARDINALITY = ("service", "host", "level")
_TABLE_SETTINGS = (
    "enable_vertical_merge_algorithm = 1",
    "vertical_merge_algorithm_min_rows_to_activate = 1",
    "vertical_merge_algorithm_min_columns_to_activate = 1",
    "vertical_merge_algorithm_min_bytes_to_activate = 1",
    "min_bytes_for_wide_part = 0",
    "min_rows_for_wide_part = 0",
    "min_rows_to_fsync_after_merge = 1",
    "min_compressed_bytes_to_fsync_after_merge = 1",
    "fsync_part_directory = 1",
    "old_parts_lifetime = 100000",
    # Merges in the background are for less than a byte, so that there is no other than the one asked for.
    "max_bytes_to_merge_at_max_space_in_pool = 1",
    "max_bytes_to_merge_at_min_space_in_pool = 1",
)
_OPEN: Any = Session  # has no types


class ClickHouseMerge:
    settings = (
        "MergeTree of wide parts, vertical merge, OPTIMIZE FINAL, String columns, CODEC(ZSTD(1)), fsync of "
        "files and folder after the merge"
    )
    low_cardinality = False

    def version(self) -> str:
        return self._query("SELECT version()").strip()

    def prepare(self, task: Task) -> None:
        self._session = _OPEN(str(task.prepared / "db"))
        first = pa.ipc.open_file(pa.memory_map(str(task.arrow_files[0]))).schema
        columns = ", ".join(f"{name} {self._type(name)} CODEC(ZSTD(1))" for name in first.names)
        self._query(
            f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY ({', '.join(task.sort)}) "
            f"SETTINGS {', '.join(_TABLE_SETTINGS)}"
        )
        for path in task.arrow_files:
            self._query(
                f"INSERT INTO t SELECT * FROM file('{path}', 'Arrow') SETTINGS "
                "max_insert_block_size = 100000000, min_insert_block_size_rows = 100000000, "
                "min_insert_block_size_bytes = 100000000000, max_insert_threads = 1"
            )
        self._expect_parts(len(task.arrow_files))
        self._session.close()

    def start(self, task: Task) -> None:
        """Starts on a copy of the prepared table, since a merge removes its parts."""
        shutil.copytree(task.prepared / "db", task.folder / "db", symlinks=True)
        self._session = _OPEN(str(task.folder / "db"))
        self._query(f"SET max_threads = {task.cores}")
        self._expect_parts(len(task.arrow_files))

    def compact(self, task: Task) -> None:
        self._query("OPTIMIZE TABLE t FINAL SETTINGS optimize_throw_if_noop = 1, alter_sync = 2")

    def output_bytes(self, task: Task) -> int:
        self._expect_parts(1)
        return self._number(
            "SELECT sum(bytes_on_disk) FROM system.parts WHERE table = 't' AND active"
        )

    def output_rows(self, task: Task) -> int:
        return self._number("SELECT count() FROM t SETTINGS optimize_trivial_count_query = 0")

    def sort_columns(self, task: Task) -> pa.Table:
        """Reads one part with one thread, so that rows come as they are stored."""
        columns = ", ".join(task.sort)
        result = self._session.query(f"SELECT {columns} FROM t SETTINGS max_threads = 1", "Arrow")
        return pa.ipc.open_file(pa.py_buffer(result.bytes())).read_all()

    def _expect_parts(self, count: int) -> None:
        found = self._number("SELECT count() FROM system.parts WHERE table = 't' AND active")
        if found != count:
            raise RuntimeError(f"{found} parts, not {count}")

    def _type(self, name: str) -> str:
        if self.low_cardinality and name in _LOW_CARDINALITY:
            return "LowCardinality(String)"
        return _TYPES.get(name, "String")

    def _query(self, sql: str) -> str:
        return str(self._session.query(sql, "TSV").bytes().decode())

    def _number(self, sql: str) -> int:
        return int(self._query(sql).strip())


class ClickHouseLowCardinality(ClickHouseMerge):
    settings = ClickHouseMerge.settings + "; LowCardinality for service, host, level"
    low_cardinality = True
