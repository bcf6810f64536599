# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Packs integers by bits, in blocks of 1,024, and unpacks them (PACKED of SPEC section 5).

Each block has a base, a width and patches of its own. A block holds the differences of its values to the base,
or those of its steps. What does not fit into the width is a patch: its upper bits stand behind the block.
"""

from libc.stdint cimport (
    INT64_MAX,
    INT64_MIN,
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
)
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    static inline int bit_length(unsigned long long value) { return value ? 64 - __builtin_clzll(value) : 0; }
    """
    int bit_length(uint64_t value) noexcept nogil

ctypedef fused integer:
    int8_t
    int16_t
    int32_t
    int64_t
    uint8_t
    uint16_t
    uint32_t
    uint64_t

ctypedef fused word:
    uint8_t
    uint16_t
    uint32_t
    uint64_t

cdef enum:
    VALUES = 1024
    ENTRY = 16
    TAIL = 9  # bytes that are touched to read a value
    ROOM = 40
    POSITION_BITS = 16
    PATCH_PENALTY = 6  # bits that a patch has to save beyond its own, for the time it takes
    PROBES = 32

BLOCK_VALUES = VALUES
ENTRY_BYTES = ENTRY


cdef struct Entry:
    uint64_t base
    uint8_t width
    uint8_t holds_steps
    uint16_t patches
    uint8_t patch_width
    uint8_t reserved[3]


cdef struct Plan:
    uint64_t base
    int width
    int patch_width
    int64_t bits


# --- packing --------------------------------------------------------------------------------

cdef Plan planned(const uint64_t* values, int64_t count, int least_width) noexcept nogil:
    """Returns how a block takes the fewest bits, as estimated from a part of it."""
    cdef Plan plan
    cdef int64_t low = <int64_t>values[0], high = low, value, index, first, last, margin
    cdef int64_t counts[65]
    cdef int64_t step, above = 0, bits
    cdef uint64_t base, every = 0
    cdef int width, full
    for index in range(1, count):
        value = <int64_t>values[index]
        low = value if value < low else low
        high = value if value > high else high
    full = bit_length(<uint64_t>high - <uint64_t>low)
    plan.base = <uint64_t>low
    plan.width = full if full > least_width else least_width
    plan.patch_width = 0
    plan.bits = count * plan.width
    if full <= least_width or full < 3 or count < PROBES:
        return plan
    # Few values far below the others would widen all: the base is then above them.
    base = <uint64_t>low
    step = count // PROBES
    first = last = <int64_t>values[0]
    index = step
    while index < count:
        value = <int64_t>values[index]
        first = value if value < first else first
        last = value if value > last else last
        index += step
    margin = (<int64_t>((<uint64_t>last - <uint64_t>first) >> 1)) // 2 + 1
    if <uint64_t>first - <uint64_t>low > <uint64_t>margin:
        if bit_length(<uint64_t>last - <uint64_t>first + 2 * margin) < bit_length(<uint64_t>last - <uint64_t>low):
            base = <uint64_t>first - <uint64_t>margin
    memset(counts, 0, sizeof(counts))
    step = 4 if count >= 256 else 1
    index = 0
    while index < count:
        counts[bit_length(values[index] - base)] += step
        index += step
    if base == <uint64_t>low:
        width = full
    else:
        for index in range(count):
            every |= values[index] - base
        width = bit_length(every)
    full = width
    while width >= least_width:
        bits = count * width + above * (POSITION_BITS + PATCH_PENALTY + full - width)
        if bits < plan.bits:
            plan.bits = bits
            plan.base = base
            plan.width = width
            plan.patch_width = full - width
        above += counts[width]
        width -= 1
    return plan


