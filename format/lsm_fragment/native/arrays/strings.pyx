# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Loops over strings: distinct strings, lengths, gathering by code."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from lsm_fragment.native.gil cimport release_gil, restore_gil
from lsm_fragment.native.nulls cimport Nulls, is_null, nulls_of, require
from lsm_fragment.native.words cimport hash_of, offset

cdef enum:
    SHORT = 16

cdef uint8_t NOTHING = 0  # address of empty data: memcpy and memcmp must not get NULL


def code_strings(
    const offset[::1] offsets, const uint8_t[::1] data, const uint8_t[::1] valid, int64_t max_distinct,
    int32_t[::1] codes, int32_t[::1] firsts,
):
    """Numbers distinct strings by first use. firsts: receives the row of each first use.

    Returns the number of distinct strings; -1 if there are more than `max_distinct`. A null gets the previous code.
    """
    cdef int64_t row, first, length
    # A slot of the table holds the upper half of the hash and code + 1; half of the slots stay free.
    cdef uint64_t hashed, slot, entry, slots = 16
    while slots < <uint64_t>(2 * min(max_distinct, codes.shape[0])):
        slots *= 2
    cdef uint64_t mask = slots - 1
    cdef uint64_t* table = <uint64_t*>calloc(slots, sizeof(uint64_t))
    if table is NULL:
        raise MemoryError(f"no memory for a table of {slots} strings")
    cdef int32_t count = 0, code
    cdef bint has_nulls = valid is not None
    cdef const uint8_t* at
    cdef const uint8_t* base = &data[0] if data.shape[0] else &NOTHING
    with nogil:
        for row in range(codes.shape[0]):
            if has_nulls and not valid[row]:
                codes[row] = codes[row - 1] if row else 0
                continue
            at = base + offsets[row]
            length = offsets[row + 1] - offsets[row]
            hashed = hash_of(at, length)
            slot = hashed & mask
            while True:
                entry = table[slot]
                if entry == 0:
                    if count >= max_distinct:
                        count = -1
                        break
                    codes[row] = count
                    firsts[count] = <int32_t>row
                    count += 1
                    table[slot] = (hashed & 0xFFFFFFFF00000000ULL) | <uint64_t>count
                    break
                if (entry ^ hashed) >> 32 == 0:
                    code = <int32_t>(entry & 0xFFFFFFFFULL) - 1
                    first = firsts[code]
                    if (
                        offsets[first + 1] - offsets[first] == length
                        and memcmp(base + offsets[first], at, length) == 0
                    ):
                        codes[row] = code
                        break
                slot = (slot + 1) & mask
            if count < 0:
                break
        free(table)
    return count


def longest(const offset[::1] offsets):
    """Returns the bytes of the longest string; 0 without strings."""
    cdef int64_t row, most = 0
    with nogil:
        for row in range(1, offsets.shape[0]):
            most = max(most, <int64_t>(offsets[row] - offsets[row - 1]))
    return most


def hidden_bytes(const offset[::1] offsets, const uint8_t[::1] valid, int64_t start):
    """Returns the bytes of null strings, which no reader shows.

    valid: the validity bitmap, read from bit `start` on. Raises ValueError if it is too short.
    """
    cdef int64_t row, total = 0, rows = offsets.shape[0] - 1
    require(rows >= 0, "its offsets")
    cdef Nulls nulls = nulls_of(valid, start, rows)
    with nogil:
        for row in range(rows):
            if is_null(nulls, row):
                total += offsets[row + 1] - offsets[row]
    return total


def coded_bytes(const int32_t[::1] codes, const offset[::1] offsets, const uint8_t[::1] valid, int64_t start):
    """Returns the total bytes of the coded strings; nulls have none.

    valid: the validity bitmap, read from bit `start` on. Raises ValueError if it is too short, and for a code out of
    range.
    """
    cdef int64_t row, code, total = 0, size = offsets.shape[0] - 1
    cdef bint are_inside = True
    cdef Nulls nulls = nulls_of(valid, start, codes.shape[0])
    with nogil:
        for row in range(codes.shape[0]):
            if is_null(nulls, row):
                continue
            code = codes[row]
            if not 0 <= code < size:
                are_inside = False
                break
            total += offsets[code + 1] - offsets[code]
    require(are_inside, "a code without a value")
    return total


def offsets_by_code(
    const int32_t[::1] codes, const uint8_t[::1] valid, const offset[::1] offsets, offset[::1] out
):
    """Writes the running sum of the lengths of coded strings; nulls have none.

    Returns the total; if `out` cannot hold it, its offsets are wrong. Returns -1 for a code out of range.
    """
    cdef int64_t row, at = 0, strings = offsets.shape[0] - 1
    cdef bint has_nulls = valid is not None
    with nogil:
        out[0] = 0
        for row in range(codes.shape[0]):
            if not has_nulls or valid[row]:
                if not 0 <= codes[row] < strings:
                    at = -1
                    break
                at += offsets[codes[row] + 1] - offsets[codes[row]]
            out[row + 1] = <offset>at
    return at


def strings_by_code(
    const int32_t[::1] codes, const offset[::1] offsets, const uint8_t[::1] data, const offset[::1] placed,
    uint8_t[::1] out,
):
    """Copies coded strings to the offsets that `offsets_by_code` wrote."""
    cdef int64_t row, length, begin, size = data.shape[0], room = out.shape[0]
    cdef const uint8_t* base = &data[0] if size else &NOTHING
    cdef uint8_t* into = &out[0] if room else NULL
    with nogil:
        for row in range(codes.shape[0]):
            length = placed[row + 1] - placed[row]
            if length == 0:
                continue
            begin = offsets[codes[row]]
            if length <= SHORT and size - begin >= SHORT and room - placed[row] >= SHORT:
                memcpy(into + placed[row], base + begin, SHORT)  # the next string overwrites the excess
            else:
                memcpy(into + placed[row], base + begin, length)


def copy_runs(
    const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] sizes, uint8_t[::1] out,
    const int64_t[::1] places,
):
    """Copies runs of bytes to other places. Raises ValueError, with some of them copied, for a run outside `data` or
    `out`."""
    cdef int64_t run, size
    cdef bint fits = True
    require(starts.shape[0] == sizes.shape[0] == places.shape[0], "it has another length")
    state = release_gil(out.shape[0])
    for run in range(sizes.shape[0]):
        size = sizes[run]
        if size == 0:
            continue
        fits = is_within(starts[run], size, data.shape[0]) and is_within(places[run], size, out.shape[0])
        if not fits:
            break
        memcpy(&out[places[run]], &data[starts[run]], size)
    restore_gil(state)
    require(fits, "a run is not within its bytes")


cdef inline bint is_within(int64_t start, int64_t size, int64_t room) noexcept nogil:
    return 0 <= size <= room and 0 <= start <= room - size
