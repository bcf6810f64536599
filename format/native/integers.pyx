# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Renumbers codes, and measures and narrows integers."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

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


def renumber(
    const int32_t[::1] codes, const uint8_t[::1] valid, int32_t[::1] new_code, int32_t[::1] used, int32_t[::1] out
):
    """Renumbers codes in the order of their first use. Returns how many are used.

    new_code: has -1 for each old code. used: gets the old codes in the new order. Nulls get the code 0.
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


def statistics(const integer[::1] values):
    """Returns least and greatest value, least and greatest step modulo 2^64, and how many steps are not zero.

    There is at least one value.
    """
    cdef int64_t row, step, changes = 0, low_step = 0, high_step = 0
    cdef integer low = values[0], high = values[0], value, before = values[0]
    with nogil:
        if values.shape[0] > 1:
            low_step = high_step = <int64_t>(<uint64_t>values[1] - <uint64_t>before)
        for row in range(1, values.shape[0]):
            value = values[row]
            step = <int64_t>(<uint64_t>value - <uint64_t>before)
            low = min(low, value)
            high = max(high, value)
            low_step = min(low_step, step)
            high_step = max(high_step, step)
            changes += step != 0
            before = value
    return low, high, low_step, high_step, changes


def narrow(const integer[::1] values, uint64_t base, word[::1] out):
    """Stores the differences to `base`, modulo 2^64, in as many bytes as `out` has for each."""
    cdef int64_t row
    with nogil:
        for row in range(values.shape[0]):
            out[row] = <word>(<uint64_t>values[row] - base)
