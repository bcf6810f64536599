# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled half of `format.kernels`: loops over the rows of one row group, without the GIL.

Each has a twin in numpy, in the module that uses it, which gives the same to the bit. Lengths are the
caller's to get right; what an input could get wrong is checked.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

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

cdef uint64_t MULTIPLIER = 0xD6E8FEB86659FD93ULL
cdef uint64_t LENGTH_FACTOR = 0x9E3779B97F4A7C15ULL


# --- hashing --------------------------------------------------------------------------------

cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    value ^= value >> 32
    value *= MULTIPLIER
    value ^= value >> 32
    value *= MULTIPLIER
    return value ^ (value >> 32)


cdef inline uint64_t loaded(const uint8_t* at, int64_t size) noexcept nogil:
    """Up to eight bytes, little-endian."""
    cdef uint64_t value = 0
    memcpy(&value, at, size)
    return value


def hash_spots(const offset[::1] offsets, const uint8_t[::1] data, const uint64_t[::1] keys, uint64_t[::1] out):
    """Version 2's hash of strings: their length and five words of them."""
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
    """Version 1's: of all words of strings of at most `most` bytes; longer ones are left as they are."""
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


# --- encoding -------------------------------------------------------------------------------

def renumber(const int32_t[::1] codes, const uint8_t[::1] valid, int32_t[::1] new_code, int32_t[::1] used, int32_t[::1] out):
    """Codes by the order of their first use; `new_code` comes as -1. How many there are."""
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


def code_strings(
    const offset[::1] offsets, const uint8_t[::1] data, const uint8_t[::1] valid, int64_t most,
    uint64_t[::1] table, int32_t[::1] codes, int32_t[::1] firsts,
):
    """Codes of strings in the order of first use, and the row of that; how many, or -1 for more than `most`.

    table: a power of two, more than rows, all zero; an entry is the hash's upper half and 1 + the code.
    """
    cdef int64_t row, first, length
    cdef uint64_t hashed, slot, entry, mask = table.shape[0] - 1
    cdef int32_t count = 0, code
    cdef bint has_nulls = valid is not None
    cdef const uint8_t* at
    cdef const uint8_t* base = &data[0] if data.shape[0] else NULL
    with nogil:
        for row in range(codes.shape[0]):
            if has_nulls and not valid[row]:
                codes[row] = 0
                continue
            at = base + offsets[row]
            length = offsets[row + 1] - offsets[row]
            hashed = hash_of(at, length)
            slot = hashed & mask
            while True:
                entry = table[slot]
                if entry == 0:
                    if count >= most:
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
    return count


cdef inline uint64_t hash_of(const uint8_t* at, int64_t length) noexcept nogil:
    cdef uint64_t total = <uint64_t>length * LENGTH_FACTOR
    cdef int64_t left = length
    while left >= 8:
        total = (total ^ loaded(at, 8)) * MULTIPLIER
        total ^= total >> 32
        at += 8
        left -= 8
    return mixed(total ^ loaded(at, left))


def extreme_rows(const offset[::1] offsets, const uint8_t[::1] data, const uint8_t[::1] valid):
    """Rows of the least and greatest byte string; (-1, -1) if all are null."""
    cdef int64_t row, low = -1, high = -1
    cdef uint64_t head, low_head = 0, high_head = 0
    cdef bint has_nulls = valid is not None
    cdef const uint8_t* base = &data[0] if data.shape[0] else NULL
    with nogil:
        for row in range(offsets.shape[0] - 1):
            if has_nulls and not valid[row]:
                continue
            # Most are decided by their first eight bytes.
            head = big_endian(base + offsets[row], min(8, offsets[row + 1] - offsets[row]))
            if low < 0:
                low = high = row
                low_head = high_head = head
            elif head < low_head or (head == low_head and compared(base, offsets, row, low) < 0):
                low = row
                low_head = head
            elif head > high_head or (head == high_head and compared(base, offsets, row, high) > 0):
                high = row
                high_head = head
    return low, high


cdef inline uint64_t big_endian(const uint8_t* at, int64_t size) noexcept nogil:
    """Up to eight bytes so that they compare as bytes do; zeros after them."""
    cdef uint64_t value = loaded(at, 8) if size == 8 else loaded(at, size)
    value = ((value & 0x00FF00FF00FF00FFULL) << 8) | ((value >> 8) & 0x00FF00FF00FF00FFULL)
    value = ((value & 0x0000FFFF0000FFFFULL) << 16) | ((value >> 16) & 0x0000FFFF0000FFFFULL)
    return (value << 32) | (value >> 32)


cdef inline int compared(const uint8_t* base, const offset[::1] offsets, int64_t a, int64_t b) noexcept nogil:
    cdef int64_t length_a = offsets[a + 1] - offsets[a], length_b = offsets[b + 1] - offsets[b]
    cdef int sign = memcmp(base + offsets[a], base + offsets[b], min(length_a, length_b))
    if sign:
        return sign
    return (length_a > length_b) - (length_a < length_b)


def int_statistics(const integer[::1] values):
    """Least and greatest value; least and greatest step, modulo 2^64; steps that are not zero. At least one value."""
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
    """values - base, modulo 2^64, in as few bytes."""
    cdef int64_t row
    with nogil:
        for row in range(values.shape[0]):
            out[row] = <word>(<uint64_t>values[row] - base)
