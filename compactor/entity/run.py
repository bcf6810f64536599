"""An entity merge from its datasets to the commit: read, compare by values, connect, fold what changed,
write.

Each stage is a function of its own on columns, so that one of them can be done elsewhere (`connect`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from compactor.clock import Ids, random_id
from compactor.entity.clusters import Clusters, clusters_of
from compactor.entity.components import Components, components
from compactor.entity.datasets import Located, locate, read_batches, read_dataset
from compactor.entity.entities import UPDATED, Entities
from compactor.entity.expressions import ID
from compactor.entity.matching import edges, starts_of
from compactor.entity.memory import Charge, EntityMemory, unlimited
from compactor.entity.output import (
    NOTHING_WRITTEN,
    Difference,
    EntityBatches,
    difference,
    read_written,
)
from compactor.entity.spec import EntityMergeSpec
from compactor.entity.state import State, check_datasets
from compactor.errors import CommitConflictError
from compactor.ingest import IngestOptions, ingest_batches
from compactor.rows.policy import Kind, RowPolicy
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from format.schema import SortColumn

ROW_POLICY: Final = RowPolicy(Kind.LAST, sequence=UPDATED)
"""The newest row of each id stays, and all of them are rows to be seen: also what was deleted or replaced."""
_SORT: Final = (SortColumn(ID),)

Progress = Callable[[str], None]
"""Called with what is being done."""


@dataclass(slots=True)
class EntityMergeReport:
    """What a run did, or would do."""

    version: int = 0
    """Of the table after it; 0 if there is none."""
    entities_read: int = 0
    clusters: int = 0
    """Entities that come out in all, changed or not."""
    new: int = 0
    changed: int = 0
    replaced: int = 0
    """Ids that stand for nothing any more."""
    unchanged: int = 0
    next_updated: int = 0
    """The `_updated` of the next entity that will be written."""
    missing_datasets: tuple[str, ...] = ()
    """That are not there, and count as empty."""
    waiting_for: tuple[str, ...] = ()
    """Initial datasets that are not there yet: nothing was done."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Merged:
    """Clusters of datasets, not folded yet."""

    spec: EntityMergeSpec
    datasets: Sequence[Entities]
    clusters: Clusters

    def batches(self, changes: Difference, first_updated: int) -> EntityBatches:
        return EntityBatches(self.spec, self.datasets, self.clusters, changes, first_updated)


def merge_entities(
    spec: EntityMergeSpec, datasets: Sequence[Entities], connect: Components = components
) -> Merged:
    """Raises `JobError` if more than `max_merged` would become one, `ConfigError` for ids that collide."""
    left, right = edges(spec, datasets)
    labels = connect(int(starts_of(datasets)[-1]), left, right)
    return Merged(spec, datasets, clusters_of(spec, datasets, labels))


def merged_batches(
    spec: EntityMergeSpec,
    inputs: Sequence[Iterable[pa.RecordBatch]],
    connect: Components = components,
    charge: Charge = unlimited,
) -> EntityBatches:
    """The merge of rows that somebody else has read, for pipelines: a dataset each, in the order of
    `spec.datasets`. All entities, `_updated` from 0; nothing is remembered.

    charge: called with the bytes of columns that will be held to the end; merging takes about `COPIES` times
        as much.
    Raises as `merge_entities`, and `InputError` for rows without an `_id`, and what `charge` raises.
    """
    pairs = zip(spec.datasets, inputs, strict=True)
    datasets = [read_batches(batches, dataset.name, charge) for dataset, batches in pairs]
    merged = merge_entities(spec, datasets, connect)
    return merged.batches(difference(merged.clusters, NOTHING_WRITTEN), 0)


