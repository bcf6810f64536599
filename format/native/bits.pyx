# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Packs integers by bits, in blocks of 1,024 (PACKED of SPEC section 5).

Each block has a base, a width and patches of its own. A block holds the differences of its values to the base,
or those of its steps. What does not fit into the width is a patch: its upper bits stand behind the block.
"""

from libc.math cimport log2
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset

from format.native.gil cimport let_go, take_back
from format.native.packed cimport ENTRY, VALUES, Entry, blocks_of
from format.native.words cimport bits_in, integer

cdef enum:
    POSITION_BITS = 16
    PATCH_PENALTY = 6  # bits that a patch has to save beyond its own, for the time it takes
    PROBES = 32

BLOCK_VALUES = VALUES
ENTRY_BYTES = ENTRY


cdef struct Plan:
    uint64_t base
    int width
    int patch_width
    int64_t bits


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
    full = bits_in(<uint64_t>high - <uint64_t>low)
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
        if bits_in(<uint64_t>last - <uint64_t>first + 2 * margin) < bits_in(<uint64_t>last - <uint64_t>low):
            base = <uint64_t>first - <uint64_t>margin
    memset(counts, 0, sizeof(counts))
    step = 4 if count >= 256 else 1
    index = 0
    while index < count:
        counts[bits_in(values[index] - base)] += step
        index += step
    if base == <uint64_t>low:
        width = full
    else:
        for index in range(count):
            every |= values[index] - base
        width = bits_in(every)
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


def survey(const integer[::1] values):
    """Estimates what integers, a sample of others, take packed.

    Returns the bits by values, by steps, and by whichever takes less in each block; for values and for steps the
    least base and the span from there to the top of the highest block; and how many steps are not zero.
    """
    cdef uint64_t block[VALUES]
    cdef uint64_t steps[VALUES]
    cdef Plan plan
    cdef int64_t number, start, count, index, changes = 0, by_values = 0, by_steps = 0, by_less = 0
    cdef int64_t value_base = INT64_MAX, value_top = INT64_MIN, step_base = INT64_MAX, step_top = INT64_MIN, bits
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
    cdef uint8_t* out = &data[0]
    cdef uint8_t* begin = out
    cdef Entry entry
    cdef int64_t start, count, number
    cdef int least = 64
    with nogil:
        for number in range(blocks_of(values.shape[0])):
            start = number * VALUES
            count = min(<int64_t>VALUES, values.shape[0] - start)
            load(block, &values[start], count)
            out = pack_block(&entry, out, block, count, least_width, tries_values, tries_steps)
            memcpy(&entries[ENTRY * number], &entry, ENTRY)
            least = min(least, <int>entry.width)
    return out - begin, least


cdef uint8_t* pack_block(
    Entry* entry, uint8_t* out, uint64_t* block, int64_t count, int least_width, bint tries_values, bint tries_steps
) noexcept nogil:
    """Packs a block by values or by steps, whichever takes less. Changes `block`."""
    cdef uint64_t steps[VALUES]
    cdef Plan plan
    cdef Plan of_steps
    cdef bint by_steps = tries_steps and count > 1
    if by_steps:
        of_steps = step_plan(block, steps, count, least_width)
    if tries_values or not by_steps:
        plan = planned(block, count, least_width)
        by_steps = by_steps and of_steps.bits < plan.bits
    if by_steps:
        memcpy(out, block, 8)
        return put_block(entry, out + 8, steps, count - 1, of_steps, True)
    return put_block(entry, out, block, count, plan, False)


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
            plan.patch_width = max(0, bits_in(every) - width)
            out = put_block(&entry, out, packed, count, plan, holds_steps)
            memcpy(&entries[ENTRY * number], &entry, ENTRY)
    return out - begin if out != NULL else -1


def frequency_bits(const uint8_t[::1] data):
    """Returns the bits that bytes take if each takes as many as its frequency tells."""
    cdef int64_t counts[256]
    cdef int64_t index, size = data.shape[0]
    cdef double total = 0
    state = let_go(size)
    memset(counts, 0, sizeof(counts))
    for index in range(size):
        counts[data[index]] += 1
    for index in range(256):
        if counts[index]:
            total += counts[index] * log2(<double>size / counts[index])
    take_back(state)
    return total
