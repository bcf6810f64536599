"""Survivorship: which of several entities' values of a property becomes the value of all."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.entities.moments import moments_of
from compactor.entities.texts import (
    I64,
    TEXT,
    codes_of,
    elements,
    is_blank,
    is_null,
    is_string,
    list_texts,
    texts_at,
    unquoted,
)
from lsm_fragment import compute as pc
from lsm_fragment.arrays.dictionaries import first_of_each

_NUMBER: Final = "^-?[0-9]"
_END_OF_EXACT_DOUBLES: Final = float(1 << 53)
"""The first integer that another one is rounded to."""


class Choice(StrEnum):
    FIRST = "first"
    """The first value, by dataset, then id."""
    LONGEST = "longest"
    MOST_FREQUENT = "most_frequent"
    LIST = "list"
    """A list of the distinct values, even of a single one."""
    NEWEST = "newest"
    """The value of the entity with the greatest value of a column."""


class Survivor(NamedTuple):
    """How one value of a property is chosen. Of equally good values the first survives."""

    choice: Choice
    column: str = ""
    """With `NEWEST`: the property to go by."""


def survivor_of(value: Any) -> Survivor:
    """Reads the setting of a property. Raises `ValueError`."""
    if isinstance(value, dict) and list(value) == ["newest"] and isinstance(value["newest"], str):
        return Survivor(Choice.NEWEST, value["newest"])
    if isinstance(value, str) and value in set(Choice) - {Choice.NEWEST}:
        return Survivor(Choice(value))
    raise ValueError("write first, longest, most_frequent, list, or {newest: column}")


def survived(
    column: pa.Array, owner: I64, clusters: int, survivor: Survivor, by: pa.Array | None
) -> pa.Array:
    """Returns the surviving value of each cluster, null if there is none. Shape (clusters,).

    column: the members' values. owner: each member's cluster, ascending. by: the values of the column that
    `NEWEST` goes by.
    """
    is_there = np.asarray(column.is_valid())
    counts, items = elements(column.filter(pa.array(is_there)))
    members = np.repeat(np.flatnonzero(is_there), counts)
    is_value = ~is_null(items) & np.asarray(pc.not_equal(items, "[]"))
    members, items = members[is_value], items.filter(pa.array(is_value))
    is_shown = ~is_blank(items)
    # A blank text survives only where its cluster has nothing else.
    has_shown = np.bincount(owner[members[is_shown]], minlength=clusters) > 0
    is_kept = is_shown | ~has_shown[owner[members]]
    members, items = members[is_kept], items.filter(pa.array(is_kept))
    if survivor.choice is Choice.LIST:
        return _lists(items, owner[members], clusters)
    if survivor.choice is Choice.NEWEST:
        scores = np.zeros(len(items), np.int64) if by is None else _ranks(by)[members]
    else:
        scores = _SCORES[survivor.choice](items, owner[members])
    return _best(items, owner[members], scores, clusters)


def _best(items: pa.Array, owner: I64, scores: I64, clusters: int) -> pa.Array:
    """Returns the item with the greatest score of each owner, the first of several."""
    order = np.lexsort((np.arange(len(items)), -scores, owner))
    firsts = order[np.flatnonzero(np.diff(owner[order], prepend=-1))]
    at = np.full(clusters, -1, np.int64)
    at[owner[firsts]] = firsts
    return texts_at(items, at)


def _lists(items: pa.Array, owner: I64, clusters: int) -> pa.Array:
    first = first_of_each(owner, codes_of(items))
    counts = np.bincount(owner[first], minlength=clusters)
    filled = np.flatnonzero(counts)
    lists = list_texts(counts[filled], items.take(pa.array(first)))
    at = np.full(clusters, -1, np.int64)
    at[filled] = np.arange(len(filled))
    return texts_at(lists, at)


def _equal(items: pa.Array, _owner: I64) -> I64:
    return np.zeros(len(items), np.int64)


def _lengths(items: pa.Array, _owner: I64) -> I64:
    """Counts characters, of strings without their quotes and escapes."""
    strings = pa.array(is_string(items))
    texts = pc.coalesce(unquoted(pc.if_else(strings, items, pa.scalar(None, TEXT))), items)
    return np.asarray(pc.utf8_length(texts)).astype(np.int64)


def _frequencies(items: pa.Array, owner: I64) -> I64:
    """Counts how often each item's owner has it."""
    pairs = owner * max(1, len(items)) + codes_of(items)
    _, of, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    found: I64 = counts[of].astype(np.int64)
    return found


_SCORES: Final[dict[Choice, Callable[[pa.Array, I64], I64]]] = {
    Choice.FIRST: _equal,
    Choice.LONGEST: _lengths,
    Choice.MOST_FREQUENT: _frequencies,
}


def _ranks(column: pa.Array) -> I64:
    """Ranks values: texts, then numbers, then instants; -1 for missing and other ones. Shape (rows,).

    Of a list the greatest element counts.
    """
    is_there = np.asarray(column.is_valid())
    counts, items = elements(column.filter(pa.array(is_there)))
    coded = items.dictionary_encode()
    ranks = np.full(len(column), -1, np.int64)
    members = np.repeat(np.flatnonzero(is_there), counts)
    np.maximum.at(ranks, members, _ranks_of_distinct(coded.dictionary)[np.asarray(coded.indices)])
    return ranks


def _ranks_of_distinct(texts: pa.Array) -> I64:
    if not len(texts):
        return np.zeros(0, np.int64)
    strings = is_string(texts)
    inner = unquoted(pc.if_else(pa.array(strings), texts, pa.scalar(None, TEXT)))
    seconds, fractions = moments_of(inner)
    is_number = np.asarray(pc.match_substring_regex(texts, _NUMBER))
    kinds = strings + 2 * is_number.astype(np.int64) + 2 * np.asarray(seconds.is_valid())
    numbers = np.array(pc.fill_null(seconds.cast(pa.int64()), 0))
    numbers[is_number] = _places(texts.filter(pa.array(is_number)))
    words = pc.fill_null(pc.coalesce(fractions, inner), "")
    table = pa.table({"kind": kinds, "number": numbers, "word": words})
    order = np.asarray(pc.sort_indices(table, [(name, "ascending") for name in table.schema.names]))
    differs = np.zeros(len(texts), np.bool_)
    for array in (pa.array(kinds), pa.array(numbers), words):
        there = array.take(pa.array(order))
        differs[1:] |= np.asarray(pc.not_equal(there.slice(1), there.slice(0, len(there) - 1)))
    ranks = np.empty(len(texts), np.int64)
    ranks[order] = np.cumsum(differs)
    return np.where(kinds == 0, -1, ranks)


def _places(numbers: pa.Array) -> I64:
    """Returns the place of each number in their order, the same for equal ones. Shape (numbers,)."""
    places: I64 = np.unique(_exact(numbers), return_inverse=True)[1]
    return places


def _exact(numbers: pa.Array) -> npt.NDArray[Any]:
    """Returns values that compare as the numbers do. Shape (numbers,)."""
    with suppress(pa.ArrowInvalid):
        return np.asarray(numbers.cast(pa.int64()))
    doubles = np.asarray(numbers.cast(pa.float64()))
    if (np.abs(doubles) < _END_OF_EXACT_DOUBLES).all():
        return doubles
    # Python compares integers of any length with doubles exactly, but slowly.
    return np.array(json.loads(f"[{','.join(numbers.to_pylist())}]"), object)
