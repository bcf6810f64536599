# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Compares the values of one column with each other by SPEC section 6: their extremes, and whether they are in
order.

`valid` is the validity bitmap of an Arrow array, read from bit `start` on, or None; values are those of the
rows only. Raises ValueError where a buffer is too short, and where offsets or codes point outside.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from format.native.nulls cimport Nulls, is_null, nulls_of, require
from format.native.words cimport big_endian

ctypedef fused number:
    int8_t
    int16_t
    int32_t
    int64_t
    uint8_t
    uint16_t
    uint32_t
    uint64_t
    float
    double

ctypedef fused offset:
    int32_t
    int64_t

cdef enum:
    BOTH_VALUES = 2

cdef uint8_t NOTHING = 0  # where data without bytes begins, since memcmp must not get NULL


# --- one value against another --------------------------------------------------------------

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
    """Compares two strings. one, other: where their offsets stand."""
    cdef int64_t one_size = one[1] - one[0], other_size = other[1] - other[0]
    cdef int sign = memcmp(base + one[0], base + other[0], min(one_size, other_size))
    return sign if sign else (one_size > other_size) - (one_size < other_size)


cdef const uint8_t* bytes_of(const offset[::1] offsets, const uint8_t[::1] data) except NULL:
    """Returns where the bytes of strings begin, all of which are there."""
    cdef int64_t row
    cdef bint are_inside
    require(offsets.shape[0] > 0, "its offsets")
    with nogil:
        are_inside = offsets[0] >= 0 and offsets[offsets.shape[0] - 1] <= data.shape[0]
        for row in range(1, offsets.shape[0]):
            are_inside &= offsets[row - 1] <= offsets[row]
    require(are_inside, "its offsets")
    return &data[0] if data.shape[0] else &NOTHING


# --- the least and the greatest value -------------------------------------------------------

def extreme_numbers(const number[::1] values, const uint8_t[::1] valid, int64_t start):
    """Returns the least and the greatest number; None if all are null. Zeros of both signs are equal."""
    cdef Nulls nulls = nulls_of(valid, start, values.shape[0])
    cdef int64_t first = 0, row, rows = values.shape[0]
    cdef number low, high, value
    with nogil:
        while first < rows and is_null(nulls, first):
            first += 1
        if first < rows:
            low = high = values[first]
            for row in range(first + 1, rows):
                value = values[row]
                if not is_null(nulls, row):
                    low = value if is_less(value, low) else low
                    high = value if is_less(high, value) else high
    return (low, high) if first < rows else None


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
            # Most are decided by their first eight bytes.
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


# --- order ----------------------------------------------------------------------------------
#
# The columns of a sort schema decide in turn whether each row may follow the one before it. `signs` has a byte
# for each row, at first 0: 1 where a column has decided that it may. `stop` is the first row found that may
# not, at first the number of rows. Each function takes the next column and returns the new `stop`.

cdef struct Column:
    Nulls nulls
    bint descends
    bint nulls_first


cdef Column column_of(
    int64_t rows, const uint8_t[::1] valid, int64_t start, bint descends, bint nulls_first,
    uint8_t[::1] signs, int64_t stop,
) except *:
    cdef Column column
    require(rows == signs.shape[0] and stop <= rows, "the number of its values")
    column.nulls = nulls_of(valid, start, rows)
    column.descends = descends
    column.nulls_first = nulls_first
    return column


cdef inline int sign_of_nulls(const Column* column, int64_t row) noexcept nogil:
    """Compares a row to the one before it, if one of them is null; else returns BOTH_VALUES."""
    cdef bint one, other
    if column.nulls.bits is NULL:
        return BOTH_VALUES
    one, other = is_null(column.nulls, row), is_null(column.nulls, row - 1)
    if one == other:
        return 0 if one else BOTH_VALUES
    return 1 if one != column.nulls_first else -1


cdef inline int directed(const Column* column, int sign) noexcept nogil:
    return (sign < 0) - (sign > 0) if column.descends else (sign > 0) - (sign < 0)


def disorder_of_numbers(
    const number[::1] values, const uint8_t[::1] valid, int64_t start,
    bint descends, bint nulls_first, uint8_t[::1] signs, int64_t stop,
):
    cdef Column column = column_of(values.shape[0], valid, start, descends, nulls_first, signs, stop)
    cdef int64_t row
    cdef int sign
    with nogil:
        for row in range(1, stop):
            if signs[row]:
                continue
            sign = sign_of_nulls(&column, row)
            if sign == BOTH_VALUES:
                sign = is_less(values[row - 1], values[row]) - is_less(values[row], values[row - 1])
                sign = directed(&column, sign)
            if sign < 0:
                stop = row
                break
            signs[row] = sign
    return stop


def disorder_of_wide(
    const uint64_t[:, ::1] values, const uint8_t[::1] valid, int64_t start,
    bint descends, bint nulls_first, uint8_t[::1] signs, int64_t stop,
):
    """Takes signed integers of several words."""
    cdef Column column = column_of(values.shape[0], valid, start, descends, nulls_first, signs, stop)
    cdef int64_t row, words = values.shape[1]
    cdef int sign
    with nogil:
        for row in range(1, stop):
            if signs[row]:
                continue
            sign = sign_of_nulls(&column, row)
            if sign == BOTH_VALUES:
                sign = directed(&column, sign_of_wide(&values[row, 0], &values[row - 1, 0], words))
            if sign < 0:
                stop = row
                break
            signs[row] = sign
    return stop


def disorder_of_bytes(
    const uint8_t[:, ::1] values, const uint8_t[::1] valid, int64_t start,
    bint descends, bint nulls_first, uint8_t[::1] signs, int64_t stop,
):
    """Takes values of equally many bytes."""
    cdef Column column = column_of(values.shape[0], valid, start, descends, nulls_first, signs, stop)
    cdef int64_t row, width = values.shape[1]
    cdef int sign
    with nogil:
        for row in range(1, stop):
            if signs[row]:
                continue
            sign = sign_of_nulls(&column, row)
            if sign == BOTH_VALUES:
                sign = directed(&column, memcmp(&values[row, 0], &values[row - 1, 0], width))
            if sign < 0:
                stop = row
                break
            signs[row] = sign
    return stop


def disorder_of_strings(
    const int32_t[::1] codes, const offset[::1] offsets, const uint8_t[::1] data,
    const uint8_t[::1] valid, int64_t start,
    bint descends, bint nulls_first, uint8_t[::1] signs, int64_t stop,
):
    """Takes strings, or those that codes name. codes: None for strings; anything where a row is null."""
    cdef int64_t rows = offsets.shape[0] - 1 if codes is None else codes.shape[0]
    cdef Column column = column_of(rows, valid, start, descends, nulls_first, signs, stop)
    cdef int64_t row, one, other, size = offsets.shape[0] - 1
    cdef int sign
    cdef bint is_coded = codes is not None, are_inside = True
    cdef const uint8_t* base = bytes_of(offsets, data)
    cdef const offset* at = &offsets[0]
    with nogil:
        for row in range(1, stop):
            if signs[row]:
                continue
            sign = sign_of_nulls(&column, row)
            if sign == BOTH_VALUES:
                one, other = row, row - 1
                if is_coded:
                    one, other = codes[row], codes[row - 1]
                    if not (0 <= one < size and 0 <= other < size):
                        are_inside = False
                        break
                sign = 0 if one == other else directed(&column, sign_of_strings(base, at + one, at + other))
            if sign < 0:
                stop = row
                break
            signs[row] = sign
    require(are_inside, "a code without a value")
    return stop
