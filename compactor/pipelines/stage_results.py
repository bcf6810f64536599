"""Collects the task reports of Spark stages, and converts task row numbers to source row numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from compactor.pipelines import dead_letters
from compactor.pipelines.config import Aggregate, Node, Source
from compactor.pipelines.dead_letters import BadRecordError
from compactor.pipelines.run_report import RunReport
from compactor.pipelines.stages import Feed, SparkStage
from compactor.pipelines.task import StageTaskReport, WrittenRows
from compactor.spark.shuffle.jobs import Done, FeedTotals
from compactor.spark.shuffle.task import task_and_place


class _StageResult(Struct, frozen=True):
    done: Done
    reports: Mapping[int, StageTaskReport]
    """By task number, ascending."""


class StageResults:
    """The results of all finished stages."""

    def __init__(self) -> None:
        self._stages: list[_StageResult] = []
        self._stage_of: dict[int, _StageResult] = {}
        """Producing stage by feed number."""
        self._rows_before: dict[str, npt.NDArray[np.int64]] = {}
        """By numbering node: rows before those of each task."""

    def add(
        self, stage: SparkStage, done: Done, nodes: Mapping[str, Node], total: RunReport
    ) -> None:
        """Adds a finished stage, and its figures to the run's report. Raises `BadRecordError` if a bad record
        ended it."""
        reports = {n: msgspec.convert(said, StageTaskReport) for n, said in done.summaries.items()}
        result = _StageResult(done, reports)
        self._stages.append(result)
        self._stage_of |= {feed.number: result for feed in stage.gives}
        for root in stage.roots:
            mine = {task: report for task, report in reports.items() if report.root == root}
            self._rows_before[root] = _rows_before(mine)
            node = nodes[root]
            if isinstance(node, Source):
                total.records_read[root] = sum(r.records_read for r in mine.values())
            if isinstance(node, Aggregate) and node.window is not None:
                missing = sum(report.records_without_time for report in mine.values())
                total.records_without_time[root] = missing
        for report in reports.values():
            if (bad := report.bad_record) is not None:
                row = self._whole(bad["source"], np.array([bad["row"]]))
                raise BadRecordError(bad["source"], int(row[0]), bad["node"], bad["reason"])
            total.dlq_count += report.dlq_count
            total.spills += report.spills
            total.peak_bytes = max(total.peak_bytes, report.peak_bytes)
            for name, spent in report.node_seconds.items():
                total.node_seconds[name] = total.node_seconds.get(name, 0.0) + spent

    def done(self, feed: Feed) -> Done:
        """Returns the job that produced a feed."""
        return self._stage_of[feed.number].done

    def size(self, feed: Feed) -> FeedTotals:
        """Returns the packet totals of a feed."""
        return self.done(feed).feeds[feed.number]

    def written(self, feed: Feed) -> Iterator[WrittenRows]:
        """Yields what the tasks wrote of a feed, in row order."""
        for report in self._stage_of[feed.number].reports.values():
            if (written := report.written.get(str(feed.number))) is not None:
                yield written

    def rows(self, feed: Feed) -> int:
        """Returns the rows of a feed, in packets or written."""
        return self.size(feed).rows + sum(written.rows for written in self.written(feed))

    def dead_letters(self) -> Iterator[str]:
        """Yields the keys of the dead-letter parts."""
        for stage in self._stages:
            for report in stage.reports.values():
                if report.dead_letters is not None:
                    yield report.dead_letters

    def with_whole_numbers(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Renumbers the rows of dead letters within the whole source."""
        sources = np.asarray(letters.column("source"))
        rows = letters.column("row").to_numpy()
        whole = np.empty_like(rows)
        for source in np.unique(sources).tolist():
            mine = sources == source
            whole[mine] = self._whole(source, rows[mine])
        place = letters.schema.get_field_index("row")
        return letters.set_column(place, dead_letters.SCHEMA.field("row"), pa.array(whole))

    def _whole(self, source: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """rows: numbers with the task number in the upper bits. All numbers start at 1."""
        tasks, places = task_and_place(rows - 1)
        return self._rows_before[source][tasks] + places + 1


def _rows_before(reports: Mapping[int, StageTaskReport]) -> npt.NDArray[np.int64]:
    """Returns the number of rows before each task. Shape (number of the last task + 2,)."""
    counts = np.zeros(max(reports, default=-1) + 2, dtype=np.int64)
    for task, report in reports.items():
        # Rows that a source skipped have numbers too.
        counts[task + 1] = max(report.records_read, report.root_rows)
    return np.cumsum(counts)