class EntityMerge:
    """One run of an entity merge into a table.

    Nothing is visible before its one commit, which holds the rows and what the next run has to know.
    """

    def __init__(
        self,
        spec: EntityMergeSpec,
        store: Store | None,
        *,
        folder: str = ".",
        full: bool = False,
        connect: Components = components,
        memory_limit_bytes: int | None = None,
        ids: Ids = random_id,
        on_progress: Progress = lambda _what: None,
    ) -> None:
        """store: of the table; None only to look at what would be written to a new one.

        folder: where datasets are that `spec.sources` does not name. full: writes every entity anew, and
        takes the datasets as they are now. memory_limit_bytes: entities that would take more are refused
        while they are read.
        """
        self._memory_limit_bytes = memory_limit_bytes
        self._spec, self._store, self._folder, self._full = spec, store, folder, full
        self._connect, self._ids, self._on_progress = connect, ids, on_progress
        self._log = None if store is None else CommitLog(store)
        self._snapshot = Snapshot.empty() if self._log is None else self._log.refresh()
        self._url = "the table" if store is None else store.url
        self._before = State.of(self._snapshot.metadata, self._url)

    def run(self) -> EntityMergeReport:
        """Writes what changed. Raises `CommitConflictError` if another run wrote meanwhile, and what `look`
        raises; nothing is written then."""
        report, batches = self.look()
        if self._store is None or self._log is None or report.waiting_for:
            return report
        after = State(self._spec.datasets, report.next_updated)
        if batches is not None:
            self._on_progress("writing")
            report.version = self._write(self._store, self._log, batches, after)
        elif self._before is not None and self._before.datasets != after.datasets:
            report.version = self._log.commit(lambda s: self._remembering(s, after)).version
        return report

    def look(self) -> tuple[EntityMergeReport, EntityBatches | None]:
        """What a run would do, and the rows it would write; None if there are none.

        Raises `InputError` for datasets that cannot be read, `UsageError` for those that need a full run,
        `JobError` for too many that would be one, or too much memory.
        """
        located = locate(self._spec, self._folder)
        report = EntityMergeReport(self._snapshot.version)
        absent = [d.name for d, at in zip(self._spec.datasets, located, strict=True) if at is None]
        report.missing_datasets = tuple(absent)
        if self._before is None:
            report.waiting_for = tuple(n for n in self._spec.initial_datasets if n in absent)
        if report.waiting_for:
            return report, None
        before = self._before or State()
        if not self._full:
            check_datasets(before.datasets, self._spec.datasets, self._url)
        datasets = self._read(located)
        self._on_progress("comparing")
        merged = merge_entities(self._spec, datasets, self._connect)
        changes = self._changes(merged)
        report.entities_read = sum(d.rows for d in datasets)
        report.clusters = len(merged.clusters.ids)
        report.new = changes.new
        report.changed = len(changes.clusters) - changes.new
        report.replaced = len(changes.gone)
        report.unchanged = report.clusters - len(changes.clusters)
        report.next_updated = before.next_updated + changes.rows
        return report, merged.batches(changes, before.next_updated) if changes.rows else None

    def _read(self, located: Sequence[Located | None]) -> list[Entities]:
        memory = EntityMemory(self._memory_limit_bytes)
        found = []
        for (name, _alias), at in zip(self._spec.datasets, located, strict=True):
            self._on_progress(f"reading {name}")
            found.append(read_dataset(at, name, memory.charging(name)))
        return found

    def _changes(self, merged: Merged) -> Difference:
        if self._store is None or self._before is None:
            return difference(merged.clusters, NOTHING_WRITTEN)
        written = read_written(self._store, self._snapshot)
        return difference(merged.clusters, written, everything=self._full)

    def _write(self, store: Store, log: CommitLog, batches: EntityBatches, after: State) -> int:
        def amend(latest: Snapshot, changes: Changes) -> Changes:
            self._check_unchanged(latest)
            metadata = after.put_into(changes.metadata or latest.table)
            return Changes(changes.operation, changes.adds, metadata=metadata)

        report = ingest_batches(
            store,
            log,
            self._snapshot,
            batches,
            _SORT,
            IngestOptions(rows=ROW_POLICY),
            ids=self._ids,
            amend=amend,
        )
        return report.version

    def _remembering(self, latest: Snapshot, after: State) -> Changes:
        self._check_unchanged(latest)
        return Changes(Operation.ALTER, metadata=after.put_into(latest.table))

    def _check_unchanged(self, latest: Snapshot) -> None:
        """Compactions may have come, another run may not."""
        if State.of(latest.metadata, self._url) != self._before:
            raise CommitConflictError(
                f"{self._url}: another entity merge wrote to it meanwhile; this one wrote nothing: run it "
                "again"
            )
