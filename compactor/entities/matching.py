"""Turns rules into edges between entities that have equal values.

Entities are numbered across all datasets, by dataset and id. For each rule, all entities that have a value
are connected to the first of them, if both sides of the rule have the value. So there are at most as many
edges as values, however common a value is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.entities.entities import Entities
from compactor.entities.expressions import (
    MAX_COMBINATIONS,
    Expression,
    Operand,
    TooManyCombinationsError,
    Values,
    evaluate,
    first_steps,
    shown,
)
from compactor.entities.memory import Charge, unlimited
from compactor.entities.rule_figures import (
    AsideFigures,
    RuleFigures,
    Shared,
    ValueFigures,
    counts_of,
    cut,
)
from compactor.entities.spec import EntityMergeSpec, OnTooMany, Rule
from compactor.entities.texts import I64
from compactor.errors import JobError
from lsm_fragment import compute as pc
from lsm_fragment.arrays.hashing import distinct_numbers


class Edges(NamedTuple):
    """Pairs of equal entities. Both arrays have shape (edges,)."""

    left: I64
    right: I64


class Aside(NamedTuple):
    """The values of a rule that are put aside, because more than `max_merged` entities share them."""

    texts: pa.Array
    """Large strings. Shape (values,)."""
    entities: I64
    """How many entities have each value."""

    def figures(self) -> AsideFigures:
        return AsideFigures(
            len(self.texts), int(self.entities.sum()), _most_shared(self.texts, self.entities)
        )


def starts_of(datasets: Sequence[Entities]) -> I64:
    """Returns the number of each dataset's first entity, and the total."""
    return np.concatenate([[0], np.cumsum([d.rows for d in datasets])]).astype(np.int64)


def part_of(datasets: Sequence[Entities], members: I64) -> list[Entities]:
    """Returns the datasets with these entities only. members: ascending numbers.

    Numbers of entities in the result are positions in `members`.
    """
    bounds = np.searchsorted(members, starts_of(datasets))
    starts = starts_of(datasets)
    cuts = enumerate(pairwise(bounds.tolist()))
    return [datasets[n].take(members[start:end] - starts[n]) for n, (start, end) in cuts]


OnValues = Callable[[Rule, tuple[Values, Values]], None]
"""Called with the values of both sides of each rule, with entity numbers."""


def unnoticed(_rule: Rule, _sides: tuple[Values, Values]) -> None:
    """An `OnValues` that does nothing."""


def edges(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    charge: Charge = unlimited,
    on_values: OnValues = unnoticed,
) -> tuple[Edges, list[RuleFigures], list[Aside]]:
    """Returns the edges of all rules, and figures and the values put aside of each. Deleted entities have no
    edges."""
    found, asides = [], []
    figures = [RuleFigures.none_of(rule) for rule in spec.rules]
    all_sides = values_of_rules(spec, datasets, charge)
    for rule, sides, of_rule in zip(spec.rules, all_sides, figures, strict=True):
        on_values(rule, sides)
        groups = groups_of_rule(*sides)
        entities = groups.entities()
        is_aside = too_common(spec, groups.ties, entities)
        found.append(edges_of_groups(groups, ~is_aside))
        of_rule.add(counts_of(sides))
        on_sides = groups.on_left, groups.on_right
        of_rule.add_distinct(*distinct_of(groups.texts, *on_sides, entities, is_aside))
        asides.append(Aside(groups.texts.filter(pa.array(is_aside)), entities[is_aside]))
        of_rule.put_aside = asides[-1].figures()
    return _all_of(found), figures, asides


def too_common(
    spec: EntityMergeSpec, ties: npt.NDArray[np.bool_], entities: I64
) -> npt.NDArray[np.bool_]:
    """Returns which values of a rule are put aside. ties, entities: as in `Groups`."""
    if spec.on_too_many is OnTooMany.REFUSE:
        return np.zeros(len(ties), np.bool_)
    return ties & (entities > spec.max_merged)


def values_of_rules(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    charge: Charge = unlimited,
    aside: Sequence[Aside] = (),
) -> Iterator[tuple[Values, Values]]:
    """Yields the left and right values of each rule, with entity numbers.

    charge: called with the size of values held, and with a negative size after the last rule that reads them.
    aside: the values of each rule to leave out; empty for none.
    Raises `JobError` for too many combinations of values.
    """
    starts = starts_of(datasets)
    by_alias = {d.alias: n for n, d in enumerate(spec.datasets)}
    known: dict[Operand, Values] = {}

    def values(operand: Operand) -> Values:
        if operand not in known:
            number = by_alias[operand.alias]
            try:
                found = values_of(
                    operand.expression, datasets[number], keeps_blanks=spec.link_blanks
                )
            except TooManyCombinationsError as error:
                raise JobError(
                    f"a rule: {shown(operand)} has {error}, at most {MAX_COMBINATIONS:,} are allowed: "
                    "nothing was written; compare shorter lists"
                ) from None
            charge(found.rows.nbytes + found.texts.nbytes)
            known[operand] = found._replace(rows=found.rows + starts[number])
        return known[operand]

    last_use = {operand: n for n, rule in enumerate(spec.rules) for operand in rule}
    for number, rule in enumerate(spec.rules):
        sides = values(rule.left), values(rule.right)
        yield _without(*sides, aside[number]) if aside else sides
        for operand in rule:
            if last_use[operand] == number:
                gone = known.pop(operand, None)
                if gone is not None:
                    charge(-gone.rows.nbytes - gone.texts.nbytes)


