"""Finds the commonest values of some clusters whose entities are at many homes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from compactor.common.plain_values import plain_dict
from compactor.entities.cluster_figures import commonest, for_rules, united, values_of_cluster
from compactor.entities.entities import Entities
from compactor.entities.fold import end_to_end
from compactor.entities.matching import part_of
from compactor.entities.tasks.context import LABEL, NODE, PLACE, Context, Partition
from compactor.entities.tasks.lines import all_rows, entities_at, from_batch, ints_of
from compactor.spark.shuffle.task import TaskInput, TaskOutput, TaskRows, TaskSummary
from lsm_fragment import compute as pc


def values_at_home(context: Context, home: Partition, given: TaskInput) -> TaskOutput:
    """Sends the values of a home's entities by cluster. given: nodes and their components."""
    asked = all_rows(context, given)
    places, numbers = np.unique(ints_of(asked, NODE) & PLACE, return_inverse=True)
    components = ints_of(asked, LABEL)
    found: list[list[Entities]] = [[] for _ in context.names]
    for dataset, _, batch in entities_at(context, home, places):
        found[dataset] += for_rules(context.spec, [from_batch(batch)])
    entities = [end_to_end(some) for some in found]
    for component in np.unique(components).tolist():
        part = part_of(entities, np.unique(numbers[components == component]))
        for batch in values_of_cluster(context.spec, part, context.aside):
            owner = pa.repeat(component, batch.num_rows)
            yield TaskRows(batch.append_column(LABEL, owner))
    yield TaskSummary({})


def counted(context: Context, given: TaskInput) -> TaskOutput:
    """Reports the commonest values of each cluster, of those that this part received."""
    batches = [batch for _, batch in given]
    values = pa.Table.from_batches(batches)
    found = []
    for component in pc.unique(values[LABEL]).to_pylist():
        own = values.filter(pc.equal(values[LABEL], component)).drop_columns([LABEL])
        top = commonest(context.spec, united(own.to_batches()))
        found.append((component, [plain_dict(value) for value in top]))
    yield TaskSummary({"values": found})
