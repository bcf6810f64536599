# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Finds the least and the greatest value of a column in the order of SPEC section 6.

`valid` is the validity bitmap of an Arrow array, read from bit `start` on, or None; values are those of the
rows only. Raises ValueError for a short buffer, and for offsets or codes out of range.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from lsm_fragment.native.gil cimport release_gil, restore_gil
from lsm_fragment.native.nulls cimport Nulls, is_null, nulls_of, require
from lsm_fragment.native.words cimport big_endian, integer, offset

ctypedef fused number:
    integer
    float
    double

cdef extern from *:
    """
    /* Widens extremes by all values that are not null. Returns whether there is a NaN; the extremes are unchanged then.
       Lanes are independent, so compilers vectorise them. */
    #define LANES 16
    #define BLOCK 512
    #define WIDEN(name, type) \
        FOR_EACH_LEVEL static int name( \
            const type* values, const uint8_t* valid, int64_t start, int64_t rows, type* low, type* high \
        ) { \
            type lows[LANES], highs[LANES], present[BLOCK], some = *low; \
            uint8_t kept[BLOCK]; \
            int has_nan = 0; \
            for (int lane = 0; lane < LANES; lane++) \
                lows[lane] = highs[lane] = some; \
            while (rows > 0) { \
                int64_t count = rows < BLOCK ? rows : BLOCK, at = 0; \
                const type* block = values; \
                if (valid) { \
                    for (int64_t row = 0; row < count; row++) \
                        kept[row] = (valid[(start + row) >> 3] >> ((start + row) & 7)) & 1; \
                    for (int64_t row = 0; row < count; row++) { \
                        type value = values[row]; \
                        present[row] = kept[row] ? value : some; \
                    } \
                    block = present; \
                } \
                for (; at + LANES <= count; at += LANES) \
                    for (int lane = 0; lane < LANES; lane++) { \
                        type value = block[at + lane]; \
                        lows[lane] = value < lows[lane] ? value : lows[lane]; \
                        highs[lane] = value > highs[lane] ? value : highs[lane]; \
                        has_nan |= value != value; \
                    } \
                for (; at < count; at++) { \
                    type value = block[at]; \
                    lows[0] = value < lows[0] ? value : lows[0]; \
                    highs[0] = value > highs[0] ? value : highs[0]; \
                    has_nan |= value != value; \
                } \
                values += count; \
                start += count; \
                rows -= count; \
            } \
            for (int lane = 0; lane < LANES && !has_nan; lane++) { \
                *low = lows[lane] < *low ? lows[lane] : *low; \
                *high = highs[lane] > *high ? highs[lane] : *high; \
            } \
            return has_nan; \
        }
    WIDEN(widen_int8, int8_t) WIDEN(widen_int16, int16_t) WIDEN(widen_int32, int32_t) WIDEN(widen_int64, int64_t)
    WIDEN(widen_uint8, uint8_t) WIDEN(widen_uint16, uint16_t) WIDEN(widen_uint32, uint32_t) WIDEN(widen_uint64, uint64_t)
    WIDEN(widen_float, float) WIDEN(widen_double, double)
    #define widen(values, valid, start, rows, low, high) _Generic((low), \
        int8_t*: widen_int8, int16_t*: widen_int16, int32_t*: widen_int32, int64_t*: widen_int64, \
        uint8_t*: widen_uint8, uint16_t*: widen_uint16, uint32_t*: widen_uint32, uint64_t*: widen_uint64, \
        float*: widen_float, double*: widen_double \
    )(values, valid, start, rows, low, high)
    """
    bint widen(
        const void* values, const uint8_t* valid, int64_t start, int64_t rows, void* low, void* high
    ) noexcept nogil

cdef uint8_t NOTHING = 0  # address of empty data: memcmp must not get NULL


cdef inline bint is_less(number one, number other) noexcept nogil:
    """Compares numbers; NaN is greater than all others."""
    if number is float or number is double:
        return one < other or (other != other and one == one)
    else:
        return one < other


cdef inline int sign_of_wide(const uint64_t* one, const uint64_t* other, int64_t words) noexcept nogil:
    """Compares signed integers of several words, the least significant first."""
    cdef int64_t word = words - 1
    if one[word] != other[word]:
        return 1 if <int64_t>one[word] > <int64_t>other[word] else -1
    while word > 0:
        word -= 1
        if one[word] != other[word]:
            return 1 if one[word] > other[word] else -1
    return 0


