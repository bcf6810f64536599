"""Compares normalised keys (`lsm_fragment.native.keys.normalised`), which are ordered by their bytes.

No key is a proper prefix of another, so keys that agree in all common bytes are equal.
"""

from libc.stdint cimport int64_t, uint64_t, uint8_t
from libc.string cimport memcpy

from lsm_fragment.native.words cimport big_endian, lowest_bit

cdef struct Key:
    const uint8_t* at
    int64_t length


cdef inline uint64_t word_at(const Key* key, int64_t place) noexcept nogil:
    """Returns the eight bytes from `place` on, padded with zeros, as an integer that compares as they do."""
    cdef int64_t left = key.length - place
    if left >= 8:
        return big_endian(key.at + place, 8)
    if left <= 0:
        return 0
    if key.length >= 8:  # one load, of bytes before `place` too
        return big_endian(key.at + key.length - 8, 8) << (8 * (8 - left))
    return big_endian(key.at + place, left)


cdef inline int64_t difference(const Key* a, const Key* b, int64_t place) noexcept nogil:
    """Returns the position of the first byte that differs, from `place` on; -1 if the keys are equal.

    place: the keys are equal before it.
    """
    cdef uint64_t x, y
    cdef int64_t shared = min(a.length, b.length)
    while place + 8 <= shared:
        memcpy(&x, a.at + place, 8)
        memcpy(&y, b.at + place, 8)
        if x != y:
            return place + (lowest_bit(x ^ y) >> 3)
        place += 8
    while place < shared:
        if a.at[place] != b.at[place]:
            return place
        place += 1
    return -1 if a.length == b.length else shared


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
