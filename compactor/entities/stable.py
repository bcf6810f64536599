"""Ids that stay when clusters gain or lose members: finds them by the members that the table's rows have.

The members of a row stand in `$members`, oldest first, as the number of their dataset and their id; `$since`
has the `_updated` of the row in which each was written first. A replaced row keeps its oldest member.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.entities.clusters import Clusters
from compactor.entities.entities import DELETED, MEMBERS, REPLACED, SINCE, Entities, names_of
from compactor.entities.expressions import ID
from compactor.entities.texts import I64, TEXT
from compactor.rows.bounded_keys import keys_of
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import one_array
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.nested import build_list

COLUMNS: Final = (ID, DELETED, REPLACED, MEMBERS, SINCE)
"""What `Histories.of` reads of a table."""
LIVING_ROW, DELETED_ROW, REPLACED_ROW = range(3)
"""Kinds of rows, in the order in which clusters take their ids."""
NEW: Final = -1
"""Stands for the age of a member that no row has."""


class Histories(NamedTuple):
    """The rows of the table whose members are known."""

    ids: pa.Array
    """Large strings. Shape (rows,)."""
    kinds: I64
    owner: I64
    """Row of each member, ascending. Shape (members,), like the next two."""
    members: pa.Array
    """Names of members as large strings, in each row oldest first."""
    since: I64

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> Histories:
        """batches: rows with `COLUMNS`."""
        there = list(batches)
        if not there:
            none = np.zeros(0, np.int64)
            return cls(pa.array([], TEXT), none, none, pa.array([], TEXT), none)
        table = pa.Table.from_batches(there)
        table = table.filter(table[MEMBERS].is_valid()).combine_chunks()
        is_deleted, is_replaced = (
            np.asarray(pc.fill_null(table[name], False)) for name in (DELETED, REPLACED)
        )
        kinds = np.where(is_replaced, REPLACED_ROW, np.where(is_deleted, DELETED_ROW, LIVING_ROW))
        counts, members = list_parts(one_array(table[MEMBERS]))
        _, since = list_parts(one_array(table[SINCE]))
        return cls(
            one_array(table[ID]).cast(TEXT),
            kinds.astype(np.int64),
            np.repeat(np.arange(len(table)), counts),
            members.cast(TEXT),
            np.asarray(since).astype(np.int64),
        )

    def oldest(self, ids: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Returns `$members` and `$since` of replaced rows: the oldest member of each; null if unknown."""
        rows = pc.index_in(ids, value_set=self.ids)
        firsts = np.searchsorted(self.owner, np.arange(len(self.ids)))
        ones = np.ones(len(self.ids), np.int64)
        members = build_list(
            pa.list_(pa.string()), ones, self.members.take(pa.array(firsts)).cast(pa.string()), None
        )
        since = build_list(pa.list_(pa.int64()), ones, pa.array(self.since[firsts]), None)
        return members.take(rows), since.take(rows)


NO_HISTORIES: Final = Histories.of(())


class Lineage(Struct, frozen=True):
    """What the rows of a run say of their members."""

    names: pa.Array
    """Name of each entity, by number."""
    since: I64
    """`_updated` of the row in which each was written first, or `NEW`."""
    rank: I64
    """Order of entities of one age: by dataset, then id."""
    histories: Histories

    def of_rows(self, members: I64, counts: I64, updated: I64) -> tuple[pa.Array, pa.Array]:
        """Returns `$members` and `$since` of clusters that are written now.

        members: of all of them, concatenated. updated: `_updated` of each.
        """
        owner = np.repeat(np.arange(len(counts)), counts)
        since = self.since[members]
        since = np.where(since == NEW, updated[owner], since)
        order = np.lexsort((self.rank[members], since, owner))
        names = self.names.take(pa.array(members[order])).cast(pa.string())
        return (
            build_list(pa.list_(pa.string()), counts, names, None),
            build_list(pa.list_(pa.int64()), counts, pa.array(since[order]), None),
        )


def stable_ids(
    datasets: Sequence[Entities], clusters: Clusters, numbers: Sequence[int], histories: Histories
) -> tuple[pa.Array, Lineage]:
    """Returns the ids of the clusters, and what is known of their members.

    numbers: of the datasets, which they keep in all runs.
    """
    lineage = lineage_of(datasets, numbers, histories)
    owner = np.empty(len(lineage.names), np.int64)  # cluster of each entity
    owner[clusters.members] = np.repeat(np.arange(len(clusters.counts)), clusters.counts)
    row_of = matched(_claims(clusters, lineage, owner), len(clusters.counts))
    ids = histories.ids.take(pa.array(row_of, mask=row_of < 0))
    new = np.flatnonzero(row_of < 0)
    if not len(new):
        return ids, lineage
    wanted = keys_of(lineage.names.take(pa.array(oldest_of(lineage, owner, new))))
    given = new_ids(wanted, histories.ids)
    at = np.where(row_of < 0, 0, np.arange(len(row_of)))
    at[new] = len(ids) + np.arange(len(new))
    return pa.concat_arrays([ids, given]).take(pa.array(at)), lineage


