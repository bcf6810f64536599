"""Arrow validity bitmaps."""

from libc.stdint cimport int64_t, uint8_t

cdef struct Nulls:
    const uint8_t* bits  # NULL where nothing is null
    int64_t start


cdef inline Nulls nulls_of(const uint8_t[::1] valid, int64_t start, int64_t rows) except *:
    """Returns the bitmap of `rows` rows from bit `start` on. Raises ValueError if it is too short."""
    cdef Nulls nulls
    nulls.bits = NULL
    nulls.start = start
    require(start >= 0, "its offset")
    if valid is not None:
        require(valid.shape[0] >= (start + rows + 7) // 8, "a buffer is too short")
        nulls.bits = &valid[0] if valid.shape[0] else NULL
    return nulls


cdef inline bint is_null(Nulls nulls, int64_t row) noexcept nogil:
    row += nulls.start
    return nulls.bits is not NULL and not (nulls.bits[row >> 3] >> (row & 7)) & 1


cdef inline int require(bint holds, str what) except -1:
    if not holds:
        raise ValueError(f"an array is malformed: {what}")
    return 0
