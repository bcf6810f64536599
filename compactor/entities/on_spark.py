"""An entity merge on Spark: the tasks of `entities/tasks`, which exchange rows in packets.

    step      work                                                   output is partitioned by
    read      a file or some fragments per task                      hash of _id
    settle    entities, numbered and kept at home; rule values       hash of rule and value
    match     values that both sides of a rule have                  home
    connect   edges, each home's as a forest                         one task, or rounds beyond its memory
              connected components                                   home
    (cut      clusters with a pair of `never`, each in a task        home)
    label     a line per entity                                      hash of the label
    cluster   ids and signatures                                     hash of the cluster's _id
    (name     ids that rows of the table give)
    differ    comparison with the table; changes                     home
    take      whole entities of changed clusters                     range of the cluster's _id
    fold      fragments, committed at once by Spark's driver

Whole entities travel at most twice, the second time only those of changed clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec.structs import replace
from pydantic import NonNegativeInt

from compactor.common.clock import Clock, SystemClock, random_id
from compactor.entities.breaker import check_ended
from compactor.entities.clusters import too_many
from compactor.entities.dataset_rows import place_in
from compactor.entities.entities import MEMBERS, no_entity
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.explain import Explanation, asked_in, check_explained, texts_of_asked
from compactor.entities.expressions import ID
from compactor.entities.matching import Aside
from compactor.entities.memory import COPIES, DEFAULT_TASK_MEMORY_BYTES
from compactor.entities.pairs import (
    Found,
    Names,
    Pairs,
    PairTexts,
    read_pairs,
    resolved,
    united_names,
)
from compactor.entities.rule_figures import RuleFigures
from compactor.entities.run import EntityRun
from compactor.entities.same_ids import check_tasks
from compactor.entities.spark_components import Connector, SparkConnector
from compactor.entities.spark_figures import common_values, largest_clusters, total_sizes
from compactor.entities.spark_flows import (
    dataset_parts,
    first_nodes,
    homes_of,
)
from compactor.entities.spark_labels import ComponentSearch, Labels, spark_url
from compactor.entities.spark_links import Gathering
from compactor.entities.spark_stable import with_known_ids
from compactor.entities.spark_write import FoundClusters, write_clusters
from compactor.entities.spec import Identity, OnNever
from compactor.entities.target import Target
from compactor.entities.tasks import clustering, differing, matching, reading
from compactor.entities.tasks.connecting import AskedPairs
from compactor.entities.tasks.context import (
    LABEL,
    ROOT,
    RULE,
    TEXT_OF_VALUE,
    Context,
    Partition,
)
from compactor.read.scan_pieces import pieces_of
from compactor.settings.arguments import with_checks
from compactor.spark.session import SparkOptions, check_shuffles, staging_place
from compactor.spark.shuffle.exchange import ByKeys
from compactor.spark.shuffle.jobs import Done, Jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MEMORY_FACTOR: Final = 2 * COPIES
"""Twice the footprint of a merge, to allow for skewed parts."""
OnLinks = Callable[[Iterator[pa.RecordBatch]], None]
_DEFAULTS: Final = SparkOptions()
_CONNECTOR: Final = SparkConnector()


class SparkEntityMerge:
    """One run of an entity merge into a table, with the same result as `EntityMerge`."""

    @with_checks
    def __init__(
        self,
        run: EntityRun,
        *,
        connector: Connector = _CONNECTOR,
        one_task_bytes: NonNegativeInt | None = None,
        clock: Clock | None = None,
    ) -> None:
        """connector: finds components that one task cannot, in at most `one_task_bytes` (default: the memory
        limit of a task). Raises `CompactorError` for mistakes that are visible without Spark."""
        self._asked, self._spec, self._on_progress = run, run.spec, run.on_progress
        self._clock = clock or SystemClock()
        self._limit = run.memory_limit_bytes or DEFAULT_TASK_MEMORY_BYTES
        self._connector, self._one_task_bytes = connector, one_task_bytes
        self._aside: tuple[Aside, ...] = ()
        self._pairs, self._pair_texts = Pairs(), PairTexts()
        self._home_parts = 1
        self._target = Target(run.store, run.tombstone_retention_seconds)
        self._located, self.report = self._target.begin(run)

    @with_checks
    def run(
        self,
        spark: Any,
        options: SparkOptions = _DEFAULTS,
        on_links: OnLinks | None = None,
        *,
        dry_run: bool = False,
    ) -> EntityMergeReport:
        """Writes what changed, unless it is a dry run, then calls `on_links` with the links in the schema
        `LINKS`. On `CompactorError` nothing is written.

        spark: a `SparkSession`. Raises `UsageError` without a table, unless it is a dry run.
        """
        target = self._target
        if not dry_run:
            target.written_to()
        if self.report.waiting_for:
            return self.report
        with self._begun(spark, options) as (jobs, context):
            found = self._find(jobs, context)
            if not dry_run:
                after = target.state_after(self._asked, self.report)
                if not found.rows:
                    self.report.version = target.remember(after) or self.report.version
                else:
                    now_unix_ms = self._clock.now_unix_ms()
                    self.report.version = write_clusters(
                        jobs, context, target, found, after, now_unix_ms, self._on_progress
                    )
            if on_links is not None:
                self._on_progress("finding links")
                known = replace(context, aside=self._aside)
                on_links(Gathering(jobs, known, found.homes).links(found.labels, self._pairs))
        return self.report

    @with_checks
    def explain(
        self, asked: Iterable[str], spark: Any, options: SparkOptions = _DEFAULTS
    ) -> Explanation:
        """Explains what ties an entity to its cluster, or two entities, even in a cluster that is too large.

        Raises `UsageError` for unknown entities, and the errors of `run`.
        """
        check_explained(self.report)
        wanted = tuple(asked)
        with self._begun(spark, options, texts_of_asked(self._spec, wanted)) as (jobs, context):
            values = self._settle(jobs, context)
            homes = {} if values is None else homes_of(values)
            names = self._named(context, values)
            nodes = asked_in(self._spec, names, wanted)
            assert values is not None
            self._count_values(values)
            labels = self._labels(jobs, context, homes, values, tuple(nodes))
            known = replace(context, aside=self._aside)
            return Gathering(jobs, known, homes).explained(labels, self._pairs, nodes)

    @contextmanager
    def _begun(
        self, spark: SparkSession, options: SparkOptions, texts: Sequence[str] = ()
    ) -> Iterator[tuple[Jobs, Context]]:
        """Begins jobs. texts: by which users name entities, beside those of pairs."""
        check_shuffles(spark, "entity merges on Spark")
        self._pair_texts = read_pairs(self._spec)
        run_id = f"entity-merge-{random_id()}"
        with ExitStack() as stack:
            what = "entities wait to be merged"
            staging = staging_place(spark, options.staging, run_id, what, stack)
            spark_url(staging)  # refuses it before any work, though only rounds of Spark need it
            names = [
                dataset.name if at is None else at.shown
                for dataset, at in zip(self._spec.datasets, self._located, strict=True)
            ]
            context = Context(
                spec=self._spec,
                names=tuple(names),
                staging=staging,
                run_id=run_id,
                memory_limit_bytes=self._limit,
                numbers=self._target.numbers if self._spec.identity is Identity.STABLE else (),
                texts=(*dict.fromkeys((*self._pair_texts.texts, *texts)),),
            )
            yield Jobs(spark, options, self._limit, _MEMORY_FACTOR, stack), context

    def _find(self, jobs: Jobs, context: Context) -> FoundClusters:
        """Returns the changes, and the labels of connected entities."""
        values = self._settle(jobs, context)
        homes = {} if values is None else homes_of(values)
        self._named(context, values)
        self._count_values(values)
        report = self.report
        report.entities_read = sum(sum(home.rows) for home in homes.values())
        labels, clusters, written = None, None, None
        if values and homes:
            labels = self._labels(jobs, context, homes, values)
            self._check_sizes(jobs, context, homes, labels)
            if context.numbers:
                written = self._written(jobs, context)
            clusters = self._clusters(jobs, context, homes, labels, written)
        written = written or self._written(jobs, context)
        inputs = {
            rank: done
            for rank, done in ((differing.CLUSTERS, clusters), (differing.WRITTEN, written))
            if done is not None and done.rows
        }
        report.next_updated = self._target.first_updated
        found = FoundClusters(homes=homes, labels=labels)
        if not inputs:
            return found
        self._on_progress("comparing with the table")
        everything = self._asked.full
        by = ROOT if context.numbers else ID
        done = jobs.run(
            [each.flow(rank, ByKeys((by,))) for rank, each in inputs.items()],
            jobs.parts(sum(each.bytes for each in inputs.values())),
            lambda _part, given: differing.differ(context, given, everything=everything),
        )
        check_tasks(done.summaries.values(), self._located)
        for each in inputs.values():
            each.release()
        known = replace(context, aside=self._aside)
        report.largest = largest_clusters(jobs, known, homes, done, labels)
        report.clusters = done.total("clusters")
        report.new, report.changed = done.total("new"), done.total("changed")
        report.replaced = done.total("gone")
        report.living_before, report.ended = done.total("living"), done.total("ended")
        check_ended(report, self._asked)
        report.unchanged = report.clusters - report.new - report.changed
        rows = report.new + report.changed + report.replaced
        report.next_updated += rows
        return FoundClusters(homes=homes, labels=labels, changes=done, rows=rows)

    def _named(self, context: Context, values: Done | None) -> Names:
        """Resolves the pairs. Returns the entities that the texts of the context name."""
        found = [
            {text: [Found(*each) for each in some] for text, some in said["names"].items()}
            for said in (() if values is None else values.summaries.values())
            if "names" in said
        ]
        names = united_names(self._spec, context.texts, found)
        self._pairs = resolved(self._pair_texts, names)
        self.report.pair_warnings = self._pairs.warnings
        return names

    def _settle(self, jobs: Jobs, context: Context) -> Done | None:
        """Moves the entities to their homes and returns their values; None without entities."""
        self._on_progress("reading")
        pieces = [part for n, at in enumerate(self._located) for part in dataset_parts(n, at)]
        if not pieces:
            return None
        read = jobs.run_pieces(len(pieces), lambda number: reading.read_piece(pieces[number]))
        before = [0] * len(context.names)
        for number, said in read.summaries.items():
            dataset = pieces[number].dataset
            if "bad_row" in said:
                row = before[dataset] + said["bad_row"]
                at = self._located[dataset]
                assert at is not None
                raise no_entity(at.shown, place_in(at, row), said["why"])
            before[dataset] += said["rows"]
        if not read.rows:
            return None
        self._on_progress("finding values")
        self._home_parts = jobs.parts(read.bytes)
        values = jobs.run(
            [read.flow(n, ByKeys((ID,)), n) for n in range(len(context.names))],
            self._home_parts,
            lambda part, given: reading.settle(context, part, given),
        )
        read.release()
        return values

    def _clusters(
        self,
        jobs: Jobs,
        context: Context,
        homes: Mapping[int, Partition],
        labels: Labels | None,
        written: Done | None,
    ) -> Done:
        """written: the table's rows, if they say which members they have."""
        self._on_progress("finding clusters")
        parts = self._home_parts
        flows = [first_nodes(jobs.spark.range(0, parts, 1, 1), homes)]
        if labels is not None:
            flows += labels.home(1)
        if written is not None and written.feeds[differing.HISTORIES].rows:
            flows.append(written.flow(matching.HISTORY, ByKeys((ID,)), differing.HISTORIES))
        labelled = jobs.run(
            flows, parts, lambda part, given: matching.label(context, part, homes.get(part), given)
        )
        clusters = jobs.run(
            [
                labelled.flow(feed, ByKeys((LABEL,)), feed)
                for feed in (matching.LINES, matching.CLAIMS)
            ],
            jobs.parts(labelled.bytes),
            lambda _part, given: clustering.cluster(context, given),
        )
        check_tasks(clusters.summaries.values(), self._located)
        labelled.release()
        self.report.sizes = total_sizes(clusters)
        return with_known_ids(jobs, context, clusters)

    def _labels(
        self,
        jobs: Jobs,
        context: Context,
        homes: Mapping[int, Partition],
        values: Done,
        asked: tuple[int, ...] = (),
    ) -> Labels | None:
        """Returns the components of connected entities, with no pair of `never` in one; None without edges.

        asked: entities to explain, whatever ties a pair of `never`.
        """
        matched = None
        if values.rows:
            self._on_progress("matching")
            matched = jobs.run(
                [values.flow(0, ByKeys((RULE, TEXT_OF_VALUE)))],
                jobs.parts(values.bytes),
                lambda _part, given: matching.match(context, given),
            )
            values.release()
            self._count_matches(matched)
        self._on_progress("connecting")
        limit = self._limit if self._one_task_bytes is None else self._one_task_bytes
        pairs = self._pairs
        if asked and self._spec.on_never is OnNever.REFUSE:
            pairs = replace(pairs, never=())
        wanted = AskedPairs(pairs.always, pairs.never, asked)
        search = ComponentSearch(self._connector, limit, wanted, self._on_progress)
        labels = search.labels(jobs, context, homes, matched)
        if labels is None:
            return None
        known = replace(context, aside=self._aside)
        labels, cuts = Gathering(jobs, known, homes).kept_apart(labels, pairs, asked)
        self.report.cuts = cuts
        return labels

    def _count_values(self, values: Done | None) -> None:
        rules = [RuleFigures.none_of(rule) for rule in self._spec.rules]
        for said in () if values is None else values.summaries.values():
            for rule, sides in zip(rules, said.get("rules", ()), strict=False):
                rule.add(sides)
        self.report.rules = rules

    def _count_matches(self, matched: Done) -> None:
        for said in matched.summaries.values():
            for rule, figures in zip(self.report.rules, said["rules"], strict=True):
                matching.add_distinct(rule, figures)
        self._aside = matching.asides_in(matched.summaries.values(), len(self.report.rules))
        for rule, aside in zip(self.report.rules, self._aside, strict=True):
            rule.put_aside = aside.figures()

    def _check_sizes(
        self, jobs: Jobs, context: Context, homes: Mapping[int, Partition], labels: Labels | None
    ) -> None:
        """Raises `JobError` if a cluster is too large, before any entity is sent by its label."""
        found = None if labels is None else labels.too_large()
        if found is None:
            return
        count, largest = found
        done = jobs.run(
            largest,
            max(homes) + 1,
            lambda part, given: matching.first_of_largest(context, homes[part], given),
        )
        dataset, entity, component = min(
            (said["dataset"], said["id"], said["component"]) for said in done.summaries.values()
        )
        first = f"{entity} of dataset {self._spec.datasets[dataset].name}"
        known = replace(context, aside=self._aside)
        values = common_values(jobs, known, homes, largest).get(component, [])
        raise too_many(self._spec, count, first, values)

    def _written(self, jobs: Jobs, context: Context) -> Done | None:
        """Returns the table's ids, signatures and deletion flags, and the members of rows if ids stay; None
        without a table."""
        target = self._target
        if target.store is None or target.before is None:
            return None
        url, pieces = target.store.url, list(pieces_of(target.snapshot))
        if not pieces:
            return None
        has_members = bool(context.numbers) and MEMBERS in target.columns.names
        return jobs.run_pieces(
            len(pieces),
            lambda number: differing.written_rows(
                context, url, pieces[number], has_members=has_members
            ),
        )
