# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Arranges variables by the slots of templates, as they are stored, and by rows, as they are in memory (TEMPLATE of
SPEC section 5).

A slot is a place of a template for a variable; its values are those of the template's rows, in their order. What
comes from stored bytes is checked here: numbers of slots and rows by the caller, everything in them by `take`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from format.native.bits cimport pack_words
from format.native.nulls cimport Nulls, is_null, nulls_of
from format.native.packed cimport ENTRY, VALUES, blocks_of, take_block
from format.native.variables cimport (
    END,
    LEAST,
    MOST_NUMBER_DIGITS,
    NUMBER,
    digits_in,
    fill_short,
    put,
    put_digits,
    put_loosely,
    put_varint,
    take_number,
    take_varint,
    varint_bytes,
)
from format.native.words cimport loaded, lowest_bit, offset

cdef extern from *:
    """
    static inline void expect_read(const void* at) { __builtin_prefetch(at, 0); }
    static inline void expect_write(const void* at) { __builtin_prefetch(at, 1); }
    """
    void expect_read(const void* at) noexcept nogil  # slots are more streams than processors foresee
    void expect_write(const void* at) noexcept nogil

fill_short()

cdef uint64_t ONES = 0x0101010101010101ULL

cdef enum:
    RECENT = 12
    SAMPLE = 128
    LEAST_PACKED = 64  # values of a slot from which packing them can pay for an entry
    AS_TEXT = 0
    PACKED = 1
    AHEAD = 12  # numbers


def rows_of_templates(const int32_t[::1] codes, const uint8_t[::1] valid, int64_t first_bit, int64_t[::1] counts):
    """Counts the rows of each template. counts: zeros; codes are below their number."""
    cdef Nulls nulls = nulls_of(valid, first_bit, codes.shape[0])
    cdef int64_t row
    with nogil:
        for row in range(codes.shape[0]):
            if not is_null(nulls, row):
                counts[codes[row]] += 1


# --- writing --------------------------------------------------------------------------------

def text_sizes(
    const int64_t[::1] firsts, const uint8_t[::1] kinds, const int32_t[::1] codes, const int32_t[::1] ends,
    const uint8_t[::1] variables, const uint8_t[::1] valid, int64_t first_bit, uint8_t[::1] have_texts,
    int64_t[::1] sizes,
):
    """Adds up the bytes that the variables of each slot take as text, those of numbers left out.

    have_texts: gets for each template whether it has such slots. sizes: zeros.
    """
    cdef Nulls nulls = nulls_of(valid, first_bit, codes.shape[0])
    cdef int64_t row, slot, template
    cdef uint64_t value
    cdef const uint8_t* at
    with nogil:
        for template in range(have_texts.shape[0]):
            have_texts[template] = 0
            for slot in range(firsts[template], firsts[template + 1]):
                have_texts[template] |= kinds[slot] != NUMBER
        for row in range(codes.shape[0]):
            if is_null(nulls, row) or not have_texts[codes[row]]:
                continue
            at = &variables[ends[row]]
            for slot in range(firsts[codes[row]], firsts[codes[row] + 1]):
                at = take_varint(at, &value)
                if kinds[slot] != NUMBER:
                    sizes[slot] += value + 1
                    at += value


def scatter(
    const int64_t[::1] firsts, const uint8_t[::1] kinds, const int32_t[::1] codes, const int32_t[::1] ends,
    const uint8_t[::1] variables, const uint8_t[::1] valid, int64_t first_bit, int64_t[::1] places,
    uint64_t[::1] numbers, uint8_t[::1] texts,
):
    """Puts numbers, and texts with their ends, to their slots. places: where each slot begins among the ones or the
    others; moved to where it ends."""
    cdef Nulls nulls = nulls_of(valid, first_bit, codes.shape[0])
    cdef int64_t row, slot
    cdef uint64_t value
    cdef const uint8_t* at
    cdef uint8_t* out
    with nogil:
        for row in range(codes.shape[0]):
            if is_null(nulls, row) or firsts[codes[row]] == firsts[codes[row] + 1]:
                continue
            at = &variables[ends[row]]
            for slot in range(firsts[codes[row]], firsts[codes[row] + 1]):
                at = take_varint(at, &value)
                if kinds[slot] == NUMBER:
                    expect_write(&numbers[0] + places[slot] + AHEAD)
                    numbers[places[slot]] = value
                    places[slot] += 1
                else:
                    out = put(&texts[places[slot]], at, value)
                    out[0] = END
                    places[slot] += value + 1
                    at += value


