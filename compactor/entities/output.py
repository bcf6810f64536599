"""Produces the rows that a run writes: new and changed clusters, folded, and removed ids.

Batches are in id order, and each row gets the next sequence number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.entities.clusters import Clusters
from compactor.entities.column_types import JSON, NO_KINDS, Kinds, kinds_in, type_in, typed
from compactor.entities.entities import (
    DELETED,
    KEY,
    MEMBERS,
    REPLACED,
    REPLACED_AT,
    SIGNATURE,
    SINCE,
    UPDATED,
    Entities,
)
from compactor.entities.expressions import ID, IDS
from compactor.entities.fold import MERGED, folded, folded_kinds, ids_of, survivors_in, taken
from compactor.entities.matching import starts_of
from compactor.entities.properties import Column, Sparse, stored, values_in
from compactor.entities.spec import EntityMergeSpec, PropertyStrategy
from compactor.entities.stable import Lineage
from compactor.entities.texts import I64, TEXT
from compactor.errors import DataError
from compactor.files.source import FileBatches
from compactor.read.scan import scan
from compactor.rows.bounded_keys import keys_of
from compactor.stores.base import Store
from compactor.table.snapshot import Snapshot
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import concat_rows, keep_rows, take_rows
from lsm_fragment.arrays.moves import take

_BATCH_ENTITIES: Final = 131_072
_BATCH_BYTES: Final = 64 << 20
"""Target size of clusters folded at a time, at least one."""
_CELL_BYTES: Final = 16
"""Size of a cell without a value of a property that is held for all rows, among the texts and folded."""
_WRITTEN_CELL_BYTES: Final = 8
"""The most that a cell without a value takes in a batch."""
_MOMENT: Final = pa.timestamp("ms", "UTC")
_INTERNAL: Final = (
    pa.field(ID, pa.string()),
    pa.field(KEY, pa.string()),
    pa.field(IDS, pa.list_(pa.string())),
    pa.field(DELETED, pa.bool_()),
    pa.field(REPLACED, pa.bool_()),
    pa.field(REPLACED_AT, _MOMENT),
    pa.field(UPDATED, pa.int64()),
    pa.field(SIGNATURE, pa.int64()),
)
_OF_LINEAGE: Final = (
    pa.field(MEMBERS, pa.list_(pa.string())),
    pa.field(SINCE, pa.list_(pa.int64())),
)


class WrittenRows(Struct, frozen=True):
    """The newest row per id that earlier runs wrote."""

    ids: pa.Array
    """Large strings."""
    deleted: pa.Array
    signatures: pa.Array
    """Null for replaced ids."""


NOTHING_WRITTEN: Final = WrittenRows(
    pa.array([], TEXT), pa.array([], pa.bool_()), pa.array([], pa.int64())
)


def read_written(store: Store, snapshot: Snapshot) -> WrittenRows:
    """Reads the rows of earlier runs. Raises `FormatError` for damaged fragments."""
    return written_of(written_batches(store, snapshot))


def written_batches(
    store: Store, snapshot: Snapshot, more: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yields the input batches of `written_of`, and more columns behind `REPLACED`. Raises `DataError` for
    rows that no entity merge wrote."""
    for batch in scan(store, snapshot, [ID, DELETED, SIGNATURE, REPLACED, *more]):
        replaced = pc.fill_null(batch.column(REPLACED), False)
        foreign = np.flatnonzero(pc.and_not(batch.column(SIGNATURE).is_null(), replaced))
        if len(foreign):
            raise DataError(
                f"{store.url}: the row with `_id` {batch.column(ID)[foreign[0]].as_py()!r} was not "
                "written by an entity merge: delete such rows (`compactor delete`), or name another --output"
            )
        yield batch


def written_of(batches: Iterable[pa.RecordBatch]) -> WrittenRows:
    batches = list(batches)
    if not batches:
        return NOTHING_WRITTEN
    table = pa.Table.from_batches(batches)
    ids, deleted, signatures = (table[name] for name in (ID, DELETED, SIGNATURE))
    return WrittenRows(
        ids.cast(TEXT).combine_chunks(),
        pc.fill_null(deleted, False).combine_chunks(),
        signatures.combine_chunks(),
    )