cdef inline int sign_of_strings(const uint8_t* base, const offset* one, const offset* other) noexcept nogil:
    """Compares two strings. one, other: pointers to their offsets."""
    cdef int64_t one_size = one[1] - one[0], other_size = other[1] - other[0]
    cdef int sign = memcmp(base + one[0], base + other[0], min(one_size, other_size))
    return sign if sign else (one_size > other_size) - (one_size < other_size)


cdef const uint8_t* bytes_of(const offset[::1] offsets, const uint8_t[::1] data) except NULL:
    """Returns the address of the bytes of strings, after checking the offsets."""
    cdef int64_t row
    cdef bint are_inside
    require(offsets.shape[0] > 0, "its offsets")
    with nogil:
        are_inside = offsets[0] >= 0 and offsets[offsets.shape[0] - 1] <= data.shape[0]
        for row in range(1, offsets.shape[0]):
            are_inside &= offsets[row - 1] <= offsets[row]
    require(are_inside, "its offsets")
    return &data[0] if data.shape[0] else &NOTHING


def extreme_numbers(const number[::1] values, const uint8_t[::1] valid, int64_t start):
    """Returns the least and the greatest number; None if all are null. Zeros of both signs are equal."""
    cdef Nulls nulls = nulls_of(valid, start, values.shape[0])
    cdef int64_t first = 0, row, rows = values.shape[0]
    cdef number low = 0, high = 0, value
    cdef bint has_value
    state = release_gil(rows)
    while first < rows and is_null(nulls, first):
        first += 1
    has_value = first < rows
    if has_value:
        low = high = values[first]
        if widen(&values[first], nulls.bits, nulls.start + first, rows - first, &low, &high):
            for row in range(first, rows):
                value = values[row]
                if not is_null(nulls, row):
                    low = value if is_less(value, low) else low
                    high = value if is_less(high, value) else high
    restore_gil(state)
    return (low, high) if has_value else None


def extreme_wide(const uint64_t[:, ::1] values, const uint8_t[::1] valid, int64_t start):
    """Returns the rows of the least and the greatest signed integer of several words; -1 if all are null."""
    cdef Nulls nulls = nulls_of(valid, start, values.shape[0])
    cdef int64_t row, low = -1, high = -1, words = values.shape[1]
    with nogil:
        for row in range(values.shape[0]):
            if is_null(nulls, row):
                continue
            if low < 0 or sign_of_wide(&values[row, 0], &values[low, 0], words) < 0:
                low = row
            if high < 0 or sign_of_wide(&values[row, 0], &values[high, 0], words) > 0:
                high = row
    return low, high


def extreme_bytes(const uint8_t[:, ::1] values, const uint8_t[::1] valid, int64_t start):
    """Returns the rows of the least and the greatest of values of equally many bytes; -1 if all are null."""
    cdef Nulls nulls = nulls_of(valid, start, values.shape[0])
    cdef int64_t row, low = -1, high = -1, width = values.shape[1]
    with nogil:
        for row in range(values.shape[0]):
            if is_null(nulls, row):
                continue
            if low < 0 or memcmp(&values[row, 0], &values[low, 0], width) < 0:
                low = row
            if high < 0 or memcmp(&values[row, 0], &values[high, 0], width) > 0:
                high = row
    return low, high


def extreme_strings(const offset[::1] offsets, const uint8_t[::1] data, const uint8_t[::1] valid, int64_t start):
    """Returns the rows of the least and the greatest string by bytes; -1 if all are null."""
    cdef int64_t row, low = -1, high = -1
    cdef uint64_t head, low_head = 0, high_head = 0
    cdef const uint8_t* base = bytes_of(offsets, data)
    cdef const offset* at = &offsets[0]
    cdef Nulls nulls = nulls_of(valid, start, offsets.shape[0] - 1)
    with nogil:
        for row in range(offsets.shape[0] - 1):
            if is_null(nulls, row):
                continue
            # The first eight bytes decide most comparisons.
            head = big_endian(base + at[row], min(8, at[row + 1] - at[row]))
            if low < 0:
                low = high = row
                low_head = high_head = head
            elif head < low_head or (head == low_head and sign_of_strings(base, at + row, at + low) < 0):
                low = row
                low_head = head
            elif head > high_head or (head == high_head and sign_of_strings(base, at + row, at + high) > 0):
                high = row
                high_head = head
    return low, high
