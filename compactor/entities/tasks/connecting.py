"""Connects entities that rules equate: sends forests of edges from home, and finds components in one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.entities.components import components, stars
from compactor.entities.tasks.context import LABEL, NODE, PLACE, Context, Partition
from compactor.entities.tasks.lines import STAGED_ROWS
from compactor.entities.tasks.matching import edges_at_home
from compactor.entities.texts import I64
from compactor.spark.shuffle.task import PLACE_BITS, TaskInput, TaskOutput, TaskRows, TaskSummary

Edges = tuple[I64, I64]

LEFT: Final = "left"
RIGHT: Final = "right"

_NODE_BYTES: Final = 40
"""Memory of `connect` for each entity of the run, connected or not: labels, SciPy's lists and the sizes."""
_EDGE_BYTES: Final = 96
"""Memory of `connect` for each edge that it holds: its ends three times, and SciPy's matrix and transpose."""
_MAX_PASSES: Final = 8
"""Passes over all entities that one task makes, if it cannot hold the edges at once."""
_STAR_BYTES: Final = 200
"""Memory of `stars` for each edge."""
_STARS_DIVISOR: Final = 8
"""Edges that wait at home for `stars` take at most 1/8 of the memory limit, beside the groups of the home."""


def edges_at_once(entities: int, limit_bytes: int) -> int:
    """Returns the number of edges that one task can hold beside the labels of all entities."""
    return max(0, limit_bytes - entities * _NODE_BYTES) // _EDGE_BYTES


def fits_one_task(entities: int, edges: int, limit_bytes: int) -> bool:
    """Returns whether `connect` finds the components within the memory limit, in a few passes."""
    return edges_at_once(entities, limit_bytes) >= max(1, min(edges, entities // _MAX_PASSES))


def send_edges(context: Context, home: Partition, given: TaskInput) -> TaskOutput:
    """Sends the edges of matched groups, of which it leaves out those that close a cycle."""
    at_once = max(1, context.memory_limit_bytes // _STARS_DIVISOR // _STAR_BYTES)
    edges = edges_at_home(context, home, given)
    for held in _together(edges, at_once):
        left, right = stars(*held)
        yield TaskRows(pa.RecordBatch.from_pydict({LEFT: left, RIGHT: right}))
    yield TaskSummary({})


def connect(
    context: Context, entities: Sequence[int], given: TaskInput, limit_bytes: int
) -> TaskOutput:
    """Sends the component of each connected entity, named as the smallest of them; only of the largest
    components, if they have more than `max_merged` entities.

    entities: count at each home. given: all edges, of which as many are held at once as `limit_bytes` allows.
    """
    starts = np.cumsum([0, *entities])
    count = int(starts[-1])
    labels = np.arange(count)
    at_once = max(1, edges_at_once(count, limit_bytes))
    for left, right in _together((batch for _, batch in given), at_once):
        ends = (labels[starts[end >> PLACE_BITS] + (end & PLACE)] for end in (left, right))
        labels = components(count, *ends)[labels]
    sizes = np.bincount(labels)
    largest = int(sizes.max())
    least = largest if largest > context.spec.max_merged else 2
    nodes = np.flatnonzero(sizes[labels] >= least)
    for start in range(0, len(nodes), STAGED_ROWS):
        some = nodes[start : start + STAGED_ROWS]
        columns = {NODE: _numbers(starts, some), LABEL: _numbers(starts, labels[some])}
        yield TaskRows(pa.RecordBatch.from_pydict(columns))
    yield TaskSummary({"largest": largest})


def _numbers(starts: I64, nodes: I64) -> I64:
    """Returns the entities' numbers in the run from those in the order of homes."""
    home = np.searchsorted(starts, nodes, "right") - 1
    return (home << PLACE_BITS) + nodes - starts[home]


def _together(batches: Iterable[pa.RecordBatch], at_once: int) -> Iterator[Edges]:
    """Joins edges of batches, at most `at_once` and those of one more batch."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= at_once:
            yield _ends(held)
            held, count = [], 0
    if held:
        yield _ends(held)


def _ends(held: Sequence[pa.RecordBatch]) -> Edges:
    left, right = (
        np.concatenate([np.asarray(batch.column(name)) for batch in held]) for name in (LEFT, RIGHT)
    )
    return left, right
