"""Layout of packed integers, and how blocks are decoded (PACKED of SPEC section 5)."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    VALUES = 1024  # per block; the last one may have fewer
    ENTRY = 16  # bytes per block entry

cdef struct Entry:
    uint64_t base
    uint8_t width
    uint8_t holds_deltas
    uint16_t patches
    uint8_t patch_width
    uint8_t reserved[3]


cdef inline int64_t blocks_of(int64_t count) noexcept nogil:
    return (count + VALUES - 1) // VALUES


cdef extern from *:
    """
    /* Eight fields of W bits fill W bytes. A constant W makes position and shift of each field constant. */
    #define FIELD(k) \\
        memcpy(&field, source + ((k) * W >> 3), 8); \\
        out[k] = (field >> ((k) * W & 7)) & mask;
    #define FIELDS(width) \\
        case width: { \\
            enum { W = width }; \\
            const unsigned long long mask = ~0ULL >> (64 - W); \\
            unsigned long long field; \\
            for (; eights > 0; eights--, source += W, out += 8) { \\
                FIELD(0) FIELD(1) FIELD(2) FIELD(3) FIELD(4) FIELD(5) FIELD(6) FIELD(7) \\
            } \\
            break; \\
        }
    #define EIGHT_FIELDS(w) \\
        FIELDS(w) FIELDS(w + 1) FIELDS(w + 2) FIELDS(w + 3) FIELDS(w + 4) FIELDS(w + 5) FIELDS(w + 6) FIELDS(w + 7)

    static inline void take_eights(uint64_t* out, const unsigned char* source, long long eights, int width) {
        switch (width) {
            EIGHT_FIELDS(1) EIGHT_FIELDS(9) EIGHT_FIELDS(17) EIGHT_FIELDS(25)
            EIGHT_FIELDS(33) EIGHT_FIELDS(41) EIGHT_FIELDS(49) FIELDS(57)
        }
    }
    """
    void take_eights(uint64_t* out, const uint8_t* source, int64_t eights, int width) noexcept nogil


cdef inline uint64_t field_at(const uint8_t* source, int64_t bit, int width, int64_t available) noexcept nogil:
    """Reads one field of 1 to 64 bits. available: readable bytes of `source`."""
    cdef int64_t at = bit >> 3
    cdef int shift = bit & 7
    cdef uint64_t field = 0
    cdef uint8_t last = 0
    if at + 9 <= available:
        memcpy(&field, source + at, 8)
        last = source[at + 8]
    else:
        memcpy(&field, source + at, min(<int64_t>8, available - at))
    field >>= shift
    if shift:
        field |= <uint64_t>last << (64 - shift)
    return field & (~<uint64_t>0 >> (64 - width))


cdef inline void take_fields(
    uint64_t* out, const uint8_t* source, int64_t count, int width, int64_t available
) noexcept nogil:
    """Reads a bit field of `count` values. available: readable bytes, at least those of the field."""
    cdef int64_t index, eights
    if width == 0:
        memset(out, 0, 8 * count)
    elif width == 8:
        for index in range(count):
            out[index] = source[index]
    elif width == 64:
        memcpy(out, source, 8 * count)
    else:
        index = 0
        if width <= 57 and available >= 8:  # one 8-byte load has every whole field
            eights = min(count >> 3, (available - 8) // width)
            take_eights(out, source, eights, width)
            index = 8 * eights
        while index < count:
            out[index] = field_at(source, index * width, width, available)
            index += 1


cdef inline int64_t take_differences(
    uint64_t* out, const Entry* entry, const uint8_t* source, int64_t count, int64_t available, int min_width
) noexcept nogil:
    """Reads the differences of a block to its base. Returns the bytes taken; -1 for a fault."""
    cdef uint64_t upper[VALUES]
    cdef int64_t size, patches = entry.patches, index, bits_size, upper_size
    cdef int width = entry.width, upper_width = entry.patch_width
    cdef uint16_t position
    cdef int64_t last = -1
    if width > 64 or width < min_width or patches > count or upper_width > 64 - width:
        return -1
    if (patches > 0) != (upper_width > 0) or entry.reserved[0] or entry.reserved[1] or entry.reserved[2]:
        return -1
    bits_size = (count * width + 7) >> 3
    upper_size = (patches * upper_width + 7) >> 3
    size = bits_size + 2 * patches + upper_size
    if size > available:
        return -1
    take_fields(out, source, count, width, available)
    if patches:
        take_fields(upper, source + size - upper_size, patches, upper_width, available - size + upper_size)
        for index in range(patches):
            memcpy(&position, source + bits_size + 2 * index, 2)
            if position >= count or position <= last:
                return -1
            last = position
            out[position] |= upper[index] << width
    return size


cdef inline int64_t take_block(
    uint64_t* out, const uint8_t* entry_bytes, const uint8_t* source, int64_t count, int64_t available, int min_width
) noexcept nogil:
    """Reads the integers of a block, at least one. Returns the bytes taken; -1 for a fault.

    available: readable bytes. min_width: the minimum width of a block.
    """
    cdef Entry entry
    cdef uint64_t value
    cdef int64_t size, index
    memcpy(&entry, entry_bytes, ENTRY)
    if entry.holds_deltas:
        if entry.holds_deltas > 1 or available < 8:
            return -1
        memcpy(&value, source, 8)
        size = take_differences(out + 1, &entry, source + 8, count - 1, available - 8, min_width)
        out[0] = value
        for index in range(1, count):
            value += entry.base + out[index]
            out[index] = value
        return size + 8 if size >= 0 else -1
    size = take_differences(out, &entry, source, count, available, min_width)
    for index in range(count):
        out[index] += entry.base
    return size
