# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Checks that strings are UTF-8, as RFC 3629 defines it."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from format.native.words cimport offset

cdef enum:
    STRIDE = 4096

cdef uint64_t HIGH_BITS = 0x8080808080808080ULL


def is_text(const int8_t[::1] offsets, bint is_large, const int8_t[::1] data, const int8_t[::1] validity):
    """Returns whether all strings are UTF-8, apart from those that are null.

    offsets: of 8 bytes or of 4, from 0 on, not falling, and within `data`. validity: a bitmap, or None.
    """
    cdef int64_t count = offsets.shape[0] // (8 if is_large else 4) - 1, size = data.shape[0]
    cdef const uint8_t* at = <const uint8_t*>&data[0] if size else NULL
    cdef const uint8_t* bits = <const uint8_t*>&validity[0] if validity is not None and validity.shape[0] else NULL
    cdef bint fits
    if count <= 0 or size == 0:
        return True
    with nogil:
        if is_large:
            fits = are_text(<const int64_t*>&offsets[0], count, at, size, bits)
        else:
            fits = are_text(<const int32_t*>&offsets[0], count, at, size, bits)
    return fits


cdef bint are_text(
    const offset* offsets, int64_t count, const uint8_t* data, int64_t size, const uint8_t* validity
) noexcept nogil:
    cdef int64_t ascii_size = ascii_prefix(data, size), row, begin
    cdef bint divides = False
    if ascii_size == size:
        return True
    # All bytes at once are text where each string is, unless a string begins within a character.
    if is_utf8(data + ascii_size, data + size):
        for row in range(count):
            begin = offsets[row]
            divides |= begin < size and (data[begin] & 0xC0) == 0x80
        if not divides:
            return True
    if validity == NULL:
        return False
    for row in range(count):
        if validity[row >> 3] >> (row & 7) & 1 and not is_utf8(data + offsets[row], data + offsets[row + 1]):
            return False
    return True


cdef int64_t ascii_prefix(const uint8_t* data, int64_t size) noexcept nogil:
    """Returns how many bytes are ASCII from the beginning on; fewer by part of a stride if not all are."""
    cdef int64_t start = 0, index
    cdef uint64_t every, eight
    cdef uint8_t rest = 0
    while size - start >= STRIDE:
        every = 0
        for index in range(STRIDE // 8):
            memcpy(&eight, data + start + 8 * index, 8)
            every |= eight
        if every & HIGH_BITS:
            return start
        start += STRIDE
    for index in range(start, size):
        rest |= data[index]
    return start if rest & 0x80 else size


cdef bint is_utf8(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef uint64_t first, second
    cdef uint8_t lead
    while at < end:
        if end - at >= 16:
            memcpy(&first, at, 8)
            memcpy(&second, at + 8, 8)
            if (first | second) & HIGH_BITS == 0:
                at += 16
                continue
        while at < end and at[0] < 0x80:
            at += 1
        while at < end and at[0] >= 0x80:
            lead = at[0]
            if lead < 0xE0:
                if lead < 0xC2 or end - at < 2 or not follows(at[1]):
                    return False
                at += 2
            elif lead < 0xF0:
                if end - at < 3 or not follows(at[1]) or not follows(at[2]):
                    return False
                if (lead == 0xE0 and at[1] < 0xA0) or (lead == 0xED and at[1] >= 0xA0):
                    return False  # longer than need be, or half of a pair of UTF-16
                at += 3
            else:
                if lead > 0xF4 or end - at < 4 or not follows(at[1]) or not follows(at[2]) or not follows(at[3]):
                    return False
                if (lead == 0xF0 and at[1] < 0x90) or (lead == 0xF4 and at[1] >= 0x90):
                    return False  # longer than need be, or above U+10FFFF
                at += 4
    return True


cdef inline bint follows(uint8_t byte) noexcept nogil:
    return (byte & 0xC0) == 0x80
