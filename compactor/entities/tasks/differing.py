"""Compares clusters with the target table, and keeps the changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.entities.cluster_figures import largest_of
from compactor.entities.clusters import kept_of
from compactor.entities.entities import DELETED, MEMBERS, REPLACED, SIGNATURE, SINCE
from compactor.entities.expressions import ID
from compactor.entities.output import difference, written_batches, written_of
from compactor.entities.same_ids import SameIdError
from compactor.entities.stable import NO_HISTORIES, Histories
from compactor.entities.tasks.context import BY_ID, LABEL, NODE, ROOT, TARGET, Context
from compactor.entities.tasks.lines import array_of, by_input, cluster_schema
from compactor.entities.tasks.naming import (
    OLDEST,
    OLDEST_SINCE,
    history_rows,
    oldest_columns,
    renamed,
    roots_of,
)
from compactor.entities.tasks.reading import SAMPLED_CHARACTERS
from compactor.entities.texts import TEXT
from compactor.rows.bounded_keys import keys_of
from compactor.spark.shuffle.task import SampledKeys, TaskInput, TaskOutput, TaskRows, TaskSummary
from compactor.stores.open import open_store
from compactor.table.snapshot import Snapshot
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import keep_rows, one_batch, take_rows
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.nested import build_list

ROWS: Final = 0


HISTORIES: Final = 1
"""Feeds of `written_rows`."""


def written_rows(
    context: Context, table: str, snapshot: Snapshot, *, has_members: bool
) -> TaskOutput:
    """Sends the rows of a piece of the table to parts by id; and, if ids stay, their members home."""
    more = (MEMBERS, SINCE) if has_members else ()
    for batch in written_batches(open_store(table), snapshot, more):
        ids = batch.column(0).cast(TEXT)
        columns = {ID: ids, DELETED: batch.column(DELETED), SIGNATURE: batch.column(SIGNATURE)}
        if context.numbers:
            histories = Histories.of([batch]) if has_members else NO_HISTORIES
            columns |= {ROOT: roots_of(ids), **oldest_columns(histories, ids)}
            if len(histories.members):
                yield TaskRows(history_rows(histories), HISTORIES)
        yield TaskRows(pa.RecordBatch.from_pydict(columns), ROWS)
    yield TaskSummary({})


CLUSTERS: Final = 0


WRITTEN: Final = 1
"""Inputs of `differ`."""


def differ(context: Context, given: TaskInput, *, everything: bool) -> TaskOutput:
    """Sends a row for each id of a part that must be written, with its cluster's nodes."""
    batches = by_input(context, given, 2)
    written = written_of(batches[WRITTEN])
    found = one_batch(pa.Table.from_batches(batches[CLUSTERS], cluster_schema(context)))
    found = take_rows(found, np.argsort(np.asarray(found.column("dataset")), kind="stable"))
    firsts = np.asarray(found.column("dataset"))
    oldest = None
    if context.numbers and batches[WRITTEN]:
        oldest = pa.Table.from_batches(batches[WRITTEN]).combine_chunks()
    if context.numbers:
        found = renamed(found, _known_ids(oldest))
    try:
        kept = kept_of(context.spec, found.column(ID), np.asarray(found.column(DELETED)), firsts)
    except SameIdError as error:
        yield TaskSummary(error.to_json(), has_failed=True)
        return
    found = keep_rows(found, kept)
    signatures = np.asarray(found.column(SIGNATURE))
    changes = difference(
        found.column(ID), found.column(DELETED), signatures, written, everything=everything
    )
    sizes, _ = list_parts(found.column(NODE))
    largest = largest_of(found.column(ID), sizes)
    components = found.column(LABEL)
    changed = take_rows(found, changes.clusters).select(list(_CHANGE))
    if not context.numbers:
        # Keys divide changes as ids do, because samples are shorter than the part that both share.
        changed = changed.set_column(0, ID, keys_of(changed.column(ID)))
    rows = len(changes.gone)
    no_entity = build_list(
        pa.large_list(pa.int64()), np.zeros(rows, np.int64), pa.array([], pa.int64()), None
    )
    gone = pa.RecordBatch.from_arrays(
        [
            changes.gone,
            pa.nulls(rows, pa.int64()),
            pa.repeat(True, rows),
            pa.array(np.zeros(rows, np.int64)),
            no_entity,
        ],
        schema=changed.schema,
    )
    if context.numbers:
        ages = found.column(SINCE).take(pa.array(changes.clusters))
        count = len(changes.clusters)
        changed = _with(changed, ages, pa.nulls(count, TEXT), pa.nulls(count, pa.int64()))
        gone = _with(gone, no_entity, *_oldest_of(changes.gone, oldest))
    counts, _ = list_parts(changed.column(NODE))
    members = int(counts.sum())
    for batch, is_gone in ((changed, False), (gone, True)):
        if batch.num_rows:
            flags = pa.repeat(is_gone, batch.num_rows)
            yield TaskRows(batch.append_column(REPLACED, flags))
    ids = pc.utf8_slice_codeunits(
        pa.concat_arrays([changed.column(ID), changes.gone]), 0, SAMPLED_CHARACTERS
    )
    weights = np.concatenate([counts, np.ones(rows, np.int64)])
    at = np.repeat(np.arange(len(weights)), weights)
    yield SampledKeys(pa.RecordBatch.from_pydict({ID: ids.take(pa.array(at))}), BY_ID)
    yield TaskSummary(
        {
            "clusters": found.num_rows,
            "new": changes.new,
            "changed": len(changes.clusters) - changes.new,
            "gone": rows,
            "living": changes.living_before,
            "ended": changes.ended,
            "members": members,
            "largest": [[count, key, components[n].as_py()] for count, key, n in largest],
        }
    )


_CHANGE: Final = (ID, SIGNATURE, DELETED, LABEL, NODE)


def _with(changes: pa.RecordBatch, since: pa.Array, *oldest: pa.Array) -> pa.RecordBatch:
    for name, column in zip((SINCE, OLDEST, OLDEST_SINCE), (since, *oldest), strict=True):
        changes = changes.append_column(name, column)
    return changes


def _known_ids(written: pa.Table | None) -> pa.Array:
    """Returns the ids of rows whose members are known."""
    if written is None:
        return pa.array([], TEXT)
    return array_of(written.filter(pc.is_valid(written.column(OLDEST))), ID)


def _oldest_of(ids: pa.Array, written: pa.Table | None) -> Iterator[pa.Array]:
    """Yields the oldest members of rows, and their ages."""
    if written is None:
        yield from (pa.nulls(len(ids), TEXT), pa.nulls(len(ids), pa.int64()))
        return
    at = pc.index_in(ids, value_set=array_of(written, ID))
    yield from (array_of(written, name).take(at) for name in (OLDEST, OLDEST_SINCE))


def members_of(changes: pa.RecordBatch, targets: npt.NDArray[np.integer]) -> pa.RecordBatch:
    """Returns the entities of changed clusters, for their homes.

    targets: the part that folds each cluster.
    """
    counts, nodes = list_parts(changes.column(NODE))
    of = np.repeat(np.arange(changes.num_rows), counts)
    starts = np.cumsum(counts) - counts
    columns = {
        NODE: nodes,
        LABEL: changes.column(LABEL).take(pa.array(of)),
        "position": pa.array(np.arange(len(of)) - starts[of]),
        TARGET: pa.array(targets[of].astype(np.int64)),
    }
    if SINCE in changes.schema.names:
        _, columns[SINCE] = list_parts(changes.column(SINCE))
    return pa.RecordBatch.from_pydict(columns)
