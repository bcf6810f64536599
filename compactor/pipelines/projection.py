"""Finds the columns of each source that a pipeline uses. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sqlglot import expressions as exp

from compactor.pipelines.binding import WIDENED
from compactor.pipelines.classify import topological_order
from compactor.pipelines.config import (
    Aggregate,
    Combine,
    Merge,
    MergeMode,
    Node,
    Output,
    Route,
    Sort,
    Source,
    Transform,
    inputs_of,
    keys_of,
)
from compactor.predicate.sql import SqlError, parsed
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import parse_sort_schema

Used = frozenset[str] | None
"""Names of columns, some of which a node may lack; None for all columns."""


def used_columns(nodes: Mapping[str, Node]) -> dict[str, Used]:
    """Returns for each source the columns that its graph uses, and perhaps names of other nodes' columns."""
    used: dict[str, Used] = dict.fromkeys(nodes, frozenset())
    for name in reversed(topological_order(nodes)):
        node = nodes[name]
        for edge in inputs_of(node):
            key = edge.split(".")[0]
            used[key] = _all(used[key], _of_inputs(node, used[name]))
    return {
        name: _of_source(node, used[name])
        for name, node in nodes.items()
        if isinstance(node, Source)
    }


def reading_used_columns(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Returns the nodes with sources that read only the columns used."""
    used = used_columns(nodes)
    return {
        n: node.using(used[n]) if isinstance(node, Source) else node for n, node in nodes.items()
    }


def _of_source(node: Source, used: Used) -> Used:
    found = _all(used, _names([node.correlation_key or ""]))
    return None if found is None or WIDENED in found else found


def _of_inputs(node: Node, used: Used) -> Used:
    """Returns the columns of its inputs that a node uses. used: those of its own that others use."""
    match node:
        case Transform():
            return _of_transform(node, used)
        case Merge(mode=MergeMode.CONCAT | MergeMode.INTERLEAVE):
            return used
        case Merge(mode=MergeMode.KEY):
            return _all(used, _sorted_by(node.sort_by or ""))
        case Route():
            return _all(used, _in_texts(node.branches.values()))
        case Sort():
            return _all(used, _sorted_by(node.by))
        case Aggregate():
            window = [] if node.window is None else [node.window.column]
            return _all(_names([*node.group_by, *window]), _in_texts(node.columns.values()))
        case Combine():
            return _all(used, _of_combine(node))
        case Output() | _:
            return None


def _of_transform(node: Transform, used: Used) -> Used:
    texts = [] if node.filter is None else [node.filter]
    if isinstance(node.columns, dict):
        used, texts = frozenset(), [*texts, *node.columns.values()]
    elif node.columns is not None:
        used = _names(node.columns)
    if node.window is None:
        return _all(used, _in_texts(texts))
    partition = _names(node.window.partition_by)
    return _all(used, _in_texts(texts), partition, _sorted_by(node.window.order_by))


def _of_combine(node: Combine) -> Used:
    names = [name for pair in [*keys_of(node), *(node.at or {}).items()] for name in pair]
    if node.range is not None:
        names += [node.range.column, node.range.begin, node.range.end]
    return _all(_names(names), _in_texts(names))


def _all(*used: Used) -> Used:
    """Returns the columns of several uses together."""
    found: set[str] = set()
    for columns in used:
        if columns is None:
            return None
        found |= columns
    return frozenset(found)


def _names(names: Collection[str]) -> Used:
    return frozenset(name for name in names if name)


def _in_texts(texts: Iterable[str]) -> Used:
    """Returns the columns in expressions; None if one cannot be parsed, which binding reports."""
    found: set[str] = set()
    for text in texts:
        try:
            columns = parsed(text).find_all(exp.Column)
        except (SqlError, RecursionError):
            return None
        for column in columns:
            # A field of a struct, or a name with a point, looks like a column of a table.
            names = [part.name for part in column.parts]
            found.update((*names, ".".join(names)))
    return frozenset(found)


def _sorted_by(text: str) -> Used:
    try:
        return frozenset(column.column for column in parse_sort_schema(text))
    except SchemaError:
        return None
