"""Brings whole clusters together in tasks, with what rules read of their entities."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.entities.cluster_figures import for_rules
from compactor.entities.entities import Entities
from compactor.entities.fold import end_to_end
from compactor.entities.matching import part_of
from compactor.entities.tasks.context import LABEL, NODE, PLACE, Context, Partition
from compactor.entities.tasks.lines import as_batch, entities_at, from_batch, number_of
from compactor.entities.texts import I64
from compactor.spark.shuffle.task import TaskInput, TaskOutput, TaskRows, TaskSummary
from lsm_fragment import compute as pc

_NO_LABEL: Final = -1


def send_members(context: Context, part: int, home: Partition, given: TaskInput) -> TaskOutput:
    """Sends entities of a home with their labels. given: nodes and labels, of which the last one counts."""
    labels = np.full(sum(home.rows), _NO_LABEL, np.int64)
    for _, batch in given:
        labels[np.asarray(batch.column(NODE)) & PLACE] = np.asarray(batch.column(LABEL))
    places = np.flatnonzero(labels != _NO_LABEL)
    for dataset, where, batch in entities_at(context, home, places):
        [entities] = for_rules(context.spec, [from_batch(batch)])
        there = as_batch(entities)
        own = places[where]
        columns = dict(zip(there.schema.names, there.columns, strict=True))
        columns |= {
            "dataset": pa.array(np.full(len(own), dataset, np.int32)),
            NODE: pa.array(number_of(part, own)),
            LABEL: pa.array(labels[own]),
        }
        yield TaskRows(pa.RecordBatch.from_pydict(columns))
    yield TaskSummary({})


class Gathered(Struct, frozen=True):
    """Whole clusters in one task. Entities have numbers by dataset and id, as in `matching`."""

    datasets: list[Entities]
    nodes: I64
    """Number of each entity in the run. Shape (entities,)."""
    components: I64
    """Label of each entity."""

    @classmethod
    def of(cls, context: Context, given: TaskInput) -> Gathered:
        """given: what `send_members` sends."""
        charge = context.memory()
        parts: list[Entities] = []
        columns: dict[str, list[I64]] = {"dataset": [], NODE: [], LABEL: []}
        for _, batch in given:
            charge(batch.nbytes)
            parts.append(from_batch(batch))
            for name, some in columns.items():
                some.append(np.asarray(batch.column(name)).astype(np.int64))
        entities = end_to_end(parts)
        of, nodes, components = (
            np.concatenate([np.zeros(0, np.int64), *some]) for some in columns.values()
        )
        by_id = np.asarray(pc.sort_indices(entities.ids)).astype(np.int64)
        order = by_id[np.argsort(of[by_id], kind="stable")]
        bounds = np.searchsorted(of[order], np.arange(len(context.names) + 1))
        datasets = [entities.take(order[start:end]) for start, end in pairwise(bounds.tolist())]
        return cls(datasets, nodes[order], components[order])

    @property
    def labels(self) -> I64:
        """The first entity of each one's cluster."""
        _, firsts, of = np.unique(self.components, return_index=True, return_inverse=True)
        return firsts[of].astype(np.int64)

    def clusters(self) -> Iterator[tuple[int, list[Entities], I64]]:
        """Yields the label, the entities and the run's numbers of each cluster."""
        for component in np.unique(self.components).tolist():
            members = np.flatnonzero(self.components == component)
            yield component, part_of(self.datasets, members), self.nodes[members]
