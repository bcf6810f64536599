"""Folds the entities of each changed cluster into one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from compactor.common.clock import random_id
from compactor.entities.clusters import Clusters, cluster_ids
from compactor.entities.column_types import Kinds, type_in
from compactor.entities.entities import DELETED, REPLACED, SIGNATURE, SINCE, Entities
from compactor.entities.expressions import ID
from compactor.entities.fold import end_to_end
from compactor.entities.output import Difference, EntityBatches
from compactor.entities.tasks.context import LABEL, NODE, PLACE, TARGET, Context, Partition
from compactor.entities.tasks.lines import (
    PROPERTY,
    all_rows,
    array_of,
    entities_at,
    from_batch,
    ints_of,
)
from compactor.entities.tasks.naming import (
    OLDEST,
    OLDEST_SINCE,
    histories_of_oldest,
    lineage_in_part,
)
from compactor.spark.shuffle.task import TaskInput, TaskOutput, TaskRows, TaskSummary
from compactor.stores.open import open_store
from compactor.write.ingest import IngestPlan, write_fragments
from lsm_fragment import compute as pc


def take(context: Context, home: Partition, given: TaskInput) -> TaskOutput:
    """Sends the entities of a home to the parts that fold them."""
    asked = all_rows(context, given)
    asked = asked.take(pc.sort_indices(asked.column(NODE)))
    places = ints_of(asked, NODE) & PLACE
    names: set[str] = set()
    for dataset, where, chosen in entities_at(context, home, places):
        here = {
            name: column
            for name, column in zip(chosen.schema.names, chosen.columns, strict=True)
            if column.null_count < len(column)
        }
        names.update(name[1:] for name in here if name.startswith(PROPERTY))
        some = asked.slice(where.start, chosen.num_rows)
        own = {LABEL, "position", TARGET, SINCE} & set(some.column_names)
        here |= {name: array_of(some, name) for name in own}
        here["dataset"] = pa.array(np.full(chosen.num_rows, dataset, np.int32))
        yield TaskRows(pa.RecordBatch.from_pydict(here))
    yield TaskSummary({"names": sorted(names)})


HEADS: Final = 0


MEMBERS: Final = 1
"""Inputs of `fold`."""


def fold(
    context: Context,
    given: TaskInput,
    *,
    table: str,
    plan: IngestPlan,
    known: pa.Schema,
    names: Sequence[str],
    first_updated: int,
    now_unix_ms: int,
) -> TaskOutput:
    """Writes the rows of an id range as uncommitted fragments, with the types that its own values have.

    known: the table's columns, by shown name. names: all properties.
    now_unix_ms: when ids are replaced.
    """
    charge = context.memory()
    heads: list[pa.RecordBatch] = []
    parts: list[Entities] = []
    labels = [np.zeros(0, np.int64)]
    positions = [np.zeros(0, np.int64)]
    offsets = [np.zeros(0, np.int32)]
    ages = [np.zeros(0, np.int64)]
    for number, batch in given:
        charge(batch.nbytes)
        if number == HEADS:
            heads.append(batch)
        else:
            parts.append(from_batch(batch))
            labels.append(np.asarray(batch.column(LABEL)))
            positions.append(np.asarray(batch.column("position")))
            offsets.append(np.asarray(batch.column("dataset")))
            if context.numbers:
                ages.append(np.asarray(batch.column(SINCE)))
    head = pa.Table.from_batches(heads)
    is_gone = head.column(REPLACED)
    ended = head.filter(is_gone)
    gone = array_of(ended, ID)
    head = head.filter(pc.invert(is_gone))
    head = head.take(pc.sort_indices(head.column(LABEL)))
    of = np.searchsorted(ints_of(head, LABEL), np.concatenate(labels))
    members = np.lexsort((np.concatenate(positions), of))
    counts = np.bincount(of, minlength=head.num_rows)
    entities = end_to_end(parts)
    # Ids of clusters may be long, so they are made of the members' again, and do not travel.
    datasets = np.concatenate(offsets).astype(np.int64)
    names_in_order = entities.ids.take(pa.array(members))
    lineage = None
    if context.numbers:
        numbers = np.array(context.numbers, np.int64)[datasets]
        columns = [array_of(ended, name) for name in (OLDEST, OLDEST_SINCE)]
        histories = histories_of_oldest(gone, *columns)
        lineage = lineage_in_part(entities.ids, numbers, np.concatenate(ages), histories)
    clusters = Clusters(
        members,
        counts,
        array_of(head, ID)
        if context.numbers
        else cluster_ids(context.spec.identity, datasets[members], names_in_order, counts),
        array_of(head, DELETED),
        ints_of(head, SIGNATURE),
    )
    changes = Difference(np.arange(head.num_rows), 0, gone)
    rows = EntityBatches(
        context.spec,
        [entities],
        clusters,
        changes,
        first_updated,
        known,
        names,
        lineage=lineage,
        now_unix_ms=now_unix_ms,
    )
    own = with_types(plan, known, rows.kinds)
    written = write_fragments(open_store(table), own, rows, random_id())
    yield TaskSummary(
        {"entries": [entry.to_json() for entry in written.entries], "kinds": rows.kinds}
    )


def with_types(plan: IngestPlan, known: pa.Schema, kinds: Mapping[str, Kinds]) -> IngestPlan:
    """Returns the plan with the types of properties that have these kinds of values, of all or of a task.

    Types of a task are those of all, or become them when they are read.
    """
    types = {name: type_in(known, name, kinds[name]) for name in kinds}
    stored = {
        s: types[n]
        for s, n in zip(plan.names.stored.names, plan.names.shown.names, strict=True)
        if n in types
    }

    def retyped(schema: pa.Schema) -> pa.Schema:
        return pa.schema([f.with_type(stored.get(f.name, f.type)) for f in schema], schema.metadata)

    metadata = replace(plan.metadata, schema=retyped(plan.metadata.schema))
    return replace(plan, schema=retyped(plan.schema), metadata=metadata)