cdef uint8_t* put_bits(uint8_t* out, const uint64_t* values, int64_t count, int width) noexcept nogil:
    """Writes the low `width` bits of every value, the first in the lowest bits. Returns where they end."""
    cdef uint64_t mask = (<uint64_t>-1) >> (64 - width) if width else 0
    cdef uint64_t gathered = 0, value
    cdef int filled = 0
    cdef int64_t index
    if width == 0:
        return out
    if width == 64:
        memcpy(out, values, 8 * count)
        return out + 8 * count
    if width == 8:
        for index in range(count):
            out[index] = <uint8_t>values[index]
        return out + count
    for index in range(count):
        value = values[index] & mask
        gathered |= value << filled
        filled += width
        if filled >= 64:
            memcpy(out, &gathered, 8)
            out += 8
            filled -= 64
            gathered = value >> (width - filled)
    memcpy(out, &gathered, (filled + 7) >> 3)
    return out + ((filled + 7) >> 3)


cdef uint8_t* put_block(
    Entry* entry, uint8_t* out, uint64_t* values, int64_t count, Plan plan, bint holds_steps
) noexcept nogil:
    cdef uint16_t positions[VALUES]
    cdef uint64_t upper[VALUES]
    cdef int64_t index, patches = 0
    cdef int width = plan.width
    for index in range(count):
        values[index] -= plan.base
    if plan.patch_width:
        for index in range(count):
            positions[patches] = <uint16_t>index
            upper[patches] = values[index] >> width
            patches += upper[patches] != 0
        if patches * (POSITION_BITS + plan.patch_width) > count * plan.patch_width:
            width += plan.patch_width  # the part that the plan looked at was unlike the rest
            patches = 0
    entry.base = plan.base
    entry.width = width
    entry.holds_steps = holds_steps
    entry.patches = patches
    entry.patch_width = plan.patch_width if patches else 0
    memset(entry.reserved, 0, 3)
    out = put_bits(out, values, count, width)
    memcpy(out, positions, 2 * patches)
    return put_bits(out + 2 * patches, upper, patches, entry.patch_width)


cdef inline Plan step_plan(const uint64_t* values, uint64_t* steps, int64_t count, int least_width) noexcept nogil:
    """Takes the steps between values. Returns how they and the first value take the fewest bits."""
    cdef int64_t index
    cdef Plan plan
    for index in range(count - 1):
        steps[index] = values[index + 1] - values[index]
    plan = planned(steps, count - 1, least_width)
    plan.bits += 64
    return plan


cdef inline void load(uint64_t* values, const integer* source, int64_t count) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        values[index] = <uint64_t>source[index]


def most_bytes(int64_t count):
    """Returns the most bytes of data that `pack` writes for so many values."""
    return 8 * count + 16 * blocks_of(count) + 8


cdef inline int64_t blocks_of(int64_t count) noexcept nogil:
    return (count + VALUES - 1) // VALUES


def survey(const integer[::1] values):
    """Estimates what integers take packed.

    Returns the bits by values, by steps, and by whichever takes less in each block; for values and for steps the
    least base and the span from there to the top of the highest block; and how many steps are not zero.
    """
    cdef uint64_t block[VALUES]
    cdef uint64_t steps[VALUES]
    cdef Plan plan
    cdef int64_t number, start, count, index, changes = 0, by_values = 0, by_steps = 0, by_less = 0
    cdef int64_t value_base = INT64_MAX, value_top = INT64_MIN, step_base = INT64_MAX, step_top = INT64_MIN, bits
    with nogil:
        for number in range(blocks_of(values.shape[0])):
            start = number * VALUES
            count = min(<int64_t>VALUES, values.shape[0] - start)
            load(block, &values[start], count)
            plan = planned(block, count, 0)
            bits = plan.bits
            by_values += bits
            widen(&value_base, &value_top, plan)
            if count > 1:
                plan = step_plan(block, steps, count, 0)
                for index in range(count - 1):
                    changes += steps[index] != 0
                widen(&step_base, &step_top, plan)
                bits = min(bits, plan.bits)
            by_steps += plan.bits
            by_less += bits
    return (
        by_values, by_steps, by_less,
        value_base, <uint64_t>value_top - <uint64_t>value_base,
        step_base, <uint64_t>step_top - <uint64_t>step_base,
        changes,
    )


cdef inline void widen(int64_t* base, int64_t* top, Plan plan) noexcept nogil:
    cdef uint64_t span = ~<uint64_t>0 >> (64 - plan.width) if plan.width else 0
    cdef int64_t high = <int64_t>(plan.base + span)
    base[0] = min(base[0], <int64_t>plan.base)
    top[0] = max(top[0], high if high >= <int64_t>plan.base else INT64_MAX)


