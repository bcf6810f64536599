"""Links: pairs of entities that a rule equates by a value, and the paths that they form."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from compactor.entities.entities import Entities
from compactor.entities.expressions import Values
from compactor.entities.matching import Aside, groups_of_rule, starts_of, values_of_rules
from compactor.entities.pairs import ALWAYS
from compactor.entities.rule_figures import cut, rule_text
from compactor.entities.spec import EntityMergeSpec
from compactor.entities.texts import I64, TEXT
from lsm_fragment import compute as pc

LINKS: Final = pa.schema(
    [
        (name, pa.string())
        for name in ("rule", "value", "dataset", "id", "other_dataset", "other_id")
    ]
)
"""Rows of `--edges`. `value` is a JSON text."""


LINK_ORDER: Final = ("rule", "dataset", "id", "other_dataset", "other_id", "value")
LINK_ROWS: Final = pa.schema(
    [
        ("rule", pa.int32()),
        ("value", TEXT),
        ("dataset", pa.int32()),
        ("id", TEXT),
        ("other_dataset", pa.int32()),
        ("other_id", TEXT),
    ]
)
"""Links with numbers of rules and datasets, by which they are ordered."""

BY_PAIR: Final = -1
"""Stands for the rule of pairs that are always one."""


class Link(NamedTuple):
    """A rule equates two entities, given by number, because they have a value in common."""

    rule: int
    """Number of the rule, or `BY_PAIR`."""
    value: str
    """JSON text."""
    entity: int
    other: int


class SharedValues(NamedTuple):
    """The values that both sides of a rule have, with their entities."""

    texts: pa.Array
    """Distinct JSON texts. Shape (values,)."""
    left: I64
    """Entity numbers on the left side, ascending. Shape (occurrences,)."""
    left_of: I64
    """Number of the value, parallel to `left`."""
    right: I64
    right_of: I64


def link_text(spec: EntityMergeSpec, link: Link) -> str:
    """Returns the rule and the value of a link, for messages."""
    return (
        ALWAYS if link.rule == BY_PAIR else f"{rule_text(spec.rules[link.rule])}: {cut(link.value)}"
    )


def shared_values(left: Values, right: Values) -> SharedValues:
    """Returns the values in common; each entity has a value at most once on a side."""
    groups = groups_of_rule(left, right)
    is_shared = groups.on_left & groups.on_right
    number = np.cumsum(is_shared) - 1
    cut = len(left.rows)

    def side(codes: I64, nodes: I64) -> tuple[I64, I64]:
        there = is_shared[codes]
        pairs = np.unique(np.stack([nodes[there], number[codes[there]]]), axis=1)
        return pairs[0], pairs[1]

    lefts, left_of = side(groups.of[:cut], left.rows)
    rights, right_of = side(groups.of[cut:], right.rows)
    return SharedValues(groups.texts.filter(pa.array(is_shared)), lefts, left_of, rights, right_of)


def link_rows(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    labels: I64,
    always: Sequence[tuple[int, int]],
    aside: Sequence[Aside],
) -> Iterator[pa.RecordBatch]:
    """Yields the links inside clusters in the schema `LINK_ROWS`, at most one for each value of an entity.

    A value links the first entity of a cluster that has it on one side with all entities that have it on the
    other side. They are in the order of `LINK_ORDER`, so that clusters may be read in parts. labels: per
    entity, the first of its cluster.
    """
    starts = starts_of(datasets)
    ids = pa.concat_arrays([pa.array([], TEXT), *(d.ids for d in datasets)])

    def batch(rule: int, texts: pa.Array, *ends: I64) -> pa.RecordBatch:
        columns = [pa.array(np.full(len(texts), rule, np.int32)), texts]
        for nodes in ends:
            of = np.searchsorted(starts, nodes, "right") - 1
            columns += [pa.array(of.astype(np.int32)), ids.take(pa.array(nodes))]
        return pa.RecordBatch.from_arrays(columns, schema=LINK_ROWS)

    if always:
        one, other = np.array(sorted(always), np.int64).T
        yield batch(BY_PAIR, pa.nulls(len(one), TEXT), one, other)
    found = values_of_rules(spec, datasets, aside=aside)
    for number, (rule, sides) in enumerate(zip(spec.rules, found, strict=True)):
        shared = _by_cluster(shared_values(*sides), labels)
        values, *ends = _spanning(shared, is_mirrored=rule.left == rule.right)
        yield batch(number, shared.texts.take(pa.array(values)), *ends)


def shown_links(spec: EntityMergeSpec, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows of `link_rows` in the schema `LINKS`."""
    names = pa.array([dataset.name for dataset in spec.datasets])
    rules = pa.array([*map(rule_text, spec.rules), ALWAYS])
    numbers = np.asarray(rows.column("rule"))
    columns = [
        rules.take(pa.array(np.where(numbers == BY_PAIR, len(spec.rules), numbers))),
        rows.column("value").cast(pa.string()),
    ]
    for of, ids in (("dataset", "id"), ("other_dataset", "other_id")):
        columns += [names.take(rows.column(of)), rows.column(ids).cast(pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=LINKS)


def _by_cluster(shared: SharedValues, labels: I64) -> SharedValues:
    """Makes a value of several clusters one value for each, and leaves out those without two sides."""
    count = max(1, len(shared.texts))
    left, right = (
        labels[nodes] * count + of
        for nodes, of in ((shared.left, shared.left_of), (shared.right, shared.right_of))
    )
    keys = np.intersect1d(left, right)
    is_left, is_right = np.isin(left, keys), np.isin(right, keys)
    return SharedValues(
        shared.texts.take(pa.array(keys % count)),
        shared.left[is_left],
        np.searchsorted(keys, left[is_left]),
        shared.right[is_right],
        np.searchsorted(keys, right[is_right]),
    )


def _spanning(shared: SharedValues, *, is_mirrored: bool) -> tuple[I64, I64, I64]:
    """Returns links that tie all entities of each value: value, left and right entity.

    is_mirrored: both sides of the rule are the same, so that each link would come twice.
    """
    count = len(shared.texts)
    firsts = [_first_of_values(shared.left, shared.left_of, count)]
    firsts.append(_first_of_values(shared.right, shared.right_of, count))
    others = shared.left != firsts[0][shared.left_of]
    if is_mirrored:
        others[:] = False
    values = np.concatenate([shared.right_of, shared.left_of[others]])
    left = np.concatenate([firsts[0][shared.right_of], shared.left[others]])
    right = np.concatenate([shared.right, firsts[1][shared.left_of[others]]])
    is_link = left != right
    values, left, right = values[is_link], left[is_link], right[is_link]
    rank = np.empty(count, np.int64)
    rank[np.asarray(pc.sort_indices(shared.texts))] = np.arange(count)
    order = np.lexsort((rank[values], right, left))
    return values[order], left[order], right[order]


def _first_of_values(nodes: I64, of: I64, count: int) -> I64:
    first = np.zeros(count, np.int64)
    first[of[::-1]] = nodes[::-1]  # reversed, so the first occurrence wins
    return first


class Ties:
    """All links among some entities, found by value, so that a value of n entities takes n steps."""

    def __init__(
        self,
        spec: EntityMergeSpec,
        datasets: Sequence[Entities],
        always: Sequence[tuple[int, int]],
        aside: Sequence[Aside],
    ) -> None:
        self.names: list[tuple[int, str]] = []
        """Rule and text of each value."""
        self._has: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._entities: tuple[list[list[int]], list[list[int]]] = [], []
        for rule, sides in enumerate(values_of_rules(spec, datasets, aside=aside)):
            self._add(rule, shared_values(*sides))
        for pair in always:
            ends = [np.array([number]) for number in pair]
            of = np.zeros(1, np.int64)
            texts = pa.array(["null"], TEXT)
            self._add(BY_PAIR, SharedValues(texts, ends[0], of, ends[1], of))

    def _add(self, rule: int, shared: SharedValues) -> None:
        start = len(self.names)
        self.names += [(rule, text) for text in shared.texts.to_pylist()]
        for side, (nodes, of) in enumerate(
            ((shared.left, shared.left_of), (shared.right, shared.right_of))
        ):
            of_value = self._entities[side]
            of_value += [[] for _ in range(len(shared.texts))]
            for node, value in zip(nodes.tolist(), (of + start).tolist(), strict=True):
                of_value[value].append(node)
                self._has[node].append((value, side))

    def reached(self, start: int) -> dict[int, Link | None]:
        """Returns the entities connected with `start`, nearest first, each with the link by which the
        shortest path reaches it. `other` of a link is the entity it reaches."""
        found: dict[int, Link | None] = {start: None}
        waiting, done = deque([start]), set()
        while waiting:
            entity = waiting.popleft()
            for value, side in self._has.get(entity, ()):
                if (value, side) in done:
                    continue
                done.add((value, side))
                for other in self._entities[1 - side][value]:
                    if other not in found:
                        found[other] = Link(*self.names[value], entity, other)
                        waiting.append(other)
        return found

    def path(self, start: int, end: int) -> list[Link] | None:
        """Returns the shortest path; None if the entities are not connected."""
        found = self.reached(start)
        if end not in found:
            return None
        links = []
        while (link := found[end]) is not None:
            links.append(link)
            end = link.entity
        return links[::-1]