def alphabets(const int64_t[::1] offsets, const uint8_t[::1] texts, const uint64_t[::1] bits, uint64_t[::1] out):
    """Unites the bits of the bytes of each slot's texts.

    offsets: ascend within the texts, one more than slots. bits: of each of 256 bytes.
    Returns how many bytes have no bit, which in sound texts are their ends.
    """
    cdef int64_t slot, at, others = 0
    cdef uint64_t bit, united
    if bits.shape[0] != 256 or out.shape[0] != offsets.shape[0] - 1:
        raise ValueError("an array is malformed: it has another length")
    with nogil:
        for slot in range(out.shape[0]):
            united = 0
            for at in range(offsets[slot], offsets[slot + 1]):
                bit = bits[texts[at]]
                united |= bit
                others += bit == 0
            out[slot] = united
    return others


def choose(const int64_t[::1] starts, const uint64_t[::1] numbers, uint8_t[::1] forms, int64_t[::1] sizes):
    """Chooses for each slot of numbers whether they are packed or stored as text, which a codec makes less of where
    values recur.

    starts: where the numbers of each such slot begin, and the last ones end. sizes: gets their bytes as text with
    ends, 0 for those that are packed.
    Returns how many blocks are packed, and the digits of all numbers.
    """
    cdef int64_t slot, count, digits, blocks = 0, all_digits = 0
    with nogil:
        for slot in range(starts.shape[0] - 1):
            count = starts[slot + 1] - starts[slot]
            digits = digits_of(&numbers[0] + starts[slot], count)
            all_digits += digits
            if count >= LEAST_PACKED and not recur(&numbers[starts[slot]], count):
                forms[slot] = PACKED
                sizes[slot] = 0
                blocks += blocks_of(count)
            else:
                forms[slot] = AS_TEXT
                sizes[slot] = digits + count
    return blocks, all_digits


cdef int64_t digits_of(const uint64_t* numbers, int64_t count) noexcept nogil:
    """Returns how many digits numbers have together; -1 if one stands for no variable."""
    cdef uint64_t low, high
    cdef int64_t index, start = 0, stop, total = 0
    cdef int digits
    while start < count:
        stop = min(start + VALUES, count)
        low, high = ~<uint64_t>0, 0
        for index in range(start, stop):
            low = min(low, numbers[index])
            high = max(high, numbers[index])
        if high >= LEAST[MOST_NUMBER_DIGITS + 1]:
            return -1
        digits = digits_in(low)
        total += (stop - start) * digits
        while digits < digits_in(high):  # mostly none, and seldom more than two
            digits += 1
            for index in range(start, stop):
                total += numbers[index] >= LEAST[digits]
        start = stop
    return total


cdef int64_t most_varints(const uint64_t* numbers, int64_t count) noexcept nogil:
    """Returns an upper bound of the bytes of numbers in rows; -1 if one stands for no variable."""
    cdef uint64_t high
    cdef int64_t index, start = 0, stop, total = 0
    while start < count:
        stop = min(start + VALUES, count)
        high = 0
        for index in range(start, stop):
            high = max(high, numbers[index])
        if high >= LEAST[MOST_NUMBER_DIGITS + 1]:
            return -1
        total += (stop - start) * varint_bytes(high)
        start = stop
    return total


