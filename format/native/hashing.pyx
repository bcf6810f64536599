# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Hashes byte strings for the row hash."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from format.native.words cimport loaded, mixed

ctypedef fused offset:
    int32_t
    int64_t

cdef uint64_t LENGTH_FACTOR = 0x9E3779B97F4A7C15ULL


def hash_spots(const offset[::1] offsets, const uint8_t[::1] data, const uint64_t[::1] keys, uint64_t[::1] out):
    """Hashes strings by the rule of version 2: their length and five words."""
    cdef int64_t row, spot, length
    cdef uint64_t total, key_sum = 0
    cdef const uint8_t* at
    cdef const uint8_t* base = &data[0] if data.shape[0] else NULL
    with nogil:
        for spot in range(5):
            key_sum += keys[spot]
        for row in range(out.shape[0]):
            length = offsets[row + 1] - offsets[row]
            at = base + offsets[row]
            total = <uint64_t>length * LENGTH_FACTOR
            if length < 8:
                total += loaded(at, length) * key_sum
            else:
                for spot in range(5):
                    total += loaded(at + (((length - 8) * spot) >> 2), 8) * keys[spot]
            out[row] = mixed(total)


def hash_words(
    const offset[::1] offsets, const uint8_t[::1] data, const uint64_t[::1] keys, int64_t most, uint64_t[::1] out
):
    """Hashes strings of at most `most` bytes by the rule of version 1: all words. Leaves longer ones out."""
    cdef int64_t row, word_number, length
    cdef uint64_t total
    cdef const uint8_t* at
    cdef const uint8_t* base = &data[0] if data.shape[0] else NULL
    with nogil:
        for row in range(out.shape[0]):
            length = offsets[row + 1] - offsets[row]
            if length > most:
                continue
            at = base + offsets[row]
            total = <uint64_t>length * LENGTH_FACTOR
            for word_number in range(length >> 3):
                total += loaded(at + 8 * word_number, 8) * keys[word_number]
            total += loaded(at + (length & ~7), length & 7) * keys[length >> 3]
            out[row] = mixed(total)
