"""Derives amplification over time, and compaction records, from the versions of the log. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from compactor.common.sampling import evenly
from compactor.report.data import CommitterRow, CompactionRow, HistoryPoint
from compactor.report.keyspace import KeyAxis, ReadCost, read_cost
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot, Totals
from compactor.table.version import Operation, Version

MAX_POINTS: Final = 400
_COMPACTING: Final = (Operation.COMPACT, Operation.TRIVIAL_MOVE)
_WRITING: Final = (Operation.INGEST, Operation.OVERWRITE, Operation.UPDATE)


def before_last_compactions(start: Snapshot, versions: Sequence[Version]) -> int | None:
    """Returns the version before the latest compactions since an ingest, if any."""
    found: int | None = None
    for version in reversed(versions):
        if version.changes.operation in _COMPACTING:
            found = version.number - 1
        elif found is not None and version.changes.operation in _WRITING:
            break
    return found if found is not None and found >= max(1, start.version) else None


def records_of(versions: Sequence[Version]) -> tuple[CompactionRow, ...]:
    """Returns compaction records, newest first."""
    return tuple(
        CompactionRow(version.number, version.committed_unix_ms, msgspec.structs.asdict(run))
        for version in reversed(versions)
        for run in reversed(version.changes.records)
    )


def compactions_without_figures(versions: Sequence[Version]) -> int:
    return sum(v.changes.operation is Operation.COMPACT and not v.changes.records for v in versions)


def committers_of(versions: Sequence[Version]) -> tuple[CommitterRow, ...]:
    """Returns who committed these versions, by host, the last one first."""
    by_host: dict[str, list[Version]] = {}
    for version in versions:
        by_host.setdefault(version.committer.rpartition(":")[0], []).append(version)
    rows = [
        CommitterRow(
            host=host,
            processes=len({version.committer for version in found}),
            commits=dict(Counter(str(v.changes.operation) for v in found).most_common()),
            rows=sum(
                entry.rows
                for version in found
                if version.changes.operation in _WRITING
                for entry in version.changes.adds
            ),
            last_unix_ms=found[-1].committed_unix_ms,
        )
        for host, found in by_host.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.last_unix_ms))


def points_of(
    start: Snapshot, versions: Sequence[Version], table: TableMetadata
) -> tuple[HistoryPoint, ...]:
    """Returns a point at the start, if that is a version, and after each version that changes fragments.

    Thins them evenly to `MAX_POINTS`, keeping the last.
    """
    state = _State(start, versions, table)
    changing = [v.number for v in versions if v.changes.adds or v.changes.removes]
    shown = set(evenly(changing, MAX_POINTS))
    points = []
    if start.version:
        points.append(state.point(start.version, start.committed_unix_ms, "start"))
    for version in versions:
        state.apply(version)
        if version.number in shown:
            operation = str(version.changes.operation)
            points.append(state.point(version.number, version.committed_unix_ms, operation))
    return tuple(points)


class _State:
    """The live fragments as sorted numbers, updated version by version."""

    def __init__(self, start: Snapshot, versions: Sequence[Version], table: TableMetadata) -> None:
        entries = start.fragments.all()
        seen = [*entries, *(entry for v in versions for entry in v.changes.adds)]
        self._axis = KeyAxis(table, seen)
        self._live: dict[str, FragmentEntry] = {}
        self._interval: dict[str, tuple[int, int]] = {}
        self._runs: Counter[str] = Counter()
        self._totals: Totals = start.totals
        self._size_bytes = 0
        for entry in entries:
            self._add(entry)

    def apply(self, version: Version) -> None:
        changes = version.changes
        removed = [self._remove(key) for key in changes.removes]
        for entry in changes.adds:
            self._add(entry)
        self._totals = self._totals.after(changes, removed)

    def _add(self, entry: FragmentEntry) -> None:
        self._live[entry.key] = entry
        self._size_bytes += entry.size_bytes
        if entry.rows:
            self._interval[entry.key] = self._axis.interval(entry)
            self._runs[entry.sorted_run] += 1

    def _remove(self, key: str) -> FragmentEntry:
        entry = self._live.pop(key)
        self._size_bytes -= entry.size_bytes
        if entry.rows:
            del self._interval[key]
            self._runs[entry.sorted_run] -= 1
            if not self._runs[entry.sorted_run]:
                del self._runs[entry.sorted_run]
        return entry

    def _cost(self) -> ReadCost:
        intervals = np.array(list(self._interval.values()), np.int64).reshape(-1, 2)
        rows = np.array([self._live[key].rows for key in self._interval], np.int64)
        return read_cost(intervals[:, 0], intervals[:, 1], rows, len(self._runs))

    def point(self, version: int, committed_unix_ms: int, operation: str) -> HistoryPoint:
        cost = self._cost()
        return HistoryPoint(
            version=version,
            committed_unix_ms=committed_unix_ms,
            operation=operation,
            fragments=len(self._live),
            size_bytes=self._size_bytes,
            sorted_runs=cost.sorted_runs,
            worst_point_runs=cost.worst_point_runs,
            mean_point_runs=round(cost.mean_point_runs, 3),
            write_amplification=round(self._totals.write_amplification, 4),
            ingested_rows=self._totals.ingested_rows,
            ingested_bytes=self._totals.ingested_bytes,
        )
