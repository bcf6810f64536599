"""Finds the ids of `identity: stable`, of the rows that the table has of the members of clusters.

A row goes to the homes of its members, which claim its id for their cluster. A claim that is the only one of
its row and of its cluster is settled where the claims of a row meet; all others meet in one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.entities.entities import DELETED, SINCE, names_of
from compactor.entities.expressions import ID
from compactor.entities.stable import (
    NEW,
    REPLACED_ROW,
    Claims,
    Histories,
    Lineage,
    matched,
    new_ids,
    oldest_of,
)
from compactor.entities.tasks.context import IS_NEW, LABEL, ROOT, Context
from compactor.entities.tasks.lines import all_rows, array_of, by_input, ints_of
from compactor.entities.texts import I64, TEXT, quoted
from compactor.rows.bounded_keys import keys_of
from compactor.spark.shuffle.task import TaskInput, TaskOutput, TaskRows, TaskSummary
from lsm_fragment import compute as pc

MEMBER: Final = "member"
ROW: Final = "row"
KIND: Final = "kind"
NUMBER: Final = "number"
IS_CLAIM: Final = "is_claim"
OF_CLUSTER: Final = "of_cluster"
OLDEST: Final = "oldest"
OLDEST_SINCE: Final = "oldest_since"

SETTLED: Final = 0


CONTESTED: Final = 1
"""Feeds of `settle_rows`."""
_STRENGTH: Final = (DELETED, KIND, SINCE, NUMBER, MEMBER, ROW)
"""Order of claims, the strongest first."""


def history_rows(histories: Histories) -> pa.RecordBatch:
    """Returns a row for each member of rows of the table, for the homes of the members."""
    owner = histories.owner
    kinds = histories.kinds[owner]
    is_first = np.diff(owner, prepend=-1) > 0
    ids = pc.replace_substring_regex(histories.members, r"^[0-9]+\|", "", max_replacements=1)
    return pa.RecordBatch.from_pydict(
        {
            ID: quoted(ids).cast(TEXT),
            MEMBER: histories.members,
            ROW: histories.ids.take(pa.array(owner)),
            KIND: kinds,
            SINCE: histories.since,
            IS_CLAIM: is_first | (kinds != REPLACED_ROW),
        }
    )


def known_at_home(
    context: Context, lines: pa.Table, labels: I64, histories: Sequence[pa.RecordBatch]
) -> tuple[I64, pa.RecordBatch | None]:
    """Returns the age of each entity of a home, and the claims of entities to ids of rows.

    lines: of the entities. histories: of `history_rows`.
    """
    since = np.full(len(lines), NEW, np.int64)
    if not histories:
        return since, None
    numbers = np.array(context.numbers, np.int64)[ints_of(lines, "dataset")]
    ids = array_of(lines, ID)
    table = pa.Table.from_batches(histories).combine_chunks()
    at = pc.index_in(array_of(table, MEMBER), value_set=names_of(numbers, ids))
    table = table.filter(at.is_valid())
    places = np.asarray(at.drop_null()).astype(np.int64)
    is_there = ints_of(table, KIND) != REPLACED_ROW
    since[places[is_there]] = ints_of(table, SINCE)[is_there]
    is_claim = np.asarray(table.column(IS_CLAIM))
    table, places = table.filter(pa.array(is_claim)), places[is_claim]
    claims = pa.RecordBatch.from_pydict(
        {
            LABEL: labels[places],
            ROW: array_of(table, ROW),
            KIND: ints_of(table, KIND),
            SINCE: ints_of(table, SINCE),
            NUMBER: numbers[places],
            MEMBER: ids.take(pa.array(places)),
            DELETED: array_of(lines, DELETED).take(pa.array(places)),
        }
    )
    return since, claims


def wanted_ids(lineage: Lineage, members: I64, counts: I64) -> pa.Array:
    """Returns the ids of clusters to which no row gives one. members: of all, concatenated."""
    owner = np.empty(len(members), np.int64)
    owner[members] = np.repeat(np.arange(len(counts)), counts)
    oldest = oldest_of(lineage, owner, np.arange(len(counts)))
    return keys_of(lineage.names.take(pa.array(oldest)))


def roots_of(ids: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(ids, r"(?:~[0-9]+)+$", "")


def strongest(claims: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns one claim for each cluster and row, with the number of claims of the cluster."""
    table = pa.Table.from_batches(claims)
    order = [LABEL, ROW, *_STRENGTH[:-1]]
    table = table.sort_by([(name, "ascending") for name in order]).combine_chunks()
    labels, rows = ints_of(table, LABEL), array_of(table, ROW)
    differs = np.asarray(pc.not_equal(rows.slice(1), rows.slice(0, len(rows) - 1)))
    is_first = np.append(True, differs | (np.diff(labels) != 0))
    table = table.filter(pa.array(is_first))
    _, of, counts = np.unique(ints_of(table, LABEL), return_inverse=True, return_counts=True)
    [batch] = table.append_column(OF_CLUSTER, pa.array(counts[of])).combine_chunks().to_batches()
    return batch


