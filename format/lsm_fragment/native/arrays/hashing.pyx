# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Hashes values by the rule of SPEC section 7, and adds them to the hashes of rows.

A function takes the buffers of an Arrow array unchanged, None for a missing one. It reads `data` and `validity`
from row `start` on, for the rows of `out`. Without a seed it writes h(value) to `out`, 0 for nulls. With the seed
of a column it adds mix(h(value) ^ seed) to `out`, nothing for nulls.

Raises ValueError for a short buffer, and for offsets, codes or counts out of range.
"""

from libc.math cimport INFINITY, NAN, isnan, ldexp
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from lsm_fragment.native.words cimport integer, loaded, mixed, offset

cdef extern from *:
    """
    #define XXH_INLINE_ALL
    #include "arrow/vendored/xxhash/xxhash.h"
    """
    uint64_t XXH3_64bits(const void* data, size_t length) nogil

cdef extern from *:
    """
    FOR_EACH_LEVEL static void add_mixed(uint64_t* out, const uint64_t* hashes, int64_t count, uint64_t seed) {
        for (int64_t at = 0; at < count; at++)
            out[at] += mixed(hashes[at] ^ seed);
    }

    /* kept: all bits set for each value that is not null, none for nulls. */
    FOR_EACH_LEVEL static void add_kept(
        uint64_t* out, const uint64_t* hashes, const uint64_t* kept, int64_t count, uint64_t seed
    ) {
        for (int64_t at = 0; at < count; at++)
            out[at] += mixed(hashes[at] ^ seed) & kept[at];
    }

    FOR_EACH_LEVEL static void put_mixed(uint64_t* out, const uint64_t* values, int64_t count) {
        for (int64_t at = 0; at < count; at++)
            out[at] = mixed(values[at]);
    }

    FOR_EACH_LEVEL static uint64_t sum_of_mixed(const uint64_t* values, int64_t count) {
        uint64_t total = 0;
        for (int64_t at = 0; at < count; at++)
            total += mixed(values[at]);
        return total;
    }
    """
    void add_mixed(uint64_t* out, const uint64_t* hashes, int64_t count, uint64_t seed) noexcept nogil
    void add_kept(
        uint64_t* out, const uint64_t* hashes, const uint64_t* kept, int64_t count, uint64_t seed
    ) noexcept nogil
    void put_mixed(uint64_t* out, const uint64_t* values, int64_t count) noexcept nogil
    uint64_t sum_of_mixed(const uint64_t* values, int64_t count) noexcept nogil

ctypedef fused real:
    uint16_t
    float
    double

ctypedef struct Rows:
    const uint8_t* validity
    int64_t start
    int64_t count
    bint adds
    uint64_t seed
    uint64_t* out

cdef enum:
    BLOCK_ROWS = 512

cdef uint64_t LENGTH_FACTOR = 0x9E3779B97F4A7C15ULL
cdef uint64_t POSITION_FACTOR = 0xC2B2AE3D27D4EB4FULL
cdef uint64_t CANONICAL_NAN = 0x7FF8000000000000ULL


# --- values of fixed width ------------------------------------------------------------------

def hash_integers(
    const int8_t[::1] data, int64_t width, bint is_signed,
    const int8_t[::1] validity, int64_t start, seed, uint64_t[::1] out,
):
    """Hashes integers of `width` bytes, extended to 64 bits."""
    cdef Rows rows = rows_of(validity, start, seed, out)
    cdef const uint8_t* at = bytes_of(data, (start + rows.count) * width)
    with nogil:
        if is_signed:
            if width == 8:
                of_integers(<const int64_t*>at, rows)
            elif width == 4:
                of_integers(<const int32_t*>at, rows)
            elif width == 2:
                of_integers(<const int16_t*>at, rows)
            else:
                of_integers(<const int8_t*>at, rows)
        elif width == 8:
            of_integers(<const uint64_t*>at, rows)
        elif width == 4:
            of_integers(<const uint32_t*>at, rows)
        elif width == 2:
            of_integers(<const uint16_t*>at, rows)
        else:
            of_integers(<const uint8_t*>at, rows)


def hash_booleans(
    const int8_t[::1] data, const int8_t[::1] validity, int64_t start, seed, uint64_t[::1] out
):
    """Hashes the bits of a bitmap as integers."""
    cdef Rows rows = rows_of(validity, start, seed, out)
    cdef const uint8_t* at = bytes_of(data, (start + rows.count + 7) // 8)
    cdef int64_t row = 0, count, index
    cdef uint64_t hashes[BLOCK_ROWS]
    with nogil:
        while row < rows.count:
            count = min(<int64_t>BLOCK_ROWS, rows.count - row)
            for index in range(count):
                hashes[index] = bit(at, start + row + index)
            put_block(rows, row, hashes, count)
            row += count


def hash_floats(
    const int8_t[::1] data, int64_t width,
    const int8_t[::1] validity, int64_t start, seed, uint64_t[::1] out,
):
    """Hashes floating-point numbers of 2, 4 or 8 bytes by their bits as doubles; every NaN alike."""
    cdef Rows rows = rows_of(validity, start, seed, out)
    cdef const uint8_t* at = bytes_of(data, (start + rows.count) * width)
    with nogil:
        if width == 8:
            of_reals(<const double*>at, rows)
        elif width == 4:
            of_reals(<const float*>at, rows)
        else:
            of_reals(<const uint16_t*>at, rows)


def hash_decimals(
    const int8_t[::1] data, int64_t width,
    const int8_t[::1] validity, int64_t start, seed, uint64_t[::1] out,
):
    """Hashes decimals of 4 to 32 bytes as integers of 32 bytes, the sign extended."""
    cdef Rows rows = rows_of(validity, start, seed, out)
    cdef const int8_t* at = <const int8_t*>bytes_of(data, (start + rows.count) * width)
    cdef int64_t row
    cdef uint8_t wide[32]
    at += start * width
    with nogil:
        for row in range(rows.count):
            if is_null(rows, row):
                continue
            memset(wide, 0xFF if at[row * width + width - 1] < 0 else 0, 32)
            memcpy(wide, at + row * width, width)
            put(rows, row, XXH3_64bits(wide, 32))


def hash_bytes(
    const int8_t[::1] data, int64_t width,
    const int8_t[::1] validity, int64_t start, seed, uint64_t[::1] out,
):
    """Hashes values of `width` bytes each."""
    cdef Rows rows = rows_of(validity, start, seed, out)
    cdef const uint8_t* at = bytes_of(data, (start + rows.count) * width)
    cdef int64_t row
    at += start * width
    with nogil:
        for row in range(rows.count):
            if is_null(rows, row):
                continue
            put(rows, row, XXH3_64bits(at + row * width, width))


def put_hashes(
    const uint64_t[::1] hashes, const int8_t[::1] validity, int64_t start, seed, uint64_t[::1] out
):
    """Writes or adds known hashes. `hashes` has only the rows of `out`."""
    cdef Rows rows = rows_of(validity, start, seed, out)
    cdef int64_t row
    require(hashes.shape[0] == rows.count, "the number of its hashes")
    with nogil:
        for row in range(rows.count):
            put(rows, row, hashes[row])


cdef void of_integers(const integer* values, Rows rows) noexcept nogil:
    cdef const uint8_t* at = <const uint8_t*>(values + rows.start)
    cdef int64_t row = 0, count, index
    cdef uint64_t hashes[BLOCK_ROWS]
    cdef integer value
    while row < rows.count:
        count = min(<int64_t>BLOCK_ROWS, rows.count - row)
        for index in range(count):
            memcpy(&value, at + (row + index) * sizeof(integer), sizeof(integer))  # buffers need not be aligned
            hashes[index] = <uint64_t>value
        put_block(rows, row, hashes, count)
        row += count


cdef void of_reals(const real* values, Rows rows) noexcept nogil:
    cdef const uint8_t* at = <const uint8_t*>(values + rows.start)
    cdef int64_t row = 0, count, index
    cdef uint64_t hashes[BLOCK_ROWS]
    cdef real value
    cdef double wide
    while row < rows.count:
        count = min(<int64_t>BLOCK_ROWS, rows.count - row)
        for index in range(count):
            memcpy(&value, at + (row + index) * sizeof(real), sizeof(real))
            if real is uint16_t:
                wide = of_half(value)
            else:
                wide = value
            memcpy(&hashes[index], &wide, 8)
            hashes[index] = CANONICAL_NAN if isnan(wide) else hashes[index]
        put_block(rows, row, hashes, count)
        row += count


cdef double of_half(uint16_t bits) noexcept nogil:
    """Converts a half float to a double."""
    cdef int exponent = (bits >> 10) & 31
    cdef double fraction = bits & 1023, size
    if exponent == 31:
        size = NAN if fraction else INFINITY
    elif exponent:
        size = ldexp(fraction + 1024, exponent - 25)
    else:
        size = ldexp(fraction, -24)
    return -size if bits >> 15 else size


# --- values of any length -------------------------------------------------------------------

def hash_strings(
    const int8_t[::1] offsets, const int8_t[::1] data, bint is_large,
    const int8_t[::1] validity, int64_t start, seed, uint64_t[::1] out,
):
    """Hashes strings. is_large: whether offsets have 64 bits, not 32."""
    cdef Rows rows = rows_of(validity, start, seed, out)
    cdef const uint8_t* ends = bytes_of(offsets, (start + rows.count + 1) * (8 if is_large else 4))
    cdef const uint8_t* at = bytes_of(data, 0)
    cdef int64_t size = 0 if data is None else data.shape[0]
    cdef bint are_inside
    with nogil:
        if is_large:
            are_inside = of_strings(<const int64_t*>ends, at, size, rows)
        else:
            are_inside = of_strings(<const int32_t*>ends, at, size, rows)
    require(are_inside, "its offsets")


cdef bint of_strings(const offset* offsets, const uint8_t* data, int64_t size, Rows rows) noexcept nogil:
    cdef int64_t row, begin, end = offsets[rows.start]
    for row in range(rows.count):
        begin = end
        end = offsets[rows.start + row + 1]
        if begin < 0 or end < begin or end > size:
            return False
        if is_null(rows, row):
            continue
        put(rows, row, XXH3_64bits(data + begin, end - begin))
    return True


def hash_lists(
    const int64_t[::1] counts, const uint64_t[::1] items, const int8_t[::1] items_validity, int64_t items_start,
    const int8_t[::1] validity, int64_t start, seed, uint64_t[::1] out,
):
    """Hashes lists of `counts` elements: those of the rows of `out` only, end to end.

    items: hashes of the elements. items_validity, items_start: their validity bitmap, and its first bit.
    """
    cdef Rows rows = rows_of(validity, start, seed, out)
    cdef Rows inner
    cdef int64_t row, place, at = 0
    cdef uint64_t total
    cdef bint are_inside = True
    require(counts.shape[0] == rows.count, "the counts of its lists")
    inner.start = items_start
    inner.validity = NULL
    if items_validity is not None:
        inner.validity = bytes_of(items_validity, (items_start + items.shape[0] + 7) // 8)
    with nogil:
        for row in range(rows.count):
            if counts[row] < 0 or counts[row] > items.shape[0] - at:
                are_inside = False
                break
            total = <uint64_t>counts[row] * LENGTH_FACTOR
            for place in range(counts[row]):
                if not is_null(inner, at + place):
                    total += mixed(items[at + place] + <uint64_t>(place + 1) * POSITION_FACTOR)
            at += counts[row]
            put(rows, row, total)
    require(are_inside, "the counts of its lists")


# --- rows -----------------------------------------------------------------------------------

def add_by_code(
    const int8_t[::1] codes, int64_t width, const uint64_t[::1] contributions,
    const int8_t[::1] validity, int64_t start, uint64_t[::1] out,
):
    """Adds the contribution of each row's dictionary value. codes: of `width` bytes."""
    cdef Rows rows = rows_of(validity, start, 0, out)
    cdef const uint8_t* at = bytes_of(codes, (start + rows.count) * width)
    cdef bint are_inside
    with nogil:
        if width == 4:
            are_inside = of_codes(<const uint32_t*>at, contributions, rows)
        elif width == 1:
            are_inside = of_codes(<const uint8_t*>at, contributions, rows)
        elif width == 2:
            are_inside = of_codes(<const uint16_t*>at, contributions, rows)
        else:
            are_inside = of_codes(<const uint64_t*>at, contributions, rows)
    require(are_inside, "a code without a value")


