"""Steps that join two edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tests.generated.graphs.edges import By, Edge
from tests.generated.graphs.steps import Graph

_MAX_PAIRS: Final = 40_000
_MAX_CHARACTERS: Final = 200_000_000
_HOWS: Final = ("inner", "left", "right", "full", "semi", "anti")
_ONE_SIDED: Final = ("semi", "anti")


class _Sides(Struct, frozen=True):
    """The two sides of a join; the columns of the build side have new names."""

    probe: Edge
    other: Edge
    renamed: Mapping[str, str]

    def settings(self, graph: Graph) -> dict[str, Any]:
        """Adds the node that renames the build side; returns what names both sides."""
        build = graph.renamed(self.other, dict(self.renamed))
        return {"probe": self.probe.name, "build": build}

    @property
    def built(self) -> str:
        shown = ", ".join(f"{old} AS {new}" for old, new in self.renamed.items())
        return f"(SELECT {shown}, _n FROM {self.other.view})"

    def columns(self, without: Sequence[str]) -> dict[str, str]:
        """Returns the columns of joined rows, without the second one of each pair."""
        built = {
            self.renamed[c]: kind
            for c, kind in self.other.columns.items()
            if self.renamed[c] not in without
        }
        return self.probe.columns | built

    @property
    def values(self) -> dict[str, str]:
        own = {column: f"p.{column}" for column in self.probe.columns}
        return own | {column: f"d.{column}" for column in self.renamed.values()}

    def edge(self, name: str, columns: dict[str, str], order: tuple[By, ...]) -> Edge:
        has_order = self.probe.has_order and self.other.has_order
        sources = self.probe.sources | self.other.sources
        made = Edge(name=name, columns=columns, sources=sources, has_order=has_order, order=order)
        return made if has_order else made.without_order()


def _sides(graph: Graph) -> _Sides | None:
    probe, other = graph.edge(), graph.edge()
    answers = graph.answers
    rows, others = answers.number(probe.view), answers.number(other.view)
    characters = answers.characters(probe) * others + answers.characters(other) * rows
    if rows * others > _MAX_PAIRS or characters > _MAX_CHARACTERS:
        return None
    renamed = {column: graph.column("b") for column in other.columns}
    return _Sides(probe, other, renamed)


def equal_join(graph: Graph) -> None:
    """Adds a hash join, or one by sorting and merging."""
    if (sides := _sides(graph)) is None or not (pairs := _pairs(graph, sides)):
        return
    rng, probe = graph.rng, sides.probe
    how, name = rng.choice(_HOWS), graph.name("j")
    method = "hash" if graph.in_stages else rng.choice(("hash", "sort_merge"))
    texts = [p for p in pairs if probe.columns[p] == "text"]
    computed = rng.choice(texts) if texts and not graph.in_stages and rng.random() < 0.3 else None
    on = {
        f"upper({left})" if left == computed else left: f"upper({right})"
        if left == computed
        else right
        for left, right in pairs.items()
    }
    graph.nodes[name] = {
        "combine": sides.settings(graph) | {"on": on, "how": how, "method": method}
    }
    same = {left: right for left, right in pairs.items() if left != computed}
    values = sides.values
    if how in ("right", "full"):
        values |= {left: f"coalesce(p.{left}, d.{right})" for left, right in same.items()}
    order = "p._n NULLS LAST" + ("" if how in _ONE_SIDED else ", d._n NULLS LAST")
    by: tuple[By, ...] = ()
    if method == "sort_merge":
        by = _merge_order(sides, pairs)
        keys = dict(values)
        if computed is not None:
            keys[computed] = f"upper(p.{computed})"
            if how in ("right", "full"):
                keys[computed] = f"upper(coalesce(p.{computed}, d.{pairs[computed]}))"
            by = tuple(By(left) for left in pairs)
        order = ", ".join([*(replace(b, column=keys[b.column]).sql for b in by), order])
    condition = " AND ".join(
        f"upper(p.{left}) = upper(d.{right})" if left == computed else f"p.{left} = d.{right}"
        for left, right in pairs.items()
    )
    columns = dict(probe.columns) if how in _ONE_SIDED else sides.columns(list(same.values()))
    made = sides.edge(name, columns, () if computed is not None else by)
    graph.add(
        made.without_order() if graph.in_stages else made,
        values,
        f"{probe.view} p {how.upper()} JOIN {sides.built} d ON {condition}",
        order,
    )


def _pairs(graph: Graph, sides: _Sides) -> dict[str, str]:
    """Returns one or two columns of the probe side, and those of the build side that they have to equal."""
    alike = [
        (left, sides.renamed[right])
        for left, kind in sides.probe.columns.items()
        for right, other in sides.other.columns.items()
        if kind == other
    ]
    graph.rng.shuffle(alike)
    pairs: dict[str, str] = {}
    for left, right in alike[: graph.rng.randint(1, 2)]:
        if left not in pairs and right not in pairs.values():
            pairs[left] = right
    return pairs


def _merge_order(sides: _Sides, pairs: Mapping[str, str]) -> tuple[By, ...]:
    """Returns the order of a sort-merge join: that of a side which is sorted by the keys, or theirs.

    The build side is behind a transform that computes columns, so nothing is known of its order.
    """
    first = sides.probe.order[: len(pairs)]
    return first if {by.column for by in first} == set(pairs) else tuple(map(By, pairs))


def range_join(graph: Graph) -> None:
    """Adds a join of points with the intervals that contain them."""
    if graph.in_stages or (sides := _sides(graph)) is None:
        return
    kinds = [k for k in ("int", "real", "time", "date") if _both_have(sides, k)]
    if not kinds:
        return
    rng, name = graph.rng, graph.name("i")
    kind = rng.choice(kinds)
    column = rng.choice(sides.probe.of_kind(kind))
    start, end = (sides.renamed[rng.choice(sides.other.of_kind(kind))] for _ in range(2))
    closed, how = rng.choice(("left", "right", "both", "neither")), rng.choice(("inner", "left"))
    between = {"column": column, "from": start, "to": end, "closed": closed}
    settings = sides.settings(graph) | {"method": "range", "range": between, "how": how}
    low = ">=" if closed in ("left", "both") else ">"
    high = "<=" if closed in ("right", "both") else "<"
    condition = (
        f"p.{column} IS NOT NULL AND (d.{start} IS NULL OR p.{column} {low} d.{start})"
        f" AND (d.{end} IS NULL OR p.{column} {high} d.{end})"
    )
    by, dropped = _with_key(graph, sides, settings, (By(column),), "")
    for left, right in settings.get("on", {}).items():
        condition += f" AND p.{left} = d.{right}"
    graph.nodes[name] = {"combine": settings}
    order = [replace(b, column=f"p.{b.column}").sql for b in by]
    graph.add(
        sides.edge(name, sides.columns(dropped), by),
        sides.values,
        f"{sides.probe.view} p {how.upper()} JOIN {sides.built} d ON {condition}",
        ", ".join([*order, "p._n", f"d.{start} NULLS FIRST", "d._n"]),
    )


def asof_join(graph: Graph) -> None:
    """Adds a join with the latest row of the build side."""
    if graph.in_stages or (sides := _sides(graph)) is None:
        return
    kinds = [k for k in ("int", "time", "date") if _both_have(sides, k)]
    if not kinds or not sides.other.has_order:
        return
    rng, name = graph.rng, graph.name("f")
    kind, how = rng.choice(kinds), rng.choice(("inner", "left"))
    time = rng.choice(sides.probe.of_kind(kind))
    at = sides.renamed[rng.choice(sides.other.of_kind(kind))]
    settings = sides.settings(graph) | {"method": "asof", "at": {time: at}, "how": how}
    by, dropped = _with_key(graph, sides, settings, (By(time),), at)
    condition = f"b.{at} <= p.{time}"
    for left, right in settings.get("on", {}).items():
        condition += f" AND p.{left} = b.{right}"
    graph.nodes[name] = {"combine": settings}
    latest = (
        f"SELECT * FROM {sides.built} b WHERE {condition} ORDER BY b.{at} DESC, b._n DESC LIMIT 1"
    )
    joint = "LEFT JOIN" if how == "left" else "JOIN"
    graph.add(
        sides.edge(name, sides.columns(dropped), by),
        sides.values,
        f"{sides.probe.view} p {joint} LATERAL ({latest}) d ON true",
        ", ".join([*(replace(b, column=f"p.{b.column}").sql for b in by), "p._n"]),
    )


def _both_have(sides: _Sides, kind: str) -> bool:
    return bool(sides.probe.of_kind(kind) and sides.other.of_kind(kind))


def _with_key(
    graph: Graph, sides: _Sides, settings: dict[str, Any], by: tuple[By, ...], at: str = ""
) -> tuple[tuple[By, ...], list[str]]:
    """Adds a key that must be equal too, at times; returns the order, and the columns that fall away."""
    rng, used = graph.rng, {by[0].column, at, *settings.get("range", {}).values()}
    lefts = [c for c in sides.probe.of_kind("int", "text") if c not in used]
    if not lefts or rng.random() < 0.5:
        return by, []
    left = rng.choice(lefts)
    kind = sides.probe.columns[left]
    rights = [sides.renamed[c] for c in sides.other.of_kind(kind) if sides.renamed[c] not in used]
    if not rights:
        return by, []
    settings["on"] = {left: rng.choice(rights)}
    return (By(left), *by), list(settings["on"].values())
