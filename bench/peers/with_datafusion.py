"""DataFusion: files declared sorted, merged by SortPreservingMergeExec."""

from __future__ import annotations

import datafusion as df

from bench.peers.contract import Task
from bench.peers.parquet import ROW_GROUP_ROWS, ParquetPeer, inputs, output, sync


class DataFusionMerge(ParquetPeer):
    settings = "SortPreservingMergeExec over one declared-sorted partition a file, COPY TO Parquet, zstd(1)"

    def version(self) -> str:
        return str(df.__version__)

    def start(self, task: Task) -> None:
        files = inputs(task)
        config = (
            df.SessionConfig()
            .with_target_partitions(len(files))
            .with_repartition_file_scans(False)
            .set("datafusion.execution.parquet.max_row_group_size", str(ROW_GROUP_ROWS))
            .set(
                "datafusion.execution.parquet.allow_single_file_parallelism",
                str(task.cores > 1).lower(),
            )
        )
        self._session = df.SessionContext(config)
        order = [
            [df.col(f'"{name}"').sort(ascending=True, nulls_first=False) for name in task.sort]
        ]
        names = []
        for number, path in enumerate(files):
            names.append(f"t{number}")
            self._session.register_parquet(names[-1], path, file_sort_order=order)
        union = " UNION ALL ".join(f"SELECT * FROM {name}" for name in names)
        by = ", ".join(f'"{name}" ASC NULLS LAST' for name in task.sort)
        self._query = (
            f"COPY (SELECT * FROM ({union}) ORDER BY {by}) TO '{output(task)}' STORED AS PARQUET "
            "OPTIONS (compression 'zstd(1)')"
        )
        plan = self._session.sql("EXPLAIN " + self._query).to_pylist()[-1]["plan"]
        assert "SortPreservingMergeExec" in plan and "SortExec" not in plan, plan

    def compact(self, task: Task) -> None:
        self._session.sql(self._query).collect()
        sync(output(task))
