"""Divides a pipeline into Spark stages, which begin where rows must move to other tasks. Pure: shared by the
Spark run and `--explain --master`.

Within a stage rows stay in their task. Row-by-row nodes that keep the order (transform, route, concat,
interleave without seed) run in the tasks of their inputs, in several stages if need be. A **path** leads from
the root of a stage to an output, or to a consumer in another stage. The paths to a node are in the order of
its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from compactor.errors import ConfigError
from compactor.pipelines.classify import is_sorted_by, order_of, topological_order
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
from lsm_fragment.names import quoted

_MAX_PATHS: Final = 1000
_KNOWN: Final[dict[type, frozenset[str]]] = {
    Source: frozenset(
        {"path", "table", "format", "where", "columns", "fields", "only_fields", "csv", "encoding"}
        | {"lines", "fixed", "xml"}
    ),
    Transform: frozenset({"input", "filter", "columns", "batch_size", "window"}),
    Merge: frozenset({"inputs", "mode", "interleave_seed", "sort_by"}),
    Route: frozenset({"input", "branches", "otherwise"}),
    Sort: frozenset({"input", "by"}),
    Aggregate: frozenset({"input", "group_by", "columns", "window"}),
    Combine: frozenset({"probe", "build", "on", "how"}),
    Output: frozenset(
        {"input", "path", "table", "format", "sort_by", "drop_widened", "csv", "fixed"}
    ),
    Pipeline: frozenset(
        {"nodes", "memory", "batch_size", "on_error", "dead_letter", "max_group_buffer"}
    ),
}
"""Settings that mean the same on many tasks; all others are refused."""
_MODES: Final = (MergeMode.CONCAT, MergeMode.INTERLEAVE, MergeMode.KEY)

EdgePath = tuple[str, ...]
"""Edges from the root on. A route precedes its branch."""


class ShuffleKind(StrEnum):
    """How rows are assigned to tasks."""

    RANGE = "range"
    """By key range: tasks follow each other in sort order."""
    HASH = "hash"
    """By key hash: equal keys share a task."""
    ONE = "one"
    """All rows in one task."""


class Shuffle(Struct, frozen=True):
    """How rows move from one stage to the tasks of the next."""

    kind: ShuffleKind
    by: str | None = None
    """The sort schema, for ranges."""
    keys: tuple[tuple[str, ...], ...] = ()
    """Key columns per input, for hashes."""

    def __str__(self) -> str:
        match self.kind:
            case ShuffleKind.RANGE:
                return f"range of {self.by}"
            case ShuffleKind.HASH:
                return f"hash of {' = '.join(','.join(keys) for keys in self.keys)}"
            case _:
                return "all rows in one task"


class Feed(Struct, frozen=True):
    """Rows that leave a stage by one path."""

    number: int
    """Unique within the pipeline."""
    path: EdgePath
    consumer: str
    input: int
    """Index among the consumer's inputs."""

    @property
    def root(self) -> str:
        return self.path[0]


