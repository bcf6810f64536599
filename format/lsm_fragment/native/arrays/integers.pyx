# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Loops over integers: codes, nulls, runs, common factors."""

from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from lsm_fragment.native.gil cimport release_gil, restore_gil
from lsm_fragment.native.words cimport integer, mixed, word


def renumber(
    const int32_t[::1] codes, const uint8_t[::1] valid, int32_t[::1] new_code, int32_t[::1] used, int32_t[::1] out
):
    """Renumbers codes by first use. Returns the number of codes in use.

    new_code: -1 for each old code. used: receives the old codes in the new order. Nulls get code 0.
    """
    cdef int64_t row
    cdef int32_t code, count = 0
    cdef bint has_nulls = valid is not None
    with nogil:
        for row in range(codes.shape[0]):
            if has_nulls and not valid[row]:
                out[row] = 0
                continue
            code = codes[row]
            if new_code[code] < 0:
                new_code[code] = count
                used[count] = code
                count += 1
            out[row] = new_code[code]
    return count


def code_words(
    const word[::1] values, const uint8_t[::1] valid, int64_t max_distinct, int32_t[::1] codes, int32_t[::1] firsts
):
    """Numbers distinct values by first use. firsts: receives the row of each first use.

    Returns the number of distinct values; -1 if there are more than `max_distinct`. A null gets the previous code.
    """
    cdef int64_t row
    cdef word value
    # A slot of the table holds code + 1; half of the slots stay free.
    cdef uint64_t slot, slots = 16
    cdef int32_t entry, last = 0, count = 0
    cdef bint has_nulls = valid is not None
    while slots < <uint64_t>(2 * min(max_distinct, codes.shape[0])):
        slots *= 2
    cdef int32_t* table = <int32_t*>calloc(slots, sizeof(int32_t))
    if table is NULL:
        raise MemoryError(f"no memory for a table of {slots} values")
    state = release_gil(codes.shape[0])
    for row in range(codes.shape[0]):
        if has_nulls and not valid[row]:
            codes[row] = last
            continue
        value = values[row]
        slot = mixed(value) & (slots - 1)
        while True:
            entry = table[slot]
            if entry == 0:
                if count >= max_distinct:
                    count = -1
                    break
                firsts[count] = <int32_t>row
                count += 1
                entry = table[slot] = count
            if values[firsts[entry - 1]] == value:
                last = codes[row] = entry - 1
                break
            slot = (slot + 1) & (slots - 1)
        if count < 0:
            break
    free(table)
    restore_gil(state)
    return count


def fill_nulls(const word[::1] values, const uint8_t[::1] valid, word[::1] out):
    """Copies values. Nulls take the value before them, leading nulls the first value."""
    cdef int64_t row, first = 0
    cdef word last
    with nogil:
        while first < values.shape[0] and not valid[first]:
            first += 1
        last = values[first] if first < values.shape[0] else 0
        for row in range(values.shape[0]):
            # Without a branch: nulls are hard to predict.
            last ^= (last ^ values[row]) & -<word>(valid[row] != 0)
            out[row] = last


def count_changes(const word[::1] values):
    """Returns the number of values that differ from their predecessor."""
    cdef int64_t row, changes = 0
    with nogil:
        for row in range(1, values.shape[0]):
            changes += values[row] != values[row - 1]
    return changes


def count_within(const int64_t[::1] sizes, int64_t max_total):
    """Returns how many leading sizes add up to at most `max_total`. None is negative."""
    cdef int64_t row = 0, total = 0
    state = release_gil(sizes.shape[0])
    while row < sizes.shape[0] and sizes[row] <= max_total - total:
        total += sizes[row]
        row += 1
    restore_gil(state)
    return row


def copy_blocks(const word[::1] values, int64_t size, word[::1] out):
    """Fills `out` with evenly spaced blocks of `size` values, from the first block to the last."""
    cdef int64_t blocks = out.shape[0] // size, last = values.shape[0] // size - 1, number
    if blocks < 2 or last < 0 or out.shape[0] % size:
        raise ValueError("no blocks of this size")
    for number in range(blocks):
        memcpy(&out[number * size], &values[last * number // (blocks - 1) * size], size * sizeof(word))


def common_factor(const integer[::1] values, int64_t least):
    """Returns the greatest common divisor of a few values; 1 once it is below `least`."""
    cdef uint64_t factor = 0, value, rest
    cdef int64_t row
    for row in range(values.shape[0]):
        value = <uint64_t>values[row]
        if <int64_t>value < 0:
            value = 0 - value
        while value:
            rest = factor % value
            factor = value
            value = rest
        if 0 < factor < <uint64_t>least:
            factor = 1
            break
    return factor


def divide(const integer[::1] values, int64_t factor, int64_t[::1] out):
    """Divides signed values by a positive factor. Returns whether all are multiples of it.

    Multiplies by the inverse modulo 2^64, which is exact for multiples.
    """
    cdef int64_t row, most, least, quotient
    cdef uint64_t odd = <uint64_t>factor, inverse, low_bits = 0
    cdef int shift = 0
    cdef bint fits = True
    with nogil:
        while odd & 1 == 0:
            odd >>= 1
            shift += 1
        inverse = odd  # correct in three bits; each iteration doubles them
        for row in range(5):
            inverse *= 2 - odd * inverse
        most = INT64_MAX // factor
        least = -most
        for row in range(values.shape[0]):
            low_bits |= <uint64_t>values[row]
            quotient = <int64_t>(<uint64_t>(<int64_t>values[row] >> shift) * inverse)
            fits &= least <= quotient <= most
            out[row] = quotient
    return fits and (low_bits & ((<uint64_t>1 << shift) - 1)) == 0