def lineage_of(
    datasets: Sequence[Entities],
    numbers: Sequence[int],
    histories: Histories = NO_HISTORIES,
    since: I64 | None = None,
) -> Lineage:
    """Returns what is known of entities. since: `_updated` of each where it is known; None: as the histories
    say."""
    of = np.repeat(np.array(numbers, np.int64), [each.rows for each in datasets])
    whole = names_of(of, pa.concat_arrays([pa.array([], TEXT), *(each.ids for each in datasets)]))
    rank = np.empty(len(whole), np.int64)
    rank[np.argsort(of, kind="stable")] = np.arange(len(whole))
    if since is not None:
        return Lineage(whole, since, rank, histories)
    is_known = histories.kinds[histories.owner] != REPLACED_ROW
    at = pc.index_in(whole, value_set=histories.members.filter(pa.array(is_known)))
    since = np.full(len(whole), NEW, np.int64)
    there = np.asarray(at.is_valid())
    since[there] = histories.since[is_known][np.asarray(at.drop_null())]
    return Lineage(whole, since, rank, histories)


class Claims(NamedTuple):
    """Clusters and the rows whose ids they may take, strongest first."""

    clusters: I64
    rows: I64


def _claims(clusters: Clusters, lineage: Lineage, owner: I64) -> Claims:
    """Finds a claim for each entity that a row has, and for each replaced row whose oldest member is there.

    Living clusters claim before deleted ones, and ids of living rows before those of deleted and of replaced
    ones. Then the oldest member decides.
    """
    histories = lineage.histories
    is_first = np.diff(histories.owner, prepend=-1) > 0
    kinds = histories.kinds[histories.owner]
    entities = pc.index_in(histories.members, value_set=lineage.names)
    claims = np.asarray(entities.is_valid()) & (is_first | (kinds != REPLACED_ROW))
    entity = np.asarray(entities.filter(pa.array(claims))).astype(np.int64)
    rows, by = histories.owner[claims], owner[entity]
    is_deleted = np.asarray(clusters.deleted)[by]
    place = np.empty(len(histories.ids), np.int64)
    place[np.asarray(pc.sort_indices(histories.ids))] = np.arange(len(histories.ids))
    order = np.lexsort(
        (place[rows], lineage.rank[entity], histories.since[claims], kinds[claims], is_deleted)
    )
    pairs = np.stack([by[order], rows[order]], axis=1)
    _, firsts = np.unique(pairs, axis=0, return_index=True)
    return Claims(*pairs[np.sort(firsts)].T)


def matched(claims: Claims, clusters: int) -> I64:
    """Returns the row whose id each cluster takes, -1 for none: the strongest claim first."""
    found = np.full(clusters, -1, np.int64)
    if not len(claims.rows):
        return found
    of_cluster = np.bincount(claims.clusters)[claims.clusters]
    of_row = np.bincount(claims.rows)[claims.rows]
    alone = (of_cluster == 1) & (of_row == 1)
    found[claims.clusters[alone]] = claims.rows[alone]
    taken: set[int] = set()
    contested = zip(claims.clusters[~alone].tolist(), claims.rows[~alone].tolist(), strict=True)
    for cluster, row in contested:
        if found[cluster] < 0 and row not in taken:
            found[cluster] = row
            taken.add(row)
    return found


def oldest_of(lineage: Lineage, owner: I64, clusters: I64) -> I64:
    """Returns the oldest entity of each cluster. clusters: ascending."""
    wanted = np.flatnonzero(np.isin(owner, clusters))
    since = lineage.since[wanted]
    age = np.where(since == NEW, np.iinfo(np.int64).max, since)
    order = np.lexsort((lineage.rank[wanted], age, owner[wanted]))
    in_order = wanted[order]
    return in_order[np.diff(owner[in_order], prepend=-1) > 0]


def new_ids(wanted: pa.Array, known: pa.Array) -> pa.Array:
    """Returns distinct ids that no row has: those wanted, or with a number if a row has them.

    known: ids of rows, at least those that differ from one wanted by numbers at their ends.
    """
    is_used = np.asarray(pc.is_in(wanted, value_set=known))
    if not is_used.any():
        return wanted
    found = wanted.to_pylist()
    used = {*known.to_pylist(), *found}
    for place in sorted(np.flatnonzero(is_used).tolist(), key=found.__getitem__):
        number = 2
        while (name := f"{found[place]}~{number}") in used:
            number += 1
        used.add(name)
        found[place] = name
    return pa.array(found, TEXT)
