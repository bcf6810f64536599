"""Our engine: one compaction of fragments in a local folder, as a task runs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pyarrow as pa

from bench.peers.contract import Task
from bench.peers.texts import text_inputs
from compactor import Policy, Strategy, Table
from compactor.common.clock import random_id
from compactor.compaction.attempt import run_compaction
from compactor.compaction.compaction import Compaction
from compactor.planner.spec import CompactionSpec
from compactor.read.fragment_columns import open_fragment
from compactor.settings.compaction import CompactionSettings
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from compactor.write.ingest import FilesIngest, IngestOptions
from lsm_fragment import __version__
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.sort_schema import parse_sort_schema

_SETTINGS = CompactionSettings()
LEVEL = _SETTINGS.compression_level


def entries_of(snapshot: Snapshot) -> list[FragmentEntry]:
    """Returns the entries, oldest first."""
    return sorted(snapshot.fragments.all(), key=lambda entry: entry.age)


def compact_fragments(
    store: LocalStore, snapshot: Snapshot, inputs: Sequence[FragmentEntry]
) -> tuple[FragmentEntry, ...]:
    """Runs one compaction; its outputs are complete and synced, but not committed."""
    compaction = Compaction(
        compaction_id=random_id(),
        base_version=snapshot.version,
        table_url=store.url,
        metadata=snapshot.table,
        spec=CompactionSpec(inputs=tuple(inputs), output_level=1),
        settings=_SETTINGS,
    )
    outcome = run_compaction(compaction, store)
    if outcome.failure is not None:
        raise RuntimeError(outcome.failure)
    return outcome.outputs


def ingest_sources(store: LocalStore, task: Task, paths: Sequence[str] | None = None) -> CommitLog:
    """Adds each source, or each of `paths`; a large one becomes several fragments, in sort order."""
    log = CommitLog(store)
    options = IngestOptions(writer=WriterOptions(compression_level=LEVEL))
    sort = parse_sort_schema(",".join(task.sort))
    paths = list(map(str, task.sources)) if paths is None else paths
    with FilesIngest(store, log, sort, options) as ingest:
        for _ in ingest.add(paths):
            pass
    return log


class Ours:
    settings = (
        f"one task, defaults: memory limit {_SETTINGS.memory_limit_bytes >> 20} MiB, row groups of "
        f"{_SETTINGS.max_rows_per_row_group:,} rows at most, zstd {LEVEL}, checksums and row "
        "hashes checked, fsync of file and folder; without the commit, one small file more"
    )

    def version(self) -> str:
        return __version__

    def prepare(self, task: Task) -> None:
        for source in task.sources:  # Together, they would share fragments.
            ingest_sources(LocalStore(task.prepared / "table"), task, [str(source)])

    def start(self, task: Task) -> None:
        # Hard links: the inputs stay, and the outputs belong to the run.
        shutil.copytree(task.prepared / "table", task.folder / "table", copy_function=os.link)
        self.store = LocalStore(task.folder / "table")
        self.snapshot = CommitLog(self.store).refresh()
        self.outputs: list[FragmentEntry] = []

    def compact(self, task: Task) -> None:
        self._run(entries_of(self.snapshot))

    def output_files(self, task: Task) -> list[Path]:
        return [task.folder / "table" / entry.key for entry in self.outputs]

    def output_bytes(self, task: Task) -> int:
        return sum(path.stat().st_size for path in self.output_files(task))

    def output_rows(self, task: Task) -> int:
        return sum(entry.rows for entry in self.outputs)

    def sort_columns(self, task: Task) -> pa.Table | None:
        return pa.Table.from_batches(
            batch
            for entry in self.outputs
            for batch in open_fragment(self.store, entry.key, entry.size_bytes).scan(task.sort)
        )

    def _run(self, inputs: Sequence[FragmentEntry]) -> None:
        self.outputs += compact_fragments(self.store, self.snapshot, inputs)


class OursIngest:
    settings = f"commits of 64 MiB at least, zstd {LEVEL}, fsync of files and folders"
    readers: Sequence[str] = ("columnar",)

    def version(self) -> str:
        return __version__

    def prepare(self, task: Task) -> None:
        pass

    def start(self, task: Task) -> None:
        # Commands load the reader of a format with its first file; peers load theirs on import.
        for name in self.readers:
            import_module(f"compactor.files.{name}")

    def ingest(self, task: Task) -> None:
        self._log = ingest_sources(LocalStore(task.folder / "table"), task)

    def output_bytes(self, task: Task) -> int:
        return sum(entry.size_bytes for entry in entries_of(self._log.latest))

    def output_rows(self, task: Task) -> int:
        return sum(entry.rows for entry in entries_of(self._log.latest))


class OursTextIngest(OursIngest):
    readers = ("csv", "ndjson")

    def ingest(self, task: Task) -> None:
        self._log = ingest_sources(LocalStore(task.folder / "table"), task, text_inputs(task))


class OursScan:
    settings = "Table.scan of one sorted run"

    def version(self) -> str:
        return __version__

    def prepare(self, task: Task) -> None:
        store = LocalStore(task.prepared / "table")
        ingest_sources(store, task)
        Table.open(store.url).compact(policy=Policy(strategy=Strategy.FULL))

    def start(self, task: Task) -> None:
        self._table = Table.open(str(task.prepared / "table"))

    def scan(self, task: Task) -> int:
        return sum(batch.num_rows for batch in self._table.scan(task.columns))

    def output_bytes(self, task: Task) -> int:
        log = CommitLog(LocalStore(task.prepared / "table"))
        return sum(entry.size_bytes for entry in entries_of(log.refresh()))


class OursHalves(Ours):
    """Two compactions in sequence, each of half the inputs."""

    settings = "two compactions of half the inputs each, otherwise as ours"
    halves: Sequence[int] = (0, 1)

    def compact(self, task: Task) -> None:
        halves = halve(entries_of(self.snapshot))
        for half in self.halves:
            self._run(halves[half])

    def sort_columns(self, task: Task) -> pa.Table | None:
        return None  # two sorted runs; merges check that a compaction sorts


class OursFirstHalf(OursHalves):
    halves = (0,)


class OursSecondHalf(OursHalves):
    halves = (1,)


def halve(entries: Sequence[FragmentEntry]) -> tuple[list[FragmentEntry], list[FragmentEntry]]:
    """Halves the inputs, in number exactly and in rows approximately: dealt from the largest, as 0 1 1 0."""
    ranked = sorted(entries, key=lambda entry: -entry.rows)
    first = [entry for place, entry in enumerate(ranked) if place % 4 in (0, 3)]
    second = [entry for place, entry in enumerate(ranked) if place % 4 in (1, 2)]
    return sorted(first, key=lambda e: e.age), sorted(second, key=lambda e: e.age)
