# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Counts, divides and renumbers the sources of rows in merged order."""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from format.native.counters cimport COUNTERS, count_rows, counted
from format.native.gil cimport let_go, take_back

ctypedef fused place:
    uint8_t
    uint16_t


def count(const uint16_t[::1] origins, int64_t[::1] counts):
    """Counts the rows of each source. Raises ValueError if rows name others."""
    cdef int64_t source
    cdef int64_t[:, ::1] counters = np.zeros((counts.shape[0], COUNTERS), dtype=np.int64)
    state = let_go(origins.shape[0])
    cdef bint is_good = count_rows(origins, counters)
    take_back(state)
    if not is_good:
        raise ValueError("rows of a source that there is not")
    for source in range(counts.shape[0]):
        counts[source] = counted(counters, source)


def count_runs(const uint16_t[::1] origins):
    """Returns the number of runs of rows of one source."""
    cdef int64_t row, runs = origins.shape[0] > 0
    state = let_go(origins.shape[0])
    for row in range(1, origins.shape[0]):
        runs += origins[row] != origins[row - 1]
    take_back(state)
    return runs


def divide(const uint16_t[::1] origins, uint16_t[::1] sources, uint32_t[::1] lengths):
    """Fills in the source and the length of each of the runs, of which there are as many as `count_runs` returns."""
    cdef int64_t row, run = 0, start = 0, rows = origins.shape[0]
    if sources.shape[0] != lengths.shape[0] or sources.shape[0] != count_runs(origins):
        raise ValueError("another number of runs")
    for row in range(1, rows + 1):
        if row == rows or origins[row] != origins[row - 1]:
            sources[run] = origins[row - 1]
            lengths[run] = <uint32_t>(row - start)
            start = row
            run += 1


def renumber(const uint16_t[::1] origins, const place[::1] places, place[::1] out):
    """Fills in the place of each row's source. Raises ValueError if one has none."""
    cdef int64_t row, sources = places.shape[0]
    cdef uint16_t highest = 0
    if out.shape[0] != origins.shape[0]:
        raise ValueError("places of other rows")
    state = let_go(origins.shape[0])
    for row in range(origins.shape[0]):
        highest = max(highest, origins[row])
    cdef bint is_good = highest < sources or not origins.shape[0]
    if is_good:
        for row in range(origins.shape[0]):
            out[row] = places[origins[row]]
    take_back(state)
    if not is_good:
        raise ValueError("rows of a source that there is not")