cdef bint recur(const uint64_t* values, int64_t count) noexcept nogil:
    """Returns whether many values of a sample are among the few before them."""
    cdef int64_t index, earlier, seen = min(<int64_t>SAMPLE, count), recurring = 0
    values += (count - seen) // 2
    for index in range(1, seen):
        for earlier in range(max(<int64_t>0, index - RECENT), index):
            if values[earlier] == values[index]:
                recurring += 1
                break
    return 10 * recurring > 3 * seen


def store(
    const int64_t[::1] starts, uint64_t[::1] numbers, const uint8_t[::1] kinds,
    const uint8_t[::1] forms, const int64_t[::1] text_ends, const uint8_t[::1] texts,
    uint8_t[::1] packed, int64_t blocks, uint8_t[::1] out,
):
    """Packs the numbers of slots, or writes them and texts as text, slot by slot.

    starts: see `choose`. out: has `SLACK` bytes of room at its end. text_ends: where the texts of each slot that has no numbers end. packed: gets the entries of
    `blocks` blocks, then their data. Changes `numbers`.
    Returns the bytes of data.
    """
    cdef int64_t slot, index, number_slot = 0, text_slot = 0, start = 0
    cdef uint8_t nothing = 0
    cdef uint8_t* at = &out[0]
    cdef uint8_t* entries = &packed[0] if blocks else &nothing
    cdef uint8_t* begin = entries + ENTRY * blocks if blocks else entries
    cdef uint8_t* data = begin
    with nogil:
        for slot in range(kinds.shape[0]):
            if kinds[slot] != NUMBER:
                if text_ends[text_slot] > start:
                    memcpy(at, &texts[start], text_ends[text_slot] - start)
                    at += text_ends[text_slot] - start
                start = text_ends[text_slot]
                text_slot += 1
                continue
            if forms[number_slot] == PACKED:
                index = starts[number_slot + 1] - starts[number_slot]
                data = pack_words(entries, data, &numbers[starts[number_slot]], index)
                entries += ENTRY * blocks_of(index)
            else:
                for index in range(starts[number_slot], starts[number_slot + 1]):
                    at = put_digits(at, numbers[index])  # a little too far, into the next or the slack
                    at[0] = END
                    at += 1
            number_slot += 1
    return data - begin


# --- reading --------------------------------------------------------------------------------

def take(
    const uint8_t[::1] kinds, const uint8_t[::1] forms, const int64_t[::1] counts, const uint8_t[::1] packed,
    int64_t blocks, const int64_t[::1] text_offsets, const uint8_t[::1] texts,
    bint for_rows, uint64_t[::1] numbers, int64_t[::1] places,
):
    """Reads the stored slots, to put them to rows or to join them.

    forms: of each slot of numbers. counts: the values of each slot. packed: the entries of as many blocks as the packed slots have, then data.
    text_offsets: where the text of each slot that is not packed begins, and the last one ends. numbers: as many as
    slots of numbers have. places: gets where each slot begins among numbers, or in `texts`.
    Returns the bytes of all variables, at most as rows have them in memory, or exactly in their text; raises `ValueError` if the bytes
    contradict themselves.
    """
    cdef int64_t slot, index, number = 0, number_slot = 0, text_slot = 0, used
    cdef int64_t size = 0, added
    cdef uint8_t nothing = 0
    cdef const uint8_t* entries = &packed[0] if packed.shape[0] else &nothing
    cdef const uint8_t* data = entries + ENTRY * blocks
    cdef int64_t available = packed.shape[0] - ENTRY * blocks
    cdef const uint8_t* base = &texts[0] if texts.shape[0] else &nothing
    cdef bint is_sound = available >= 0
    with nogil:
        for slot in range(kinds.shape[0]):
            if not is_sound:
                break
            if kinds[slot] != NUMBER:
                places[slot] = text_offsets[text_slot]
                is_sound = add_texts(
                    base + text_offsets[text_slot], base + text_offsets[text_slot + 1], counts[slot], for_rows, &size
                )
                text_slot += 1
                continue
            places[slot] = number
            number_slot += 1
            if forms[number_slot - 1] == PACKED:
                index = 0
                while index < counts[slot]:
                    used = take_block(
                        &numbers[number + index], entries, data, min(<int64_t>VALUES, counts[slot] - index), available, 0
                    )
                    if used < 0:
                        is_sound = False
                        break
                    entries += ENTRY
                    data += used
                    available -= used
                    index += VALUES
                if not is_sound:
                    break
            else:
                is_sound = parse(
                    base + text_offsets[text_slot], base + text_offsets[text_slot + 1], counts[slot],
                    &numbers[0] + number,
                )
                text_slot += 1
                if not is_sound:
                    break
            if for_rows:
                added = most_varints(&numbers[0] + number, counts[slot])
            else:
                added = digits_of(&numbers[0] + number, counts[slot])
            if added < 0:
                is_sound = False
                break
            size += added
            number += counts[slot]
    if not is_sound or available:
        raise ValueError("the variables of templates do not fit their slots")
    return size


