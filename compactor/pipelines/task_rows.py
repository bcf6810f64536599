"""The rows within one task of a Spark stage: the root's inputs, and the results along its paths."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from compactor.pipelines.binding import fitted
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.config import Merge, MergeMode, Route, Transform, inputs_of
from compactor.pipelines.nodes import route
from compactor.pipelines.nodes.rows import rows_of
from compactor.pipelines.provenance import Batches
from compactor.pipelines.stages import EdgePath, SparkStage
from compactor.pipelines.work import RunContext
from compactor.spark.shuffle.task import TaskInput


def rows_of_root(work: RunContext, name: str, stage: SparkStage, given: TaskInput) -> Batches:
    """Returns the rows that a stage's root makes of the task's input."""
    node = work.nodes[name]
    inputs = _Inputs(stage, inputs_of(node), given)
    if isinstance(node, Merge) and node.mode is MergeMode.KEY:
        fed = _reading_from(work, _held_apart(work, name, node, inputs))
    else:
        fed = _reading_from(work, inputs.stream)
    return rows_of(fed, name, node)


class PathRows:
    """Rows along the paths of a task. Where paths fork, rows are buffered until every branch has read
    them."""

    def __init__(self, work: RunContext, root_rows: Batches, paths: Sequence[EdgePath]) -> None:
        self._work = work
        self._root_rows = root_rows
        ways = {path[:length] for path in paths for length in range(1, len(path) + 1)}
        # Per node: the paths that continue from it, plus those that end there.
        self._left = Counter(way[:-1] for way in ways if len(way) > 1) + Counter(paths)
        self._is_shared = {path for path, count in self._left.items() if count > 1}
        self._held: dict[EdgePath, BatchBuffer] = {}

    def stream(self, path: EdgePath) -> Batches:
        """Returns the rows at the end of a path."""
        if path not in self._is_shared:
            return self._made(path)
        return self._shared(path)

    def _shared(self, path: EdgePath) -> Batches:
        if path not in self._held:
            name = path[-1].split(".")[0]
            self._held[path] = buffer = self._work.buffer(name, self._work.schemas[path[-1]])
            for batch in self._made(path):
                buffer.append(batch)
        yield from self._held[path]
        self._left[path] -= 1
        if self._left[path] == 0:
            self._held[path].close()

    def _made(self, path: EdgePath) -> Batches:
        if len(path) == 1:
            return self._root_rows
        return _row_by_row(self._work, path[-1], self.stream(path[:-1]))


def _row_by_row(work: RunContext, edge: str, given: Batches) -> Batches:
    """Returns the rows that a row-by-row node makes of these."""
    name = edge.split(".")[0]
    node = work.nodes[name]
    fed = _reading_from(work, lambda _edge: given)
    match node:
        case Transform():
            return work.clock.timed(name, rows_of(fed, name, node))
        case Merge():
            return (fitted(batch, work.full(work.schemas[name])) for batch in given)
        case Route() if edge == name:
            return given
        case Route():
            return (rows for to, rows in route.divided(fed, name, node) if to == edge)
    raise AssertionError(node)


class _Inputs:
    """A task's input rows, in the order in which the root reads its inputs."""

    def __init__(self, stage: SparkStage, edges: Sequence[str], given: TaskInput) -> None:
        self._input_of = [feed.input for feed in stage.takes]
        self._given = iter(given)
        self._next = next(self._given, None)
        self._asked: defaultdict[str, list[int]] = defaultdict(list)
        for index in dict.fromkeys(self._input_of):
            self._asked[edges[index]].append(index)

    def stream(self, edge: str) -> Batches:
        # Both sides of a join may come from the same node: the first request gets the first input.
        return self._rows(self._asked[edge].pop(0))

    def _rows(self, index: int) -> Batches:
        while self._next is not None and self._input_of[self._next[0]] == index:
            _, batch = self._next
            self._next = None
            yield batch
            self._next = next(self._given, None)


def _held_apart(
    work: RunContext, name: str, node: Merge, inputs: _Inputs
) -> Callable[[str], Batches]:
    """Buffers the inputs of a merge by key: it reads them in turns, but they arrive one after the other."""
    buffers = {}
    for edge in node.inputs:
        buffers[edge] = work.buffer(name, work.schemas[name])
        for batch in inputs.stream(edge):
            buffers[edge].append(batch)
    return lambda edge: buffers[edge].drain()


def _reading_from(work: RunContext, stream: Callable[[str], Batches]) -> RunContext:
    """Returns a copy of the context that reads rows from `stream`."""
    fed = copy.copy(work)
    fed.stream = stream
    return fed
