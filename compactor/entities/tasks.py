"""Tasks of an entity merge whose entities are in many places. Each is a function of a part of the rows;
somebody else sends rows to the parts that they belong to: `entities/on_spark.py`.

An entity has a number for the whole run: its **home**, the part that has all entities with its `_id`, above
its place there, by dataset and `_id`. So the number follows from what was read, and an attempt that is made
again gives the same ones. Homes keep entities in a staging place; what travels is a line for each, and whole
entities only where they are to be folded.

Of entities that share a value, each home tells one: so a value of a million entities is as many rows as there
are homes, and each home makes the edges of its own. No step brings all that share a value together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compactor.common.clock import random_id
from compactor.entities.clusters import Clusters, clusters_of, kept_of
from compactor.entities.datasets import Located, columns_in
from compactor.entities.entities import (
    DELETED,
    REPLACED,
    SIGNATURE,
    U64,
    UPDATED,
    Columns,
    Entities,
    entities_of,
    first_mistake,
)
from compactor.entities.expressions import ID, IDS
from compactor.entities.fold import MERGED, end_to_end
from compactor.entities.matching import groups_of_rule, starts_of, values_of_rules
from compactor.entities.memory import EntityMemory
from compactor.entities.output import (
    Difference,
    EntityBatches,
    difference,
    written_batches,
    written_of,
)
from compactor.entities.spec import EntityMergeSpec, PropertyStrategy
from compactor.entities.texts import I64, TEXT
from compactor.stores.open import open_store
from compactor.stores.parts import BatchSink, part_rows, writing_part
from compactor.table.snapshot import Snapshot
from compactor.write.ingest import IngestPlan, write_fragments
from format.nested import build_list

PLACE_BITS: Final = 40
"""Of a number, those that count within its part; above them is the part."""
_PLACE: Final = (1 << PLACE_BITS) - 1
_STAGED_ROWS: Final = 1 << 16
_SAMPLED_CHARACTERS: Final = 128
"""Of an id: the beginning of one is as good a bound between ranges."""
_NOT_READ: Final = (UPDATED, SIGNATURE)

# Columns that travel beside those of entities, whose properties begin with a dot.
NODE: Final = "node"
LABEL: Final = "label"
GROUP: Final = "group"
TARGET: Final = "target"
RULE, TEXT_OF_VALUE = "rule", "text"
_PROPERTY: Final = "."

TaskInput = Iterable[tuple[int, pa.RecordBatch]]
"""Rows that were sent to a part: the number of the input, and a batch; by inputs, and in order."""


class TaskRows(NamedTuple):
    """That a task gives."""

    batch: pa.RecordBatch
    input: int = 0
    """Of whom they are for, which one."""


class SampledKeys(NamedTuple):
    """Keys, as evenly as the weight of what they stand for."""

    keys: pa.RecordBatch


class TaskSummary(NamedTuple):
    """The last that a task gives: what it has done."""

    values: Mapping[str, Any]


TaskOutput = Iterator[TaskRows | SampledKeys | TaskSummary]


@dataclass(frozen=True, slots=True)
class Context:
    """What every task is told. Picklable."""

    spec: EntityMergeSpec
    names: tuple[str, ...]
    """Of datasets, for errors."""
    staging: str
    """Address of a store."""
    run_id: str
    memory_limit_bytes: int
    """Of one task."""

    def memory(self) -> Callable[[int], None]:
        return EntityMemory(self.memory_limit_bytes).charging_part()


@dataclass(frozen=True, slots=True)
class Partition:
    """What a part keeps: keys in the staging place."""

    members: str
    """A line an entity, in the order of numbers."""
    entities: tuple[str | None, ...]
    """By dataset; None: there are none."""
    rows: tuple[int, ...]
    """By dataset."""
    groups: str | None
    """Which entities each group has; None: no rule has a value."""
    bytes: int
    """Of the entities' columns."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Partition:
        return cls(
            value["members"],
            tuple(value["entities"]),
            tuple(value["rows"]),
            value["groups"],
            value["bytes"],
        )


@dataclass(frozen=True, slots=True)
class DatasetPart:
    """Of a dataset: what one task reads."""

    dataset: int
    located: Located
    snapshot: Snapshot | None = None
    """Of a table: nothing but the fragments of the piece."""


# --- from datasets to homes ---


