# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Counts, divides and renumbers the sources of rows in merged order."""

import numpy as np

from libc.stdint cimport int64_t, uint16_t, uint32_t

from lsm_fragment.native.gil cimport release_gil, restore_gil

cdef enum:
    COUNTERS = 4  # per source: consecutive rows mostly have one source, and would wait for one counter


def count(const uint16_t[::1] origins, int64_t[::1] counts):
    """Counts the rows of each source. Returns the number of runs of rows of one source. Raises ValueError for a source
    out of range."""
    cdef int64_t row, source, number, runs = 0
    cdef int64_t[:, ::1] counters = np.zeros((counts.shape[0], COUNTERS), dtype=np.int64)
    state = release_gil(origins.shape[0])
    cdef bint is_good = highest(origins) < counts.shape[0]
    if is_good:
        for row in range(origins.shape[0]):
            counters[origins[row], row % COUNTERS] += 1
        runs = runs_of(origins)
    restore_gil(state)
    if not is_good:
        raise ValueError("rows of a source that there is not")
    for source in range(counts.shape[0]):
        counts[source] = 0
        for number in range(COUNTERS):
            counts[source] += counters[source, number]
    return runs


cdef int64_t highest(const uint16_t[::1] origins) noexcept nogil:
    """Returns the highest source of any row; -1 without rows."""
    cdef int64_t row
    cdef uint16_t found = 0
    for row in range(origins.shape[0]):
        found = max(found, origins[row])
    return found if origins.shape[0] else -1


cdef int64_t runs_of(const uint16_t[::1] origins) noexcept nogil:
    cdef int64_t row, runs = origins.shape[0] > 0
    for row in range(1, origins.shape[0]):
        runs += origins[row] != origins[row - 1]
    return runs


def divide(const uint16_t[::1] origins, uint16_t[::1] sources, uint32_t[::1] lengths):
    """Fills in the source and the length of each run; `count` returned the number of runs."""
    cdef int64_t row, run = 0, start = 0, rows = origins.shape[0]
    if sources.shape[0] != lengths.shape[0] or sources.shape[0] != runs_of(origins):
        raise ValueError("another number of runs")
    for row in range(1, rows + 1):
        if row == rows or origins[row] != origins[row - 1]:
            sources[run] = origins[row - 1]
            lengths[run] = <uint32_t>(row - start)
            start = row
            run += 1


def renumber(const uint16_t[::1] origins, const uint16_t[::1] places, uint16_t[::1] out):
    """Fills in the place of each row's source. Raises ValueError for a source out of range."""
    cdef int64_t row
    if out.shape[0] != origins.shape[0]:
        raise ValueError("places of other rows")
    state = release_gil(origins.shape[0])
    cdef bint is_good = highest(origins) < places.shape[0]
    if is_good:
        for row in range(origins.shape[0]):
            out[row] = places[origins[row]]
    restore_gil(state)
    if not is_good:
        raise ValueError("rows of a source that there is not")
