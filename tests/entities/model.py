"""An entity merge in plain Python, entity by entity: what the real one has to agree with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Entity = dict[str, Any]
Rule = tuple[Any, Any]


def text(value: Any) -> str:
    """Equal for equal values of one type: 1 is neither "1" nor true nor 1.0."""
    return json.dumps(value, sort_keys=True)


def values(expression: Any, entity: Entity) -> list[Any]:
    if isinstance(expression, list):
        name, argument = expression
        assert name == "lower"
        return [v.lower() for v in values(argument, entity) if isinstance(v, str)]
    found: list[Any] = [entity]
    for step in expression.split(".")[1:]:
        if step == "$ids" and found == [entity]:
            inside = [original_ids(entity)]
        else:
            inside = [v[step] for v in found if isinstance(v, dict) and step in v]
        found = [v for i in inside for v in (i if isinstance(i, list) else [i]) if v is not None]
    return found


def alias_of(expression: Any) -> str:
    return alias_of(expression[1]) if isinstance(expression, list) else expression.split(".")[0]


class Model:
    """datasets: (alias, entities), in the order of their offsets."""

    def __init__(
        self,
        datasets: Sequence[tuple[str, Sequence[Entity]]],
        rules: Sequence[Rule],
        strategy: str = "default",
        identity: str = "composite",
    ) -> None:
        self.nodes: list[tuple[int, Entity]] = []
        for offset, (_alias, entities) in enumerate(datasets):
            newest = {e["_id"]: e for e in entities}
            self.nodes += [(offset, newest[i]) for i in sorted(newest)]
        self.offsets = {alias: offset for offset, (alias, _) in enumerate(datasets)}
        self.rules, self.strategy, self.identity = rules, strategy, identity

    def clusters(self) -> list[list[int]]:
        parent = list(range(len(self.nodes)))

        def root(node: int) -> int:
            while parent[node] != node:
                node = parent[node]
            return node

        for left, right in self.rules:
            for i, one in self._living(alias_of(left)):
                for j, other in self._living(alias_of(right)):
                    ours = {text(v) for v in values(left, one)}
                    if ours & {text(v) for v in values(right, other)}:
                        parent[max(root(i), root(j))] = min(root(i), root(j))
        groups: dict[int, list[int]] = {}
        for node in range(len(self.nodes)):
            groups.setdefault(root(node), []).append(node)
        return list(groups.values())

    def _living(self, alias: str) -> Iterator[tuple[int, Entity]]:
        for number, (offset, entity) in enumerate(self.nodes):
            if offset == self.offsets[alias] and not is_deleted(entity):
                yield number, entity

    def result(self) -> dict[str, Entity]:
        """Entities by id, as they come out, but for `_updated`."""
        found: dict[str, Entity] = {}
        living = []
        for cluster in self.clusters():
            merged = self._merged([self.nodes[n] for n in cluster])
            if not merged.get("_deleted"):
                living.append(merged)
            elif self.identity == "composite" or merged["_id"] not in found:
                found[merged["_id"]] = merged
        for merged in living:
            found[merged["_id"]] = merged
        return found

    def _merged(self, members: Sequence[tuple[int, Entity]]) -> Entity:
        entities = [entity for _, entity in members]
        if self.identity == "composite":
            name = "|".join(f"{offset}|{entity['_id']}" for offset, entity in members)
        else:
            name = entities[0]["_id"]
        ids: list[str] = []
        for entity in entities:
            ids += original_ids(entity)
        merged: Entity = {"_id": name, "$ids": list(dict.fromkeys(ids))}
        if is_deleted(entities[0]):
            merged["_deleted"] = True
        return merged | folded(entities, self.strategy)


def original_ids(entity: Entity) -> list[str]:
    """An empty list says that it has none; null is as if nothing were said."""
    given = entity.get("$ids")
    given = [entity["_id"]] if given is None else given
    return given if isinstance(given, list) else [given]


def is_deleted(entity: Entity) -> bool:
    """By a boolean, or what formats without booleans write for one."""
    value = entity.get("_deleted")
    return (value.lower() if isinstance(value, str) else value) in (True, "true", "1")


def folded(entities: Sequence[Entity], strategy: str) -> Entity:
    internal = ("_id", "$ids", "_deleted", "_updated", "$replaced", "$signature")
    if strategy == "list":
        hidden = {"_deleted", "_updated", "$replaced", "$signature"}
        return {"$merged": [_plain(e, hidden) for e in entities]}
    result: Entity = {}
    for name in sorted({k for e in entities for k in e if k not in internal}):
        found = [e[name] for e in entities if name in e]
        if strategy == "default":
            result[name] = found[0] if len(found) == 1 else _elements(found)
            continue
        distinct = list({text(v): v for v in reversed(_elements(found))}.values())
        first: dict[str, Any] = {}
        for value in _elements(found):
            first.setdefault(text(value), value)
        assert len(distinct) == len(first)
        if len(first) == 1:
            [result[name]] = first.values()
        elif first:
            result[name] = list(first.values())
    return result


def _plain(entity: Entity, hidden: set[str]) -> Entity:
    entity = {k: v for k, v in entity.items() if k not in hidden}
    ids = entity.pop("$ids", None)
    return entity | ({} if ids is None else {"$ids": ids if isinstance(ids, list) else [ids]})


def _elements(found: Sequence[Any]) -> list[Any]:
    return [v for value in found for v in (value if isinstance(value, list) else [value])]


def tombstone(name: str) -> Entity:
    return {"_id": name, "_deleted": True, "$replaced": True}


def after_run(before: Mapping[str, Entity], result: Mapping[str, Entity]) -> dict[str, Entity]:
    """The newest row of each id after a run, of those before it and what the datasets are now."""
    gone = [i for i, e in before.items() if i not in result and not e.get("$replaced")]
    return {**before, **result, **{i: tombstone(i) for i in gone}}