cdef bint add_texts(
    const uint8_t* at, const uint8_t* end, int64_t count, bint for_rows, int64_t* size
) noexcept nogil:
    """Adds the bytes of `count` texts, in rows at most. Returns whether they are exactly those before `end`."""
    cdef int64_t index, ends = 0, length = end - at
    for index in range(length):
        ends += at[index] == END
    size[0] += length - ends
    if for_rows:
        size[0] += ends + length // 128  # a varint has one byte, and at most one more for each 128 bytes
    return ends == count and (length == 0 or at[length - 1] == END)


cdef bint parse(const uint8_t* at, const uint8_t* end, int64_t count, uint64_t* out) noexcept nogil:
    """Reads `count` numbers that are stored as text. Returns whether they are exactly those before `end`."""
    cdef const uint8_t* stop
    while count and at < end:
        stop = at
        while stop < end and stop[0] != END:
            stop += 1
        if stop == end or not take_number(at, stop - at, out):
            return False
        out += 1
        at = stop + 1
        count -= 1
    return count == 0 and at == end


cdef inline int64_t text_length(const uint8_t* at) noexcept nogil:
    """Returns the bytes of a text that `add_texts` has seen. It has `SLACK` bytes behind it."""
    cdef int64_t length = 0
    cdef uint64_t differs, ends = 0
    while ends == 0:
        differs = loaded(at + length, 8) ^ (<uint64_t>END * ONES)
        ends = (differs - ONES) & ~differs & (ONES << 7)
        length += 8
    return length - 8 + (lowest_bit(ends) >> 3)


def by_rows(
    const int64_t[::1] firsts, const uint8_t[::1] kinds, const int32_t[::1] codes, const uint8_t[::1] valid,
    int64_t first_bit, int64_t[::1] places, const uint64_t[::1] numbers, const uint8_t[::1] texts,
    int32_t[::1] ends, uint8_t[::1] variables,
):
    """Puts variables to their rows, as they are in memory. places: from `take`, moved. texts, variables: have `SLACK`
    bytes of room at their end."""
    cdef Nulls nulls = nulls_of(valid, first_bit, codes.shape[0])
    cdef int64_t row, slot, length
    cdef uint8_t* begin = &variables[0]
    cdef uint8_t* out = begin
    cdef const uint8_t* at
    with nogil:
        ends[0] = 0
        for row in range(codes.shape[0]):
            if not is_null(nulls, row):
                for slot in range(firsts[codes[row]], firsts[codes[row] + 1]):
                    if kinds[slot] == NUMBER:
                        expect_read(&numbers[0] + places[slot] + AHEAD)
                        out = put_varint(out, numbers[places[slot]])
                        places[slot] += 1
                    else:
                        at = &texts[places[slot]]
                        length = text_length(at)
                        out = put_loosely(put_varint(out, length), at, length)
                        places[slot] += length + 1
            ends[row + 1] = <int32_t>(out - begin)


