"""Connects entities that rules equate: sends forests of edges from home, and finds components in one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from compactor.entities.components import stars
from compactor.entities.cutting import tied
from compactor.entities.tasks.context import LABEL, NODE, PLACE, Context, Partition
from compactor.entities.tasks.lines import STAGED_ROWS
from compactor.entities.tasks.matching import edges_at_home
from compactor.entities.texts import I64
from compactor.spark.shuffle.task import PLACE_BITS, TaskInput, TaskOutput, TaskRows, TaskSummary
from lsm_fragment.native.arrays.components import join, label

Edges = tuple[I64, I64]

LEFT: Final = "left"
RIGHT: Final = "right"

_NODE_BYTES: Final = 40
"""Memory of `connect` for each entity of the run, connected or not: labels, sizes, and what is sent."""
_STAR_BYTES: Final = 128
"""Memory of `stars` for each edge."""
_STARS_DIVISOR: Final = 8
"""Edges that wait at home for `stars` take at most 1/8 of the memory limit, beside the groups of the home."""


def fits_one_task(entities: int, limit_bytes: int) -> bool:
    """Returns whether `connect` finds the components within the memory limit. Edges pass through."""
    return entities * _NODE_BYTES <= limit_bytes


GROUPS: Final = 0


PAIRS: Final = 1
"""Inputs of `send_edges`."""


class AskedPairs(Struct, frozen=True):
    """What a search for components has to know of some entities, by number."""

    always: tuple[tuple[int, int], ...] = ()
    """Edges beside those of rules."""
    never: tuple[tuple[int, int], ...] = ()
    """Components with such a pair do not count as too large: they are yet to be cut."""
    asked: tuple[int, ...] = ()
    """Entities to be explained, whatever the size of their component."""

    @property
    def nodes(self) -> list[int]:
        """Returns the entities whose components the search names."""
        return sorted({*self.asked, *(node for pair in self.never for node in pair)})


NO_PAIRS: Final = AskedPairs()


def send_edges(context: Context, home: Partition, given: TaskInput) -> TaskOutput:
    """Sends the edges of matched groups and of pairs, of which it leaves out those that close a cycle."""
    at_once = max(1, context.memory_limit_bytes // _STARS_DIVISOR // _STAR_BYTES)
    inputs: tuple[list[tuple[int, pa.RecordBatch]], ...] = [], []
    charge = context.memory()
    for rank, batch in given:
        charge(batch.nbytes)
        inputs[rank].append((rank, batch))
    edges = edges_at_home(context, home, inputs[GROUPS]) if inputs[GROUPS] else iter(())
    for held in _together(chain(edges, (batch for _, batch in inputs[PAIRS])), at_once):
        left, right = stars(*held)
        yield TaskRows(pa.RecordBatch.from_pydict({LEFT: left, RIGHT: right}))
    yield TaskSummary({})


LABELS: Final = 0


LARGEST: Final = 1
"""Feeds of `connect`."""


def connect(
    context: Context,
    entities: Sequence[int],
    given: TaskInput,
    pairs: AskedPairs = NO_PAIRS,
) -> TaskOutput:
    """Sends the component of each connected entity, named as the smallest of them; and, if any have more than
    `max_merged` entities, those of the largest components, alone unless pairs need all.

    entities: count at each home. given: all edges.
    """
    starts = np.cumsum([0, *entities])
    count = int(starts[-1])
    labels = np.arange(count)
    for _, batch in given:
        ends = (np.asarray(batch.column(name)) for name in (LEFT, RIGHT))
        join(labels, *(starts[end >> PLACE_BITS] + (end & PLACE) for end in ends))
    label(labels)
    sizes = np.bincount(labels)
    nodes = np.array(pairs.nodes, np.int64)
    of_nodes = _numbers(starts, labels[starts[nodes >> PLACE_BITS] + (nodes & PLACE)])
    component_of = dict(zip(nodes.tolist(), of_nodes.tolist(), strict=True))
    conflicts = np.array(tied(pairs.never, component_of), np.int64)
    counted = sizes.copy()
    counted[starts[conflicts >> PLACE_BITS] + (conflicts & PLACE)] = 0
    largest = int(counted.max())
    is_too_large = largest > context.spec.max_merged
    if not is_too_large or len(conflicts) or pairs.asked:
        yield from _labelled(starts, labels, sizes[labels] >= 2, LABELS)
    if is_too_large:
        yield from _labelled(starts, labels, counted[labels] == largest, LARGEST)
    yield TaskSummary({"largest": largest, "components": list(component_of.items())})


def _labelled(
    starts: I64, labels: I64, is_sent: npt.NDArray[np.bool_], feed: int
) -> Iterator[TaskRows]:
    nodes = np.flatnonzero(is_sent)
    for start in range(0, len(nodes), STAGED_ROWS):
        some = nodes[start : start + STAGED_ROWS]
        columns = {NODE: _numbers(starts, some), LABEL: _numbers(starts, labels[some])}
        yield TaskRows(pa.RecordBatch.from_pydict(columns), feed)


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