def read_piece(piece: DatasetPart) -> TaskOutput:
    """Rows as canonical texts, for the homes that go by their `_id`."""
    rows = 0
    for columns, count in columns_in(piece.located, piece.snapshot):
        if (mistake := first_mistake(columns, count)) is not None:
            yield TaskSummary({"rows": rows, "bad_row": rows + mistake[0], "why": mistake[1]})
            return
        kept = {name: column for name, column in columns.items() if name not in _NOT_READ}
        yield TaskRows(pa.RecordBatch.from_pydict(kept), piece.dataset)
        rows += count
    yield TaskSummary({"rows": rows})


def settle(context: Context, part: int, given: TaskInput) -> TaskOutput:
    """Entities of a home, numbered and kept; and for the parts that match, a row for each value and rule."""
    charge = context.memory()
    columns: list[list[Columns]] = [[] for _ in context.names]
    for dataset, batch in given:
        charge(batch.nbytes)
        columns[dataset].append(dict(zip(batch.schema.names, batch.columns, strict=True)))
    datasets = [
        entities_of(some, [len(batch[ID]) for batch in some], name)
        for some, name in zip(columns, context.names, strict=True)
    ]
    columns.clear()
    if not any(d.rows for d in datasets):
        yield TaskSummary({})
        return
    stage = _Staging(context, part)
    members = stage.put(_pieces_of(_lines(datasets)))
    entities = tuple(stage.put(_pieces_of(_as_batch(d))) if d.rows else None for d in datasets)
    with ExitStack() as stack:
        groups: tuple[str, BatchSink] | None = None
        count = 0
        for rule, sides in enumerate(values_of_rules(context.spec, datasets, charge)):
            found = groups_of_rule(*sides)
            if not len(found.firsts):
                continue
            charge(found.texts.nbytes + found.nodes.nbytes)
            numbers = _number(part, count + np.arange(len(found.firsts)))
            yield TaskRows(
                pa.RecordBatch.from_pydict(
                    {
                        RULE: pa.array(np.full(len(numbers), rule, np.int32)),
                        TEXT_OF_VALUE: found.texts,
                        GROUP: numbers,
                        NODE: _number(part, found.firsts),
                        "on_left": pa.array(found.on_left),
                        "on_right": pa.array(found.on_right),
                    }
                )
            )
            batch = pa.RecordBatch.from_pydict(
                {GROUP: count + found.of, NODE: _number(part, found.nodes)}
            )
            if groups is None:
                groups = stage.begun(stack, batch.schema)
            for piece in _pieces_of(batch):
                groups[1].write_batch(piece)
            count += len(numbers)
    home = Partition(
        members,
        entities,
        tuple(d.rows for d in datasets),
        None if groups is None else groups[0],
        sum(d.nbytes for d in datasets),
    )
    yield TaskSummary({"home": home.to_json()})


# --- from values to edges ---


def match(context: Context, given: TaskInput) -> TaskOutput:
    """The groups of all homes that share a value of which both sides of the rule have some: for their homes,
    with the entity that all of them are joined to."""
    found = _all_rows(context, given)
    texts = found.column(TEXT_OF_VALUE).combine_chunks()
    coded = texts.dictionary_encode()
    keys = np.asarray(coded.indices).astype(np.int64) * len(context.spec.rules)
    keys += _ints(found, RULE)
    _, of, count = np.unique(keys, return_inverse=True, return_counts=True)
    on_left, on_right = (
        np.bincount(of, np.asarray(found.column(side)), len(count)) > 0
        for side in ("on_left", "on_right")
    )
    nodes = _ints(found, NODE)
    firsts = np.full(len(count), np.iinfo(np.int64).max)
    np.minimum.at(firsts, of, nodes)
    matched = (on_left & on_right)[of]
    groups = _ints(found, GROUP)[matched]
    if len(groups):
        yield TaskRows(pa.RecordBatch.from_pydict({GROUP: groups, NODE: firsts[of[matched]]}))
    yield TaskSummary({"matched": len(groups)})


