"""Compares normalised keys (`lsm_fragment.native.keys.normalised`), which are ordered by their bytes.

No key is a proper prefix of another, so keys that agree in all common bytes are equal.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

cdef struct Key:
    const uint8_t* at
    int64_t length


cdef inline uint64_t symbol(const Key* key, int64_t place) noexcept nogil:
    """Returns the four bytes from `place` on, padded with zeros, as an integer that compares as they do."""
    cdef uint32_t value = 0
    cdef int64_t left = key.length - place
    if left >= 4:
        memcpy(&value, key.at + place, 4)
        value = ((value & 0x00FF00FFU) << 8) | ((value >> 8) & 0x00FF00FFU)
        return (value << 16) | (value >> 16)
    for place in range(place, key.length):
        value = (value << 8) | key.at[place]
    return <uint64_t>value << (8 * (4 - left)) if left > 0 else 0


cdef inline int64_t difference(const Key* a, const Key* b, int64_t place) noexcept nogil:
    """Returns the position of the first four bytes, from `place` on, that differ; -1 if the keys are equal.

    place: a multiple of 4; the keys are equal before it.
    """
    cdef uint64_t x, y
    cdef int64_t shared = min(a.length, b.length)
    while place + 8 <= shared:
        memcpy(&x, a.at + place, 8)
        memcpy(&y, b.at + place, 8)
        if x != y:
            return place if <uint32_t>x != <uint32_t>y else place + 4
        place += 8
    if place + 4 <= shared:
        if symbol(a, place) != symbol(b, place):
            return place
        place += 4
    if place >= a.length and place >= b.length:
        return -1
    if place < shared and a.length == b.length and symbol(a, place) == symbol(b, place):
        return -1
    return place


cdef inline int64_t prefix_of(
    const Key* key, const int64_t* widths, const uint8_t* flips, int64_t columns
) noexcept nogil:
    """Returns the bytes that the first columns take in a key.

    widths: bytes of a column's values; -1 for strings. flips: 255 for descending columns, otherwise 0.
    """
    cdef int64_t column, place = 0
    for column in range(columns):
        place += 1
        if widths[column] >= 0:
            place += widths[column]
        elif key.at[place - 1] == 1:
            # Two zeros in a row occur only at the end of a string.
            while key.at[place] != flips[column] or key.at[place + 1] != flips[column]:
                place += 1
            place += 2
    return place
