"""Finds connected components in one process by union-find."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compactor.entities.texts import I64
from lsm_fragment.native.arrays.components import join, label

Components = Callable[[int, I64, I64], I64]
"""Maps a node count and the two ends of each edge to component labels, the smallest node of each component,
shape (nodes,). Implemented by `components` and on Spark."""


def components(nodes: int, left: I64, right: I64) -> I64:
    """Labels each node with the smallest node of its component; see `Components`."""
    labels = np.arange(nodes)
    join(labels, left, right)
    label(labels)
    return labels


def stars(left: I64, right: I64) -> tuple[I64, I64]:
    """Returns fewest edges that connect the same nodes: the smallest node of each component (left), and each
    other one (right). Takes at least one edge; loops alone give none."""
    nodes, numbers = np.unique(np.concatenate([left, right]), return_inverse=True)
    smallest = components(len(nodes), numbers[: len(left)], numbers[len(left) :])
    others = np.flatnonzero(smallest != np.arange(len(nodes)))
    return nodes[smallest[others]], nodes[others]
