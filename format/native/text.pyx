# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Finds out whether text is ASCII, and so valid UTF-8 wherever it is divided."""

from libc.stdint cimport int8_t, int64_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    STRIDE = 4096


def is_ascii(const int8_t[::1] data):
    """Returns whether all bytes are ASCII. Reads a few more than up to the first one that is not."""
    cdef int64_t start = 0, index, size = data.shape[0]
    cdef uint64_t every = 0, eight
    cdef int8_t rest = 0
    with nogil:
        while size - start >= STRIDE:
            for index in range(STRIDE // 8):
                memcpy(&eight, &data[start + 8 * index], 8)
                every |= eight
            if every & 0x8080808080808080ULL:
                break
            start += STRIDE
        else:
            for index in range(start, size):
                rest |= data[index]
    return every & 0x8080808080808080ULL == 0 and rest >= 0
