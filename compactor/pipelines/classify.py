"""Decides how each node holds rows and which outputs are written live. Pure: shared by the executor and
`--explain`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from compactor.files.names import FRAGMENT
from compactor.pipelines.config import (
    Aggregate,
    Combine,
    Merge,
    MergeMode,
    Method,
    Node,
    Output,
    Route,
    Sort,
    Source,
    TimeWindow,
    Transform,
    Window,
    inputs_of,
    keys_of,
)
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import SortColumn, SortSchema, parse_sort_schema


class Form(StrEnum):
    """How a node passes rows to its consumers."""

    FUSED = "fused"
    """At most one batch is in flight."""
    BUILT = "built"
    """The result is complete before it is consumed; it spills, and is dropped, batch by batch."""
    MATERIALIZED = "materialized"
    """The result is kept whole until all consumers are done, and spills as a whole."""

    @property
    def buffer(self) -> str:
        return "materialized" if self is Form.MATERIALIZED else "streaming"


class Classified(Struct, frozen=True):
    """The form of a node, and the reason."""

    form: Form
    why: str
    """The reason, as printed by `--explain`."""


def window_order(partition_by: Sequence[str], order_by: SortSchema) -> SortSchema:
    """Returns the sort order of a window's rows; within a partition its columns order nothing."""
    within = (part for part in order_by if part.column not in partition_by)
    return (*(SortColumn(name) for name in partition_by), *within)