def _without(left: Values, right: Values, aside: Aside) -> tuple[Values, Values]:
    if not len(aside.texts):
        return left, right
    stay = (pc.invert(pc.is_in(v.texts, value_set=aside.texts)) for v in (left, right))
    return left.kept(next(stay)), right.kept(next(stay))


def values_of(expression: Expression, entities: Entities, *, keeps_blanks: bool = False) -> Values:
    """Evaluates an expression on the live entities; without blank texts, unless `keeps_blanks`."""
    living = np.flatnonzero(~entities.deleted)
    columns = {name: entities.as_texts(name) for name in first_steps(expression)}
    there = {name: c.take(pa.array(living)) for name, c in columns.items() if c is not None}
    found = evaluate(expression, there, len(living), keeps_blanks=keeps_blanks)
    return found._replace(rows=living[found.rows])


def edges_of_groups(groups: Groups, counts: npt.NDArray[np.bool_] | None = None) -> Edges:
    """Returns the edges of a rule. counts: which groups count; None for all."""
    ties = groups.ties if counts is None else groups.ties & counts
    matches = ties[groups.of]
    centers, nodes = groups.firsts[groups.of[matches]], groups.nodes[matches]
    is_edge = centers != nodes
    return Edges(centers[is_edge], nodes[is_edge])


class Groups(NamedTuple):
    """Entities grouped by equal values."""

    texts: pa.Array
    """The groups' values, as large strings. Shape (groups,), like the next four."""
    on_left: npt.NDArray[np.bool_]
    """Whether an entity has the value on the rule's left side."""
    on_right: npt.NDArray[np.bool_]
    several: npt.NDArray[np.bool_]
    """Whether more than one entity has it; with a rule of one dataset, one may have it on both sides."""
    firsts: I64
    """The entity that the others of the group connect to."""
    nodes: I64
    """Entity per value. Shape (values,)."""
    of: I64
    """Group per value. Shape (values,)."""

    left_values: int
    """How many of the values, from the first on, are those of the left side."""

    @property
    def ties(self) -> npt.NDArray[np.bool_]:
        """Whether the value connects entities."""
        return self.on_left & self.on_right & self.several

    def entities(self) -> I64:
        """Counts the distinct entities of each group. Shape (groups,)."""
        count = len(self.texts)
        if count and not self._has_each_once():
            pairs = distinct_numbers((self.nodes * count + self.of).view(np.uint64))
            return np.bincount(pairs.view(np.int64) % count, minlength=count)
        return np.bincount(self.of, minlength=count)

    def _has_each_once(self) -> bool:
        """Returns whether no entity has several values."""
        left, right = self.nodes[: self.left_values], self.nodes[self.left_values :]
        if not ((np.diff(left) > 0).all() and (np.diff(right) > 0).all()):
            return False
        return not len(left) or not len(right) or left[-1] < right[0] or right[-1] < left[0]


def distinct_of(
    texts: pa.Array,
    on_left: npt.NDArray[np.bool_],
    on_right: npt.NDArray[np.bool_],
    entities: I64,
    is_aside: npt.NDArray[np.bool_],
) -> tuple[int, int, Shared]:
    """Returns the distinct values of both sides of a rule, and those in common. Arguments as in `Groups`.

    is_aside: which values are put aside.
    """
    shared = np.flatnonzero(on_left & on_right & (entities > 1) & ~is_aside)
    most = _most_shared(texts.take(pa.array(shared)), entities[shared])
    counts = (int(np.count_nonzero(on_left)), int(np.count_nonzero(on_right)))
    return *counts, Shared(len(shared), most)


def _most_shared(texts: pa.Array, entities: I64) -> ValueFigures | None:
    if not len(texts):
        return None
    count = int(entities.max())
    best = texts.filter(pa.array(entities == count))
    return ValueFigures(cut(pc.min(best).as_py()), count)


def groups_of_rule(left: Values, right: Values) -> Groups:
    nodes = np.concatenate([left.rows, right.rows])
    coded = pa.chunked_array([left.texts, right.texts]).combine_chunks().dictionary_encode()
    codes = np.asarray(coded.indices).astype(np.int64)
    count = len(coded.dictionary)
    on_left = np.zeros(count, np.bool_)
    on_right = np.zeros(count, np.bool_)
    on_left[codes[: len(left.rows)]] = True
    on_right[codes[len(left.rows) :]] = True
    firsts = np.full(count, -1, np.int64)
    firsts[codes[::-1]] = nodes[::-1]  # reversed, so the first occurrence wins
    several = np.zeros(count, np.bool_)
    several[codes[firsts[codes] != nodes]] = True
    return Groups(
        texts=coded.dictionary,
        on_left=on_left,
        on_right=on_right,
        several=several,
        firsts=firsts,
        nodes=nodes,
        of=codes,
        left_values=len(left.rows),
    )


def _all_of(found: Sequence[Edges]) -> Edges:
    none = np.zeros(0, np.int64)
    return Edges(
        np.concatenate([none, *(e.left for e in found)]),
        np.concatenate([none, *(e.right for e in found)]),
    )
