"""Finds the largest changes that a dry run would write: which entities came to a cluster, and which went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.entities.clusters import Clusters
from compactor.entities.entities import DELETED, Entities
from compactor.entities.expressions import ID, IDS
from compactor.entities.fold import ids_of, taken
from compactor.entities.output import Difference
from compactor.entities.texts import I64, TEXT
from compactor.rows.bounded_keys import keys_of
from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import list_parts

LARGEST_CHANGES: Final = 20
"""Show this many of the largest changes."""
_LISTED_IDS: Final = 10
"""List this many of the ids that came, and of those that went."""
_SHOWN_KEY: Final = 32
_SHOWN_ID: Final = 24
_WIDTH: Final = 100
"""Cut lines to this many characters."""


class Change(Struct, kw_only=True):
    """A row that would be written. Entities are counted by their original ids, as in `$ids`."""

    kind: str
    """`new`, `changed` or `replaced`."""
    key: str
    """As in the table's column `$key`."""
    before: int
    """Entities in the table's row."""
    after: int
    came: int
    went: int
    came_ids: list[str]
    """The first of them."""
    went_ids: list[str]

    def __str__(self) -> str:
        head = (
            f"{self.kind} {_cut(self.key, _SHOWN_KEY)}: {self.before:,} -> {self.after:,} entities"
        )
        came, went = (", with ", self.came_ids, self.came), (", without ", self.went_ids, self.went)
        lists = [each for each in (came, went) if each[2]]
        if not lists:
            return f"{head}, the same ones"
        room = (_WIDTH - len(head)) // len(lists)
        said = (word + _listed(ids, count, room - len(word)) for word, ids, count in lists)
        return head + "".join(said)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 3]}..."


def _listed(ids: Sequence[str], count: int, room: int) -> str:
    """Returns as many ids as there is room for, and how many there are more."""
    shown = [_cut(each, _SHOWN_ID) for each in ids]
    for number in range(len(shown), 0, -1):
        more = f" and {count - number:,} more" if number < count else ""
        text = ", ".join(shown[:number]) + more
        if len(text) <= room:
            return text
    return f"{count:,}"


def lines_of_changes(changes: Sequence[Change]) -> Iterator[str]:
    """Yields a line about each change."""
    if changes:
        yield "largest changes:"
        yield from map(str, changes)


class _Members(NamedTuple):
    """Original ids with the numbers of their rows."""

    owner: I64
    ids: pa.Array

    @classmethod
    def of(cls, lists: pa.Array, rows: I64) -> _Members:
        """rows: number of each list."""
        counts, ids = list_parts(lists)
        return cls(np.repeat(rows, counts), ids.cast(TEXT))

    def at(self, places: I64) -> list[str]:
        found: list[str] = self.ids.take(pa.array(places)).to_pylist()
        return found


def largest_changes(
    datasets: Sequence[Entities],
    clusters: Clusters,
    changes: Difference,
    written: Iterable[pa.RecordBatch],
) -> list[Change]:
    """Returns the changes by which most entities come and go, then those of most entities, then by key.

    written: the table's rows, with columns `_id`, `$ids` and `_deleted`.
    """
    ids = pa.concat_arrays([clusters.ids.take(pa.array(changes.clusters)), changes.gone])
    if not len(ids):
        return []
    members, counts = clusters.members_of(changes.clusters)
    whole = taken([replace(each, properties={}) for each in datasets], members)
    after = _Members.of(ids_of(whole, counts), np.arange(len(counts)))
    before, was_living = _before(ids, written)
    sizes = [np.bincount(each.owner, minlength=len(ids)) for each in (before, after)]
    came, went = _differing(before, after)
    moved = [
        np.bincount(each.owner[places], minlength=len(ids))
        for each, places in ((after, came), (before, went))
    ]
    keys = keys_of(ids)
    rank = np.empty(len(ids), np.int64)
    rank[np.asarray(pc.sort_indices(keys))] = np.arange(len(ids))
    order = np.lexsort((rank, -np.maximum(*sizes), -(moved[0] + moved[1])))

    def change(row: int) -> Change:
        kind = "changed" if was_living[row] else "new"
        return Change(
            kind="replaced" if row >= len(counts) else kind,
            key=keys[row].as_py(),
            before=int(sizes[0][row]),
            after=int(sizes[1][row]),
            came=int(moved[0][row]),
            went=int(moved[1][row]),
            came_ids=after.at(came[after.owner[came] == row][:_LISTED_IDS]),
            went_ids=before.at(went[before.owner[went] == row][:_LISTED_IDS]),
        )

    return [change(row) for row in order[:LARGEST_CHANGES].tolist()]


def _before(ids: pa.Array, written: Iterable[pa.RecordBatch]) -> tuple[_Members, np.ndarray]:
    """Returns the members that rows with these ids have in the table, and whether they live there."""
    was_living = np.zeros(len(ids), np.bool_)
    batches = list(written)
    if not batches:
        return _Members(np.zeros(0, np.int64), pa.array([], TEXT)), was_living
    table = pa.Table.from_batches(batches)
    at = pc.index_in(table[ID].cast(TEXT).combine_chunks(), value_set=ids)
    is_known = at.is_valid()
    rows = np.asarray(at.drop_null()).astype(np.int64)
    deleted = pc.fill_null(table[DELETED].combine_chunks().filter(is_known), False)
    was_living[rows] = ~np.asarray(deleted)
    return _Members.of(table[IDS].combine_chunks().filter(is_known), rows), was_living


def _differing(before: _Members, after: _Members) -> tuple[I64, I64]:
    """Returns the places in `after` of members that came, and in `before` of those that went."""
    coded = pa.concat_arrays([before.ids, after.ids]).dictionary_encode()
    owner = np.concatenate([before.owner, after.owner])
    pairs = owner * max(1, len(coded.dictionary)) + np.asarray(coded.indices)
    ours, theirs = pairs[: len(before.owner)], pairs[len(before.owner) :]
    return np.flatnonzero(~np.isin(theirs, ours)), np.flatnonzero(~np.isin(ours, theirs))
