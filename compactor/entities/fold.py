"""Folds clusters into entities, merging the members' properties by whole columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.entities import properties
from compactor.entities.column_types import Kinds, kinds_in, kinds_in_lists, kinds_of_lists
from compactor.entities.entities import Columns, Entities
from compactor.entities.expressions import ID, IDS
from compactor.entities.matching import starts_of
from compactor.entities.properties import Column, Properties, Sparse, is_rare, stored, values_in
from compactor.entities.spec import PropertyStrategy
from compactor.entities.survivors import Survivor, survived
from compactor.entities.texts import (
    I64,
    TEXT,
    codes_of,
    elements,
    is_list,
    list_texts,
    object_texts,
    quoted,
    texts_at,
)
from lsm_fragment import compute as pc
from lsm_fragment.arrays.dictionaries import first_of_each
from lsm_fragment.arrays.nested import build_list

MERGED: Final = "$merged"


def taken(datasets: Sequence[Entities], members: I64) -> Entities:
    """Takes entities by number, in this order; ids may repeat."""
    starts = starts_of(datasets)
    of = np.searchsorted(starts, members, "right") - 1
    by_dataset = np.argsort(of, kind="stable")
    back = np.empty(len(members), np.int64)
    back[by_dataset] = np.arange(len(members))
    parts = []
    for number, dataset in enumerate(datasets):
        rows = members[of == number] - starts[number]
        if len(rows):
            parts.append(dataset.take(rows))
    return end_to_end(parts).take(back)


def end_to_end(parts: Sequence[Entities]) -> Entities:
    lengths = [part.rows for part in parts]
    carried = [part.carried for part in parts]
    held = [stored(part.properties) for part in parts]
    names = dict.fromkeys(name for columns in held for name in columns)
    return Entities(
        pa.concat_arrays([pa.array([], TEXT), *(part.ids for part in parts)]),
        np.concatenate([np.zeros(0, np.bool_), *(part.deleted for part in parts)]),
        None if all(c is None for c in carried) else properties.end_to_end(carried, lengths),
        Properties({n: properties.end_to_end([c.get(n) for c in held], lengths) for n in names}),
    )


def folded_kinds(texts: pa.Array, owner: I64, clusters: int, strategy: PropertyStrategy) -> Kinds:
    """Returns the kinds of values that a property has once it is folded, without folding it.

    texts: its values, in any order, none missing. owner: the cluster of each.
    """
    if strategy is PropertyStrategy.COMPACT:
        counts, texts = elements(texts)
        owner = np.repeat(owner, counts)
        first = first_of_each(owner, codes_of(texts))
        owner, texts = owner[first], texts.take(pa.array(first))
    alone = _are_alone(owner, clusters)
    found = kinds_in(texts.filter(pa.array(alone)))
    if alone.all():
        return found
    of_many = kinds_of_lists if strategy is PropertyStrategy.COMPACT else kinds_in_lists
    return found | of_many(texts.filter(pa.array(~alone)))


def _are_alone(owner: I64, clusters: int) -> npt.NDArray[np.bool_]:
    """Returns which values are the only ones of their cluster, in time by values if few clusters have any."""
    if is_rare(len(owner), clusters):
        _, owner, counts = np.unique(owner, return_inverse=True, return_counts=True)
        return np.asarray(counts[owner] == 1)
    return np.asarray(np.bincount(owner, minlength=clusters)[owner] == 1)


def folded(
    entities: Entities,
    counts: I64,
    strategy: PropertyStrategy,
    survivors: Mapping[str, Survivor],
) -> Properties:
    """Folds the properties of clusters. Columns have shape (clusters,); null, or no value, without one.

    entities: all clusters' members, concatenated. counts: members per cluster.
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    chosen = survivors_in(entities.properties, owner, len(counts), survivors)
    if strategy is PropertyStrategy.LIST:
        return Properties({MERGED: _listed(entities, counts), **chosen})
    fold = _compacted if strategy is PropertyStrategy.COMPACT else _united
    found: dict[str, Column] = {}
    for name, column in stored(entities.properties).items():
        rows, texts = values_in(column)
        if len(rows) and name not in chosen:
            # Only clusters with a value cost time: most may lack most properties.
            is_first = np.diff(owner[rows], prepend=-1) > 0
            there = owner[rows[is_first]]
            values = fold(texts, np.cumsum(is_first) - 1, len(there))
            found[name] = Sparse(there, values, len(counts))
    return Properties(found | chosen)