cdef struct Slot:
    # All that joining a row needs of one slot, in half a line of the cache.
    uint64_t before  # the first bytes of the constant text between the variable before and this one
    int64_t length  # of that text
    int64_t place  # of the slot's next value among numbers, or among texts
    int64_t is_number


cdef Slot* slots_of(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] marks, const uint8_t[::1] kinds, const int64_t[::1] places,
) except NULL:
    """Returns the slots of all templates, to be freed."""
    cdef int64_t template, slot, start
    cdef Slot* slots = <Slot*>malloc(sizeof(Slot) * (kinds.shape[0] + 1))
    if slots == NULL:
        raise MemoryError("no memory for the slots of templates")
    with nogil:
        for template in range(firsts.shape[0] - 1):
            start = template_offsets[template]
            for slot in range(firsts[template], firsts[template + 1]):
                slots[slot].before = loaded(&templates[start], 8)
                slots[slot].length = marks[slot] - start
                slots[slot].place = places[slot]
                slots[slot].is_number = kinds[slot] == NUMBER
                start = marks[slot] + 1
    return slots


cdef inline void pass_over(Slot* slot, const Slot* stop, const uint8_t* texts) noexcept nogil:
    """Moves the places of a row's slots behind its variables."""
    while slot < stop:
        slot.place += 1 if slot.is_number else text_length(texts + slot.place) + 1
        slot += 1


def as_text(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] marks, const uint8_t[::1] kinds, const int32_t[::1] codes, const uint8_t[::1] valid,
    int64_t first_bit, const uint8_t[::1] chosen, const int64_t[::1] places, const uint64_t[::1] numbers,
    const uint8_t[::1] texts, offset[::1] offsets, uint8_t[::1] out,
):
    """Joins rows to text straight from the slots. places: from `take`. templates, texts, out: have `SLACK`
    bytes of room at their end. chosen: 1 for the rows to join, 0 for others; None for all. offsets: one more than
    such rows."""
    cdef Nulls nulls = nulls_of(valid, first_bit, codes.shape[0])
    cdef int64_t row, start, stop, length, count = 0
    cdef uint8_t* begin = &out[0]
    cdef uint8_t* to = begin
    cdef const uint8_t* data = &templates[0]
    cdef const uint8_t* wanted = NULL
    cdef const uint8_t* at
    cdef const uint64_t* values = &numbers[0] if numbers.shape[0] else NULL
    cdef Slot* slots = slots_of(template_offsets, templates, firsts, marks, kinds, places)
    cdef Slot* slot
    cdef const Slot* end
    cdef int32_t code
    if chosen is not None and chosen.shape[0]:
        wanted = &chosen[0]
    with nogil:
        offsets[0] = 0
        for row in range(codes.shape[0]):
            if is_null(nulls, row):
                if wanted == NULL or wanted[row]:
                    count += 1
                    offsets[count] = <offset>(to - begin)
                continue
            code = codes[row]
            slot, end = slots + firsts[code], slots + firsts[code + 1]
            if wanted != NULL and not wanted[row]:
                pass_over(slot, end, &texts[0])
                continue
            start, stop = template_offsets[code], template_offsets[code + 1]
            while slot < end:
                if slot.length <= 8:
                    memcpy(to, &slot.before, 8)
                    to += slot.length
                else:
                    to = put_loosely(to, data + start, slot.length)
                start += slot.length + 1
                if slot.is_number:
                    expect_read(values + slot.place + AHEAD)
                    to = put_digits(to, values[slot.place])
                    slot.place += 1
                else:
                    at = &texts[slot.place]
                    length = text_length(at)
                    to = put_loosely(to, at, length)
                    slot.place += length + 1
                slot += 1
            to = put_loosely(to, data + start, stop - start)
            count += 1
            offsets[count] = <offset>(to - begin)
    free(slots)
