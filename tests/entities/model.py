"""An entity merge in plain Python, entity by entity: what the real one has to agree with."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

Entity = dict[str, Any]
Rule = tuple[Any, Any]
INTERNAL = ("_id", "$ids", "_deleted", "_updated", "$replaced", "$signature")


def text(value: Any) -> str:
    """Equal for equal values of one type: 1 is neither "1" nor true nor 1.0."""
    return json.dumps(value, sort_keys=True)


def _ordered(value: Any) -> str:
    """Equal for equal values, in the order in which values link."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def values(expression: Any, entity: Entity, blanks: bool = False) -> list[Any]:
    """What an expression yields for an entity; texts that show nothing only if `blanks`."""
    found = _plain_values(expression, entity, blanks)
    return [v for v in found if blanks or not isinstance(v, str) or v.strip()]


def _plain_values(expression: Any, entity: Entity, blanks: bool) -> list[Any]:
    if isinstance(expression, str):
        return _at(expression, entity)
    name, *given = expression

    def plain(part: Any) -> list[Any]:
        return _plain_values(part, entity, blanks)

    match name:
        case "literal":
            return list(given)
        case "concat":
            return ["".join(parts) for parts in product(*(_strings(plain(part)) for part in given))]
        case "and":
            return [list(parts) for parts in product(*(values(p, entity, blanks) for p in given))]
        case "except":
            others = {text(v) for part in given[1:] for v in plain(part)}
            return [v for v in plain(given[0]) if text(v) not in others]
        case "if":
            branch = given[1:2] if holds(given[0], entity, blanks) else given[2:3]
            return plain(branch[0]) if branch else []
    strings = _strings(plain(given[-1]))
    match name, given[:-1]:
        case "lower", []:
            return [s.lower() for s in strings]
        case "upper", []:
            return [s.upper() for s in strings]
        case "digits", []:
            return [found for s in strings if (found := re.sub("[^0-9]", "", s))]
        case "unaccent", []:
            return [_bare(s) for s in strings]
        case "strip", [characters]:
            return [s.strip(characters) for s in strings]
        case "substring", [start, end]:
            return [s[start:end] for s in strings]
        case "replace", [old, new]:
            return [s.replace(old, new) for s in strings]
        case "regex", [pattern]:
            return [m[0] for s in strings if (m := re.search(pattern, s))]
    raise AssertionError(expression)


def holds(condition: Any, entity: Entity, blanks: bool) -> bool:
    if isinstance(condition, list) and condition[0] == "and":
        return all(holds(part, entity, blanks) for part in condition[1:])
    if isinstance(condition, list) and condition[0] == "matches":
        found = values(condition[2], entity, blanks)
        strings = _strings(found)
        whole = len(strings) == len(found)
        return whole and bool(found) and all(fnmatchcase(s, condition[1]) for s in strings)
    found = values(condition, entity, blanks)
    return bool(found) and False not in [v for v in found if isinstance(v, bool)]


def _at(path: str, entity: Entity) -> list[Any]:
    found: list[Any] = [entity]
    for step in path.split(".")[1:]:
        if step == "$ids" and found == [entity]:
            inside: list[Any] = [original_ids(entity)]
        else:
            inside = [v[step] for v in found if isinstance(v, dict) and step in v]
        found = [v for i in inside for v in (i if isinstance(i, list) else [i]) if v is not None]
        found = [v for v in found if v != []]
    return found


def _strings(found: list[Any]) -> list[str]:
    """Of texts and numbers."""
    shown = [repr(v).removesuffix(".0") if type(v) in (int, float) else v for v in found]
    return [v for v in shown if isinstance(v, str)]


def _bare(string: str) -> str:
    decomposed = unicodedata.normalize("NFKD", string)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def alias_of(expression: Any) -> str:
    """The last argument of every function has the alias."""
    return alias_of(expression[-1]) if isinstance(expression, list) else expression.split(".")[0]


