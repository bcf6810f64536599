"""Cuts, explanations and links on Spark: brings the clusters concerned together in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.common.message import Message
from compactor.entities.cutting import CutFigures, CutLink, refused, tied
from compactor.entities.explain import Explanation
from compactor.entities.links import shown_links
from compactor.entities.pairs import Pairs
from compactor.entities.spark_flows import TO_HOMES, plain_rows
from compactor.entities.spark_labels import Labels, chosen_home
from compactor.entities.tasks import gathering, linking
from compactor.entities.tasks.context import LABEL, TARGET, Context, Partition
from compactor.errors import UsageError
from compactor.spark.shuffle.exchange import ByKeys, ByNumber, ByRange, splitters
from compactor.spark.shuffle.jobs import Done, Flow, Jobs
from compactor.spark.shuffle.packets import Batches, Packet, placed_rows

_BY_LABEL = ByKeys((LABEL,))


class Gathering(Struct, frozen=True):
    """Where entities are, and how tasks bring those of a cluster together."""

    jobs: Jobs
    context: Context
    homes: Mapping[int, Partition]

    def members(self, flows: Sequence[Flow]) -> Done:
        """Returns what rules read of entities. flows: their labels, to their homes."""
        context, homes = self.context, self.homes
        return self.jobs.run(
            flows,
            max(homes) + 1,
            lambda part, given: gathering.send_members(context, part, homes[part], given),
        )

    def kept_apart(
        self, labels: Labels, pairs: Pairs, asked: Sequence[int]
    ) -> tuple[Labels, CutFigures]:
        """Returns labels by which no pair of `never` has one label, and figures.

        asked: entities whose labels are wanted in any case. Raises `JobError` for such a pair unless the spec
        says to cut, `UsageError` if `always` ties it.
        """
        conflicts = tied(pairs.never, labels.of_asked)
        figures = CutFigures()
        if not conflicts:
            return labels, figures
        components = list(dict.fromkeys(conflicts))
        done = self._divided(labels, components, pairs, asked)
        found = {
            each["component"]: each for said in done.summaries.values() for each in said["clusters"]
        }
        of_asked, sizes = dict(labels.of_asked), []
        for component in components:
            said = found[component]
            if "tie" in said:
                raise refused(said["tie"], len(conflicts))
            if "refused" in said:
                raise UsageError(Message.from_json(said["refused"]))
            cuts = said["cuts"]
            links = [CutLink(**link) for link in cuts["first"]]
            figures.add(CutFigures(cuts["clusters"], cuts["links"], links))
            of_asked |= dict(said["asked"])
            sizes += said["sizes"]
        return _Cut(
            labels, done, frozenset(components), of_asked, tuple(map(tuple, sizes))
        ), figures

    def _divided(
        self, labels: Labels, components: Sequence[int], pairs: Pairs, asked: Sequence[int]
    ) -> Done:
        context = self.context
        members = self.members(labels.of(components))
        done = self.jobs.run(
            [members.flow(0, _BY_LABEL)],
            self.jobs.parts(members.bytes),
            lambda _part, given: linking.divide(context, given, pairs, asked),
        )
        members.release()
        return done

    def explained(self, labels: Labels | None, pairs: Pairs, asked: Sequence[int]) -> Explanation:
        """Explains entities, given by number, in one task that holds their clusters."""
        context, of = self.context, dict(zip(asked, asked, strict=True))
        flows = []
        if labels is not None:
            of |= {node: component for node, component in labels.of_asked.items() if node in of}
            flows = labels.of([*dict.fromkeys(of.values())])
        rows = linking.chosen(of, list(of))
        members = self.members([*flows, plain_rows(self.jobs.spark, rows, 1, TO_HOMES)])
        done = self.jobs.run(
            [members.flow(0, _BY_LABEL)],
            1,
            lambda _part, given: linking.explained(context, given, pairs, asked),
        )
        [said] = done.summaries.values()
        return msgspec.convert(said["explained"], Explanation)

    def links(self, labels: Labels | None, pairs: Pairs) -> Iterator[pa.RecordBatch]:
        """Yields the links inside clusters in the schema `LINKS`, in the order of one process."""
        if labels is None:
            return
        context, jobs = self.context, self.jobs
        members = self.members(labels.home(0))
        found = jobs.run(
            [members.flow(0, _BY_LABEL)],
            jobs.parts(members.bytes),
            lambda _part, given: linking.links(context, given, pairs),
        )
        members.release()
        if not found.rows:
            return
        parts = jobs.parts(found.bytes)
        bounds = splitters(found.feeds[0].samples, linking.BY_FIRST, parts)
        targeted = partial(_targeted, ByRange(bounds, linking.BY_FIRST), parts)
        done = jobs.run(
            [found.flow(0, ByNumber(TARGET), prepare=targeted)],
            parts,
            lambda _part, given: linking.in_order(context, given),
        )
        found.release()
        for batch in done.batches():
            yield shown_links(context.spec, batch)
        done.release()


def _targeted(ranges: ByRange, parts: int, batches: Batches) -> Iterator[Packet]:
    part_of = ranges.part_of(parts)
    for place, batch in placed_rows(batches):
        targets = part_of(linking.bounded(batch)).astype(np.int64)
        yield Packet.of_rows(place, batch.append_column(TARGET, pa.array(targets)))


class _Cut(Struct, frozen=True):
    """Labels of which some components have been divided."""

    before: Labels
    done: Done
    """The job that ran `linking.divide`."""
    components: frozenset[int]
    """Those that were divided."""
    of_asked: Mapping[int, int]
    sizes: tuple[tuple[int, int], ...]
    """Labels and sizes of parts that are still too large."""

    def home(self, rank: int) -> list[Flow]:
        return [*self.before.home(rank), self.done.flow(rank + 1, TO_HOMES)]

    def of(self, components: Sequence[int]) -> list[Flow]:
        others = [each for each in components if each not in self.components]
        before = self.before.of(others) if others else []
        return [*before, chosen_home(self.done, components)]

    def too_large(self) -> tuple[int, list[Flow]] | None:
        found = self.before.too_large()
        count, flows = found if found is not None else (0, [])
        own = max((size for _, size in self.sizes), default=0)
        if own > count:
            flows = []
        if own >= max(1, count):
            largest = [label for label, size in self.sizes if size == own]
            flows = [*flows, chosen_home(self.done, largest)]
        return (max(own, count), flows) if flows else None

    def release(self) -> None:
        self.before.release()
        self.done.release()