def settle_rows(context: Context, given: TaskInput) -> TaskOutput:
    """Gives rows to clusters that nothing else claims and that claim nothing else. given: all claims of each
    row."""
    claims = all_rows(context, given)
    codes = np.asarray(array_of(claims, ROW).dictionary_encode().indices)
    is_alone = (np.bincount(codes)[codes] == 1) & (ints_of(claims, OF_CLUSTER) == 1)
    for is_chosen, feed in ((is_alone, SETTLED), (~is_alone, CONTESTED)):
        some = claims.filter(pa.array(is_chosen))
        if feed == SETTLED:
            some = pa.table({LABEL: some[LABEL], ID: some[ROW]})
        yield from (TaskRows(batch, feed) for batch in some.to_batches() if batch.num_rows)
    yield TaskSummary({})


def settle_contested(context: Context, given: TaskInput) -> TaskOutput:
    """Gives rows to clusters, the strongest claim first. given: all contested claims."""
    claims = all_rows(context, given)
    claims = claims.sort_by([(name, "ascending") for name in _STRENGTH]).combine_chunks()
    labels, clusters = np.unique(ints_of(claims, LABEL), return_inverse=True)
    rows = array_of(claims, ROW).dictionary_encode()
    found = matched(Claims(clusters, np.asarray(rows.indices).astype(np.int64)), len(labels))
    there = found >= 0
    ids = rows.dictionary.take(pa.array(found[there]))
    yield TaskRows(pa.RecordBatch.from_pydict({LABEL: labels[there], ID: ids}))
    yield TaskSummary({})


CLUSTERS: Final = 0


GIVEN: Final = 1
"""Inputs of `name`."""


def name(context: Context, given: TaskInput) -> TaskOutput:
    """Gives clusters the ids of rows. given: clusters, and the labels and ids that are settled."""
    inputs = by_input(context, given, 2)
    if inputs[GIVEN]:
        settled = pa.Table.from_batches(inputs[GIVEN]).combine_chunks()
        labels, ids = array_of(settled, LABEL), array_of(settled, ID)
    else:
        labels, ids = pa.array([], pa.int64()), pa.array([], TEXT)
    for batch in inputs[CLUSTERS]:
        at = pc.index_in(batch.column(LABEL), value_set=labels)
        yield TaskRows(with_ids(batch, pc.coalesce(ids.take(at), batch.column(ID)), at.is_null()))
    yield TaskSummary({})


def with_ids(clusters: pa.RecordBatch, ids: pa.Array, is_new: pa.Array) -> pa.RecordBatch:
    """Returns clusters with these ids, their roots, and whether the table is yet to have them."""
    columns = dict(zip(clusters.schema.names, clusters.columns, strict=True))
    columns |= {ID: ids, IS_NEW: is_new, ROOT: roots_of(ids)}
    return pa.RecordBatch.from_pydict(columns)


def renamed(clusters: pa.RecordBatch, known: pa.Array) -> pa.RecordBatch:
    """Gives new clusters ids that no row has. known: ids of rows with the roots of these clusters."""
    is_new = np.asarray(clusters.column(IS_NEW))
    if not is_new.any():
        return clusters
    ids = clusters.column(ID)
    at = np.arange(len(ids))
    at[is_new] = len(ids) + np.arange(int(is_new.sum()))
    given = new_ids(ids.filter(pa.array(is_new)), known)
    place = clusters.schema.get_field_index(ID)
    return clusters.set_column(place, ID, pa.concat_arrays([ids, given]).take(pa.array(at)))


def oldest_columns(histories: Histories, ids: pa.Array) -> dict[str, pa.Array]:
    """Returns the oldest member of these rows and its age; null where they are not known."""
    rows = pc.index_in(ids, value_set=histories.ids)
    firsts = pa.array(np.searchsorted(histories.owner, np.arange(len(histories.ids)))).take(rows)
    return {
        OLDEST: histories.members.take(firsts),
        OLDEST_SINCE: pa.array(histories.since).take(firsts),
    }


def histories_of_oldest(ids: pa.Array, oldest: pa.Array, since: pa.Array) -> Histories:
    """Returns histories that know the oldest member of rows. oldest, since: null where it is not known."""
    is_known = oldest.is_valid()
    ids, oldest, since = (each.filter(is_known) for each in (ids, oldest, since))
    count = len(ids)
    return Histories(
        ids, np.full(count, REPLACED_ROW), np.arange(count), oldest, np.asarray(since, np.int64)
    )


def lineage_in_part(ids: pa.Array, numbers: I64, since: I64, histories: Histories) -> Lineage:
    """Returns what is known of entities in any order. numbers: of their datasets."""
    names = names_of(numbers, ids)
    rank = np.empty(len(ids), np.int64)
    by_id = np.asarray(pc.sort_indices(ids)).astype(np.int64)
    rank[by_id[np.argsort(numbers[by_id], kind="stable")]] = np.arange(len(ids))
    return Lineage(names, since, rank, histories)
