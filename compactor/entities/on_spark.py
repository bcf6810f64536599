"""An entity merge on Spark: the tasks of `entities/tasks`, and between them rows on their way as packets.

    read      a file or some fragments a task                        by the hash of _id ->
    settle    entities numbered and kept at home; values             by the hash of rule and value ->
    match     values that both sides of a rule have                  back home ->
    connect   edges; connected components                            back home ->
    label     a line for each entity                                 by the hash of the label ->
    cluster   ids and signatures                                     by the hash of the cluster's _id ->
    differ    against what the table has; what changed               back home ->
    take      whole entities, only of what changed                   by ranges of the cluster's _id ->
    fold      fragments; the driver commits them at once

Whole entities travel twice at most, and the second time only those of clusters that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from compactor.common.clock import random_id
from compactor.entities.clusters import too_many
from compactor.entities.datasets import Located
from compactor.entities.entities import no_entity
from compactor.entities.expressions import ID
from compactor.entities.memory import DEFAULT_TASK_MEMORY_BYTES
from compactor.entities.output import written_schema
from compactor.entities.report import EntityMergeReport
from compactor.entities.spark_components import Round, connected_components
from compactor.entities.spark_jobs import ARROW_BATCHES, Done, Flow, Jobs, of_part
from compactor.entities.spec import EntityMergeSpec
from compactor.entities.state import State
from compactor.entities.target import ROW_POLICY, SORT, Target
from compactor.entities.tasks import clustering, differing, folding, matching, reading
from compactor.entities.tasks.context import (
    GROUP,
    LABEL,
    NODE,
    PLACE_BITS,
    RULE,
    TARGET,
    TEXT_OF_VALUE,
    Context,
    DatasetPart,
    Partition,
    TaskInput,
    TaskOutput,
)
from compactor.read.scan_pieces import pieces_of
from compactor.spark.session import SparkOptions, as_job_error, check_shuffles, staging_place
from compactor.spark.shuffle.exchange import (
    from_bytes,
    splitters,
    to_bytes,
)
from compactor.spark.shuffle.packets import (
    ROWS,
    Batches,
    Divider,
    Packet,
    configured,
    values_of,
)
from compactor.stores.base import Store
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.write.ingest import IngestOptions, commit_fragments, plan_ingest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DEFAULTS: Final = SparkOptions()


class Connector(Protocol):
    """Connected components of DataFrames."""

    def components(
        self, edges: DataFrame, scratch_url: str, on_round: Callable[[Round], None]
    ) -> DataFrame:
        """edges: left, right. Rows node, component: the same component for all that are connected."""

    def larger_than(self, labels: DataFrame, most: int) -> tuple[int, DataFrame] | None:
        """If components have more nodes than `most`: how many the largest has, and the labels of all that
        have as many."""


class SparkConnector:
    """A `Connector` by `connected_components`."""

    def components(
        self, edges: DataFrame, scratch_url: str, on_round: Callable[[Round], None]
    ) -> DataFrame:
        return connected_components(edges, scratch_url, on_round=on_round)

    def larger_than(self, labels: DataFrame, most: int) -> tuple[int, DataFrame] | None:
        from pyspark.sql import functions as fn

        sizes = labels.groupBy("component").count()
        [(found,)] = sizes.agg(fn.max("count")).collect()
        if found is None or found <= most:
            return None
        largest = labels.join(sizes.where(fn.col("count") == found), "component")
        return found, largest.select("node", "component")


_CONNECTOR: Final = SparkConnector()


class SparkEntityMerge:
    """One run of an entity merge into a table: the same rows and commit as `entity.run.EntityMerge`'s."""

    def __init__(
        self,
        spec: EntityMergeSpec,
        store: Store | None,
        *,
        folder: str = ".",
        full: bool = False,
        memory_limit_bytes: int | None = None,
        on_progress: Callable[[str], None] = lambda _what: None,
        connector: Connector = _CONNECTOR,
    ) -> None:
        """As `EntityMerge`; memory_limit_bytes: of one task, None: 1 GiB. Raises `CompactorError` for what
        can be known without Spark."""
        self._spec, self._folder, self._full = spec, folder, full
        self._limit = memory_limit_bytes or DEFAULT_TASK_MEMORY_BYTES
        self._on_progress, self._connector = on_progress, connector
        self._target = Target(store)
        self._located, self.report = self._target.begin(spec, folder, full=full)

    def run(self, spark: SparkSession, options: SparkOptions = _DEFAULTS) -> EntityMergeReport:
        """Writes what changed. Raises `CompactorError`; nothing is written then."""
        return self._run(spark, options, writes=True)

    def look(self, spark: SparkSession, options: SparkOptions = _DEFAULTS) -> EntityMergeReport:
        """What a run would do. Raises as `run`."""
        return self._run(spark, options, writes=False)

    def _run(
        self, spark: SparkSession, options: SparkOptions, *, writes: bool
    ) -> EntityMergeReport:
        if self.report.waiting_for:
            return self.report
        check_shuffles(spark, "entity merges on Spark")
        run_id = f"entity-merge-{random_id()}"
        with ExitStack() as stack:
            what = "entities wait to be merged"
            staging = staging_place(spark, options.staging, run_id, what, stack)
            stack.enter_context(configured(spark, ARROW_BATCHES))
            names = [
                dataset.name if at is None else at.shown
                for dataset, at in zip(self._spec.datasets, self._located, strict=True)
            ]
            context = Context(self._spec, tuple(names), staging, run_id, self._limit)
            jobs = Jobs(spark, options, self._limit, stack)
            found = self._find(jobs, context)
            if not writes or self._target.store is None:
                return self.report
            after = State(self._spec.datasets, self.report.next_updated)
            if found is None or not found.rows:
                self.report.version = self._target.remember(after) or self.report.version
            else:
                self.report.version = self._write(jobs, context, found, after)
        return self.report

    # --- what changed ---

    def _find(self, jobs: Jobs, context: Context) -> _FoundClusters | None:
        """None: there are no entities, and never were."""
        values = self._settled(jobs, context)
        homes = _homes(values)
        self.report.entities_read = sum(sum(home.rows) for home in homes.values())
        clusters = self._clusters(jobs, context, homes, values) if values and homes else None
        written = self._written(jobs)
        flows = [
            Flow(done.packets, rank, keys=(ID,))
            for rank, done in ((differing.CLUSTERS, clusters), (differing.WRITTEN, written))
            if done is not None and done.rows
        ]
        self.report.next_updated = self._target.first_updated
        if not flows:
            return None
        self._on_progress("comparing with the table")
        size = sum(done.bytes for done in (clusters, written) if done is not None)
        everything = self._full

        def differ(_part: int, given: TaskInput) -> TaskOutput:
            return differing.differ(context, given, everything=everything)

        done = jobs.run(flows, size, differ, samples=True)
        for before in (clusters, written):
            if before is not None:
                before.packets.unpersist()
        report = self.report
        report.clusters = done.total("clusters")
        report.new, report.changed = done.total("new"), done.total("changed")
        report.replaced = done.total("gone")
        report.unchanged = report.clusters - report.new - report.changed
        rows = report.new + report.changed + report.replaced
        report.next_updated += rows
        return _FoundClusters(homes, done, rows)

    def _settled(self, jobs: Jobs, context: Context) -> Done | None:
        """Entities at home, and their values; None: there are no entities."""
        self._on_progress("reading")
        pieces = [piece for n, at in enumerate(self._located) for piece in _pieces(n, at)]
        if not pieces:
            return None
        read = jobs.run_pieces(len(pieces), lambda number: reading.read_piece(pieces[number]))
        before = [0] * len(context.names)
        for number, said in sorted(read.said.items()):
            dataset = pieces[number].dataset
            if "bad_row" in said:
                row = before[dataset] + said["bad_row"]
                raise no_entity(context.names[dataset], row, said["why"])
            before[dataset] += said["rows"]
        if not read.rows:
            return None
        self._on_progress("finding values")

        def settle(part: int, given: TaskInput) -> TaskOutput:
            return reading.settle(context, part, given)

        flows = [Flow(read.packets, n, n, keys=(ID,)) for n in range(len(context.names))]
        values = jobs.run(flows, read.bytes, settle)
        read.packets.unpersist()
        return values

    def _clusters(
        self, jobs: Jobs, context: Context, homes: Mapping[int, Partition], values: Done
    ) -> Done:
        labels = self._labels(jobs, context, homes, values)
        self._on_progress("finding clusters")
        parts = max(homes) + 1

        def first_nodes(batches: Batches) -> Iterator[Packet]:
            for batch in batches:
                numbers = np.asarray(batch.column(0))
                nodes = numbers[np.isin(numbers, list(homes))] << PLACE_BITS
                yield from _one_packet({NODE: nodes, LABEL: nodes})

        # Every home has a row of its own, or it would not be asked.
        each = jobs.spark.range(0, parts, 1, 1)
        flows = [_plain(each, 0, first_nodes)]
        if labels is not None:
            flows.append(_plain(labels, 1, _labels_as_packets))

        def label(part: int, given: TaskInput) -> TaskOutput:
            return matching.label(context, part, homes[part], given)

        labelled = jobs.run(flows, 0, label, parts=parts)
        clusters = jobs.run(
            [Flow(labelled.packets, 0, keys=(LABEL,))],
            labelled.bytes,
            lambda _part, given: clustering.cluster(context, given),
        )
        labelled.packets.unpersist()
        return clusters

    def _labels(
        self, jobs: Jobs, context: Context, homes: Mapping[int, Partition], values: Done
    ) -> DataFrame | None:
        """Rows node, component; None: nothing is equal to anything. Raises `JobError` for too many."""
        if not values.rows:
            return None
        self._on_progress("matching")
        matched = jobs.run(
            [Flow(values.packets, 0, keys=(RULE, TEXT_OF_VALUE))],
            values.bytes,
            lambda _part, given: matching.match(context, given),
        )
        values.packets.unpersist()
        if not matched.rows:
            return None
        parts = max(homes) + 1

        def edges(batches: Batches) -> Batches:
            for part, given in of_part(batches):
                yield from matching.edges_at_home(context, homes[part], given)

        sent = jobs.sent([Flow(matched.packets, 0, owner=GROUP)], parts)
        self._on_progress("connecting")
        with as_job_error("connected components"):
            labels = self._connector.components(
                sent.mapInArrow(edges, "left bigint, right bigint"),
                f"{_spark_url(context.staging)}/{context.run_id}",
                self._show_round,
            )
            matched.packets.unpersist()
            self._check_sizes(jobs, context, homes, labels)
        return labels

    def _show_round(self, round_: Round) -> None:
        self._on_progress(
            f"connecting, round {round_.number}: {round_.edges_left:,} of {round_.edges:,} edges left"
        )

    def _check_sizes(
        self, jobs: Jobs, context: Context, homes: Mapping[int, Partition], labels: DataFrame
    ) -> None:
        """Before anything of an entity is sent after its label."""
        found = self._connector.larger_than(labels, self._spec.max_merged)
        if found is None:
            return
        most, largest = found

        def first(part: int, given: TaskInput) -> TaskOutput:
            yield matching.first_of_largest(context, homes[part], given)

        flow = _plain(largest, 0, _labels_as_packets)
        done = jobs.run([flow], 0, first, parts=max(homes) + 1)
        dataset, entity = min((said["dataset"], said["id"]) for said in done.said.values())
        raise too_many(self._spec, most, dataset, entity)

    def _written(self, jobs: Jobs) -> Done | None:
        """Ids, signatures and whether they are deleted, as the table has them; None: there is no table."""
        target = self._target
        if target.store is None or target.before is None:
            return None
        url, pieces = target.store.url, list(pieces_of(target.snapshot))
        if not pieces:
            return None
        return jobs.run_pieces(
            len(pieces), lambda number: differing.written_rows(url, pieces[number])
        )

    # --- what is written ---

    def _write(self, jobs: Jobs, context: Context, found: _FoundClusters, after: State) -> int:
        target = self._target
        assert target.store is not None
        assert target.log is not None
        self._on_progress("taking what changed")
        homes, changes, members = found.homes, found.changes, found.changes.total("members")
        rows_at_home = sum(sum(home.rows) for home in homes.values())
        bytes_at_home = sum(home.bytes for home in homes.values())
        size = changes.bytes + bytes_at_home * members // max(1, rows_at_home)
        parts = jobs.parts(size)
        bounds = splitters(changes.samples, SORT, parts)
        ranges = None if bounds is None else Divider(parts, bounds, SORT)
        heads = partial(_heads, ranges)
        flows = [Flow(changes.packets, folding.HEADS, column=TARGET, prepare=heads)]
        counts = jobs.counted(flows[0], parts)
        names: list[str] = []
        if members:
            taken = jobs.run(
                [Flow(changes.packets, 0, owner=NODE, prepare=partial(_members, ranges))],
                0,
                lambda part, given: folding.take(context, homes[part], given),
                parts=max(homes) + 1,
            )
            found_names = {name for said in taken.said.values() for name in said["names"]}
            names = folding.property_columns(self._spec, found_names)
            flows.append(Flow(taken.packets, folding.MEMBERS, column=TARGET))
        self._on_progress("writing")
        options = IngestOptions(rows=ROW_POLICY)
        schema = written_schema(names)
        plan = plan_ingest(target.store, target.snapshot, schema, "merged entities", SORT, options)
        firsts = (target.first_updated + np.cumsum(counts) - counts).tolist()
        url = target.store.url

        def fold(part: int, given: TaskInput) -> TaskOutput:
            return folding.fold(
                context, given, table=url, plan=plan, names=names, first_updated=firsts[part]
            )

        folded = jobs.run(flows, 0, fold, parts=parts)
        entries = [
            FragmentEntry.from_json(entry)
            for _, said in sorted(folded.said.items())
            for entry in said["entries"]
        ]
        return commit_fragments(
            target.log, target.snapshot, plan, entries, amend=target.amending(after)
        ).version


