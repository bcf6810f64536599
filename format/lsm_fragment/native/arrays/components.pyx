# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Finds connected components of numbered nodes by union-find.

`parents` has an entry for each node: the node itself, or a smaller node of the same component. It begins as 0, 1, 2, ...
"""

from libc.stdint cimport int64_t

from lsm_fragment.native.gil cimport release_gil, restore_gil
from lsm_fragment.native.nulls cimport require


cdef inline int64_t root_of(int64_t* parents, int64_t node) noexcept nogil:
    """Returns the root of a node, and halves its path, so that long chains are walked once."""
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


def join(int64_t[::1] parents, const int64_t[::1] left, const int64_t[::1] right):
    """Joins the components of both ends of each edge. Raises ValueError for ends that are no node."""
    cdef int64_t edge, one, other, nodes = parents.shape[0]
    cdef bint is_known = True
    require(left.shape[0] == right.shape[0], "its edges")
    state = release_gil(left.shape[0])
    for edge in range(left.shape[0]):
        one = left[edge]
        other = right[edge]
        is_known = 0 <= one < nodes and 0 <= other < nodes
        if not is_known:
            break
        one = root_of(&parents[0], one)
        other = root_of(&parents[0], other)
        if one < other:
            parents[other] = one
        else:
            parents[one] = other
    restore_gil(state)
    require(is_known, "an edge ends at no node")


def label(int64_t[::1] parents):
    """Makes the smallest node of each component the parent of all its nodes, as parents are smaller."""
    cdef int64_t node
    state = release_gil(parents.shape[0])
    for node in range(parents.shape[0]):
        parents[node] = parents[parents[node]]
    restore_gil(state)
