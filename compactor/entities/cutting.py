"""Keeps entities apart that must not be one: refuses what ties them, or cuts their clusters at the weakest
rules.

Rules are strongest first, in the order of the spec. A cluster that has such a pair is built anew, link by
link: by `always`, then rule by rule, value by value, and by the order of the entities. A link that would
bring the two of a pair together is left out. So the links that are left out are those of the weakest rules
that suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from compactor.common.counts import counted
from compactor.entities.cluster_figures import for_rules
from compactor.entities.entities import Entities
from compactor.entities.links import Ties, link_text, shared_values
from compactor.entities.matching import Aside, part_of, values_of_rules
from compactor.entities.pairs import Pairs
from compactor.entities.rule_figures import cut as shown_value
from compactor.entities.rule_figures import rule_text
from compactor.entities.spec import EntityMergeSpec, OnNever
from compactor.entities.texts import I64
from compactor.errors import JobError, UsageError

SHOWN_CUTS: Final = 20
"""Report this many of the links that were cut."""


class CutLink(Struct):
    """A link that was left out."""

    rule: str
    value: str
    """JSON text, cut."""
    entity: str
    other: str

    def __str__(self) -> str:
        return f"cut {self.entity} from {self.other}: {self.rule}: {self.value}"


class CutFigures(Struct):
    """What `never` did."""

    clusters: int = 0
    """Clusters that were divided."""
    links: int = 0
    """Links that were left out."""
    first: list[CutLink] = field(default_factory=list)

    def add(self, other: CutFigures) -> None:
        self.clusters += other.clusters
        self.links += other.links
        self.first = (self.first + other.first)[:SHOWN_CUTS]

    def lines(self) -> Iterator[str]:
        if self.clusters:
            links = counted(self.links, "link")
            yield f"never: {links} cut in {counted(self.clusters, 'cluster')}"
            yield from map(str, self.first)


class Cluster(NamedTuple):
    """One cluster as connected by all rules. Entities have numbers as in `matching`."""

    spec: EntityMergeSpec
    datasets: Sequence[Entities]
    pairs: Pairs
    names: Sequence[str]
    """Dataset and id of each entity."""
    aside: Sequence[Aside]

    def tie(self) -> str:
        """Returns the first pair that must not be one, and the path between the two. Raises as
        `_always_joined` does."""
        self._always_joined()
        one, other = self.pairs.never[0]
        path = Ties(self.spec, self.datasets, self.pairs.always, self.aside).path(one, other) or []
        links = (
            f"{self.names[link.entity]} = {self.names[link.other]} by {link_text(self.spec, link)}"
            for link in path
        )
        return f"{self.names[one]} and {self.names[other]} would become one ({'; '.join(links)})"

    def divided(self) -> tuple[I64, CutFigures]:
        """Returns the first entity of each one's new cluster. Shape (entities,). Raises as `_always_joined`
        does."""
        forest, figures = self._always_joined(), CutFigures(clusters=1)
        for rule, value, left, right in self._values():
            for one, other in forest.join(left, right):
                if self._is_mirrored(rule) and other < one:
                    continue  # comes the other way round, too
                figures.links += 1
                if len(figures.first) < SHOWN_CUTS:
                    name = rule_text(self.spec.rules[rule])
                    ends = self.names[one], self.names[other]
                    figures.first.append(CutLink(name, shown_value(value), *ends))
        roots = [forest.root(number) for number in range(len(self.names))]
        return np.array(roots, np.int64), figures

    def _always_joined(self) -> _Forest:
        """Returns the entities joined by `always`. Raises `UsageError` if these links alone tie a pair that
        must not be one, which no value and no rule mends."""
        forest = _Forest(len(self.names), self.pairs.never)
        for one, other in self.pairs.always:
            if any(forest.join([one], [other])):
                raise UsageError(
                    f"always: {self.names[one]} and {self.names[other]} cannot be one, because never keeps "
                    "them or others that are one with them apart: leave one of the pairs out"
                )
        return forest

    def _is_mirrored(self, rule: int) -> bool:
        return self.spec.rules[rule].left == self.spec.rules[rule].right

    def _values(self) -> Iterator[tuple[int, str, list[int], list[int]]]:
        """Yields rule, value and the entities on both sides, strongest first."""
        values = values_of_rules(self.spec, self.datasets, aside=self.aside)
        for rule, sides in enumerate(values):
            shared = shared_values(*sides)
            texts = shared.texts.to_pylist()
            left = _by_value(shared.left, shared.left_of, len(texts))
            right = _by_value(shared.right, shared.right_of, len(texts))
            for number in sorted(range(len(texts)), key=texts.__getitem__):
                yield rule, texts[number], left[number], right[number]


def kept_apart(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    labels: I64,
    pairs: Pairs,
    aside: Sequence[Aside],
) -> tuple[I64, CutFigures]:
    """Returns labels by which no pair of `never` has one label, and figures.

    labels: per entity, the first of its component. Raises `JobError` for such a pair unless the spec says to
    cut, `UsageError` if `always` ties it.
    """
    figures = CutFigures()
    conflicts = tied(pairs.never, labels)
    if not conflicts:
        return labels, figures
    labels = labels.copy()
    order = np.argsort(labels, kind="stable")
    in_order = labels[order]
    by_rules = for_rules(spec, datasets)
    for label in dict.fromkeys(conflicts):
        members = order[slice(*np.searchsorted(in_order, [label, label + 1]))]
        part = part_of(by_rules, members)
        cluster = Cluster(spec, part, pairs_among(pairs, members), names_of(spec, part), aside)
        if spec.on_never is OnNever.REFUSE:
            raise refused(cluster.tie(), len(conflicts))
        new, cut = cluster.divided()
        labels[members] = members[new]
        figures.add(cut)
    return labels, figures


def tied(never: Sequence[tuple[int, int]], labels: I64 | Mapping[int, int]) -> list[int]:
    """Returns the label of each pair that has one label. labels: of its entities at least."""
    return [int(labels[one]) for one, other in never if labels[one] == labels[other]]


def refused(tie: str, count: int) -> JobError:
    """Returns the error for pairs of `never` that rules tie. tie: the first. count: of pairs."""
    more = f", and {count - 1:,} more pairs" if count > 1 else ""
    return JobError(
        f"never: {tie}{more}: nothing was written; correct values or rules, or say on_never: cut"
    )


def pairs_among(pairs: Pairs, members: I64) -> Pairs:
    """Returns the pairs of these entities, by position in `members`."""
    at = {number: place for place, number in enumerate(members.tolist())}

    def among(some: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        return tuple((at[one], at[two]) for one, two in some if one in at and two in at)

    return Pairs(among(pairs.always), among(pairs.never))


def names_of(spec: EntityMergeSpec, datasets: Sequence[Entities]) -> list[str]:
    """Returns dataset and id of each entity."""
    both = zip(spec.datasets, datasets, strict=True)
    return [f"{dataset.name}/{id_}" for dataset, d in both for id_ in d.ids.to_pylist()]


def _by_value(nodes: I64, of: I64, count: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for node, value in zip(nodes.tolist(), of.tolist(), strict=True):
        found[value].append(node)
    return found


class _Forest:
    """Disjoint sets that never hold both entities of a pair. A set's root is its smallest entity."""

    def __init__(self, count: int, never: Iterable[tuple[int, int]]) -> None:
        self._parent = list(range(count))
        self._apart: dict[int, set[int]] = {}
        for one, other in never:
            self._apart.setdefault(one, set()).add(other)
            self._apart.setdefault(other, set()).add(one)

    def root(self, number: int) -> int:
        parent = self._parent
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def join(self, left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Joins each left entity with each right one, in order. Yields the links that were left out.

        One entity stands for all of its set, so this takes a step for each set on the right.
        """
        others = list(right)
        for one in left:
            sets: dict[int, int] = {}
            for other in others:
                sets.setdefault(self.root(other), other)
            others = list(sets.values())
            for other in others:
                if not self._joins(one, other):
                    yield one, other

    def _joins(self, one: int, other: int) -> bool:
        one, other = sorted((self.root(one), self.root(other)))
        if one == other:
            return True
        ours, theirs = self._apart.get(one, set()), self._apart.get(other, set())
        few, root = (ours, other) if len(ours) < len(theirs) else (theirs, one)
        if any(self.root(each) == root for each in few):
            return False
        self._parent[other] = one
        if theirs:
            self._apart[one] = ours | theirs
        return True