cdef bint of_codes(const integer* codes, const uint64_t[::1] contributions, Rows rows) noexcept nogil:
    # As unsigned, negative codes are out of range.
    cdef const uint8_t* at = <const uint8_t*>(codes + rows.start)
    cdef int64_t row
    cdef uint64_t size = contributions.shape[0]
    cdef integer code
    for row in range(rows.count):
        if is_null(rows, row):
            continue
        memcpy(&code, at + row * sizeof(integer), sizeof(integer))
        if <uint64_t>code >= size:
            return False
        rows.out[row] += contributions[code]
    return True


def mix(const uint64_t[::1] values, uint64_t[::1] out):
    """Mixes numbers. `out` may be `values`."""
    require(values.shape[0] == out.shape[0], "the number of its values")
    if values.shape[0]:
        with nogil:
            put_mixed(&out[0], &values[0], values.shape[0])


def fold(const uint64_t[::1] numbers):
    """Returns the hash of a set of rows: the sum of their mixed hashes."""
    cdef uint64_t total = 0
    if numbers.shape[0]:
        with nogil:
            total = sum_of_mixed(&numbers[0], numbers.shape[0])
    return total


cdef Rows rows_of(const int8_t[::1] validity, int64_t start, seed, uint64_t[::1] out) except *:
    cdef Rows rows
    rows.start = start
    rows.count = out.shape[0]
    rows.adds = seed is not None
    rows.seed = seed if rows.adds else 0
    rows.out = &out[0] if rows.count else NULL
    require(start >= 0, "its offset")
    rows.validity = NULL
    if validity is not None:
        rows.validity = bytes_of(validity, (start + rows.count + 7) // 8)
        if not rows.adds and rows.count:
            memset(rows.out, 0, rows.count * 8)
    return rows


cdef const uint8_t* bytes_of(const int8_t[::1] data, int64_t needed) except? NULL:
    """Returns the address of a buffer. Raises ValueError if it has fewer than `needed` bytes."""
    cdef int64_t size = 0 if data is None else data.shape[0]
    require(size >= needed, "a buffer is too short")
    return <const uint8_t*>&data[0] if size else NULL


cdef int require(bint holds, str what) except -1:
    if not holds:
        raise ValueError(f"an array is malformed: {what}")
    return 0


cdef inline bint bit(const uint8_t* bits, int64_t place) noexcept nogil:
    return (bits[place >> 3] >> (place & 7)) & 1


cdef inline bint is_null(Rows rows, int64_t row) noexcept nogil:
    return rows.validity is not NULL and not bit(rows.validity, rows.start + row)


cdef void put_block(Rows rows, int64_t row, const uint64_t* hashes, int64_t count) noexcept nogil:
    """Writes or adds the hashes of `count` rows from `row` on."""
    cdef int64_t index
    cdef uint64_t kept[BLOCK_ROWS]
    cdef uint64_t* out = rows.out + row
    if rows.validity is not NULL:
        for index in range(count):
            kept[index] = <uint64_t>0 - <uint64_t>bit(rows.validity, rows.start + row + index)
        if rows.adds:
            add_kept(out, hashes, kept, count, rows.seed)
        else:
            for index in range(count):
                out[index] = hashes[index] & kept[index]
    elif rows.adds:
        add_mixed(out, hashes, count, rows.seed)
    else:
        memcpy(out, hashes, 8 * count)


cdef inline void put(Rows rows, int64_t row, uint64_t hashed) noexcept nogil:
    # Without a branch: nulls are hard to predict.
    cdef uint64_t kept = <uint64_t>0 - <uint64_t>(not is_null(rows, row))
    if rows.adds:
        rows.out[row] += mixed(hashed ^ rows.seed) & kept
    else:
        rows.out[row] = hashed & kept
