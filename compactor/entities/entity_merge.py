"""Runs an entity merge from datasets to commit: read, match by values, connect, fold the changes, write.

Each stage is a function on columns, so that a caller can replace one of them (`connect`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from compactor.common.clock import Ids, random_id
from compactor.entities.breaker import check_ended
from compactor.entities.cluster_figures import (
    ClusterFigures,
    commonest_in,
    largest_of,
    sizes_of,
)
from compactor.entities.clusters import Clusters, clusters_of
from compactor.entities.components import Components, components
from compactor.entities.connecting import Connected, connected
from compactor.entities.datasets import Located, read_batches, read_dataset
from compactor.entities.entities import DELETED, MEMBERS, Entities
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.explain import Explanation, explain
from compactor.entities.expressions import ID, IDS
from compactor.entities.links import link_batches
from compactor.entities.memory import Charge, EntityMemory, unlimited
from compactor.entities.output import (
    NOTHING_WRITTEN,
    Difference,
    EntityBatches,
    difference,
    read_written,
)
from compactor.entities.preview import largest_changes
from compactor.entities.run import EntityRun
from compactor.entities.same_ids import SameIdError
from compactor.entities.spec import EntityMergeSpec, Identity
from compactor.entities.stable import COLUMNS, Histories, Lineage, stable_ids
from compactor.entities.target import OPTIONS, SORT, Target
from compactor.errors import UsageError
from compactor.read.scan import scan
from compactor.write.ingest import ingest_batches


@dataclass(frozen=True, slots=True)
class MergedClusters:
    """Clusters before folding."""

    spec: EntityMergeSpec
    datasets: Sequence[Entities]
    clusters: Clusters
    connected: Connected
    lineage: Lineage | None = None
    """With `identity: stable`."""

    def largest(self) -> list[ClusterFigures]:
        """Returns the largest clusters with their commonest values."""
        clusters = self.clusters
        return [
            ClusterFigures(
                key,
                entities,
                commonest_in(
                    self.spec,
                    self.datasets,
                    clusters.members_of(np.array([number]))[0],
                    self.connected.aside,
                ),
            )
            for entities, key, number in largest_of(clusters.ids, clusters.counts)
        ]

    def batches(
        self, changes: Difference, first_updated: int, known: pa.Schema | None = None
    ) -> EntityBatches:
        """known: as of `EntityBatches`."""
        return EntityBatches(
            self.spec,
            self.datasets,
            self.clusters,
            changes,
            first_updated,
            known,
            lineage=self.lineage,
        )


def merge_entities(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    connect: Components = components,
    charge: Charge = unlimited,
) -> MergedClusters:
    """Finds the clusters of the datasets.

    Raises `JobError` for a cluster of more than `max_merged` entities, `ConfigError` for duplicate ids.
    """
    found = connected(spec, datasets, connect, charge)
    clusters = clusters_of(spec, datasets, found.labels, found.aside)
    return MergedClusters(spec, datasets, clusters, found)


def merged_batches(
    spec: EntityMergeSpec,
    inputs: Sequence[Iterable[pa.RecordBatch]],
    connect: Components = components,
    charge: Charge = unlimited,
) -> EntityBatches:
    """Merges the input rows of a pipeline. Returns all entities, with `_updated` from 0; keeps no state.

    inputs: one dataset each, in the order of `spec.datasets`.
    charge: called with the size of columns held to the end; the merge needs about `COPIES` times that.
    Raises the errors of `merge_entities` and `charge`, and `InputError` for rows without an `_id`.
    """
    pairs = zip(spec.datasets, inputs, strict=True)
    ids = dict(spec.ids)
    datasets = [
        read_batches(batches, dataset.name, charge, ids.get(dataset.name, ()))
        for dataset, batches in pairs
    ]
    merged = merge_entities(spec, datasets, connect)
    clusters = merged.clusters
    changes = difference(clusters.ids, clusters.deleted, clusters.signatures, NOTHING_WRITTEN)
    return merged.batches(changes, 0)


class EntityMerge:
    """One run of an entity merge into a table.

    A single commit publishes the rows together with the state for the next run.
    """

    def __init__(
        self, run: EntityRun, *, connect: Components = components, ids: Ids = random_id
    ) -> None:
        self._memory = EntityMemory(run.memory_limit_bytes)
        self._spec, self._on_progress = run.spec, run.on_progress
        self._run, self._connect, self._ids = run, connect, ids
        self._target = Target(run.store)
        self._merged: MergedClusters | None = None

    def run(self) -> EntityMergeReport:
        """Writes what changed.

        Raises `CommitConflictError` if another run has committed meanwhile, and the errors of `look`; then
        nothing is written.
        """
        report, changes = self._found()
        target = self._target
        if target.store is None or target.log is None or report.waiting_for:
            return report
        after = target.state_after(self._spec, report)
        batches = self._batches(changes)
        if batches is None:
            report.version = target.remember(after) or report.version
            return report
        self._on_progress("writing")
        report.version = ingest_batches(
            target.store,
            target.log,
            target.snapshot,
            batches,
            SORT,
            OPTIONS,
            ids=self._ids,
            amend=target.amending(after),
        ).version
        return report

    def look(self) -> tuple[EntityMergeReport, EntityBatches | None]:
        """Returns the report of a dry run with the largest changes, and the rows it would write; None without
        rows.

        Raises `InputError` for unreadable datasets, `UsageError` if they need a full run or `allow_changes`,
        `JobError` for too large a cluster or too much memory.
        """
        report, changes = self._found()
        if self._merged is not None and changes is not None:
            written = self._written([ID, IDS, DELETED])
            clusters = self._merged.clusters
            report.changes = largest_changes(self._merged.datasets, clusters, changes, written)
        return report, self._batches(changes)

    def _found(self) -> tuple[EntityMergeReport, Difference | None]:
        """Returns the report without the largest changes, and what changes; None if the run has to wait."""
        located, report = self._target.begin(self._run)
        if report.waiting_for:
            return report, None
        datasets = self._read(located)
        self._on_progress("comparing")
        try:
            merged = merge_entities(
                self._spec, datasets, self._connect, self._memory.charging("values of rules")
            )
        except SameIdError as error:
            raise error.placed(located) from None
        if self._spec.identity is Identity.STABLE:
            merged = self._stable(merged)
        self._merged = merged
        changes = self._changes(merged.clusters)
        report.entities_read = sum(d.rows for d in datasets)
        report.rules, report.cuts = merged.connected.rules, merged.connected.cuts
        report.pair_warnings = merged.connected.pairs.warnings
        report.clusters = len(merged.clusters.ids)
        report.sizes = sizes_of(merged.clusters.counts, merged.clusters.deleted)
        report.largest = merged.largest()
        report.new = changes.new
        report.changed = len(changes.clusters) - changes.new
        report.replaced = len(changes.gone)
        report.unchanged = report.clusters - len(changes.clusters)
        report.living_before, report.ended = changes.living_before, changes.ended
        check_ended(report, self._run)
        report.next_updated = self._target.first_updated + changes.rows
        return report, changes

    def _stable(self, merged: MergedClusters) -> MergedClusters:
        """Gives the clusters the ids that their members have in the table."""
        is_known = MEMBERS in self._target.columns.names
        histories = Histories.of(self._written(COLUMNS) if is_known else ())
        numbers = self._target.numbers
        ids, lineage = stable_ids(merged.datasets, merged.clusters, numbers, histories)
        return replace(merged, clusters=replace(merged.clusters, ids=ids), lineage=lineage)

    def _batches(self, changes: Difference | None) -> EntityBatches | None:
        if self._merged is None or changes is None or not changes.rows:
            return None
        return self._merged.batches(changes, self._target.first_updated, self._target.columns)

    def _written(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields columns of the table's rows; nothing before the first run."""
        target = self._target
        if target.store is not None and target.before is not None:
            yield from scan(target.store, target.snapshot, columns)

    def links(self) -> Iterator[pa.RecordBatch]:
        """Yields the links of the entities that `look` or `run` has read, in the schema `LINKS`."""
        if self._merged is None:
            return iter(())
        found = self._merged.connected
        datasets, always = self._merged.datasets, found.pairs.always
        return link_batches(self._spec, datasets, found.labels, always, found.aside)

    def explain(self, asked: Sequence[str]) -> Explanation:
        """Explains what ties an entity to its cluster, or two entities, even in a cluster that is too large.

        Raises `UsageError` for unknown entities, and the errors of `look`.
        """
        located, report = self._target.begin(self._run)
        if report.waiting_for:
            raise UsageError(
                f"--explain: waiting for {', '.join(report.waiting_for)}: run it later"
            )
        datasets = self._read(located)
        charge = self._memory.charging("values of rules")
        found = connected(self._spec, datasets, self._connect, charge, explains=True)
        return explain(self._spec, datasets, found, asked)

    def _read(self, located: Sequence[Located | None]) -> list[Entities]:
        memory = self._memory
        found = []
        for (name, _alias), at in zip(self._spec.datasets, located, strict=True):
            self._on_progress(f"reading {name}")
            found.append(read_dataset(at, name, memory.charging(f"dataset {name}")))
        return found

    def _changes(self, clusters: Clusters) -> Difference:
        target = self._target
        written = NOTHING_WRITTEN
        if target.store is not None and target.before is not None:
            written = read_written(target.store, target.snapshot)
        return difference(
            clusters.ids, clusters.deleted, clusters.signatures, written, everything=self._run.full
        )