def edges_at_home(context: Context, home: Partition, given: TaskInput) -> Iterator[pa.RecordBatch]:
    """Of groups that matched: each entity with the one that all are joined to. Columns left and right."""
    assert home.groups is not None
    found = _all_rows(context, given)
    groups = _ints(found, GROUP) & _PLACE
    first_of = np.full(int(groups.max()) + 1, -1, np.int64)
    first_of[groups] = _ints(found, NODE)
    for batch in part_rows(open_store(context.staging), home.groups):
        of, nodes = (np.asarray(batch.column(name)) for name in (GROUP, NODE))
        known = of < len(first_of)
        of, nodes = of[known], nodes[known]
        firsts = first_of[of]
        is_edge = (firsts >= 0) & (firsts != nodes)
        if is_edge.any():
            yield pa.RecordBatch.from_pydict({"left": firsts[is_edge], "right": nodes[is_edge]})


# --- from labels to clusters ---


def label(context: Context, part: int, home: Partition, given: TaskInput) -> TaskOutput:
    """A line for each entity of a home, with the label of its component: for the parts that go by labels.

    given: nodes and labels. A node without is a component of its own.
    """
    labels = _number(part, np.arange(sum(home.rows)))
    for _, batch in given:
        labels[np.asarray(batch.column(NODE)) & _PLACE] = np.asarray(batch.column(LABEL))
    start = 0
    for batch in part_rows(open_store(context.staging), home.members):
        end = start + batch.num_rows
        columns = {
            **dict(zip(batch.schema.names, batch.columns, strict=True)),
            NODE: _number(part, np.arange(start, end)),
            LABEL: labels[start:end],
        }
        yield TaskRows(pa.RecordBatch.from_pydict(columns))
        start = end
    yield TaskSummary({})


def first_of_largest(context: Context, home: Partition, given: TaskInput) -> TaskSummary:
    """Of the nodes of a home that are given: the dataset and `_id` of the first."""
    lines = pa.Table.from_batches(part_rows(open_store(context.staging), home.members))
    place = min(int(np.min(np.asarray(batch.column(NODE)) & _PLACE)) for _, batch in given)
    return TaskSummary({"dataset": lines["dataset"][place].as_py(), "id": lines[ID][place].as_py()})


def cluster(context: Context, given: TaskInput) -> TaskOutput:
    """Clusters of whole components: for the parts that go by the clusters' ids."""
    lines = _all_rows(context, given)
    lines = lines.take(pc.sort_indices(lines, [("dataset", "ascending"), (ID, "ascending")]))
    numbers = _ints(lines, "dataset")
    bounds = np.searchsorted(numbers, np.arange(len(context.names) + 1))
    datasets = [_Lines.of(lines.slice(start, end - start)) for start, end in pairwise(bounds)]
    _, firsts, of = np.unique(_ints(lines, LABEL), return_index=True, return_inverse=True)
    clusters = clusters_of(context.spec, datasets, firsts[of].astype(np.int64))
    nodes = _ints(lines, NODE)[clusters.members]
    starts = np.cumsum(clusters.counts) - clusters.counts
    yield TaskRows(
        pa.RecordBatch.from_pydict(
            {
                ID: clusters.ids,
                SIGNATURE: pa.array(clusters.signatures),
                DELETED: clusters.deleted,
                "dataset": pa.array(numbers[clusters.members[starts]].astype(np.int32)),
                LABEL: pa.array(nodes[starts]),
                NODE: build_list(pa.large_list(pa.int64()), clusters.counts, pa.array(nodes), None),
            }
        )
    )
    yield TaskSummary({})


def written_rows(table: str, snapshot: Snapshot) -> TaskOutput:
    """What earlier runs have written in a piece of the table, for the parts that go by ids."""
    for batch in written_batches(open_store(table), snapshot):
        yield TaskRows(batch.set_column(0, ID, batch.column(0).cast(TEXT)))
    yield TaskSummary({})


CLUSTERS, WRITTEN = range(2)
"""Inputs of `differ`."""


