"""A pipeline divided into Spark stages, each of which begins where rows have to be in other tasks than those
that have them. Pure: the Spark run and `--explain --master` go by the same answers.

Within a stage rows go from node to node in their task. What changes no order and looks at one row at a time
(transform, route, concat, an interleave without seed) runs in the tasks of whatever gives it rows, so in
several stages if need be: a **path** says how rows get from the root of a stage to the node that takes them
in another one, or to an output. Paths to a node are in the order of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from compactor.errors import ConfigError
from compactor.pipelines.classify import is_sorted_by, order_of, order_of_work
from compactor.pipelines.config import (
    Aggregate,
    Combine,
    Merge,
    MergeMode,
    Node,
    Output,
    Pipeline,
    Route,
    Sort,
    Source,
    TimeWindow,
    Transform,
    Window,
    inputs_of,
    keys_of,
)

_MOST_PATHS: Final = 1000
_KNOWN: Final[dict[type, frozenset[str]]] = {
    Source: frozenset({"path", "table", "where", "columns", "fields"}),
    Transform: frozenset({"input", "filter", "columns", "batch_size", "window"}),
    Merge: frozenset({"inputs", "mode", "interleave_seed", "sort_by"}),
    Route: frozenset({"input", "branches", "otherwise"}),
    Sort: frozenset({"input", "by"}),
    Aggregate: frozenset({"input", "group_by", "columns", "window"}),
    Combine: frozenset({"probe", "build", "on", "how"}),
    Output: frozenset({"input", "path", "table", "sort_by", "drop_widened"}),
    Pipeline: frozenset(
        {"nodes", "memory", "batch_size", "on_error", "dead_letter", "max_group_buffer"}
    ),
}
"""Settings whose meaning holds when rows are in many tasks; any other is refused."""
_MODES: Final = (MergeMode.CONCAT, MergeMode.INTERLEAVE, MergeMode.KEY)
_HOWS: Final = ("inner", "left")

EdgePath = tuple[str, ...]
"""Edges: the root, then those that its rows pass; before a branch of a route, the route."""


class ShuffleKind(StrEnum):
    """By what rows are sent to tasks."""

    RANGE = "range"
    """Of keys: tasks have what comes one after the other in sort order."""
    HASH = "hash"
    """Of keys: equal ones are in one task."""
    ONE = "one"
    """All in one task."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    kind: ShuffleKind
    by: str | None = None
    """For ranges: a sort schema."""
    keys: tuple[tuple[str, ...], ...] = ()
    """For hashes: columns, for each input."""

    def __str__(self) -> str:
        match self.kind:
            case ShuffleKind.RANGE:
                return f"range of {self.by}"
            case ShuffleKind.HASH:
                return f"hash of {' = '.join(','.join(keys) for keys in self.keys)}"
            case _:
                return "all rows in one task"


@dataclass(frozen=True, slots=True)
class Feed:
    """Rows that leave a stage by one path."""

    number: int
    """Of its own in the pipeline."""
    path: EdgePath
    taker: str
    input: int
    """Of the taker, which one."""

    @property
    def root(self) -> str:
        return self.path[0]