class Model:
    """datasets: (alias, entities), in the order of their offsets."""

    def __init__(
        self,
        datasets: Sequence[tuple[str, Sequence[Entity]]],
        rules: Sequence[Rule],
        strategy: str = "default",
        identity: str = "composite",
        blanks: bool = False,
        survivors: Mapping[str, Any] | None = None,
        pairs: Mapping[str, Any] | None = None,
    ) -> None:
        """pairs: `always`, `never`, `on_never`, `max_merged` and `on_too_many` of the spec."""
        self.nodes: list[tuple[int, Entity]] = []
        for offset, (_alias, entities) in enumerate(datasets):
            newest = {e["_id"]: e for e in entities}
            self.nodes += [(offset, newest[i]) for i in sorted(newest)]
        self.offsets = {alias: offset for offset, (alias, _) in enumerate(datasets)}
        self.rules, self.strategy, self.identity = rules, strategy, identity
        self.blanks = blanks
        self.survivors = survivors or {}
        self.pairs = pairs or {}
        self.refused: list[str] = []
        """Why a run of these settings is refused, once `clusters` has been asked."""

    def clusters(self) -> list[list[int]]:
        """Joins link by link, the strongest first; with `on_never: cut` those of no pair of `never`."""
        never = self._numbers("never")
        sets = {node: {node} for node in range(len(self.nodes))}
        for is_pair, one, other in self.links():
            joint = sets[one] | sets[other]
            if any(a in joint and b in joint for a, b in never):
                if is_pair or self.pairs.get("on_never") == "refuse":
                    self.refused.append(f"never: {one} and {other}")
                continue
            for each in joint:
                sets[each] = joint
        return sorted({min(found): sorted(found) for found in sets.values()}.values())

    def links(self) -> Iterator[tuple[bool, int, int]]:
        """Yields whether a pair of `always` says so, and the two entities; strongest first."""
        for one, other in self._numbers("always"):
            yield True, one, other
        for left, right in self.rules:
            sides = []
            for expression in (left, right):
                of_value: dict[str, list[int]] = {}
                for node, entity in self._living(alias_of(expression)):
                    for each in {_ordered(v) for v in values(expression, entity, self.blanks)}:
                        of_value.setdefault(each, []).append(node)
                sides.append(of_value)
            for value in sorted(sides[0].keys() & sides[1].keys()):
                ours, theirs = sides[0][value], sides[1][value]
                is_aside = self.pairs.get("on_too_many") == "ignore_value"
                if is_aside and len({*ours, *theirs}) > self.pairs["max_merged"]:
                    continue
                yield from ((False, one, other) for one in ours for other in theirs if one != other)

    def _numbers(self, what: str) -> list[tuple[int, int]]:
        """Returns the pairs whose entities live."""
        names = {
            f"{alias.upper()}/{entity['_id']}": node
            for alias, offset in self.offsets.items()
            for node, (own, entity) in enumerate(self.nodes)
            if own == offset and not is_deleted(entity)
        }
        given = [(names.get(one), names.get(other)) for one, other in self.pairs.get(what, ())]
        return [(a, b) for a, b in given if a is not None and b is not None]

    def _living(self, alias: str) -> Iterator[tuple[int, Entity]]:
        for number, (offset, entity) in enumerate(self.nodes):
            if offset == self.offsets[alias] and not is_deleted(entity):
                yield number, entity

    def result(self) -> dict[str, Entity]:
        """Entities by id, as they come out, but for `_updated`."""
        found: dict[str, Entity] = {}
        living = []
        for cluster in self.clusters():
            merged = self.merged([self.nodes[n] for n in cluster])
            if not merged.get("_deleted"):
                living.append(merged)
            elif self.identity == "composite" or merged["_id"] not in found:
                found[merged["_id"]] = merged
        for merged in living:
            found[merged["_id"]] = merged
        return found

    def merged(self, members: Sequence[tuple[int, Entity]], called: str | None = None) -> Entity:
        """Returns one entity of several. called: its id, where the model does not know it."""
        entities = [entity for _, entity in members]
        if called is not None:
            name = called
        elif self.identity == "composite":
            name = "|".join(f"{offset}|{entity['_id']}" for offset, entity in members)
        else:
            name = entities[0]["_id"]
        ids: list[str] = []
        for entity in entities:
            ids += original_ids(entity)
        merged: Entity = {"_id": name, "$ids": list(dict.fromkeys(ids))}
        if is_deleted(entities[0]):
            merged["_deleted"] = True
        merged |= folded(entities, self.strategy)
        for name, how in self.survivors.items():
            merged.pop(name, None)
            merged.update((name, value) for value in survived(entities, name, how))
        return merged