@dataclass(frozen=True, slots=True)
class _FoundClusters:
    homes: Mapping[int, Partition]
    changes: Done
    rows: int


def _homes(values: Done | None) -> dict[int, Partition]:
    """By their parts; those without entities are left out."""
    if values is None:
        return {}
    return {
        part: Partition.from_json(said["home"])
        for part, said in values.said.items()
        if "home" in said
    }


# --- rows on their way ---


def _plain(frame: DataFrame, rank: int, prepare: Callable[[Batches], Iterator[Packet]]) -> Flow:
    """Nodes and their labels, to their homes."""
    return Flow(frame, rank, owner=NODE, prepare=prepare, is_plain=True)


def _one_packet(columns: Mapping[str, Any]) -> Iterator[Packet]:
    batch = pa.RecordBatch.from_pydict(dict(columns))
    if batch.num_rows:
        yield Packet(ROWS, 0, 0, to_bytes([batch]))


def _labels_as_packets(batches: Batches) -> Iterator[Packet]:
    """Of rows node, component."""
    for batch in batches:
        yield from _one_packet({NODE: batch.column(0), LABEL: batch.column(1)})


def _changes(ranges: Divider | None, batches: Batches) -> Iterator[tuple[int, pa.RecordBatch, Any]]:
    """Changes, and the parts that write them."""
    part_of = None if ranges is None else ranges.part_of()
    for place, data in values_of(batches, ["place", "batch"]):
        batch = from_bytes(data.as_buffer())
        targets = np.zeros(batch.num_rows, np.int64) if part_of is None else part_of(batch)
        yield place.as_py(), batch, targets


def _heads(ranges: Divider | None, batches: Batches) -> Iterator[Packet]:
    for place, batch, targets in _changes(ranges, batches):
        heads = batch.drop_columns([NODE]).append_column(TARGET, pa.array(targets))
        yield Packet(ROWS, 0, place, to_bytes([heads]))


def _members(ranges: Divider | None, batches: Batches) -> Iterator[Packet]:
    for place, batch, targets in _changes(ranges, batches):
        members = differing.members_of(batch, targets)
        if members.num_rows:
            yield Packet(ROWS, 0, place, to_bytes([members]))


# --- places ---


def _pieces(dataset: int, located: Located | None) -> Iterator[DatasetPart]:
    if located is None:
        return
    if located.is_file:
        place = str(Path(located.place).absolute())
        yield DatasetPart(dataset, replace(located, place=place))
        return
    store = open_store(located.place)
    for piece in pieces_of(CommitLog(store).current()):
        yield DatasetPart(dataset, replace(located, place=store.url), piece)


def _spark_url(url: str) -> str:
    """As Spark's own file systems call it."""
    return f"s3a://{url.removeprefix('s3://')}" if url.startswith("s3://") else url
