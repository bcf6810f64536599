# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Tests whether text is ASCII: then it is valid UTF-8 wherever it is split."""

from libc.stdint cimport int8_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from lsm_fragment.native.words cimport offset

cdef enum:
    STRIDE = 4096


cdef bint has_ascii_only(const int8_t* data, int64_t size) noexcept nogil:
    """Stops soon after the first byte that is not ASCII."""
    cdef int64_t start = 0, index
    cdef uint64_t every = 0, eight
    cdef int8_t rest = 0
    while size - start >= STRIDE:
        for index in range(STRIDE // 8):
            memcpy(&eight, data + start + 8 * index, 8)
            every |= eight
        if every & 0x8080808080808080ULL:
            return False
        start += STRIDE
    for index in range(start, size):
        rest |= data[index]
    return rest >= 0


def is_ascii(const int8_t[::1] data):
    """Returns whether all bytes are ASCII."""
    cdef bint found
    if data.shape[0] == 0:
        return True
    with nogil:
        found = has_ascii_only(&data[0], data.shape[0])
    return found


def are_ascii(const offset[::1] offsets, const uint8_t[::1] data):
    """Returns whether all strings are ASCII and their offsets ascend within the data."""
    cdef int64_t row, first, last, count = offsets.shape[0]
    cdef bint found = True
    if count == 0:
        return False
    first, last = offsets[0], offsets[count - 1]
    with nogil:
        for row in range(1, count):
            found &= offsets[row - 1] <= offsets[row]
        found &= 0 <= first and last <= data.shape[0]
        if found and first < last:
            found = has_ascii_only(<const int8_t*>&data[first], last - first)
    return found
