"""Finds connected components in one process with scipy, in time linear in nodes and edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from compactor.common.shortage import check_room
from compactor.entities.texts import I64

_SCIPY_BYTES: Final = 256 << 20
"""Address space that SciPy takes."""

Components = Callable[[int, I64, I64], I64]
"""Takes the number of nodes and the two ends of each edge. Returns for each node the smallest node of its
component, shape (nodes,). `components` is one implementation; Spark has another."""


def components(nodes: int, left: I64, right: I64) -> I64:
    """Labels each node with the smallest of its component, as `Components` says."""
    if not len(left):
        return np.arange(nodes)
    check_room(_SCIPY_BYTES)  # its linear algebra waits for memory for ever
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left)), (left, right)), shape=(nodes, nodes))
    count, labels = connected_components(graph, directed=False)
    smallest = np.empty(count, np.int64)
    smallest[labels[::-1]] = np.arange(nodes - 1, -1, -1)
    result: I64 = smallest[labels]
    return result