def consumers(nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """Returns the consumers of each node, one per edge; the branches of a route count together."""
    found: dict[str, list[str]] = {key: [] for key in nodes}
    for key, node in nodes.items():
        for name in inputs_of(node):
            found[name.split(".")[0]].append(key)
    return found


def classify(nodes: Mapping[str, Node]) -> dict[str, Classified]:
    """Classifies every node, and every output that holds groups until their outcome is known."""
    by = consumers(nodes)
    found = {
        key: _classify(key, node, nodes, by[key])
        for key, node in nodes.items()
        if not isinstance(node, Output)
    }
    for key, node in nodes.items():
        if (
            isinstance(node, Output)
            and (source := correlated_source(node.input, nodes)) is not None
        ):
            why = f"a group's rows wait until its fate is known: {source!r} declares a correlation key"
            found[key] = Classified(Form.MATERIALIZED, why)
    return found


def passes_documents_on(node: Node) -> bool:
    """Returns whether the documents of a node are those of its inputs, in order."""
    match node:
        case Transform():
            return node.window is None
        case Merge():
            return node.mode is MergeMode.CONCAT
    return isinstance(node, Route)


def has_groups(nodes: Mapping[str, Node]) -> bool:
    """Returns whether any source declares a correlation key."""
    return any(isinstance(n, Source) and n.correlation_key is not None for n in nodes.values())


def correlated_source(edge: str, nodes: Mapping[str, Node]) -> str | None:
    """Returns a source with a correlation key upstream of the edge, or None."""
    names, seen = [edge.split(".")[0]], set[str]()
    while names:
        name = names.pop()
        node = nodes[name]
        if isinstance(node, Source) and node.correlation_key is not None:
            return name
        if name not in seen:
            seen.add(name)
            names += [i.split(".")[0] for i in inputs_of(node)]
    return None


def ancestors(names: Iterable[str], nodes: Mapping[str, Node]) -> set[str]:
    """Returns these nodes and everything upstream of them."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [i.split(".")[0] for i in inputs_of(nodes[name])]
    return found


def _classify(key: str, node: Node, nodes: Mapping[str, Node], by: list[str]) -> Classified:
    if len(by) > 1:
        fans = "its branches" if isinstance(node, Route) else "several nodes"
        return Classified(Form.MATERIALIZED, f"{fans} take its rows, each at its own pace")
    if (why := held_by_consumer(key, nodes, by)) is not None:
        return Classified(Form.MATERIALIZED, why)
    match node:
        case Sort():
            return Classified(Form.MATERIALIZED, "the last row may be the first")
        case Aggregate(window=TimeWindow()):
            return Classified(Form.MATERIALIZED, "a window of time may get its last row at the end")
        case Aggregate(group_by=()):
            return Classified(Form.MATERIALIZED, "all rows make its one row")
        case Aggregate() if is_sorted_by(node.input, node.group_by, nodes):
            return Classified(
                Form.BUILT, "its input is sorted by the groups: each is done when the next begins"
            )
        case Aggregate():
            return Classified(Form.MATERIALIZED, "a group may get its last row at the end")
        case Merge(mode=MergeMode.INTERLEAVE, interleave_seed=None):
            if _are_sources(node, nodes):
                return Classified(Form.FUSED, "its sources are polled directly")
            return Classified(Form.BUILT, "takes a row of each input in turn")
        case Merge(mode=MergeMode.INTERLEAVE):
            return Classified(Form.BUILT, "each input is held whole before rows are drawn")
        case Merge(mode=MergeMode.ENTITY):
            return Classified(Form.MATERIALIZED, "the last row may be the same thing as the first")
        case Merge(mode=MergeMode.KEY):
            return Classified(Form.FUSED, "its inputs are sorted")
        case Merge():
            return Classified(Form.BUILT, "one input after the other")
        case Route():
            return Classified(Form.BUILT, "one branch")
        case Combine(method=Method.SORT_MERGE):
            return Classified(Form.MATERIALIZED, "both sides are put in the order of the keys")
        case Combine(method=Method.RANGE):
            return Classified(Form.MATERIALIZED, "points and intervals are put in order")
        case Combine(method=Method.ASOF):
            return Classified(Form.MATERIALIZED, "both sides are put in the order of time")
        case Combine() if _feeds_output(by, nodes):
            return Classified(Form.FUSED, "row by row, once the build side is complete")
        case Combine():
            return Classified(Form.BUILT, "probes the table that was built before")
        case Transform(window=Window()):
            return Classified(Form.FUSED, "row by row, of rows that are held in the window's order")
        case Source() | Transform():
            return Classified(Form.FUSED, "row by row, for one node")
    raise AssertionError(node)


def _feeds_output(by: Sequence[str], nodes: Mapping[str, Node]) -> bool:
    """Returns whether rows go to one output, directly or through transforms, which holds only few of them."""
    if len(by) != 1:
        return False
    match nodes[by[0]]:
        case Output() as output:
            is_sorted = output.sort or (output.split is not None and output.split.by)
            return output.table is None and not is_sorted
        case Transform(window=None):
            return _feeds_output(consumers(nodes)[by[0]], nodes)
    return False


def held_by_consumer(key: str, nodes: Mapping[str, Node], by: Sequence[str]) -> str | None:
    """Returns why the node's only consumer holds all its rows; None if it does not."""
    if len(by) != 1:
        return None
    match nodes[by[0]]:
        case Transform(window=Window()):
            return f"a window is rooted on its rows, that of {by[0]!r}"
        case Combine(build=build) if build.split(".")[0] == key:
            return f"the build side of {by[0]!r} is complete before the first row is looked up"
    return None


def _is_kept(column: str, chosen: Mapping[str, str] | tuple[str, ...] | None) -> bool:
    """Returns whether a transform passes the column through unchanged."""
    if isinstance(chosen, Mapping):
        return column.isidentifier() and chosen.get(column) == column
    return chosen is None or column in chosen


def is_sorted_by(edge: str, columns: Sequence[str], nodes: Mapping[str, Node]) -> bool:
    """Returns whether the graph guarantees that rows are sorted by these columns, in any column order.

    Rows with equal values in these columns are then adjacent.
    """
    first = [part.column for part in order_of(edge, nodes)[: len(columns)]]
    return sorted(first) == sorted(columns)


def order_of(edge: str, nodes: Mapping[str, Node]) -> SortSchema:
    """Returns the sort order that the graph guarantees for an edge; empty if none."""
    node = nodes[edge.split(".")[0]]
    match node:
        case Sort():
            return _parsed(node.by)
        case Merge(mode=MergeMode.KEY):
            return _parsed(node.sort_by or "")
        case Combine(method=Method.SORT_MERGE):
            return merge_order(node, nodes)
        case Combine(method=Method.RANGE | Method.ASOF):
            return point_order(node)
        case Transform(window=Window() as window, columns=chosen):
            order = window_order(window.partition_by, _parsed(window.order_by))
            return tuple(takewhile(lambda part: _is_kept(part.column, chosen), order))
        case Transform(columns=None) | Route():
            return order_of(node.input, nodes)
        case Transform(columns=tuple() as kept):
            return tuple(takewhile(lambda p: p.column in kept, order_of(node.input, nodes)))
    return ()


def merge_order(node: Combine, nodes: Mapping[str, Node]) -> SortSchema:
    """Returns the output order of a sort-merge join, in the probe side's columns.

    Reuses the order of an input that is already sorted by the keys.
    """
    keys = keys_of(node)
    for edge, side in ((node.probe, 0), (node.build, 1)):
        names = {pair[side]: pair[0] for pair in keys}
        first = order_of(edge, nodes)[: len(keys)]
        if len(names) == len(keys) and {part.column for part in first} == set(names):
            return tuple(replace(part, column=names[part.column]) for part in first)
    return tuple(SortColumn(left) for left, _ in keys)


def point_order(node: Combine) -> SortSchema:
    """Returns the output order of a range or as-of join, in the probe side's columns."""
    points = (node.range.column,) if node.range else tuple(node.at or ())
    return tuple(SortColumn(name) for name in (*(left for left, _ in keys_of(node)), *points))


def _parsed(text: str) -> SortSchema:
    """Parses a sort schema; empty if it is invalid, which binding reports."""
    try:
        return parse_sort_schema(text)
    except SchemaError:
        return ()


def _are_sources(node: Merge, nodes: Mapping[str, Node]) -> bool:
    by = consumers(nodes)
    # `get`, because a route's branch is not a node name.
    return all(isinstance(nodes.get(i), Source) and len(by[i]) == 1 for i in node.inputs)


def is_live(output: str, nodes: Mapping[str, Node], init: Collection[str] = ()) -> tuple[bool, str]:
    """Returns whether an output is written by its own thread while its merge emits rows, and the reason.

    init: outputs of the init phase.
    """
    node = nodes[output]
    assert isinstance(node, Output)
    merge = nodes[node.input.split(".")[0]]
    if not isinstance(merge, Merge) or merge.mode is not MergeMode.INTERLEAVE:
        return False, "its input is not an interleave merge"
    if merge.interleave_seed is not None:
        return False, "its merge has a seed"
    if not _are_sources(merge, nodes):
        return False, "its merge takes rows of others than sources of its own"
    if len(consumers(nodes)[node.input]) > 1:
        return False, "others take rows of its merge"
    if node.table is not None:
        return False, "a table is written in one commit, not row by row"
    if output in init:
        return False, "it is part of the init phase"
    if node.split is not None and node.split.documents:
        return False, "it writes a file for each source document"
    if node.split is not None:
        return False, "it is split into several files"
    if node.kind == FRAGMENT:
        return False, "a fragment is sorted"
    if has_groups(nodes):
        return False, "a source declares a correlation key"
    return True, "an interleave merge of sources feeds it alone"


def topological_order(nodes: Mapping[str, Node]) -> list[str]:
    """Returns the nodes in topological order."""
    done: list[str] = []

    def visit(key: str) -> None:
        if key not in done:
            for name in inputs_of(nodes[key]):
                visit(name.split(".")[0])
            done.append(key)

    for key in nodes:
        visit(key)
    return done
