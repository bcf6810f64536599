"""Finds the commonest values of some clusters whose entities are at many homes."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pyarrow as pa

from compactor.entities.cluster_figures import commonest, for_rules, united, values_of_cluster
from compactor.entities.entities import Entities
from compactor.entities.fold import end_to_end
from compactor.entities.matching import part_of
from compactor.entities.tasks.context import LABEL, NODE, PLACE, Context, Partition
from compactor.entities.tasks.lines import all_rows, from_batch, ints_of
from compactor.spark.shuffle.task import TaskInput, TaskOutput, TaskRows, TaskSummary
from compactor.stores.open import open_store
from compactor.stores.parts import part_rows
from lsm_fragment import compute as pc


def values_at_home(context: Context, home: Partition, given: TaskInput) -> TaskOutput:
    """Sends the values of a home's entities by cluster. given: nodes and their components."""
    asked = all_rows(context, given)
    entities = for_rules(context.spec, entities_at(context, home))
    places, components = ints_of(asked, NODE) & PLACE, ints_of(asked, LABEL)
    for component in np.unique(components).tolist():
        part = part_of(entities, np.unique(places[components == component]))
        for batch in values_of_cluster(context.spec, part, context.aside):
            owner = pa.repeat(component, batch.num_rows)
            yield TaskRows(batch.append_column(LABEL, owner))
    yield TaskSummary({})


def entities_at(context: Context, home: Partition) -> list[Entities]:
    """Reads the living and deleted entities of a home, by dataset."""
    store = open_store(context.staging)
    return [
        end_to_end([] if key is None else list(map(from_batch, part_rows(store, key))))
        for key in home.entities
    ]


def counted(context: Context, given: TaskInput) -> TaskOutput:
    """Reports the commonest values of each cluster, of those that this part received."""
    batches = [batch for _, batch in given]
    values = pa.Table.from_batches(batches)
    found = []
    for component in pc.unique(values[LABEL]).to_pylist():
        own = values.filter(pc.equal(values[LABEL], component)).drop_columns([LABEL])
        top = commonest(context.spec, united(own.to_batches()))
        found.append((component, [asdict(value) for value in top]))
    yield TaskSummary({"values": found})