def differ(context: Context, given: TaskInput, *, everything: bool) -> TaskOutput:
    """What has to be written of the ids of a part: a row for each, with the nodes of its cluster."""
    charge = context.memory()
    batches: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = [], []
    for number, batch in given:
        charge(batch.nbytes)
        batches[number].append(batch)
    written = written_of(batches[WRITTEN])
    found = pa.Table.from_batches(batches[CLUSTERS], _CLUSTER).combine_chunks()
    found = found.take(pc.sort_indices(found.column("dataset")))
    ids, deleted = (_array(found, name) for name in (ID, DELETED))
    kept = kept_of(context.spec, ids, np.asarray(deleted))
    found = found.filter(pa.array(kept))
    signatures = _array(found, SIGNATURE)
    changes = difference(_array(found, ID), np.asarray(signatures), written, everything=everything)
    changed = found.take(pa.array(changes.clusters)).drop_columns(["dataset"])
    rows = len(changes.gone)
    nobody = build_list(
        pa.large_list(pa.int64()), np.zeros(rows, np.int64), pa.array([], pa.int64()), None
    )
    gone = pa.table(
        [
            changes.gone,
            pa.nulls(rows, pa.int64()),
            pa.repeat(True, rows),
            pa.array(np.zeros(rows, np.int64)),
            nobody,
        ],
        schema=changed.schema,
    )
    counts = pc.list_value_length(_array(changed, NODE))
    members = pc.sum(counts).as_py() or 0
    for table, is_gone in ((changed, False), (gone, True)):
        for batch in table.combine_chunks().to_batches():
            flags = pa.repeat(is_gone, batch.num_rows)
            yield TaskRows(batch.append_column(REPLACED, flags))
    ids = pc.utf8_slice_codeunits(
        pa.concat_arrays([_array(changed, ID), changes.gone]), 0, _SAMPLED_CHARACTERS
    )
    weights = np.concatenate([np.asarray(counts), np.ones(rows, np.int64)])
    at = np.repeat(np.arange(len(weights)), weights)
    yield SampledKeys(pa.RecordBatch.from_pydict({ID: ids.take(pa.array(at))}))
    yield TaskSummary(
        {
            "clusters": found.num_rows,
            "new": changes.new,
            "changed": len(changes.clusters) - changes.new,
            "gone": rows,
            "members": members,
        }
    )


# --- from clusters to rows ---


def members_of(changes: pa.RecordBatch, targets: npt.NDArray[np.integer]) -> pa.RecordBatch:
    """The entities of changed clusters, for their homes. targets: the part that folds each cluster."""
    counts = np.asarray(pc.list_value_length(changes.column(NODE)))
    of = np.repeat(np.arange(changes.num_rows), counts)
    starts = np.cumsum(counts) - counts
    return pa.RecordBatch.from_pydict(
        {
            NODE: pc.list_flatten(changes.column(NODE)),
            LABEL: changes.column(LABEL).take(pa.array(of)),
            "position": pa.array(np.arange(len(of)) - starts[of]),
            TARGET: pa.array(targets[of].astype(np.int64)),
        }
    )


def take(context: Context, home: Partition, given: TaskInput) -> TaskOutput:
    """The entities of a home that are to be folded, each for the part that does it."""
    asked = _all_rows(context, given)
    asked = asked.take(pc.sort_indices(asked.column(NODE)))
    places = _ints(asked, NODE) & _PLACE
    names: set[str] = set()
    start = 0
    for key, count in zip(home.entities, home.rows, strict=True):
        end = start + count
        at = start
        for batch in [] if key is None else part_rows(open_store(context.staging), key):
            low, high = np.searchsorted(places, [at, at + batch.num_rows])
            if high > low:
                chosen = batch.take(pa.array(places[low:high] - at))
                here = {
                    name: column
                    for name, column in zip(chosen.schema.names, chosen.columns, strict=True)
                    if column.null_count < len(column)
                }
                names.update(name[1:] for name in here if name.startswith(_PROPERTY))
                some = asked.slice(low, high - low)
                here |= {name: _array(some, name) for name in (LABEL, "position", TARGET)}
                yield TaskRows(pa.RecordBatch.from_pydict(here))
            at += batch.num_rows
        start = end
    yield TaskSummary({"names": sorted(names)})


HEADS, MEMBERS = range(2)
"""Inputs of `fold`."""


