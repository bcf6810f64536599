"""Tables for reports: made-up entries where only the log counts, real ones where footers do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import structs

from compactor.report.data import Report
from compactor.report.gather import ReportOptions, gather
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.object_names import fragment_key
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation, Quarantine
from tests.support.clocks import SetClock
from tests.support.entries import made_up_entry
from tests.support.fragments import sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table, ingest_tables, log_rows

METADATA = TableMetadata(
    schema=pa.schema([("k", pa.int64()), ("v", pa.string())]), sort=sort_schema("k")
)
EAGER = Policy(level0_trigger_runs=2)


class MadeUp:
    """A table of entries without objects, whose key is an int64 `k`. A minute passes between commits."""

    def __init__(self, metadata: TableMetadata = METADATA) -> None:
        self.store = MemoryStore()
        self.clock = SetClock()
        self.log = CommitLog(self.store, self.clock)
        self._metadata = metadata
        self._made = 0

    def entry(self, first: int, last: int, *, level: int = 0, rows: int = 10) -> FragmentEntry:
        self._made += 1
        key = fragment_key(self.log.latest.version, f"f{self._made}", 0)
        return made_up_entry(
            key,
            (first,),
            (last,),
            rows=rows,
            size_bytes=1000 * rows,
            level=level,
            sequence=(self.log.latest.version + 1, self._made),
        )

    def commit(
        self,
        operation: Operation,
        adds: Sequence[FragmentEntry] = (),
        removes: Sequence[str] = (),
        **more: Any,
    ) -> Snapshot:
        def prepare(snapshot: Snapshot) -> Changes:
            metadata = self._metadata if snapshot.version == 0 else None
            return Changes(
                operation=operation,
                adds=tuple(adds),
                removes=tuple(removes),
                metadata=metadata,
                **more,
            )

        self.clock.sleep(60)
        return self.log.commit(prepare)

    def ingest(self, *ranges: tuple[int, int]) -> list[FragmentEntry]:
        entries = [self.entry(first, last) for first, last in ranges]
        self.commit(Operation.INGEST, entries)
        return entries

    def compact(self, inputs: Sequence[FragmentEntry], *ranges: tuple[int, int], level: int = 1):
        rows = sum(entry.rows for entry in inputs) // max(1, len(ranges))
        entries = [self.entry(*ends, level=level, rows=rows) for ends in ranges]
        self.commit(Operation.COMPACT, entries, [entry.key for entry in inputs])
        return entries

    def move(self, entries: Sequence[FragmentEntry], level: int) -> list[FragmentEntry]:
        moved = [structs.replace(entry, level=level) for entry in entries]
        self.commit(Operation.TRIVIAL_MOVE, moved, [entry.key for entry in entries])
        return moved

    def quarantine(self, entry: FragmentEntry, reason: str) -> None:
        item = Quarantine(entry.key, reason, self.clock.now_unix_ms())
        self.commit(Operation.QUARANTINE, quarantines=(item,))

    def report(self, **options: Any) -> Report:
        return gather(CommitLog(self.store, self.clock), ReportOptions(**options))


def compacted(folder: Path, *, ingests: int = 4) -> MemoryStore:
    """A real table: files, a compaction, and two files since."""
    store = MemoryStore()
    ingest_tables(store, [log_rows(200, seed) for seed in range(ingests)], folder)
    compact_table(store, CompactionSettings(target_fragment_bytes=4000))
    for seed in (100, 101):
        append_table(store, log_rows(50, seed), None)
    return store


def report_of(store: MemoryStore, **options: Any) -> Report:
    return gather(CommitLog(store), ReportOptions(**options))
