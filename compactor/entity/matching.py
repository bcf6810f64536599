"""Rules to edges: which entities have a value in common that makes them the same.

Entities are numbered through all datasets, in the order of the datasets and then of their ids. For each
rule and value that both sides have, every entity with it is joined to the first of them: so there are at most
as many edges as values, however many entities share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from compactor.entity.entities import Entities
from compactor.entity.expressions import Call, Expression, Literal, Operand, Path, Values, evaluate
from compactor.entity.spec import EntityMergeSpec
from compactor.entity.texts import I64


class Edges(NamedTuple):
    """Pairs of entities that are the same; both of shape (edges,)."""

    left: I64
    right: I64


def starts_of(datasets: Sequence[Entities]) -> I64:
    """The number of each dataset's first entity, and how many there are in all."""
    return np.concatenate([[0], np.cumsum([d.rows for d in datasets])]).astype(np.int64)


def edges(spec: EntityMergeSpec, datasets: Sequence[Entities]) -> Edges:
    """All edges of all rules. Deleted entities have none."""
    starts = starts_of(datasets)
    by_alias = {d.alias: n for n, d in enumerate(spec.datasets)}
    known: dict[Operand, Values] = {}

    def values(operand: Operand) -> Values:
        if operand not in known:
            number = by_alias[operand.alias]
            found = values_of(operand.expression, datasets[number])
            known[operand] = Values(found.rows + starts[number], found.texts)
        return known[operand]

    last_use = {operand: n for n, rule in enumerate(spec.rules) for operand in rule}
    found = []
    for number, rule in enumerate(spec.rules):
        found.append(edges_of_rule(*map(values, rule)))
        for operand in rule:
            if last_use[operand] == number:
                known.pop(operand, None)
    return _all_of(found)


def values_of(expression: Expression, entities: Entities) -> Values:
    """What an expression is of living entities."""
    columns = {name: entities.as_texts(name) for name in _first_steps(expression)}
    there = {name: column for name, column in columns.items() if column is not None}
    return _living(evaluate(expression, there, entities.rows), entities)


def edges_of_rule(left: Values, right: Values) -> Edges:
    """Of a rule whose sides have these values, of entities by their numbers."""
    nodes = np.concatenate([left.rows, right.rows])
    codes = _codes(left.texts, right.texts)
    count = int(codes.max()) + 1 if len(codes) else 0
    on_left = np.zeros(count, np.bool_)
    on_right = np.zeros(count, np.bool_)
    on_left[codes[: len(left.rows)]] = True
    on_right[codes[len(left.rows) :]] = True
    matches = (on_left & on_right)[codes]
    nodes, codes = nodes[matches], codes[matches]
    center = np.full(count, -1, np.int64)
    center[codes[::-1]] = nodes[::-1]  # of several, the first stays
    is_edge = center[codes] != nodes
    return Edges(center[codes][is_edge], nodes[is_edge])


def _codes(left: pa.Array, right: pa.Array) -> I64:
    """Equal texts of the two have equal numbers, from 0."""
    coded = pa.chunked_array([left, right]).combine_chunks().dictionary_encode()
    return np.asarray(coded.indices).astype(np.int64)


def _living(values: Values, entities: Entities) -> Values:
    return values.kept(~entities.deleted[values.rows]) if len(values.rows) else values


def _first_steps(expression: Expression) -> Iterable[str]:
    match expression:
        case Path(steps):
            yield steps[0]
        case Call(_, arguments):
            for argument in arguments:
                yield from _first_steps(argument)
        case Literal():
            return


def _all_of(found: Sequence[Edges]) -> Edges:
    none = np.zeros(0, np.int64)
    return Edges(
        np.concatenate([none, *(e.left for e in found)]),
        np.concatenate([none, *(e.right for e in found)]),
    )
