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
    LANE = 16  # bytes that `copy_lanes` copies at once
    WINDOW = 64  # bytes of which `places_of` and its like return the places
    MAX_FRACTION_DIGITS = 15  # of a double stored as an integer (DECIMAL of SPEC section 5)

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

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

    static inline int ones_of(uint64_t bits) { return __builtin_popcountll(bits); }
    static inline int lowest_bit(unsigned long long value) { return __builtin_ctzll(value); }
    static inline int bits_in(unsigned long long value) { return value ? 64 - __builtin_clzll(value) : 0; }

    /* Bit i of the result tells whether byte i of 64 is `byte`, or less than `bound` (at most 128). */
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #define PLACES(at, matches)                                                                   \
        uint64_t places = 0;                                                                      \
        for (int lane = 0; lane < 4; lane++) {                                                    \
            const __m128i bytes = _mm_loadu_si128((const __m128i*)((at) + 16 * lane));            \
            places |= (uint64_t)(uint32_t)_mm_movemask_epi8(matches) << (16 * lane);              \
        }                                                                                         \
        return places;
    static inline uint64_t places_of(const uint8_t* at, uint8_t byte) {
        const __m128i wanted = _mm_set1_epi8((char)byte);
        PLACES(at, _mm_cmpeq_epi8(bytes, wanted))
    }
    static inline uint64_t places_below(const uint8_t* at, uint8_t bound) {
        const __m128i last = _mm_set1_epi8((char)(bound - 1));
        PLACES(at, _mm_cmpeq_epi8(_mm_min_epu8(bytes, last), bytes))
    }
    /* Bit i tells whether byte i of 64 is a letter or a digit of ASCII, or beyond ASCII. */
    static inline uint64_t places_of_letters(const uint8_t* at) {
        PLACES(at, _mm_or_si128(
            _mm_cmplt_epi8(bytes, _mm_setzero_si128()),
            _mm_or_si128(
                _mm_and_si128(_mm_cmpgt_epi8(bytes, _mm_set1_epi8('0' - 1)),
                              _mm_cmplt_epi8(bytes, _mm_set1_epi8('9' + 1))),
                _mm_and_si128(_mm_cmpgt_epi8(_mm_or_si128(bytes, _mm_set1_epi8(32)), _mm_set1_epi8('a' - 1)),
                              _mm_cmplt_epi8(_mm_or_si128(bytes, _mm_set1_epi8(32)), _mm_set1_epi8('z' + 1))))))
    }
    #else
    static inline uint64_t places_of_letters(const uint8_t* at) {
        uint64_t places = 0;
        for (int index = 0; index < 64; index++) {
            const uint8_t byte = at[index], letter = byte | 32;
            places |= (uint64_t)(byte > 127 || (uint8_t)(byte - '0') < 10 || (uint8_t)(letter - 'a') < 26) << index;
        }
        return places;
    }
    #define PLACES(at, matches)                                                                   \
        uint64_t places = 0, bytes;                                                               \
        for (int lane = 0; lane < 8; lane++) {                                                    \
            memcpy(&bytes, (at) + 8 * lane, 8);                                                   \
            places |= ((((matches) >> 7) & ONES) * 0x0102040810204080ULL >> 56) << (8 * lane);    \
        }                                                                                         \
        return places;
    #define ONES 0x0101010101010101ULL
    static inline uint64_t places_of(const uint8_t* at, uint8_t byte) {
        PLACES(at, ~((((bytes ^ ONES * byte) & ONES * 127) + ONES * 127) | (bytes ^ ONES * byte)))
    }
    static inline uint64_t places_below(const uint8_t* at, uint8_t bound) {
        PLACES(at, ~(((bytes & ONES * 127) + ONES * (128 - bound)) | bytes))
    }
    #endif

    static inline double power_of_ten(int digits) {
        static const double powers[] = {
            1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
        };
        return powers[digits];
    }
    """
    uint64_t mixed(uint64_t value) noexcept nogil
    int ones_of(uint64_t bits) noexcept nogil
    int lowest_bit(uint64_t value) noexcept nogil  # value: not 0
    int bits_in(uint64_t value) noexcept nogil  # position of the highest set bit, plus 1
    uint64_t places_of(const uint8_t* at, uint8_t byte) noexcept nogil
    uint64_t places_below(const uint8_t* at, uint8_t bound) noexcept nogil
    uint64_t places_of_letters(const uint8_t* at) noexcept nogil
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


cdef inline void copy_lanes(const uint8_t* start, int64_t size, uint8_t* into) noexcept nogil:
    """Copies bytes, and up to `LANE` of those that follow."""
    cdef int64_t at = 0
    while at < size:
        memcpy(into + at, start + at, LANE)
        at += LANE


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
