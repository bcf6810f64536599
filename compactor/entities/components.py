"""Finds connected components in one process, in linear time: with SciPy unless there are few edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from compactor.common.shortage import check_room
from compactor.entities.texts import I64

_SCIPY_BYTES: Final = 256 << 20
"""Address space that SciPy needs."""

_FEW_EDGES: Final = 10_000
"""Connect at most this many edges without SciPy, whose import takes longer."""

Components = Callable[[int, I64, I64], I64]
"""Maps a node count and the two ends of each edge to component labels, the smallest node of each component,
shape (nodes,). Implemented by `components` and on Spark."""


def components(nodes: int, left: I64, right: I64) -> I64:
    """Labels each node with the smallest node of its component; see `Components`."""
    if len(left) <= _FEW_EDGES:
        return _joined(nodes, left, right)
    check_room(_SCIPY_BYTES)  # without memory, SciPy's linear algebra hangs
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left)), (left, right)), shape=(nodes, nodes))
    count, labels = connected_components(graph, directed=False)
    smallest = np.empty(count, np.int64)
    smallest[labels[::-1]] = np.arange(nodes - 1, -1, -1)
    result: I64 = smallest[labels]
    return result


def _joined(nodes: int, left: I64, right: I64) -> I64:
    """Does what `components` does, edge by edge."""
    parent: dict[int, int] = {}

    def root(node: int) -> int:
        while (above := parent.get(node, node)) != node:
            parent[node] = parent.get(above, above)
            node = above
        return node

    for one, other in zip(left.tolist(), right.tolist(), strict=True):
        ends = root(one), root(other)
        parent[max(ends)] = min(ends)
    labels = np.arange(nodes)
    for node in list(parent):
        labels[node] = root(node)
    return labels


def stars(left: I64, right: I64) -> tuple[I64, I64]:
    """Returns fewest edges that connect the same nodes: the smallest node of each component (left), and each
    other one (right). Takes at least one edge; loops alone give none."""
    nodes, numbers = np.unique(np.concatenate([left, right]), return_inverse=True)
    smallest = components(len(nodes), numbers[: len(left)], numbers[len(left) :])
    others = np.flatnonzero(smallest != np.arange(len(nodes)))
    return nodes[smallest[others]], nodes[others]
