"""Finds connected components in one process with SciPy, in linear time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from compactor.common.shortage import check_room
from compactor.entities.texts import I64

_SCIPY_BYTES: Final = 256 << 20
"""Address space that SciPy needs."""

Components = Callable[[int, I64, I64], I64]
"""Maps a node count and the two ends of each edge to component labels, the smallest node of each component,
shape (nodes,). Implemented by `components` and on Spark."""


def components(nodes: int, left: I64, right: I64) -> I64:
    """Labels each node with the smallest node of its component; see `Components`."""
    if not len(left):
        return np.arange(nodes)
    check_room(_SCIPY_BYTES)  # without memory, SciPy's linear algebra hangs
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left)), (left, right)), shape=(nodes, nodes))
    count, labels = connected_components(graph, directed=False)
    smallest = np.empty(count, np.int64)
    smallest[labels[::-1]] = np.arange(nodes - 1, -1, -1)
    result: I64 = smallest[labels]
    return result


def stars(left: I64, right: I64) -> tuple[I64, I64]:
    """Returns fewest edges that connect the same nodes: the smallest node of each component (left), and each
    other one (right). Takes at least one edge; loops alone give none."""
    nodes, numbers = np.unique(np.concatenate([left, right]), return_inverse=True)
    smallest = components(len(nodes), numbers[: len(left)], numbers[len(left) :])
    others = np.flatnonzero(smallest != np.arange(len(nodes)))
    return nodes[smallest[others]], nodes[others]