def original_ids(entity: Entity) -> list[str]:
    """An empty list says that it has none; null is as if nothing were said."""
    given = entity.get("$ids")
    given = [entity["_id"]] if given is None else given
    return given if isinstance(given, list) else [given]


def is_deleted(entity: Entity) -> bool:
    return entity.get("_deleted") is True


def folded(entities: Sequence[Entity], strategy: str) -> Entity:
    if strategy == "list":
        hidden = {"_deleted", "_updated", "$replaced", "$signature"}
        return {"$merged": [_plain(e, hidden) for e in entities]}
    result: Entity = {}
    for name in sorted({k for e in entities for k in e if k not in INTERNAL}):
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


def survived(entities: Sequence[Entity], name: str, how: Any) -> list[Any]:
    """The value that survives, or none."""
    found = [
        (rank_of(entity, how), value)
        for entity in entities
        for value in _elements([entity[name]] if name in entity else [])
        if value not in (None, [])
    ]
    if not found:
        return []
    found = [(r, v) for r, v in found if not isinstance(v, str) or v.strip()] or found
    texts = [text(value) for _, value in found]
    if how == "list":
        return [[value for n, (_, value) in enumerate(found) if texts.index(texts[n]) == n]]

    def score(n: int) -> Any:
        rank, value = found[n]
        is_text = isinstance(value, str)
        length = len(value) if is_text else len(json.dumps(value, separators=(",", ":")))
        scores = {"first": 0, "longest": length, "most_frequent": texts.count(texts[n])}
        own = rank if isinstance(how, dict) else (scores[how],)
        return own, -n

    return [found[max(range(len(found)), key=score)][1]]


def rank_of(entity: Entity, how: Any) -> tuple[Any, ...]:
    """Texts, then numbers; missing and others first. Instants are not in the model."""
    if not isinstance(how, dict):
        return ()

    def rank(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str):
            return (1, 0.0, value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return (2, value, "")
        return (0, 0.0, "")

    given = entity.get(how["newest"])
    return max(map(rank, given if isinstance(given, list) else [given]), default=(0, 0.0, ""))


def _plain(entity: Entity, hidden: set[str]) -> Entity:
    entity = {k: v for k, v in entity.items() if k not in hidden}
    ids = entity.pop("$ids", None)
    return entity | ({} if ids is None else {"$ids": ids if isinstance(ids, list) else [ids]})


def _elements(found: Sequence[Any]) -> list[Any]:
    return [v for value in found for v in (value if isinstance(value, list) else [value])]


def kind_of(value: Any) -> str:
    """The type of a column that has nothing but such values."""
    if isinstance(value, list):
        kinds = {kind_of(v) for v in value if v is not None} or {"null"}
        kind = kinds.pop() if len(kinds) == 1 else "json"
        return "json" if kind == "json" or kind.startswith("list") else f"list<{kind}>"
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return "json"
    kinds_of_json = {bool: "bool", int: "int64", float: "double", str: "string"}
    return kinds_of_json.get(type(value), "json")


def joint_kind(one: str, other: str) -> str:
    """The type of a column of both."""
    if one == other:
        return one
    pair = sorted((one, other), key=lambda kind: kind != "list<null>")
    return pair[1] if pair[0] == "list<null>" and pair[1].startswith("list") else "json"


def columns_after(before: Mapping[str, str], written: Sequence[Entity]) -> dict[str, str]:
    """The types of the properties' columns, by those before a run and the entities that it writes."""
    types = dict(before)
    for entity in written:
        for name, value in entity.items():
            if name not in INTERNAL:
                kind = kind_of(value)
                types[name] = joint_kind(types[name], kind) if name in types else kind
    return types


def tombstone(name: str) -> Entity:
    return {"_id": name, "_deleted": True, "$replaced": True}


def after_run(before: Mapping[str, Entity], result: Mapping[str, Entity]) -> dict[str, Entity]:
    """The newest row of each id after a run, of those before it and what the datasets are now."""
    gone = [i for i, e in before.items() if i not in result and not e.get("$replaced")]
    return {**before, **result, **{i: tombstone(i) for i in gone}}