def pack(
    const integer[::1] values, int least_width, bint tries_values, bint tries_steps,
    uint8_t[::1] entries, uint8_t[::1] data,
):
    """Packs integers into `entries`, 16 bytes a block, and `data`.

    tries_values, tries_steps: what a block may hold; the smaller of the two where both are tried.
    Returns the bytes of data and the least width of a block.
    """
    cdef uint64_t block[VALUES]
    cdef uint64_t steps[VALUES]
    cdef uint8_t* out = &data[0]
    cdef uint8_t* begin = out
    cdef Entry entry
    cdef Plan plan
    cdef Plan of_steps
    cdef int64_t start, count, number
    cdef int least = 64
    cdef bint by_steps
    with nogil:
        for number in range(blocks_of(values.shape[0])):
            start = number * VALUES
            count = min(<int64_t>VALUES, values.shape[0] - start)
            load(block, &values[start], count)
            by_steps = tries_steps and count > 1
            if by_steps:
                of_steps = step_plan(block, steps, count, least_width)
            if tries_values or not by_steps:
                plan = planned(block, count, least_width)
                by_steps = by_steps and of_steps.bits < plan.bits
            if by_steps:
                memcpy(out, block, 8)
                out = put_block(&entry, out + 8, steps, count - 1, of_steps, True)
            else:
                out = put_block(&entry, out, block, count, plan, False)
            memcpy(&entries[ENTRY * number], &entry, ENTRY)
            least = min(least, <int>entry.width)
    return out - begin, least


def pack_alike(
    const integer[::1] values, uint64_t base, int width, bint holds_steps, uint8_t[::1] entries, uint8_t[::1] data
):
    """Packs integers with the same base and width in every block, so that equal values have equal bits.

    width: at most 8.
    Returns the bytes of data; -1 if many do not fit.
    """
    cdef uint64_t block[VALUES]
    cdef uint64_t steps[VALUES]
    cdef uint8_t* out = &data[0]
    cdef uint8_t* begin = out
    cdef Entry entry
    cdef Plan plan
    cdef uint64_t every
    cdef int64_t start, count, number, index, patches
    cdef uint64_t* packed
    plan.base = base
    plan.width = width
    with nogil:
        for number in range(blocks_of(values.shape[0])):
            start = number * VALUES
            count = min(<int64_t>VALUES, values.shape[0] - start)
            load(block, &values[start], count)
            packed = block
            if holds_steps:
                step_plan(block, steps, count, 0)
                memcpy(out, block, 8)
                out += 8
                count -= 1
                packed = steps
            every = patches = 0
            for index in range(count):
                every |= packed[index] - base
                patches += (packed[index] - base) >> width != 0
            if 8 * patches > count:
                out = NULL
                break
            plan.patch_width = max(0, bit_length(every) - width)
            out = put_block(&entry, out, packed, count, plan, holds_steps)
            memcpy(&entries[ENTRY * number], &entry, ENTRY)
    return out - begin if out != NULL else -1


# --- unpacking ------------------------------------------------------------------------------