class SparkStage(Struct, frozen=True):
    """Tasks that run in parallel. All sources share one stage; every other stage has one root."""

    roots: tuple[str, ...]
    shuffle: Shuffle | None
    """The shuffle before the stage; None if it reads sources."""
    takes: tuple[Feed, ...]
    """The root's inputs, in the order in which it reads them."""
    gives: tuple[Feed, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that run in the stage, in topological order, and the outputs that it writes."""
        names = [edge.split(".")[0] for feed in self.gives for edge in feed.path]
        return tuple(dict.fromkeys(names))


def plan_stages(pipeline: Pipeline) -> tuple[SparkStage, ...]:
    """Returns the stages in topological order.

    Raises `ConfigError` naming whatever works only in one process.
    """
    _check_known(pipeline)
    nodes = pipeline.nodes
    order = topological_order(nodes)
    feeds: list[Feed] = []
    for name in order:
        if not _is_root(nodes[name]) and not isinstance(nodes[name], Output):
            continue
        for index, edge in enumerate(inputs_of(nodes[name])):
            for path in _paths_to(edge, nodes):
                feeds.append(Feed(len(feeds), path, name, index))
                if len(feeds) > _MAX_PATHS:
                    raise ConfigError(
                        f"node {name!r}: rows reach it by too many paths for Spark stages: leave --master "
                        "out, to run in one process"
                    )
    sources = tuple(name for name in order if isinstance(nodes[name], Source))
    blocking = [name for name in order if _is_root(nodes[name]) and name not in sources]
    stages = [SparkStage(sources, None, (), tuple(f for f in feeds if f.root in sources))]
    for name in blocking:
        node = nodes[name]
        takes = sorted((f for f in feeds if f.consumer == name), key=lambda f: _input_rank(node, f))
        gives = tuple(f for f in feeds if f.root == name)
        stages.append(SparkStage((name,), shuffle_before(node, nodes), tuple(takes), gives))
    return tuple(stages)


def _input_rank(node: Node, feed: Feed) -> int:
    """Orders a consumer's inputs. A build side comes first, because it must be complete before the first
    look-up."""
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
        case Merge() | Aggregate(window=TimeWindow()) | Aggregate(group_by=()):
            # Keys alone do not determine a row's time window.
            return Shuffle(ShuffleKind.ONE)
        case Transform(window=Window(partition_by=keys)):
            return (
                Shuffle(ShuffleKind.RANGE, by=_as_text(keys)) if keys else Shuffle(ShuffleKind.ONE)
            )
        case Aggregate():
            # Ranges, not hashes, so that groups are in key order across tasks too.
            if is_sorted_by(node.input, node.group_by, nodes):
                order = order_of(node.input, nodes)[: len(node.group_by)]
                return Shuffle(ShuffleKind.RANGE, by=",".join(map(str, order)))
            return Shuffle(ShuffleKind.RANGE, by=_as_text(node.group_by))
        case Combine():
            probe, build = zip(*keys_of(node), strict=True)
            return Shuffle(ShuffleKind.HASH, keys=(probe, build))
    raise AssertionError(node)


def _as_text(columns: Sequence[str]) -> str:
    return ",".join(map(quoted, columns))


def _paths_to(edge: str, nodes: Mapping[str, Node]) -> list[EdgePath]:
    """Returns all paths to an edge, in row order."""
    name = edge.split(".")[0]
    node = nodes[name]
    if _is_root(node):
        return [(name,)]
    step = (name,) if edge == name else (name, edge)
    paths: list[EdgePath] = []
    for given in inputs_of(node):
        paths += [(*path, *step) for path in _paths_to(given, nodes)]
        if len(paths) > _MAX_PATHS:
            break
    return paths


def _check_known(pipeline: Pipeline) -> None:
    for name, model in [("", pipeline), *pipeline.nodes.items()]:
        what = f"node {name!r}: " if name else ""
        known = _KNOWN.get(type(model))
        if known is None:
            raise only_in_one_process(f"{what}{type(model).__name__.lower()}")
        for field in sorted(_given(model) - known):
            raise only_in_one_process(f"{what}`{field}`")
        if isinstance(model, Output) and model.path is not None and model.sort_by is not None:
            raise only_in_one_process(f"{what}a fragment as a file")
        if isinstance(model, Merge) and model.mode not in _MODES:
            raise only_in_one_process(f"{what}mode {model.mode}")


def only_in_one_process(what: str) -> ConfigError:
    return ConfigError(
        f"{what} does not work on Spark stages: leave --master out, to run in one process"
    )


def _given(model: Any) -> set[str]:
    """Returns the settings that differ from their defaults."""
    fields = type(model).model_fields
    return {
        f for f in fields if getattr(model, f) != fields[f].get_default(call_default_factory=True)
    }


def explained(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Returns one record per stage: its nodes, its shuffle and its inputs, without values of the
    environment."""
    nodes = pipeline.nodes
    records = []
    for number, stage in enumerate(plan_stages(pipeline)):
        writes = [f.consumer for f in stage.gives if isinstance(nodes[f.consumer], Output)]
        records.append(
            {
                "stage": number,
                "nodes": [*stage.nodes, *dict.fromkeys(writes)],
                "shuffle": None if stage.shuffle is None else str(stage.shuffle),
                "takes_from": _names_before(stage.takes),
            }
        )
    return pipeline.variables.hide_in(records)


def _names_before(takes: Sequence[Feed]) -> list[str]:
    return list(dict.fromkeys(feed.path[-1] for feed in sorted(takes, key=lambda f: f.input)))
