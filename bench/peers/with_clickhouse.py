"""ClickHouse (chdb): a MergeTree with one part per source, merged into one by OPTIMIZE FINAL."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from chdb.session import Session

from bench.peers.contract import Task

_MAX_LOW_CARDINALITY = 10_000
_TABLE_SETTINGS = (
    "enable_vertical_merge_algorithm = 1",
    "vertical_merge_algorithm_min_rows_to_activate = 1",
    "vertical_merge_algorithm_min_columns_to_activate = 1",
    "vertical_merge_algorithm_min_bytes_to_activate = 1",
    "min_bytes_for_wide_part = 0",
    "min_rows_for_wide_part = 0",
    "min_rows_to_fsync_after_merge = 1",
    "min_compressed_bytes_to_fsync_after_merge = 1",
    "fsync_after_insert = 1",
    "fsync_part_directory = 1",
    "old_parts_lifetime = 100000",
    # Limits background merges to less than a byte, so that only the requested merge runs.
    "max_bytes_to_merge_at_max_space_in_pool = 1",
    "max_bytes_to_merge_at_min_space_in_pool = 1",
)
_OPEN: Any = Session  # untyped


class ClickHouseMerge:
    settings = (
        "MergeTree of wide parts, vertical merge, OPTIMIZE FINAL, String columns, CODEC(ZSTD(1)), fsync of "
        "files and folder after the insert or merge"
    )
    low_cardinality = False

    def version(self) -> str:
        return self._query("SELECT version()").strip()

    def prepare(self, task: Task) -> None:
        self._session = _OPEN(str(task.prepared / "db"))
        self._create(task)
        self._insert(task)
        self._session.close()

    def start(self, task: Task) -> None:
        """Opens a copy of the prepared table, because a merge removes its parts."""
        shutil.copytree(task.prepared / "db", task.folder / "db", symlinks=True)
        self._session = _OPEN(str(task.folder / "db"))
        self._query(f"SET max_threads = {task.cores}")
        self._expect_parts(len(task.sources))

    def compact(self, task: Task) -> None:
        self._query("OPTIMIZE TABLE t FINAL SETTINGS optimize_throw_if_noop = 1, alter_sync = 2")

    def output_bytes(self, task: Task) -> int:
        return self._number(
            "SELECT sum(bytes_on_disk) FROM system.parts WHERE table = 't' AND active"
        )

    def output_rows(self, task: Task) -> int:
        return self._number("SELECT count() FROM t SETTINGS optimize_trivial_count_query = 0")

    def sort_columns(self, task: Task) -> pa.Table:
        """Reads the single part with one thread: rows keep their stored order."""
        self._expect_parts(1)
        columns = ", ".join(map(_quoted, task.sort))
        result = self._session.query(f"SELECT {columns} FROM t SETTINGS max_threads = 1", "Arrow")
        return pa.ipc.open_file(pa.py_buffer(result.bytes())).read_all()

    def _create(self, task: Task) -> None:
        columns = ", ".join(
            f"{_quoted(name)} {type_} CODEC(ZSTD(1))" for name, type_ in self._columns(task)
        )
        self._query(
            f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY ({', '.join(map(_quoted, task.sort))}) "
            f"SETTINGS {', '.join(_TABLE_SETTINGS)}"
        )

    def _insert(self, task: Task) -> None:
        for path in task.sources:
            self._query(
                f"INSERT INTO t SELECT * FROM file('{path}', 'Parquet') SETTINGS "
                "max_insert_block_size = 100000000, min_insert_block_size_rows = 100000000, "
                "min_insert_block_size_bytes = 100000000000, max_insert_threads = 1, "
                f"max_threads = {task.cores}, input_format_parquet_preserve_order = 1"
            )
        self._expect_parts(len(task.sources))

    def _columns(self, task: Task) -> list[tuple[str, str]]:
        """Returns names and types as ClickHouse infers them, nullable only if a source has nulls."""
        described = self._query(
            f"DESCRIBE TABLE file('{task.sources[0]}', 'Parquet') SETTINGS print_pretty_type_names = 0"
        )
        found = [tuple(line.split("\t")[:2]) for line in described.splitlines()]
        nullable, few = _nullable(task), _of_few_values(task) if self.low_cardinality else ()
        columns = []
        for name, type_ in found:
            plain = re.sub(r"^Nullable\((.*)\)$", r"\1", type_.replace("\\'", "'"))
            wanted = f"Nullable({plain})" if name in nullable else plain
            columns.append((name, f"LowCardinality({wanted})" if name in few else wanted))
        return columns

    def _expect_parts(self, count: int) -> None:
        found = self._number("SELECT count() FROM system.parts WHERE table = 't' AND active")
        if found != count:
            raise RuntimeError(f"{found} parts, not {count}")

    def _query(self, sql: str) -> str:
        return str(self._session.query(sql, "TSV").bytes().decode())

    def _number(self, sql: str) -> int:
        return int(self._query(sql).strip())


class ClickHouseLowCardinality(ClickHouseMerge):
    settings = (
        ClickHouseMerge.settings
        + f"; LowCardinality where a source has at most {_MAX_LOW_CARDINALITY:,} texts"
    )
    low_cardinality = True


class ClickHouseIngest(ClickHouseMerge):
    settings = "INSERT of one Parquet file after the other, otherwise as the merge"

    def prepare(self, task: Task) -> None:
        pass

    def start(self, task: Task) -> None:
        self._session = _OPEN(str(task.folder / "db"))
        self._create(task)

    def ingest(self, task: Task) -> None:
        self._insert(task)


def _nullable(task: Task) -> set[str]:
    files = [pq.ParquetFile(path) for path in task.sources]
    groups = [file.metadata.row_group(i) for file in files for i in range(file.num_row_groups)]
    found = set()
    for group in groups:
        for column in map(group.column, range(group.num_columns)):
            statistics = column.statistics
            if statistics is None or statistics.null_count != 0:
                found.add(column.path_in_schema)
    return found & set(files[0].schema_arrow.names)


def _of_few_values(task: Task) -> set[str]:
    first: Path = task.sources[0]
    table = pq.read_table(first)
    return {
        field.name
        for field in table.schema
        if pa.types.is_string(field.type)
        and len(table[field.name].unique()) <= min(_MAX_LOW_CARDINALITY, table.num_rows // 10)
    }


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