def changes_since(store: Store, snapshot: Snapshot, since: int | None) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table of an entity merge.

    Without `since`, all rows in id order. With it, rows with a greater `_updated`, in write order: a reader
    that passes the last value it saw misses no row.
    """
    batches = scan(store, snapshot)
    if since is None:
        yield from batches
        return
    newer = [
        keep_rows(batch, pc.fill_null(pc.greater(batch.column(UPDATED), since), False))
        for batch in batches
    ]
    if newer:
        rows = concat_rows(newer)
        yield take_rows(rows, np.argsort(rows.column(UPDATED).to_numpy(), kind="stable"))


class Difference(Struct, frozen=True):
    """The changes that bring the table in line with the clusters."""

    clusters: I64
    """Numbers of new and changed clusters."""
    new: int
    """How many of them have an id that is new, or was deleted."""
    gone: pa.Array
    """Ids that no longer name an entity, as large strings."""
    living_before: int = 0
    """Number of living entities in the table."""
    ended: int = 0
    """How many of them are replaced or deleted now."""

    @property
    def rows(self) -> int:
        return len(self.clusters) + len(self.gone)


def difference(
    ids: pa.Array,
    deleted: pa.Array,
    signatures: I64,
    written: WrittenRows,
    *,
    everything: bool = False,
) -> Difference:
    """Compares clusters with the written rows.

    ids, deleted, signatures: of the clusters. everything: treats all clusters as changed.
    """
    at = pc.index_in(ids, value_set=written.ids)
    before = written.signatures.take(at)
    same = np.asarray(pc.fill_null(pc.equal(before, pa.array(signatures)), False))
    changed = np.flatnonzero(~same | everything)
    was_living = np.asarray(pc.fill_null(pc.invert(written.deleted.take(at)), False))
    stays = pc.is_in(written.ids, value_set=ids)
    gone = written.ids.filter(pc.and_not(written.signatures.is_valid(), stays))
    living = len(written.ids) - written.deleted.true_count
    lives_on = np.count_nonzero(was_living & ~np.asarray(deleted))
    new = int(np.count_nonzero(~was_living[changed]))
    return Difference(changed, new, gone, living, living - int(lives_on))


def written_schema(types: Mapping[str, pa.DataType], *, has_lineage: bool) -> pa.Schema:
    """Returns the row schema for these properties. has_lineage: whether rows say of what members they are."""
    return pa.schema([*_INTERNAL, *types.items(), *(_OF_LINEAGE if has_lineage else ())])


def property_columns(spec: EntityMergeSpec, names: Iterable[str]) -> list[str]:
    """Returns the property columns of the output. names: properties of the entities."""
    there = sorted(set(names))
    if spec.strategy is not PropertyStrategy.LIST:
        return there
    survivors = dict(spec.survivors)
    return [MERGED, *(name for name in there if name in survivors)]


class EntityBatches(FileBatches):
    """The rows of a difference in id order, folded while they are read."""

    def __init__(
        self,
        spec: EntityMergeSpec,
        datasets: Sequence[Entities],
        clusters: Clusters,
        changes: Difference,
        first_updated: int,
        known: pa.Schema | None = None,
        names: Sequence[str] = (),
        lineage: Lineage | None = None,
        now_unix_ms: int = 0,
    ) -> None:
        """known: the table's columns, whose types bind those of the rows; None if all are to be JSON. names:
        columns that the rows have in any case. lineage: what the rows say of their members, if anything.
        now_unix_ms: when ids are replaced."""
        self.path = "merged entities"
        self._batch_bytes = 64 << 20
        self._spec, self._datasets = spec, datasets
        self._clusters, self._changes = clusters, changes
        self._first_updated, self._lineage = first_updated, lineage
        self._now_unix_ms = now_unix_ms
        self.kinds = dict.fromkeys(names, NO_KINDS) | self._kinds()
        """Kinds of the values of each property of the folded entities, which becomes a column."""
        types = {
            name: JSON if known is None else type_in(known, name, kinds)
            for name, kinds in self.kinds.items()
        }
        self.schema = written_schema(types, has_lineage=lineage is not None)

    def _kinds(self) -> dict[str, Kinds]:
        count, strategy = len(self._changes.clusters), self._spec.strategy
        if not count:
            return {}
        members, counts = self._clusters.members_of(self._changes.clusters)
        chosen = self._kinds_of_survivors(members, counts)
        if strategy is PropertyStrategy.LIST:
            return {MERGED: Kinds.LIST | Kinds.ODDS} | chosen
        owner_of = np.full(sum(d.rows for d in self._datasets), -1)
        owner_of[members] = np.repeat(np.arange(count), counts)
        found: dict[str, list[tuple[pa.Array, I64]]] = {}
        starts = starts_of(self._datasets)
        for start, dataset in zip(starts, self._datasets, strict=False):
            owner = owner_of[start : start + dataset.rows]
            for name, column in stored(dataset.properties).items():
                rows, texts = values_in(column)
                is_wanted = owner[rows] >= 0
                if not is_wanted.all():
                    rows, texts = rows[is_wanted], texts.filter(pa.array(is_wanted))
                if len(rows) and name not in chosen:
                    found.setdefault(name, []).append((texts, owner[rows]))
        kinds = {}
        for name in sorted(found):
            texts, owners = zip(*found.pop(name), strict=True)
            every = pa.concat_arrays(texts), np.concatenate(owners)
            kinds[name] = folded_kinds(*every, count, strategy)
        return dict(sorted((kinds | chosen).items()))

    def _kinds_of_survivors(self, members: I64, counts: I64) -> dict[str, Kinds]:
        """Returns the kinds of the values that survive. members: of the changed clusters, in their order."""
        owner, found = np.repeat(np.arange(len(counts)), counts), {}
        for name, how in sorted(self._spec.survivors):
            wanted = {name, how.column}
            some = [
                replace(d, properties={n: d.properties[n] for n in wanted & set(d.properties)})
                for d in self._datasets
            ]
            there = taken(some, members).properties
            for chosen in survivors_in(there, owner, len(counts), {name: how}).values():
                found[name] = kinds_in(chosen.drop_null())
        return found

    def _batches(self) -> Iterator[pa.RecordBatch]:
        clusters, gone = self._clusters, self._changes.gone
        changed = self._changes.clusters
        ids = pa.concat_arrays([clusters.ids.take(pa.array(changed)), gone])
        order = np.asarray(pc.sort_indices(ids)).astype(np.int64)
        weights = np.concatenate([clusters.counts[changed], np.ones(len(gone), np.int64)])[order]
        part = (np.cumsum(weights) - weights) // self._entities_at_a_time()
        ends = np.append(np.flatnonzero(np.diff(part)) + 1, len(order))
        start = 0
        for end in ends.tolist():
            if end > start:
                yield from self._folded(ids, order[start:end], self._first_updated + start)
            start = end

    def _entities_at_a_time(self) -> int:
        rows = sum(dataset.rows for dataset in self._datasets)
        held = sum(dataset.nbytes for dataset in self._datasets)
        held_by_row = {
            name
            for dataset in self._datasets
            for name, column in stored(dataset.properties).items()
            if not isinstance(column, Sparse)
        }
        per_row = held // max(1, rows) + _CELL_BYTES * (len(_INTERNAL) + len(held_by_row))
        return max(1, min(_BATCH_ENTITIES, _BATCH_BYTES // per_row))

    def _folded(self, ids: pa.Array, rows: I64, first_updated: int) -> Iterator[pa.RecordBatch]:
        """Yields rows that are folded together. rows: positions in `ids`, where removed ids follow the
        changed clusters."""
        clusters = self._clusters
        is_gone = rows >= len(self._changes.clusters)
        chosen = self._changes.clusters[rows[~is_gone]]
        members, counts = clusters.members_of(chosen)
        entities = taken(self._datasets, members)
        properties = folded(entities, counts, self._spec.strategy, dict(self._spec.survivors))
        numbers = np.cumsum(~is_gone) - 1
        at = pa.array(numbers, mask=is_gone)
        gone = pa.array(is_gone)
        names = ids.take(pa.array(rows))
        values: dict[str, Column] = {
            ID: names.cast(pa.string()),
            KEY: keys_of(names).cast(pa.string()),
            IDS: take(ids_of(entities, counts), np.where(is_gone, -1, numbers)),
            DELETED: pc.or_(
                gone, pc.fill_null(clusters.deleted.take(pa.array(chosen)).take(at), True)
            ),
            REPLACED: gone,
            REPLACED_AT: pc.if_else(gone, pa.scalar(self._now_unix_ms, _MOMENT), None),
            UPDATED: pa.array(np.arange(first_updated, first_updated + len(rows))),
            SIGNATURE: pa.array(clusters.signatures[chosen]).take(at),
        }
        if self._lineage is not None:
            updated = first_updated + np.flatnonzero(~is_gone)
            there = self._lineage.of_rows(members, counts, updated)
            before = self._lineage.histories.oldest(names.filter(gone))
            after = len(chosen) + np.cumsum(is_gone) - 1
            for name, *parts in zip((MEMBERS, SINCE), there, before, strict=True):
                values[name] = take(pa.concat_arrays(parts), np.where(is_gone, after, numbers))
        living = np.flatnonzero(~is_gone)
        for name, column in stored(properties).items() if len(chosen) else ():
            places, texts = living, column
            if isinstance(column, Sparse):
                places, texts = living[column.rows], column.texts
            values[name] = Sparse(places, typed(texts, self.schema.field(name).type), len(rows))
        step = max(1, _BATCH_BYTES // (_WRITTEN_CELL_BYTES * len(self.schema)))
        for start in range(0, len(rows), step):
            end = min(start + step, len(rows))
            columns = [_part(values.get(f.name), f.type, start, end) for f in self.schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _part(column: Column | None, dtype: pa.DataType, start: int, end: int) -> pa.Array:
    """Returns consecutive rows of a column. column: None stands for one of nulls."""
    if column is None:
        return pa.nulls(end - start, dtype)
    if not isinstance(column, Sparse):
        return column.slice(start, end - start)
    first, last = np.searchsorted(column.rows, (start, end)).tolist()
    if first == last:
        return pa.nulls(end - start, dtype)
    if last - first == end - start:
        return column.texts.slice(first, last - first)
    at = np.full(end - start, -1)
    at[column.rows[first:last] - start] = np.arange(first, last)
    return take(column.texts, at)
