# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Bit-packs integers in blocks of 1,024 (PACKED of SPEC section 5).

Each block has its own base, width and patches. It holds the differences of its values, or of its deltas, to the base.
A difference wider than `width` is patched: its upper bits follow the block.
"""

from libc.math cimport log2
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset

from lsm_fragment.native.gil cimport release_gil, restore_gil
from lsm_fragment.native.encodings.packed cimport ENTRY, VALUES, Entry, blocks_of
from lsm_fragment.native.words cimport bits_in, integer

cdef enum:
    POSITION_BITS = 16
    PATCH_PENALTY = 6  # patch only if it saves this many bits beyond its own, for the decoding time
    PROBES = 32

BLOCK_VALUES = VALUES
ENTRY_BYTES = ENTRY


cdef extern from *:
    """
    FOR_EACH_LEVEL static void find_span(const uint64_t* values, int64_t count, int64_t* low, int64_t* high) {
        int64_t least = (int64_t)values[0], most = least;
        for (int64_t at = 1; at < count; at++) {
            int64_t value = (int64_t)values[at];
            least = value < least ? value : least;
            most = value > most ? value : most;
        }
        *low = least;
        *high = most;
    }

    FOR_EACH_LEVEL static uint64_t all_bits(const uint64_t* values, int64_t count, uint64_t base) {
        uint64_t every = 0;
        for (int64_t at = 0; at < count; at++)
            every |= values[at] - base;
        return every;
    }

    /* Counts the values that `width` bits do not hold. */
    FOR_EACH_LEVEL static int64_t count_wider(const uint64_t* values, int64_t count, uint64_t base, int width) {
        int64_t wider = 0;
        for (int64_t at = 0; at < count; at++)
            wider += (values[at] - base) >> width != 0;
        return wider;
    }

    /* Lists the values that `width` bits do not hold, and their upper bits. Returns their number. */
    FOR_EACH_LEVEL static int64_t list_wider(
        const uint64_t* values, int64_t count, int width, uint16_t* positions, uint64_t* upper
    ) {
        int64_t wider = 0;
        for (int64_t at = 0; at < count; at++) {
            uint64_t above = values[at] >> width;
            positions[wider] = (uint16_t)at;
            upper[wider] = above;
            wider += above != 0;
        }
        return wider;
    }

    /* Histogram of bit widths over every `step`-th of up to 1,024 values. Four sets of counters, since neighbours
    mostly have equal widths and would wait for one counter. */
    FOR_EACH_LEVEL static void count_widths(
        const uint64_t* values, int64_t count, int64_t step, uint64_t base, int64_t* counts
    ) {
        uint8_t widths[1024];
        uint16_t counters[4][65];
        int64_t probes = (count + step - 1) / step;
        if (step == 4)
            for (int64_t at = 0; at < probes; at++)
                widths[at] = (uint8_t)bits_in(values[4 * at] - base);
        else
            for (int64_t at = 0; at < probes; at++)
                widths[at] = (uint8_t)bits_in(values[step * at] - base);
        memset(counters, 0, sizeof counters);
        for (int64_t at = 0; at < probes; at++)
            counters[at & 3][widths[at]]++;
        for (int64_t width = 0; width <= 64; width++) {
            counts[width] = 0;
            for (int64_t each = 0; each < 4; each++)
                counts[width] += step * counters[each][width];
        }
    }

    /* Eight fields of W bits fill W bytes. A constant W makes position and shift of each field constant. Overwrites up
    to seven bytes behind the fields. */
    #define PUT_FIELD(k) \
        field = values[k] & mask; \
        word |= field << ((k) * W & 63); \
        if (((k) * W & 63) + W >= 64) { \
            memcpy(out + ((k) * W >> 6) * 8, &word, 8); \
            word = ((k) * W & 63) + W > 64 ? field >> ((64 - ((k) * W & 63)) & 63) : 0; \
        }
    #define PUT_FIELDS(width) \
        case width: { \
            enum { W = width }; \
            const uint64_t mask = ~0ULL >> (64 - W); \
            for (; eights > 0; eights--, values += 8, out += W) { \
                uint64_t field, word = 0; \
                PUT_FIELD(0) PUT_FIELD(1) PUT_FIELD(2) PUT_FIELD(3) PUT_FIELD(4) PUT_FIELD(5) PUT_FIELD(6) PUT_FIELD(7) \
                if (W % 8) \
                    memcpy(out + (W >> 3) * 8, &word, 8); \
            } \
            break; \
        }
    #define PUT_EIGHT(w) \
        PUT_FIELDS(w) PUT_FIELDS(w + 1) PUT_FIELDS(w + 2) PUT_FIELDS(w + 3) \
        PUT_FIELDS(w + 4) PUT_FIELDS(w + 5) PUT_FIELDS(w + 6) PUT_FIELDS(w + 7)

    static void put_eights(unsigned char* out, const uint64_t* values, int64_t eights, int width) {
        switch (width) {
            PUT_EIGHT(1) PUT_EIGHT(9) PUT_EIGHT(17) PUT_EIGHT(25)
            PUT_EIGHT(33) PUT_EIGHT(41) PUT_EIGHT(49)
            PUT_FIELDS(57) PUT_FIELDS(58) PUT_FIELDS(59) PUT_FIELDS(60) PUT_FIELDS(61) PUT_FIELDS(62) PUT_FIELDS(63)
        }
    }
    """
    void find_span(const uint64_t* values, int64_t count, int64_t* low, int64_t* high) noexcept nogil
    uint64_t all_bits(const uint64_t* values, int64_t count, uint64_t base) noexcept nogil
    int64_t count_wider(const uint64_t* values, int64_t count, uint64_t base, int width) noexcept nogil
    int64_t list_wider(
        const uint64_t* values, int64_t count, int width, uint16_t* positions, uint64_t* upper
    ) noexcept nogil
    void count_widths(
        const uint64_t* values, int64_t count, int64_t step, uint64_t base, int64_t* counts
    ) noexcept nogil
    void put_eights(uint8_t* out, const uint64_t* values, int64_t eights, int width) noexcept nogil


cdef struct Plan:
    uint64_t base
    int width
    int patch_width
    int64_t bits


cdef Plan planned(const uint64_t* values, int64_t count, int min_width) noexcept nogil:
    """Chooses base, width and patches of a block for the fewest bits, estimated from a part of it."""
    cdef Plan plan
    cdef int64_t low, high, value, index, first, last, margin
    cdef int64_t counts[65]
    cdef int64_t step, above = 0, bits
    cdef uint64_t base
    cdef int width, full
    find_span(values, count, &low, &high)
    full = bits_in(<uint64_t>high - <uint64_t>low)
    plan.base = <uint64_t>low
    plan.width = full if full > min_width else min_width
    plan.patch_width = 0
    plan.bits = count * plan.width
    if full <= min_width or full < 3 or count < PROBES:
        return plan
    # A few values far below the others would widen all fields: put the base above them and patch them.
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
    count_widths(values, count, 4 if count >= 256 else 1, base, counts)
    width = full if base == <uint64_t>low else bits_in(all_bits(values, count, base))
    full = width
    while width >= min_width:
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
    """Writes the low `width` bits of every value, the first in the lowest bits. Returns the end; overwrites up to seven
    bytes behind it."""
    cdef uint64_t mask = (<uint64_t>-1) >> (64 - width) if width else 0
    cdef uint64_t gathered = 0, value
    cdef int filled = 0
    cdef int64_t index, eights = count // 8
    if width == 0:
        return out
    if width == 64:
        memcpy(out, values, 8 * count)
        return out + 8 * count
    if width == 8:
        for index in range(count):
            out[index] = <uint8_t>values[index]
        return out + count
    put_eights(out, values, eights, width)
    out += eights * width
    for index in range(8 * eights, count):
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
    Entry* entry, uint8_t* out, uint64_t* values, int64_t count, Plan plan, bint holds_deltas
) noexcept nogil:
    cdef uint16_t positions[VALUES]
    cdef uint64_t upper[VALUES]
    cdef int64_t index, patches = 0
    cdef int width = plan.width
    for index in range(count):
        values[index] -= plan.base
    if plan.patch_width:
        patches = list_wider(values, count, width, positions, upper)
        if patches * (POSITION_BITS + plan.patch_width) > count * plan.patch_width:
            width += plan.patch_width  # the sampled part was not typical: store all bits
            patches = 0
    entry.base = plan.base
    entry.width = width
    entry.holds_deltas = holds_deltas
    entry.patches = patches
    entry.patch_width = plan.patch_width if patches else 0
    memset(entry.reserved, 0, 3)
    out = put_bits(out, values, count, width)
    memcpy(out, positions, 2 * patches)
    return put_bits(out + 2 * patches, upper, patches, entry.patch_width)


cdef inline void take_deltas(const uint64_t* values, uint64_t* deltas, int64_t count) noexcept nogil:
    cdef int64_t index
    for index in range(count - 1):
        deltas[index] = values[index + 1] - values[index]


cdef inline Plan delta_plan(const uint64_t* values, uint64_t* deltas, int64_t count, int min_width) noexcept nogil:
    """Computes the deltas between values. Returns their plan, with the bits of the first value."""
    cdef Plan plan
    take_deltas(values, deltas, count)
    plan = planned(deltas, count - 1, min_width)
    plan.bits += 64
    return plan


cdef inline void load(uint64_t* values, const integer* source, int64_t count) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        values[index] = <uint64_t>source[index]


def max_bytes(int64_t count):
    """Returns the maximum of bytes of data that `pack` writes for `count` values."""
    return 8 * count + 16 * blocks_of(count) + 8


def survey(const integer[::1] values):
    """Estimates the packed size of integers, which are a sample.

    Returns the bits if all blocks hold values, if all hold deltas, and if each holds the smaller; for values and for
    deltas the least base and the span from there to the top of the highest block; and the number of non-zero deltas.
    """
    cdef uint64_t block[VALUES]
    cdef uint64_t deltas[VALUES]
    cdef Plan plan
    cdef int64_t number, start, count, index, changes = 0, by_values = 0, by_deltas = 0, by_smaller = 0
    cdef int64_t value_base = INT64_MAX, value_top = INT64_MIN, delta_base = INT64_MAX, delta_top = INT64_MIN, bits
    for number in range(blocks_of(values.shape[0])):
        start = number * VALUES
        count = min(<int64_t>VALUES, values.shape[0] - start)
        load(block, &values[start], count)
        plan = planned(block, count, 0)
        bits = plan.bits
        by_values += bits
        widen(&value_base, &value_top, plan)
        if count > 1:
            plan = delta_plan(block, deltas, count, 0)
            for index in range(count - 1):
                changes += deltas[index] != 0
            widen(&delta_base, &delta_top, plan)
            bits = min(bits, plan.bits)
        by_deltas += plan.bits
        by_smaller += bits
    return (
        by_values, by_deltas, by_smaller,
        value_base, <uint64_t>value_top - <uint64_t>value_base,
        delta_base, <uint64_t>delta_top - <uint64_t>delta_base,
        changes,
    )


cdef inline void widen(int64_t* base, int64_t* top, Plan plan) noexcept nogil:
    cdef uint64_t span = ~<uint64_t>0 >> (64 - plan.width) if plan.width else 0
    cdef int64_t high = <int64_t>(plan.base + span)
    base[0] = min(base[0], <int64_t>plan.base)
    top[0] = max(top[0], high if high >= <int64_t>plan.base else INT64_MAX)


def pack(
    const integer[::1] values, int min_width, bint tries_values, bint tries_deltas,
    uint8_t[::1] entries, uint8_t[::1] data,
):
    """Packs integers into `entries`, 16 bytes per block, and `data`.

    tries_values, tries_deltas: the allowed contents of a block; if both, the smaller is taken.
    Returns the bytes of data and the least width of a block.
    """
    cdef uint64_t block[VALUES]
    cdef uint8_t* out = &data[0]
    cdef uint8_t* begin = out
    cdef Entry entry
    cdef int64_t start, count, number
    cdef int least = 64
    state = release_gil(values.shape[0])
    for number in range(blocks_of(values.shape[0])):
        start = number * VALUES
        count = min(<int64_t>VALUES, values.shape[0] - start)
        load(block, &values[start], count)
        out = pack_block(&entry, out, block, count, min_width, tries_values, tries_deltas)
        memcpy(&entries[ENTRY * number], &entry, ENTRY)
        least = min(least, <int>entry.width)
    restore_gil(state)
    return out - begin, least


cdef uint8_t* pack_block(
    Entry* entry, uint8_t* out, uint64_t* block, int64_t count, int min_width, bint tries_values, bint tries_deltas
) noexcept nogil:
    """Packs a block by values or by deltas, whichever is smaller. Changes `block`."""
    cdef uint64_t deltas[VALUES]
    cdef Plan plan
    cdef Plan of_deltas
    cdef bint by_deltas = tries_deltas and count > 1
    if by_deltas:
        of_deltas = delta_plan(block, deltas, count, min_width)
    if tries_values or not by_deltas:
        plan = planned(block, count, min_width)
        by_deltas = by_deltas and of_deltas.bits < plan.bits
    if by_deltas:
        memcpy(out, block, 8)
        return put_block(entry, out + 8, deltas, count - 1, of_deltas, True)
    return put_block(entry, out, block, count, plan, False)


def pack_uniform(
    const integer[::1] values, uint64_t base, int width, bint holds_deltas, uint8_t[::1] entries, uint8_t[::1] data
):
    """Packs integers with one base and width in every block, so that equal values have equal bits.

    width: at most 8.
    Returns the bytes of data; -1 if many values need patches.
    """
    cdef uint64_t block[VALUES]
    cdef uint64_t deltas[VALUES]
    cdef uint8_t* out = &data[0]
    cdef uint8_t* begin = out
    cdef Entry entry
    cdef Plan plan
    cdef int64_t start, count, number
    cdef uint64_t* packed
    plan.base = base
    plan.width = width
    state = release_gil(values.shape[0])
    for number in range(blocks_of(values.shape[0])):
        start = number * VALUES
        count = min(<int64_t>VALUES, values.shape[0] - start)
        load(block, &values[start], count)
        packed = block
        if holds_deltas:
            take_deltas(block, deltas, count)
            memcpy(out, block, 8)
            out += 8
            count -= 1
            packed = deltas
        if 8 * count_wider(packed, count, base, width) > count:
            out = NULL
            break
        plan.patch_width = max(0, bits_in(all_bits(packed, count, base)) - width)
        out = put_block(&entry, out, packed, count, plan, holds_deltas)
        memcpy(&entries[ENTRY * number], &entry, ENTRY)
    restore_gil(state)
    return out - begin if out != NULL else -1


def frequency_bits(const uint8_t[::1] data):
    """Returns the size in bits of an entropy code by byte frequencies."""
    cdef int64_t counts[256]
    cdef int64_t index, size = data.shape[0]
    cdef double total = 0
    state = release_gil(size)
    memset(counts, 0, sizeof(counts))
    for index in range(size):
        counts[data[index]] += 1
    for index in range(256):
        if counts[index]:
            total += counts[index] * log2(<double>size / counts[index])
    restore_gil(state)
    return total
