"""Counts rows by their source."""

from libc.stdint cimport int64_t, uint16_t

cdef enum:
    COUNTERS = 4  # of each source: neighbours mostly have one, and must not wait for what was just added to it


cdef inline bint count_rows(const uint16_t[::1] origins, int64_t[:, ::1] counters) noexcept nogil:
    """Counts the rows of each source in `COUNTERS` zeros. Returns whether rows name no others."""
    cdef int64_t row
    cdef uint16_t highest = 0
    for row in range(origins.shape[0]):
        highest = max(highest, origins[row])
    if highest >= counters.shape[0] and origins.shape[0]:
        return False
    for row in range(origins.shape[0]):
        counters[origins[row], row % COUNTERS] += 1
    return True


cdef inline int64_t counted(const int64_t[:, ::1] counters, int64_t source) noexcept nogil:
    """Returns the rows of a source."""
    cdef int64_t number, rows = 0
    for number in range(COUNTERS):
        rows += counters[source, number]
    return rows