cdef inline uint64_t word_at(const uint8_t* at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return value


cdef void take_bits(
    uint64_t* out, const uint8_t* source, int64_t count, int width, int64_t available
) noexcept nogil:
    """Reads `count` values of `width` bits. `available`: the bytes that may be touched, at least those needed."""
    cdef uint8_t tail[ROOM]
    cdef uint64_t mask = (<uint64_t>-1) >> (64 - width) if width else 0
    cdef int64_t index, safe, bit, begin
    if width == 0:
        memset(out, 0, 8 * count)
        return
    if width == 8:
        for index in range(count):
            out[index] = source[index]
        return
    # Whole words are read, and one byte more: the last values are read from a copy with room behind it.
    safe = (8 * (available - TAIL)) // width if available > TAIL else 0
    safe = min(safe, count)
    spread(out, source, 0, safe, width, mask)
    while safe < count:
        begin = (safe * width) >> 3
        memset(tail, 0, sizeof(tail))
        memcpy(tail, source + begin, min(<int64_t>(2 * TAIL), available - begin))
        index = safe
        while index < count and ((index * width) >> 3) - begin + TAIL <= ROOM:
            bit = index * width - 8 * begin
            out[index] = bits_at(tail + (bit >> 3), bit & 7) & mask
            index += 1
        safe = index


cdef inline uint64_t bits_at(const uint8_t* at, int shift) noexcept nogil:
    cdef uint64_t value = word_at(at) >> shift
    if shift:
        value |= <uint64_t>at[8] << (64 - shift)
    return value


cdef inline void spread(
    uint64_t* out, const uint8_t* source, int64_t start, int64_t stop, int width, uint64_t mask
) noexcept nogil:
    cdef int64_t index, bit
    if width <= 57:
        for index in range(start, stop):
            bit = index * width
            out[index] = (word_at(source + (bit >> 3)) >> (bit & 7)) & mask
    else:
        for index in range(start, stop):
            bit = index * width
            out[index] = bits_at(source + (bit >> 3), bit & 7) & mask


cdef int64_t take_block(
    uint64_t* out, const Entry* entry, const uint8_t* source, int64_t count, int64_t available, int least_width
) noexcept nogil:
    """Reads the differences of a block. Returns the bytes that it takes; -1 if it contradicts itself."""
    cdef uint64_t upper[VALUES]
    cdef int64_t size, patches = entry.patches, index, bits_size, upper_size
    cdef int width = entry.width, upper_width = entry.patch_width
    cdef uint16_t position
    cdef int64_t last = -1
    if width > 64 or width < least_width or patches > count or upper_width > 64 - width:
        return -1
    if (patches > 0) != (upper_width > 0) or entry.reserved[0] or entry.reserved[1] or entry.reserved[2]:
        return -1
    bits_size = (count * width + 7) >> 3
    upper_size = (patches * upper_width + 7) >> 3
    size = bits_size + 2 * patches + upper_size
    if size > available:
        return -1
    take_bits(out, source, count, width, available)
    if patches:
        take_bits(upper, source + bits_size + 2 * patches, patches, upper_width, available - bits_size - 2 * patches)
        for index in range(patches):
            memcpy(&position, source + bits_size + 2 * index, 2)
            if position >= count or position <= last:
                return -1
            last = position
            out[position] |= upper[index] << width
    return size


def unpack(const uint8_t[::1] entries, const uint8_t[::1] data, int least_width, word[::1] out):
    """Unpacks as many integers as `out` takes, modulo its width. Raises `ValueError` if bytes contradict that.

    least_width: what no block may be narrower than.
    """
    cdef uint64_t block[VALUES]
    cdef Entry entry
    cdef int64_t number, start, count, index, size, available = data.shape[0]
    cdef const uint8_t* at = &data[0] if available else NULL
    cdef uint64_t value, base
    cdef word narrow
    if entries.shape[0] != ENTRY * blocks_of(out.shape[0]):
        raise ValueError("packed integers have another number of blocks")
    with nogil:
        for number in range(blocks_of(out.shape[0])):
            start = number * VALUES
            count = min(<int64_t>VALUES, out.shape[0] - start)
            memcpy(&entry, &entries[ENTRY * number], ENTRY)
            base = entry.base
            if entry.holds_steps:
                if entry.holds_steps > 1 or available < 8:
                    available = -1
                    break
                value = word_at(at)
                size = take_block(block, &entry, at + 8, count - 1, available - 8, least_width)
                if size < 0:
                    available = -1
                    break
                size += 8
                out[start] = <word>value
                for index in range(count - 1):
                    value += base + block[index]
                    out[start + 1 + index] = <word>value
            else:
                size = take_block(block, &entry, at, count, available, least_width)
                if size < 0:
                    available = -1
                    break
                narrow = <word>base
                for index in range(count):
                    out[start + index] = <word>block[index] + narrow
            at += size
            available -= size
    if available:
        raise ValueError("packed integers do not fit their blocks")
