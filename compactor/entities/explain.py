"""Explains a cluster: which rules and values tie an entity to the others, or two entities to each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.common.conversion import convertible
from compactor.common.counts import counted
from compactor.entities.clusters import cluster_ids
from compactor.entities.connecting import Connected
from compactor.entities.cutting import CutLink, pairs_among
from compactor.entities.entities import Entities
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.links import BY_PAIR, Link, Ties
from compactor.entities.matching import part_of, starts_of, values_of_rules
from compactor.entities.pairs import ALWAYS, Found, Names, only
from compactor.entities.rule_figures import cut, rule_text
from compactor.entities.spec import EntityMergeSpec
from compactor.entities.texts import I64
from compactor.errors import UsageError


class Named(NamedTuple):
    """An entity by its dataset and id."""

    dataset: str
    id: str

    def __str__(self) -> str:
        return f"{self.dataset}/{self.id}"


class NamedLink(NamedTuple):
    rule: str
    value: str
    """JSON text."""
    entity: Named
    other: Named

    def __str__(self) -> str:
        value = "" if self.rule == ALWAYS else f": {self.value}"
        return f"{self.entity} = {self.other} by {self.rule}{value}"

    def to_json(self) -> dict[str, Any]:
        value = json.loads(self.value)
        ends = {"entity": self.entity._asdict(), "other": self.other._asdict()}
        return {"rule": self.rule, "value": value, **ends}


class NamedAside(NamedTuple):
    """A value of an entity that links nothing, because too many entities share it."""

    rule: str
    value: str
    """JSON text."""
    entity: Named
    entities: int
    """How many share it."""

    def __str__(self) -> str:
        shared = f"shared by {counted(self.entities, 'entity', 'entities')}"
        return f"put aside: {self.entity} has {cut(self.value)} by {self.rule}, {shared}"

    def to_json(self) -> dict[str, Any]:
        value = json.loads(self.value)
        return {**self._asdict(), "value": value, "entity": self.entity._asdict()}


@convertible
class Explanation(Struct, frozen=True, kw_only=True):
    """What ties one entity to its cluster, or two entities."""

    asked: tuple[Named, ...]
    ids: tuple[str, ...]
    """`_id` of each cluster to which the entities belong."""
    entities: int
    """Number of entities in the first cluster."""
    links: tuple[NamedLink, ...]
    """The path between two entities, or the shortest paths from one, nearest first."""
    aside: tuple[NamedAside, ...] = ()
    """Values of the asked entities that were put aside."""
    cuts: tuple[NamedLink, ...] = ()
    """The links of a shortest path between two entities that `never` has cut."""

    def lines(self) -> Iterator[str]:
        if len(self.ids) > 1:
            pairs = zip(self.asked, self.ids, strict=True)
            yield "not one: " + ", ".join(f"{entity} is in {name}" for entity, name in pairs)
            for rule, value, *ends in self.cuts:
                yield str(CutLink(rule, cut(value), *map(str, ends)))
        else:
            yield f"{self.ids[0]}: {counted(self.entities, 'entity', 'entities')}"
            yield from map(str, self.links)
        yield from map(str, self.aside)

    def to_json(self) -> dict[str, Any]:
        return {
            "asked": [entity._asdict() for entity in self.asked],
            "ids": list(self.ids),
            "entities": self.entities,
            "links": [link.to_json() for link in self.links],
            "cuts": [link.to_json() for link in self.cuts],
            "put_aside": [value.to_json() for value in self.aside],
        }


class Numbers:
    """Names entities by number."""

    def __init__(self, spec: EntityMergeSpec, datasets: Sequence[Entities]) -> None:
        self._spec, self._datasets = spec, datasets
        self.starts = starts_of(datasets)

    def name(self, number: int) -> Named:
        dataset = int(np.searchsorted(self.starts, number, "right")) - 1
        entity = self._datasets[dataset].ids[number - int(self.starts[dataset])].as_py()
        return Named(self._spec.datasets[dataset].name, entity)


def check_explained(report: EntityMergeReport) -> None:
    """Raises `UsageError` if datasets are waited for."""
    if report.waiting_for:
        raise UsageError(f"--explain: waiting for {', '.join(report.waiting_for)}: run it later")


def texts_of_asked(spec: EntityMergeSpec, asked: Sequence[str]) -> list[str]:
    """Returns the texts that may name the entities asked for: each as it stands, and the possible first
    members of a composite id. Raises `UsageError` unless one or two are asked for."""
    if not 1 <= len(asked) <= 2:
        raise UsageError(f"asked: {counted(len(asked), 'entity', 'entities')}: name one, or two")
    texts = (text for each in asked for text in (each, *_first_members(spec, each)))
    return list(dict.fromkeys(texts))


def _first_members(spec: EntityMergeSpec, text: str) -> Iterator[str]:
    """Yields what the first entity of a composite id such as `0|a1|1|b1` may be, the longest id first."""
    offset, _, rest = text.partition("|")
    if offset.isdecimal() and int(offset) < len(spec.datasets):
        parts = rest.split("|")
        for count in range(len(parts), 0, -1):
            yield f"{spec.datasets[int(offset)].name}/{'|'.join(parts[:count])}"


def asked_in(spec: EntityMergeSpec, names: Names, asked: Sequence[str]) -> list[int]:
    """Returns the numbers of the entities asked for; one that is named twice counts once.

    names: of `texts_of_asked`. Raises `UsageError` unless each text means exactly one.
    """
    return list(dict.fromkeys(_called(spec, names, text).number for text in asked))


def _called(spec: EntityMergeSpec, names: Names, text: str) -> Found:
    found = names[text]
    if not found:
        found = next((names[each] for each in _first_members(spec, text) if names[each]), [])[:1]
    return only(found, text, "--explain")


def explain(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    found: Connected,
    entities: Sequence[int],
) -> Explanation:
    """Explains the cluster of one entity, or the path between two. entities: their numbers."""
    numbers = Numbers(spec, datasets)
    labels = found.labels
    clusters = [
        np.flatnonzero(labels == label)
        for label in dict.fromkeys(labels[np.array(entities)].tolist())
    ]
    members = np.flatnonzero(np.isin(labels, labels[np.array(entities)]))
    ties = Ties(
        spec, part_of(datasets, members), pairs_among(found.pairs, members).always, found.aside
    )
    start, *others = np.searchsorted(members, np.array(entities)).tolist()
    links: Sequence[Link]
    if others:
        links = ties.path(start, others[0]) or []
    else:
        links = [link for link in ties.reached(start).values() if link]
    # A link between two clusters is one that pairs of `never` have cut.
    is_cut = [labels[members[link.entity]] != labels[members[link.other]] for link in links]

    def named(link: Link) -> NamedLink:
        ends = (numbers.name(int(members[number])) for number in (link.entity, link.other))
        rule = ALWAYS if link.rule == BY_PAIR else rule_text(spec.rules[link.rule])
        return NamedLink(rule, link.value, *ends)

    return Explanation(
        asked=tuple(numbers.name(number) for number in entities),
        ids=tuple(_id_of(spec, datasets, cluster) for cluster in clusters),
        entities=len(clusters[0]),
        links=tuple(map(named, links if len(clusters) == 1 else ())),
        aside=tuple(_aside(spec, datasets, found, numbers, entities)),
        cuts=tuple(named(link) for link, cut_off in zip(links, is_cut, strict=True) if cut_off),
    )


def _aside(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    found: Connected,
    numbers: Numbers,
    entities: Sequence[int],
) -> Iterator[NamedAside]:
    """Yields the values of some entities that were put aside."""
    asked = np.unique(entities)
    for rule, sides in enumerate(values_of_rules(spec, part_of(datasets, asked))):
        texts = found.aside[rule].texts.to_pylist()
        shared = dict(zip(texts, found.aside[rule].entities.tolist(), strict=True))
        has = {
            (int(row), text)
            for values in sides
            for row, text in zip(values.rows, values.texts.to_pylist(), strict=True)
            if text in shared
        }
        for row, text in sorted(has):
            name = rule_text(spec.rules[rule])
            yield NamedAside(name, text, numbers.name(int(asked[row])), shared[text])


def _id_of(spec: EntityMergeSpec, datasets: Sequence[Entities], members: I64) -> str:
    part = part_of(datasets, members)
    offsets = np.repeat(np.arange(len(part)), [d.rows for d in part])
    ids = pa.concat_arrays([d.ids for d in part])
    return str(cluster_ids(spec.identity, offsets, ids, np.array([len(members)]))[0])
