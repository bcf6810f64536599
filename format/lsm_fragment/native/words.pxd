"""Shared by all loops: fused integer types, powers of ten, and functions that load, mix and search words."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

ctypedef fused word:
    uint8_t
    uint16_t
    uint32_t
    uint64_t

ctypedef fused integer:
    int8_t
    int16_t
    int32_t
    int64_t
    uint8_t
    uint16_t
    uint32_t
    uint64_t

ctypedef fused offset:
    int32_t
    int64_t

cdef enum:
    MAX_FRACTION_DIGITS = 15  # of a double stored as an integer (DECIMAL of SPEC section 5)

cdef extern from *:
    """
    #include <stdint.h>

    /* Compiles a loop for several levels of x86-64; the loader picks the machine's. */
    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__)
    #define FOR_EACH_LEVEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
    #else
    #define FOR_EACH_LEVEL
    #endif

    /* The bijective finaliser of the row hash (SPEC section 7). */
    static inline uint64_t mixed(uint64_t value) {
        value ^= value >> 32;
        value *= 0xD6E8FEB86659FD93ULL;
        value ^= value >> 32;
        value *= 0xD6E8FEB86659FD93ULL;
        return value ^ (value >> 32);
    }

    static inline int lowest_bit(unsigned long long value) { return __builtin_ctzll(value); }
    static inline int bits_in(unsigned long long value) { return value ? 64 - __builtin_clzll(value) : 0; }

    static inline double power_of_ten(int digits) {
        static const double powers[] = {
            1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
        };
        return powers[digits];
    }
    """
    uint64_t mixed(uint64_t value) noexcept nogil
    int lowest_bit(uint64_t value) noexcept nogil  # value: not 0
    int bits_in(uint64_t value) noexcept nogil  # position of the highest set bit, plus 1
    double power_of_ten(int digits) noexcept nogil  # digits: 0 to MAX_FRACTION_DIGITS


cdef inline uint64_t loaded(const uint8_t* at, int64_t size) noexcept nogil:
    """Returns up to eight bytes as a little-endian integer."""
    cdef uint64_t value = 0
    memcpy(&value, at, size)
    return value


cdef inline uint64_t bytes_like(uint64_t word, uint64_t byte) noexcept nogil:
    """Returns a word whose lowest bit is in the first of eight bytes that is `byte`; zero without one."""
    cdef uint64_t ones = 0x0101010101010101
    word ^= ones * byte
    return (word - ones) & ~word & (ones << 7)


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


cdef inline uint64_t reversed_bytes(uint64_t value) noexcept nogil:
    value = ((value & 0x00FF00FF00FF00FFULL) << 8) | ((value >> 8) & 0x00FF00FF00FF00FFULL)
    value = ((value & 0x0000FFFF0000FFFFULL) << 16) | ((value >> 16) & 0x0000FFFF0000FFFFULL)
    return (value << 32) | (value >> 32)


cdef inline uint64_t big_endian(const uint8_t* at, int64_t size) noexcept nogil:
    """Returns up to eight bytes as an integer that compares as they do, padded with zeros."""
    cdef uint64_t value
    if size >= 8:
        memcpy(&value, at, 8)
        return reversed_bytes(value)
    return reversed_bytes(loaded(at, size))
