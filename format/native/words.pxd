"""Eight bytes at a time: the words that the loops over strings load and mix."""

from libc.stdint cimport int64_t, uint64_t, uint8_t
from libc.string cimport memcpy

cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    """Applies the bijective finaliser of the row hash (SPEC section 7)."""
    value ^= value >> 32
    value *= <uint64_t>0xD6E8FEB86659FD93ULL
    value ^= value >> 32
    value *= <uint64_t>0xD6E8FEB86659FD93ULL
    return value ^ (value >> 32)


cdef inline uint64_t loaded(const uint8_t* at, int64_t size) noexcept nogil:
    """Returns up to eight bytes as a little-endian integer."""
    cdef uint64_t value = 0
    memcpy(&value, at, size)
    return value


cdef inline uint64_t big_endian(const uint8_t* at, int64_t size) noexcept nogil:
    """Returns up to eight bytes as an integer that compares as they do; zeros stand for missing ones."""
    cdef uint64_t value = loaded(at, 8) if size == 8 else loaded(at, size)
    value = ((value & 0x00FF00FF00FF00FFULL) << 8) | ((value >> 8) & 0x00FF00FF00FF00FFULL)
    value = ((value & 0x0000FFFF0000FFFFULL) << 16) | ((value >> 16) & 0x0000FFFF0000FFFFULL)
    return (value << 32) | (value >> 32)


cdef inline uint64_t hash_of(const uint8_t* at, int64_t length) noexcept nogil:
    """Hashes a string for a table in memory."""
    cdef uint64_t total = <uint64_t>length * <uint64_t>0x9E3779B97F4A7C15ULL
    cdef int64_t left = length
    while left >= 8:
        total = (total ^ loaded(at, 8)) * <uint64_t>0xD6E8FEB86659FD93ULL
        total ^= total >> 32
        at += 8
        left -= 8
    return mixed(total ^ loaded(at, left))