def fold(
    context: Context,
    given: TaskInput,
    *,
    table: str,
    plan: IngestPlan,
    names: Sequence[str],
    first_updated: int,
) -> TaskOutput:
    """The rows of a range of ids, as fragments that nobody sees yet. names: of all properties."""
    charge = context.memory()
    heads: list[pa.RecordBatch] = []
    parts: list[Entities] = []
    labels = [np.zeros(0, np.int64)]
    positions = [np.zeros(0, np.int64)]
    for number, batch in given:
        charge(batch.nbytes)
        if number == HEADS:
            heads.append(batch)
        else:
            parts.append(_from_batch(batch))
            labels.append(np.asarray(batch.column(LABEL)))
            positions.append(np.asarray(batch.column("position")))
    head = pa.Table.from_batches(heads)
    is_gone = head.column(REPLACED)
    gone = _array(head.filter(is_gone), ID)
    head = head.filter(pc.invert(is_gone))
    head = head.take(pc.sort_indices(head.column(LABEL)))
    of = np.searchsorted(_ints(head, LABEL), np.concatenate(labels))
    clusters = Clusters(
        np.lexsort((np.concatenate(positions), of)),
        np.bincount(of, minlength=head.num_rows),
        _array(head, ID),
        _array(head, DELETED),
        _ints(head, SIGNATURE),
    )
    changes = Difference(np.arange(head.num_rows), 0, gone)
    rows = EntityBatches(context.spec, [end_to_end(parts)], clusters, changes, first_updated, names)
    written = write_fragments(open_store(table), plan, rows, random_id())
    yield TaskSummary({"entries": [entry.to_json() for entry in written.entries]})


def property_columns(spec: EntityMergeSpec, names: Iterable[str]) -> list[str]:
    """Columns of the output. names: of properties that the entities have, none if there are no entities."""
    there = sorted(set(names))
    return there if spec.strategy is not PropertyStrategy.LIST else [MERGED]


# --- entities as batches ---

_CLUSTER: Final = pa.schema(
    [
        (ID, TEXT),
        (SIGNATURE, pa.int64()),
        (DELETED, pa.bool_()),
        ("dataset", pa.int32()),
        (LABEL, pa.int64()),
        (NODE, pa.large_list(pa.int64())),
    ]
)


@dataclass(frozen=True)
class _Lines(Entities):
    """Entities of which no more is known than their clusters need."""

    known_hashes: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))

    def hashes(self) -> U64:
        return self.known_hashes

    @classmethod
    def of(cls, lines: pa.Table) -> _Lines:
        deleted = np.asarray(lines.column(DELETED))
        return cls(_array(lines, ID), deleted, None, {}, np.asarray(lines.column("hash")))


def _lines(datasets: Sequence[Entities]) -> pa.RecordBatch:
    offsets = np.repeat(np.arange(len(datasets), dtype=np.int32), np.diff(starts_of(datasets)))
    return pa.RecordBatch.from_pydict(
        {
            "dataset": offsets,
            ID: pa.concat_arrays([d.ids for d in datasets]),
            DELETED: np.concatenate([d.deleted for d in datasets]),
            "hash": np.concatenate([d.hashes() for d in datasets]),
        }
    )


def _as_batch(entities: Entities) -> pa.RecordBatch:
    columns = {ID: entities.ids}
    if entities.carried is not None:
        columns[IDS] = entities.carried
    columns |= {_PROPERTY + name: column for name, column in entities.properties.items()}
    return pa.RecordBatch.from_pydict(columns)


def _from_batch(batch: pa.RecordBatch) -> Entities:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Entities(
        columns[ID],
        np.zeros(batch.num_rows, np.bool_),
        columns.get(IDS),
        {name[1:]: c for name, c in columns.items() if name.startswith(_PROPERTY)},
    )


class _Staging:
    """Where an attempt of a home puts what it keeps, under names of its own."""

    def __init__(self, context: Context, part: int) -> None:
        self._store = open_store(context.staging)
        self._prefix = f"{context.run_id}/{part:07d}-{random_id()}"
        self._count = 0

    def begun(self, stack: ExitStack, schema: pa.Schema) -> tuple[str, BatchSink]:
        """It is there when the stack ends."""
        self._count += 1
        key = f"{self._prefix}-{self._count}.arrow"
        return key, stack.enter_context(writing_part(self._store, key, schema))

    def put(self, batches: Sequence[pa.RecordBatch]) -> str:
        with ExitStack() as stack:
            key, sink = self.begun(stack, batches[0].schema)
            for batch in batches:
                sink.write_batch(batch)
        return key


def _pieces_of(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch.slice(start, _STAGED_ROWS) for start in range(0, batch.num_rows, _STAGED_ROWS)]


def _number(part: int, places: I64) -> I64:
    return places + (part << PLACE_BITS)


def _all_rows(context: Context, given: TaskInput) -> pa.Table:
    charge = context.memory()
    batches = []
    for _, batch in given:
        charge(batch.nbytes)
        batches.append(batch)
    return pa.Table.from_batches(batches).combine_chunks()


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _ints(table: pa.Table, name: str) -> I64:
    return np.asarray(table.column(name)).astype(np.int64)
