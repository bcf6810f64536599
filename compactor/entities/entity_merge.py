"""Runs an entity merge from datasets to commit: read, match by values, connect, fold the changes, write.

Each stage is a function on columns, so that a caller can replace one of them (`connect`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pydantic import SkipValidation

from compactor.common.clock import Clock, SystemClock, random_id
from compactor.common.counts import counted
from compactor.entities.breaker import check_ended
from compactor.entities.cluster_figures import (
    ClusterFigures,
    commonest_in,
    largest_of,
    sizes_of,
)
from compactor.entities.clusters import Clusters, clusters_of, member_hashes
from compactor.entities.comparing import Compared, NotProvenError
from compactor.entities.components import Components, components
from compactor.entities.connecting import Connected, connected
from compactor.entities.datasets import Located
from compactor.entities.entities import DELETED, MEMBERS, U64, Entities
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.explain import (
    Explanation,
    asked_in,
    check_explained,
    explain,
    texts_of_asked,
)
from compactor.entities.expressions import ID, IDS
from compactor.entities.links import link_rows, shown_links
from compactor.entities.matching import OnValues, unnoticed
from compactor.entities.memo import Memo, may_remember
from compactor.entities.memory import Charge, EntityMemory, unlimited
from compactor.entities.output import (
    NOTHING_WRITTEN,
    Difference,
    EntityBatches,
    difference,
    read_written,
)
from compactor.entities.pairs import names_in
from compactor.entities.partial import Touched
from compactor.entities.preview import largest_changes
from compactor.entities.reading import read_batches, read_dataset
from compactor.entities.remembering import Notes
from compactor.entities.run import EntityRun
from compactor.entities.same_ids import SameIdError
from compactor.entities.spec import EntityMergeSpec, Identity
from compactor.entities.stable import COLUMNS, Histories, Lineage, stable_ids
from compactor.entities.target import OPTIONS, SORT, Target
from compactor.errors import CompactorError, UsageError
from compactor.read.scan import scan
from compactor.settings.arguments import with_checks
from compactor.settings.messages import shown
from compactor.write.ingest import Adding, ingest_batches


class MergedClusters(Struct, frozen=True, kw_only=True):
    """Clusters before folding."""

    spec: EntityMergeSpec
    datasets: Sequence[Entities]
    clusters: Clusters
    connected: Connected
    hashes: U64
    """Of `member_hashes`."""
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
        self,
        changes: Difference,
        first_updated: int,
        known: pa.Schema | None = None,
        now_unix_ms: int = 0,
    ) -> EntityBatches:
        """known, now_unix_ms: as of `EntityBatches`."""
        return EntityBatches(
            self.spec,
            self.datasets,
            self.clusters,
            changes,
            first_updated,
            known,
            lineage=self.lineage,
            now_unix_ms=now_unix_ms,
        )


def merge_entities(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    connect: Components,
    charge: Charge = unlimited,
    on_values: OnValues = unnoticed,
) -> MergedClusters:
    """Finds the clusters of the datasets.

    Raises `JobError` for a cluster of more than `max_merged` entities, `ConfigError` for duplicate ids.
    """
    found = connected(spec, datasets, connect, charge, on_values)
    hashes = member_hashes(datasets)
    clusters = clusters_of(spec, datasets, found.labels, hashes, found.aside)
    return MergedClusters(
        spec=spec, datasets=datasets, clusters=clusters, connected=found, hashes=hashes
    )


_MAX_LOOKED_AT: Final = 0.4
"""Merge all entities anew if changes touch a greater share of them: looking for these costs, too."""


class _Outcome(Struct, frozen=True):
    """What a run has found, be it of all entities or of those that changes touch."""

    merged: MergedClusters
    changes: Difference
    memo: Callable[[], Memo | None]
    """Makes what the next run has to know."""
    is_partial: bool


@with_checks
def merged_batches(
    spec: EntityMergeSpec,
    inputs: SkipValidation[Iterable[Iterable[pa.RecordBatch]]],
    connect: Components = components,
    charge: Charge = unlimited,
) -> EntityBatches:
    """Merges the input rows of a pipeline. Returns all entities, with `_updated` from 0; keeps no state.

    inputs: one dataset each, in the order of `spec.datasets`.
    charge: called with the size of columns held to the end; the merge needs about `COPIES` times that.
    Raises the errors of `merge_entities` and `charge`, and `InputError` for rows without an `_id`.
    """
    given = tuple(inputs) if isinstance(inputs, Iterable) else ()
    if len(given) != len(spec.datasets):
        raise UsageError(
            f"inputs: {counted(len(given), 'input')} for {counted(len(spec.datasets), 'dataset')}: give one "
            "for each, in the order of the spec"
        )
    ids = dict(spec.ids)
    datasets = [
        read_batches(_batches_of(batches, number), name, charge, ids.get(name, ()))
        for number, ((name, _alias), batches) in enumerate(zip(spec.datasets, given, strict=True))
    ]
    merged = merge_entities(spec, datasets, connect)
    clusters = merged.clusters
    changes = difference(clusters.ids, clusters.deleted, clusters.signatures, NOTHING_WRITTEN)
    return merged.batches(changes, 0)


def _batches_of(given: object, number: int) -> Iterator[pa.RecordBatch]:
    """Yields the batches of an input. Raises `UsageError` for what are none."""
    for batch in given if isinstance(given, Iterable) else (given,):
        if batch is given or not isinstance(batch, pa.RecordBatch):
            raise UsageError(
                f"inputs.{number}: expected an iterable of record batches, got {shown(batch)}"
            )
        yield batch


class EntityMerge:
    """One run of an entity merge into a table.

    A single commit publishes the rows together with the state for the next run.
    """

    @with_checks
    def __init__(
        self,
        run: EntityRun,
        *,
        connect: Components = components,
        clock: Clock | None = None,
        max_looked_at: float = _MAX_LOOKED_AT,
    ) -> None:
        """max_looked_at: share of all entities up to which only those are merged anew that changes touch."""
        self._memory = EntityMemory(run.memory_limit_bytes)
        self._clock, self._max_looked_at = clock or SystemClock(), max_looked_at
        self._spec, self._on_progress = run.spec, run.on_progress
        self._run, self._connect = run, connect
        self._target = Target(run.store, run.tombstone_retention_seconds)
        self._outcome: _Outcome | None = None
        self._located: Sequence[Located | None] = ()

    def run(self) -> EntityMergeReport:
        """Writes what changed.

        Raises `UsageError` without a table, `CommitConflictError` if another run has committed meanwhile, and
        the errors of `look`; then nothing is written.
        """
        target = self._target
        store, log = target.written_to()
        report = self._found()
        if report.waiting_for:
            return report
        after = target.state_after(self._run, report)
        batches = self._batches()
        if batches is None:
            report.version = target.remember(after) or report.version
            return report
        self._on_progress("writing")
        memo = self._remembered()
        report.version = ingest_batches(
            store,
            log,
            target.snapshot,
            batches,
            SORT,
            OPTIONS,
            adding=Adding(amend=target.amending(after, batches.schema.names, memo)),
        ).version
        target.forget()
        return report

    def _remembered(self) -> str | None:
        """Stores what the next run has to know. Returns the key; None if that is nothing."""
        memo = None if self._outcome is None else self._outcome.memo()
        return None if memo is None else self._target.remember_rows(memo, self._spec, random_id())

    def look(self) -> tuple[EntityMergeReport, EntityBatches | None]:
        """Returns the report of a dry run with the largest changes, and the rows it would write; None without
        rows.

        Raises `InputError` for unreadable datasets, `UsageError` if they need a full run or `allow_changes`,
        `JobError` for too large a cluster or too much memory.
        """
        report = self._found()
        if self._outcome is not None:
            merged, changes = self._outcome.merged, self._outcome.changes
            written = self._written([ID, IDS, DELETED])
            report.changes = largest_changes(merged.datasets, merged.clusters, changes, written)
        return report, self._batches()

    def _found(self) -> EntityMergeReport:
        """Returns the report without the largest changes. The run has no outcome if it has to wait."""
        located, report = self._target.begin(self._run)
        if report.waiting_for:
            return report
        self._located = located
        started_ns = self._clock.now_unix_ms() * 1_000_000
        outcome = self._partial(located, report, started_ns) or self._whole(
            located, report, started_ns
        )
        self._outcome = outcome
        merged, changes = outcome.merged, outcome.changes
        report.rules, report.cuts = merged.connected.rules, merged.connected.cuts
        report.pair_warnings = merged.connected.pairs.warnings
        report.largest = merged.largest()
        report.new = changes.new
        report.changed = len(changes.clusters) - changes.new
        report.replaced = len(changes.gone)
        report.unchanged = report.clusters - len(changes.clusters)
        report.living_before, report.ended = changes.living_before, changes.ended
        check_ended(report, self._run)
        report.next_updated = self._target.first_updated + changes.rows
        return report

    def _stable(self, merged: MergedClusters) -> MergedClusters:
        """Gives the clusters the ids that their members have in the table."""
        is_known = MEMBERS in self._target.columns.names
        histories = Histories.of(self._written(COLUMNS) if is_known else ())
        numbers = self._target.numbers
        ids, lineage = stable_ids(merged.datasets, merged.clusters, numbers, histories)
        return replace(merged, clusters=replace(merged.clusters, ids=ids), lineage=lineage)

    def _batches(self) -> EntityBatches | None:
        if self._outcome is None or not self._outcome.changes.rows:
            return None
        first, known = self._target.first_updated, self._target.columns
        changes, now_unix_ms = self._outcome.changes, self._clock.now_unix_ms()
        return self._outcome.merged.batches(changes, first, known, now_unix_ms)

    def _written(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields columns of the table's rows; nothing before the first run."""
        target = self._target
        if target.store is not None and target.before is not None:
            yield from scan(target.store, target.snapshot, columns)

    def links(self) -> Iterator[pa.RecordBatch]:
        """Yields the links of the entities that `look` or `run` has read, in the schema `LINKS`."""
        if self._outcome is None:
            return iter(())
        merged = self._outcome.merged
        if self._outcome.is_partial:
            merged = merge_entities(self._spec, self._read(self._located), self._connect)
        found = merged.connected
        rows = link_rows(self._spec, merged.datasets, found.labels, found.pairs.always, found.aside)
        return (shown_links(self._spec, batch) for batch in rows)

    @with_checks
    def explain(self, asked: Iterable[str]) -> Explanation:
        """Explains what ties an entity to its cluster, or two entities, even in a cluster that is too large.

        Raises `UsageError` for unknown entities, and the errors of `look`.
        """
        wanted = tuple(asked)
        texts = texts_of_asked(self._spec, wanted)
        located, report = self._target.begin(self._run)
        check_explained(report)
        datasets = self._read(located)
        charge = self._memory.charging("values of rules")
        found = connected(self._spec, datasets, self._connect, charge, explains=True)
        names = names_in(self._spec, datasets, texts)
        numbers = asked_in(self._spec, names, wanted)
        return explain(self._spec, datasets, found, numbers)

    def _whole(
        self, located: Sequence[Located | None], report: EntityMergeReport, started_ns: int
    ) -> _Outcome:
        """Merges all entities."""
        spec = self._spec
        notes = Notes(len(located), started_ns) if may_remember(spec) else None
        datasets = self._read(located, notes)
        self._on_progress("comparing")
        try:
            merged = merge_entities(
                spec,
                datasets,
                self._connect,
                self._memory.charging("values of rules"),
                unnoticed if notes is None else notes.add_values,
            )
        except SameIdError as error:
            raise error.placed(located) from None
        if spec.identity is Identity.STABLE:
            merged = self._stable(merged)
        report.entities_read = sum(d.rows for d in datasets)
        report.clusters = len(merged.clusters.ids)
        report.sizes = sizes_of(merged.clusters.counts, merged.clusters.deleted)

        def memo() -> Memo | None:
            if notes is None:
                return None
            return notes.memo(spec, datasets, merged.clusters, merged.hashes)

        return _Outcome(merged, self._changes(merged.clusters), memo, is_partial=False)

    def _partial(
        self, located: Sequence[Located | None], report: EntityMergeReport, started_ns: int
    ) -> _Outcome | None:
        """Merges the entities that changes touch; returns None if all have to be merged."""
        if self._run.full or self._max_looked_at <= 0 or not may_remember(self._spec):
            return None
        known, note = self._target.remembered_rows(self._spec)
        report.notes = () if note is None else (note,)
        if known is None:
            return None
        try:
            return self._touched(known, located, report, started_ns)
        except (NotProvenError, CompactorError):
            # What is wrong with the datasets, if anything, shows when all of them are read.
            report.looked_at, self._memory = None, EntityMemory(self._run.memory_limit_bytes)
            return None

    def _touched(
        self,
        known: Memo,
        located: Sequence[Located | None],
        report: EntityMergeReport,
        started_ns: int,
    ) -> _Outcome:
        spec, memory = self._spec, self._memory
        memory.charging("the last run")(known.nbytes)
        compared = []
        for (name, _alias), at, kept in zip(spec.datasets, located, known.datasets, strict=True):
            self._on_progress(f"comparing {name}")
            charge = memory.charging(f"dataset {name}")
            compared.append(Compared(at, name, kept, started_ns, charge))
        charge = memory.charging("values of rules")
        touched = Touched(spec, known, compared, self._max_looked_at, charge)
        entities, rows = touched.merged_anew()
        merged = merge_entities(spec, entities, self._connect, charge)
        touched.check_rules([rule.matches for rule in merged.connected.rules])
        report.entities_read, report.looked_at = touched.entities, sum(map(len, rows))
        report.clusters, report.sizes = touched.sizes(merged.clusters)

        def memo() -> Memo:
            return touched.memo_after(entities, rows, merged.clusters, merged.hashes)

        return _Outcome(merged, touched.difference(merged.clusters), memo, is_partial=True)

    def _read(
        self, located: Sequence[Located | None], notes: Notes | None = None
    ) -> list[Entities]:
        memory = self._memory
        found = []
        for number, ((name, _alias), at) in enumerate(
            zip(self._spec.datasets, located, strict=True)
        ):
            self._on_progress(f"reading {name}")
            rows = None if notes is None else notes.rows[number]
            found.append(read_dataset(at, name, memory.charging(f"dataset {name}"), rows))
        return found

    def _changes(self, clusters: Clusters) -> Difference:
        target = self._target
        written = NOTHING_WRITTEN
        if target.store is not None and target.before is not None:
            written = read_written(target.store, target.snapshot)
        return difference(
            clusters.ids, clusters.deleted, clusters.signatures, written, everything=self._run.full
        )