def survivors_in(
    columns: Columns, owner: I64, clusters: int, survivors: Mapping[str, Survivor]
) -> dict[str, pa.Array]:
    """Returns the surviving values of properties that entities have. Columns have shape (clusters,).

    columns: of the members. owner: the cluster of each, ascending.
    """
    return {
        name: survived(column, owner, clusters, how, columns.get(how.column))
        for name, how in survivors.items()
        if (column := columns.get(name)) is not None and column.null_count < len(column)
    }


def _united(texts: pa.Array, owner: I64, clusters: int) -> pa.Array:
    """Keeps a single value; merges several into one list, flattening lists.

    texts: values of a property. owner: the cluster of each, ascending; each has one.
    """
    if len(texts) == clusters:
        return texts
    per_cluster = np.bincount(owner, minlength=clusters)
    alone = per_cluster[owner] == 1
    owner_of_many, many = owner[~alone], texts.filter(pa.array(~alone))
    # The elements of a list are the text between its brackets; skip empty lists.
    inside = pc.if_else(pa.array(is_list(many)), pc.utf8_slice_codeunits(many, 1, -1), many)
    has_any = np.asarray(pc.not_equal(inside, ""))
    joint = np.flatnonzero(per_cluster > 1)
    counts = np.bincount(owner_of_many[has_any], minlength=clusters)[joint]
    lists = list_texts(counts, inside.filter(pa.array(has_any)))
    at = np.full(clusters, -1, np.int64)
    at[owner[alone]] = np.flatnonzero(alone)
    at[joint] = len(texts) + np.arange(len(joint))
    return texts_at(pa.concat_arrays([texts, lists]), at)


def _compacted(texts: pa.Array, owner: I64, clusters: int) -> pa.Array:
    """Keeps distinct values: one as it is, several as a list, none as null. Arguments as in `_united`."""
    counts, items = elements(texts)
    owner = np.repeat(owner, counts)
    first = first_of_each(owner, codes_of(items))
    owner, items = owner[first], items.take(pa.array(first))
    per_cluster = np.bincount(owner, minlength=clusters)
    if (per_cluster == 1).all():
        return items
    alone = per_cluster[owner] == 1
    joint = np.flatnonzero(per_cluster > 1)
    lists = list_texts(per_cluster[joint], items.filter(pa.array(~alone)))
    at = np.full(clusters, -1, np.int64)
    at[owner[alone]] = np.flatnonzero(alone)
    at[joint] = len(items) + np.arange(len(joint))
    return texts_at(pa.concat_arrays([items, lists]), at)


def _listed(entities: Entities, counts: I64) -> pa.Array:
    """Returns per cluster the list of its original members, without the merge's own columns."""
    columns = {**entities.properties, ID: quoted(entities.ids)}
    if entities.carried is not None:
        columns[IDS] = entities.carried
    return list_texts(counts, object_texts(columns, entities.rows))


def ids_of(entities: Entities, counts: I64) -> pa.Array:
    """Returns the clusters' `$ids`: lists of distinct original ids, as strings. Arguments as in `folded`."""
    per_entity, ids = entities.original_ids
    owner = np.repeat(np.repeat(np.arange(len(counts)), counts), per_entity)
    first = first_of_each(owner, codes_of(ids))
    sizes = np.bincount(owner[first], minlength=len(counts))
    return build_list(
        pa.list_(pa.string()), sizes, ids.take(pa.array(first)).cast(pa.string()), None
    )