@dataclass(frozen=True, slots=True)
class SparkStage:
    """Tasks that run side by side. Sources of a pipeline share one; any other has one root."""

    roots: tuple[str, ...]
    shuffle: Shuffle | None
    """Before it; None: it reads sources."""
    takes: tuple[Feed, ...]
    """In the order in which the root is to have the rows."""
    gives: tuple[Feed, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """That run in it, in the order of their work; outputs too, if it writes them."""
        names = [edge.split(".")[0] for feed in self.gives for edge in feed.path]
        return tuple(dict.fromkeys(names))


def plan_stages(pipeline: Pipeline) -> tuple[SparkStage, ...]:
    """Stages, each after those that it takes rows from.

    Raises `ConfigError` naming what works in one process only.
    """
    _check_known(pipeline)
    nodes = pipeline.nodes
    order = order_of_work(nodes)
    feeds: list[Feed] = []
    for name in order:
        if not _is_root(nodes[name]) and not isinstance(nodes[name], Output):
            continue
        for index, edge in enumerate(inputs_of(nodes[name])):
            for path in _paths_to(edge, nodes):
                feeds.append(Feed(len(feeds), path, name, index))
                if len(feeds) > _MOST_PATHS:
                    raise ConfigError(
                        f"node {name!r}: rows get to it on too many ways for Spark stages: leave --master "
                        "out, to run in one process"
                    )
    sources = tuple(name for name in order if isinstance(nodes[name], Source))
    blocking = [name for name in order if _is_root(nodes[name]) and name not in sources]
    stages = [SparkStage(sources, None, (), tuple(f for f in feeds if f.root in sources))]
    for name in blocking:
        node = nodes[name]
        takes = sorted((f for f in feeds if f.taker == name), key=lambda f: _turn(node, f))
        gives = tuple(f for f in feeds if f.root == name)
        stages.append(SparkStage((name,), shuffle_before(node, nodes), tuple(takes), gives))
    return tuple(stages)


def _turn(node: Node, feed: Feed) -> int:
    """A build side comes first: it is complete before the first row is looked up."""
    return -feed.input if isinstance(node, Combine) else feed.input


def _is_root(node: Node) -> bool:
    match node:
        case Source() | Sort() | Aggregate() | Combine():
            return True
        case Merge():
            return node.mode is MergeMode.KEY or node.interleave_seed is not None
        case Transform():
            return node.window is not None
    return False


def shuffle_before(node: Node, nodes: Mapping[str, Node]) -> Shuffle:
    match node:
        case Sort():
            return Shuffle(ShuffleKind.RANGE, by=node.by)
        case Merge(mode=MergeMode.KEY):
            return Shuffle(ShuffleKind.RANGE, by=node.sort_by)
        case Merge() | Aggregate(window=TimeWindow()):
            # Rows of a window of time are in it by more than their keys.
            return Shuffle(ShuffleKind.ONE)
        case Transform(window=Window(partition_by=keys)):
            return (
                Shuffle(ShuffleKind.RANGE, by=",".join(keys)) if keys else Shuffle(ShuffleKind.ONE)
            )
        case Aggregate():
            # By ranges and not by hashes: so groups are in the order of their keys, across tasks too.
            if is_sorted_by(node.input, node.group_by, nodes):
                order = order_of(node.input, nodes)[: len(node.group_by)]
                return Shuffle(ShuffleKind.RANGE, by=",".join(map(str, order)))
            return Shuffle(ShuffleKind.RANGE, by=",".join(node.group_by))
        case Combine():
            probe, build = zip(*keys_of(node), strict=True)
            return Shuffle(ShuffleKind.HASH, keys=(probe, build))
    raise AssertionError(node)


def _paths_to(edge: str, nodes: Mapping[str, Node]) -> list[EdgePath]:
    """All ways of rows to an edge, in the order that the rows have there."""
    name = edge.split(".")[0]
    node = nodes[name]
    if _is_root(node):
        return [(name,)]
    step = (name,) if edge == name else (name, edge)
    paths: list[EdgePath] = []
    for given in inputs_of(node):
        paths += [(*path, *step) for path in _paths_to(given, nodes)]
        if len(paths) > _MOST_PATHS:
            break
    return paths


def _check_known(pipeline: Pipeline) -> None:
    for name, model in [("", pipeline), *pipeline.nodes.items()]:
        what = f"node {name!r}: " if name else ""
        known = _KNOWN.get(type(model))
        if known is None:
            raise _only_in_one_process(f"{what}{type(model).__name__.lower()}")
        for field in sorted(_given(model) - known):
            raise _only_in_one_process(f"{what}`{field}`")
        if isinstance(model, Output) and model.path is not None and model.sort_by is not None:
            raise _only_in_one_process(f"{what}a fragment as a file")
        if isinstance(model, Merge) and model.mode not in _MODES:
            raise _only_in_one_process(f"{what}mode {model.mode}")
        if isinstance(model, Combine) and model.how not in _HOWS:
            raise _only_in_one_process(f"{what}how {model.how}")


def _only_in_one_process(what: str) -> ConfigError:
    return ConfigError(
        f"{what} does not work on Spark stages: leave --master out, to run in one process"
    )


def _given(model: Any) -> set[str]:
    """Settings that say other than their default."""
    fields = type(model).model_fields
    return {
        f for f in fields if getattr(model, f) != fields[f].get_default(call_default_factory=True)
    }


def explained(pipeline: Pipeline) -> list[dict[str, Any]]:
    """A record a stage: its nodes, and what is before it."""
    nodes = pipeline.nodes
    records = []
    for number, stage in enumerate(plan_stages(pipeline)):
        writes = [f.taker for f in stage.gives if isinstance(nodes[f.taker], Output)]
        records.append(
            {
                "stage": number,
                "nodes": [*stage.nodes, *dict.fromkeys(writes)],
                "shuffle": None if stage.shuffle is None else str(stage.shuffle),
                "takes_from": _names_before(stage.takes),
            }
        )
    return records


def _names_before(takes: Sequence[Feed]) -> list[str]:
    return list(dict.fromkeys(feed.path[-1] for feed in sorted(takes, key=lambda f: f.input)))
