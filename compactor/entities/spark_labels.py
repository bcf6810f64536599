"""Finds the components of an entity merge on Spark: in one task if its memory suffices, else in rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.common.counts import counted
from compactor.entities.cutting import tied
from compactor.entities.spark_components import Connector, Round
from compactor.entities.spark_flows import TO_HOMES, edges_of_pairs, labels_home
from compactor.entities.tasks import connecting
from compactor.entities.tasks.connecting import AskedPairs
from compactor.entities.tasks.context import GROUP, LABEL, Context, Partition
from compactor.errors import UsageError
from compactor.spark.session import as_job_error
from compactor.spark.shuffle.exchange import ByNumber, from_bytes
from compactor.spark.shuffle.jobs import Done, Flow, Jobs
from compactor.spark.shuffle.packets import ROWS, Batches, Packet, placed_rows, values_of
from compactor.spark.shuffle.task import PLACE_BITS
from lsm_fragment.arrays.batches import keep_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Labels(Protocol):
    """The components of connected entities."""

    @property
    def of_asked(self) -> Mapping[int, int]:
        """The components of the entities that the pairs of the search name."""

    def home(self, rank: int) -> list[Flow]:
        """Sends the label of each connected entity to its home; of several the highest rank holds."""

    def of(self, components: Sequence[int]) -> list[Flow]:
        """Sends the labels of some components home."""

    def too_large(self) -> tuple[int, list[Flow]] | None:
        """Returns the size of the largest components, and their labels, if it exceeds `max_merged`.

        Components with a pair of `never` do not count.
        """

    def release(self) -> None:
        """Releases the labels once no later job reads them."""


class ComponentSearch(Struct, frozen=True):
    """A way to find components that fits their size."""

    connector: Connector
    """Finds those that one task cannot."""
    limit_bytes: int
    """Memory of the one task."""
    pairs: AskedPairs
    on_progress: Callable[[str], None]

    def labels(
        self, jobs: Jobs, context: Context, homes: Mapping[int, Partition], matched: Done | None
    ) -> Labels | None:
        """Returns the components of matched groups and of pairs; None without edges. Releases the groups."""
        flows = []
        if matched is not None and matched.rows:
            flows.append(matched.flow(connecting.GROUPS, ByNumber(GROUP, PLACE_BITS)))
        if self.pairs.always:
            flows.append(edges_of_pairs(jobs.spark, self.pairs.always, connecting.PAIRS))
        if not flows:
            return None
        edges = jobs.run(
            flows,
            max(homes) + 1,
            lambda part, given: connecting.send_edges(context, homes[part], given),
        )
        if matched is not None:
            matched.release()
        if not edges.rows:
            return None
        entities = [sum(homes[n].rows) if n in homes else 0 for n in range(max(homes) + 1)]
        size = f"{counted(edges.rows, 'edge')} of {counted(sum(entities), 'entity', 'entities')}"
        labels: Labels
        if connecting.fits_one_task(sum(entities), self.limit_bytes):
            self.on_progress(f"connecting in one task: {size}")
            labels = self._in_one_task(jobs, context, entities, edges)
        else:
            self.on_progress(f"connecting in rounds, too many for one task: {size}")
            labels = self._in_rounds(context, edges)
        edges.release()
        return labels

    def _in_one_task(
        self, jobs: Jobs, context: Context, entities: Sequence[int], edges: Done
    ) -> _FromOneTask:
        pairs = self.pairs
        done = jobs.run(
            [edges.flow(0, TO_HOMES)],
            1,
            lambda _part, given: connecting.connect(context, entities, given, pairs),
        )
        return _FromOneTask(done, context.spec.max_merged)

    def _in_rounds(self, context: Context, edges: Done) -> _FromRounds:
        assert edges.packets is not None
        frame = edges.packets.where(f"kind = {ROWS}").mapInArrow(
            _unpacked, "left bigint, right bigint"
        )
        folder = f"{spark_url(context.staging)}/{context.run_id}"
        with as_job_error("connected components"):
            found = self.connector.components(frame, folder, self._show_round)
            components = _components_of(found, self.pairs.nodes)
        conflicts = tied(self.pairs.never, components)
        return _FromRounds(
            found, self.connector, context.spec.max_merged, components, tuple(set(conflicts))
        )

    def _show_round(self, round_: Round) -> None:
        self.on_progress(
            f"connecting, round {round_.number}: {round_.edges_left:,} of "
            f"{counted(round_.edges, 'edge')} left"
        )


class _FromOneTask(Struct, frozen=True):
    """Labels in the packets of `connecting.connect`."""

    done: Done
    max_merged: int

    @property
    def of_asked(self) -> Mapping[int, int]:
        [said] = self.done.summaries.values()
        return dict(said["components"])

    def home(self, rank: int) -> list[Flow]:
        return [self.done.flow(rank, TO_HOMES)]

    def of(self, components: Sequence[int]) -> list[Flow]:
        return [chosen_home(self.done, components)]

    def too_large(self) -> tuple[int, list[Flow]] | None:
        [said] = self.done.summaries.values()
        if said["largest"] <= self.max_merged:
            return None
        return said["largest"], [self.done.flow(0, TO_HOMES, feed=connecting.LARGEST)]

    def release(self) -> None:
        self.done.release()


class _FromRounds(Struct, frozen=True):
    """Labels in rows node, component, which a connector keeps."""

    rows: DataFrame
    connector: Connector
    max_merged: int
    of_asked: Mapping[int, int]
    conflicts: tuple[int, ...]
    """Components that are yet to be cut."""

    def home(self, rank: int) -> list[Flow]:
        return [labels_home(self.rows, rank)]

    def of(self, components: Sequence[int]) -> list[Flow]:
        chosen = f"component IN ({', '.join(map(str, components))})"
        return [labels_home(self.rows.where(chosen), 0)]

    def too_large(self) -> tuple[int, list[Flow]] | None:
        rows = self.rows
        if self.conflicts:
            rows = rows.where(f"component NOT IN ({', '.join(map(str, self.conflicts))})")
        with as_job_error("connected components"):
            found = self.connector.larger_than(rows, self.max_merged)
        return None if found is None else (found[0], [labels_home(found[1], 0)])

    def release(self) -> None:
        pass


def _components_of(labels: DataFrame, nodes: Sequence[int]) -> dict[int, int]:
    """Returns the components of some nodes; one without an edge is its own."""
    found = dict(zip(nodes, nodes, strict=True))
    if not nodes:
        return found

    def chosen(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield keep_rows(batch, np.isin(np.asarray(batch.column(0)), nodes))

    table = labels.mapInArrow(chosen, "node bigint, component bigint").toArrow()
    return found | dict(zip(*(column.to_pylist() for column in table.columns), strict=True))


def chosen_home(done: Done, components: Sequence[int]) -> Flow:
    """Sends those rows of nodes and labels home that have one of these labels."""
    return done.flow(0, TO_HOMES, prepare=partial(_chosen, components))


def _chosen(components: Sequence[int], batches: Batches) -> Iterator[Packet]:
    for place, batch in placed_rows(batches):
        chosen = keep_rows(batch, np.isin(np.asarray(batch.column(LABEL)), components))
        if chosen.num_rows:
            yield Packet.of_rows(place, chosen)


def _unpacked(batches: Batches) -> Iterator[pa.RecordBatch]:
    for (data,) in values_of(batches, ["batch"]):
        yield from_bytes(data.as_buffer())


def spark_url(url: str) -> str:
    """Returns the address in the form of Spark's file systems. Raises `UsageError` if it has none."""
    if url.startswith("az://"):
        raise UsageError(
            f"{url}: Spark has to read and write there, and knows no az: addresses: give --staging as "
            "abfss://container@account.dfs.core.windows.net/prefix"
        )
    return f"s3a://{url.removeprefix('s3://')}" if url.startswith("s3://") else url
