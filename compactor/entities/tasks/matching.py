"""Finds entities that a rule equates, from the groups of all homes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from compactor.entities.entities import SINCE
from compactor.entities.expressions import ID
from compactor.entities.matching import Aside, distinct_of, too_common
from compactor.entities.rule_figures import RuleFigures, Shared, ValueFigures
from compactor.entities.tasks.context import (
    GROUP,
    LABEL,
    NODE,
    PLACE,
    RULE,
    TEXT_OF_VALUE,
    Context,
    Partition,
)
from compactor.entities.tasks.lines import all_rows, array_of, ints_of, number_of
from compactor.entities.tasks.naming import known_at_home
from compactor.entities.texts import TEXT
from compactor.spark.shuffle.task import TaskInput, TaskOutput, TaskRows, TaskSummary
from compactor.stores.open import open_store
from compactor.stores.parts import part_rows


def match(context: Context, given: TaskInput) -> TaskOutput:
    """Matches groups with the same value on both sides of a rule, across homes. Sends each matched group back
    to its home, with the entity to connect to."""
    found = all_rows(context, given)
    coded = array_of(found, TEXT_OF_VALUE).dictionary_encode()
    rules = len(context.spec.rules)
    keys = np.asarray(coded.indices).astype(np.int64) * rules + ints_of(found, RULE)
    keys, of, count = np.unique(keys, return_inverse=True, return_counts=True)
    on_left, on_right = (
        np.bincount(of, np.asarray(found.column(side)), len(count)) > 0
        for side in ("on_left", "on_right")
    )
    nodes = ints_of(found, NODE)
    firsts = np.full(len(count), np.iinfo(np.int64).max)
    np.minimum.at(firsts, of, nodes)
    entities = np.bincount(of, ints_of(found, "entities"), len(count)).astype(np.int64)
    # A rule inside one dataset has values that only one entity has, on both sides.
    ties = on_left & on_right & (entities > 1)
    is_aside = too_common(context.spec, ties, entities)
    matched = (ties & ~is_aside)[of]
    groups = ints_of(found, GROUP)[matched]
    if len(groups):
        yield TaskRows(pa.RecordBatch.from_pydict({GROUP: groups, NODE: firsts[of[matched]]}))
    figures, asides = [], []
    for rule in range(rules):
        own = np.flatnonzero(keys % rules == rule)
        texts = coded.dictionary.take(pa.array(keys[own] // rules))
        sides = on_left[own], on_right[own]
        figures.append(distinct_of(texts, *sides, entities[own], is_aside[own]))
        texts = texts.filter(pa.array(is_aside[own]))
        asides.append([texts.to_pylist(), entities[own[is_aside[own]]].tolist()])
    yield TaskSummary({"rules": [_as_json(*each) for each in figures], "aside": asides})


def _as_json(left: int, right: int, shared: Shared) -> list[Any]:
    most = shared.most
    return [left, right, shared.matches, most and [most.value, most.entities]]


def add_distinct(rule: RuleFigures, said: Sequence[Any]) -> None:
    """Adds the figures of one task of `match` to those of a rule."""
    left, right, matches, most = said
    rule.add_distinct(left, right, Shared(matches, most and ValueFigures(*most)))


def asides_in(summaries: Iterable[Mapping[str, Any]], rules: int) -> tuple[Aside, ...]:
    """Returns the values of each rule that the tasks of `match` put aside."""
    found: list[tuple[list[str], list[int]]] = [([], []) for _ in range(rules)]
    for said in summaries:
        for (texts, entities), (more, counts) in zip(found, said["aside"], strict=True):
            texts += more
            entities += counts
    return tuple(
        Aside(pa.array(texts, TEXT), np.array(entities, np.int64)) for texts, entities in found
    )


def edges_at_home(context: Context, home: Partition, given: TaskInput) -> Iterator[pa.RecordBatch]:
    """Yields the edges of matched groups: the entity to connect to (left), and each other one (right)."""
    assert home.groups is not None
    found = all_rows(context, given)
    groups = ints_of(found, GROUP) & PLACE
    first_of = np.full(int(groups.max()) + 1, -1, np.int64)
    first_of[groups] = ints_of(found, NODE)
    for batch in part_rows(open_store(context.staging), home.groups):
        of, nodes = (np.asarray(batch.column(name)) for name in (GROUP, NODE))
        known = of < len(first_of)
        of, nodes = of[known], nodes[known]
        firsts = first_of[of]
        is_edge = (firsts >= 0) & (firsts != nodes)
        if is_edge.any():
            yield pa.RecordBatch.from_pydict({"left": firsts[is_edge], "right": nodes[is_edge]})


LINES: Final = 0


CLAIMS: Final = 1
"""Feeds of `label`, and inputs of the tasks that build clusters."""
HISTORY: Final = 9
"""Input of `label` behind all labels: what the table says of members."""


def label(context: Context, part: int, home: Partition | None, given: TaskInput) -> TaskOutput:
    """Sends a line per entity of a home, with its component label, to parts by label; and what the entities
    claim, if ids stay.

    given: nodes and labels. A node without a label is its own component.
    """
    if home is None:  # the table has members of which no dataset has one
        yield TaskSummary({})
        return
    labels = number_of(part, np.arange(sum(home.rows)))
    charge, histories = context.memory(), []
    for rank, batch in given:
        if rank == HISTORY:
            charge(batch.nbytes)
            histories.append(batch)
        else:
            labels[np.asarray(batch.column(NODE)) & PLACE] = np.asarray(batch.column(LABEL))
    since = None
    if context.numbers:
        lines = pa.Table.from_batches(part_rows(open_store(context.staging), home.members))
        since, claims = known_at_home(context, lines, labels, histories)
        if claims is not None and claims.num_rows:
            yield TaskRows(claims, CLAIMS)
    start = 0
    for batch in part_rows(open_store(context.staging), home.members):
        end = start + batch.num_rows
        columns = {
            **dict(zip(batch.schema.names, batch.columns, strict=True)),
            NODE: number_of(part, np.arange(start, end)),
            LABEL: labels[start:end],
        }
        if since is not None:
            columns[SINCE] = since[start:end]
        yield TaskRows(pa.RecordBatch.from_pydict(columns))
        start = end
    yield TaskSummary({})


def first_of_largest(context: Context, home: Partition, given: TaskInput) -> TaskOutput:
    """Reports the dataset and `_id` of the first of the given nodes of a home."""
    lines = pa.Table.from_batches(part_rows(open_store(context.staging), home.members))
    asked = all_rows(context, given)
    places = ints_of(asked, NODE) & PLACE
    place, component = min(zip(places.tolist(), ints_of(asked, LABEL).tolist(), strict=True))
    first = {"dataset": lines["dataset"][place].as_py(), "id": lines[ID][place].as_py()}
    yield TaskSummary({**first, "component": component})
