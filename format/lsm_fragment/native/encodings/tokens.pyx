# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Divides strings into templates and variables (TEMPLATE of SPEC section 5).

A token with a digit or a mark is a variable; so is a token in a place where words vary. The template has a mark in its
place. A row has two byte strings: its numbers, each a varint, and its texts (the other variables), each preceded by its
length as a varint.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from lsm_fragment.native.nulls cimport Nulls, is_null, nulls_of, require
from lsm_fragment.native.encodings.tokens cimport MAX_PLACES, PLACE_WORDS, find_tokens, find_variables
from lsm_fragment.native.encodings.variables cimport (
    NUMBER,
    SLACK,
    TEXT,
    WORD,
    letters_of,
    put,
    put_loosely,
    put_varint,
    take_number,
    take_varint,
)
from lsm_fragment.native.words cimport bits_in, loaded, lowest_bit, offset

cdef extern from *:
    """
    #define XXH_INLINE_ALL
    #include "arrow/vendored/xxhash/xxhash.h"
    """
    uint64_t XXH3_64bits(const void* data, size_t length) nogil

cdef enum:
    ARENA = 1 << 16  # initial capacity for template bytes


cdef struct Found:
    # Templates found so far, end to end; template t has the bytes from ends[t] to ends[t + 1].
    uint8_t* data
    int64_t room
    int64_t* ends
    int64_t ends_room
    int64_t count
    uint64_t* table
    uint64_t mask
    int64_t* slots  # number of text slots of all templates before each
    uint64_t* alphabets  # of those slots
    int64_t alphabets_room


cdef inline uint8_t* put_within(uint8_t* out, const uint8_t* source, int64_t size, bint has_slack) noexcept nogil:
    """Copies bytes, loosely if there is slack. Returns the end."""
    return put_loosely(out, source, size) if has_slack else put(out, source, size)


cdef bint grow(Found* found, int64_t more) noexcept nogil:
    """Reserves space for one more template of at most `more` bytes. Returns False if memory is exhausted."""
    cdef int64_t used = found.ends[found.count], room
    cdef void* moved
    if used + more > found.room:
        room = max(2 * found.room, used + more)
        moved = realloc(found.data, room)
        if moved == NULL:
            return False
        found.data = <uint8_t*>moved
        found.room = room
    if found.count + 2 > found.ends_room:
        room = 2 * found.ends_room
        moved = realloc(found.ends, room * sizeof(int64_t))
        if moved == NULL:
            return False
        found.ends = <int64_t*>moved
        moved = realloc(found.slots, room * sizeof(int64_t))
        if moved == NULL:
            return False
        found.slots = <int64_t*>moved
        found.ends_room = room
    return True


cdef bint add_letters(
    Found* found, int64_t code, bint is_new, const uint8_t* text, const uint8_t* stop, const uint64_t* bits
) noexcept nogil:
    """Adds the letters of a row's texts to the alphabets of their slots. Returns False if memory is exhausted.

    `stop` has `SLACK` bytes of room behind it.
    """
    cdef int64_t slot = found.slots[code], room
    cdef uint64_t size
    cdef void* moved
    while text < stop:
        text = take_varint(text, &size)
        if is_new:
            if slot == found.alphabets_room:
                room = 2 * found.alphabets_room
                moved = realloc(found.alphabets, room * sizeof(uint64_t))
                if moved == NULL:
                    return False
                found.alphabets = <uint64_t*>moved
                found.alphabets_room = room
            found.alphabets[slot] = 0
        found.alphabets[slot] |= letters_of(text, size, bits, stop + SLACK)
        slot += 1
        text += size
    if is_new:
        found.slots[code + 1] = slot
    return True


cdef int32_t code_of(Found* found, int64_t size, int64_t max_templates) noexcept nogil:
    """Returns the code of the template at the end of the arena, and adds it if it is new; -1 beyond
    `max_templates`."""
    cdef const uint8_t* template = found.data + found.ends[found.count]
    cdef uint64_t hashed = XXH3_64bits(template, size)
    cdef uint64_t slot = hashed & found.mask, entry
    cdef int64_t known
    while True:
        entry = found.table[slot]
        if entry == 0:
            if found.count >= max_templates:
                return -1
            found.ends[found.count + 1] = found.ends[found.count] + size
            found.count += 1
            found.table[slot] = (hashed & 0xFFFFFFFF00000000ULL) | <uint64_t>found.count
            return <int32_t>(found.count - 1)
        if (entry ^ hashed) >> 32 == 0:
            known = <int64_t>(entry & 0xFFFFFFFFULL) - 1
            if (
                found.ends[known + 1] - found.ends[known] == size
                and memcmp(found.data + found.ends[known], template, size) == 0
            ):
                return <int32_t>known
        slot = (slot + 1) & found.mask


cdef struct Marks:
    # Bitmaps over the bytes of a string; see `find_variables`.
    uint64_t* tokens
    uint64_t* firsts
    uint64_t* stops


cdef struct Varying:
    # Shapes with varying words, and the places of these.
    int64_t count
    const uint64_t* shapes
    const uint64_t* places  # `PLACE_WORDS` words per shape
    int32_t* table  # finds shapes by their lower bits; the number of a shape, from 1 on
    uint64_t mask


cdef struct Outputs:
    # Where the parts of a string go; all have `SLACK` bytes of room behind them.
    uint8_t* template
    uint8_t* numbers
    uint8_t* texts


cdef void fill(Varying* varying) noexcept nogil:
    """Fills the empty table."""
    cdef int64_t number
    cdef uint64_t slot
    for number in range(varying.count):
        slot = varying.shapes[number] & varying.mask
        while varying.table[slot]:
            slot = (slot + 1) & varying.mask
        varying.table[slot] = <int32_t>(number + 1)


cdef inline const uint64_t* places_of(const Varying* varying, uint64_t shape) noexcept nogil:
    """Returns the places of a shape's varying words; NULL if it has none."""
    cdef uint64_t slot = shape & varying.mask
    cdef int64_t number
    while varying.table[slot]:
        number = varying.table[slot] - 1
        if varying.shapes[number] == shape:
            return varying.places + PLACE_WORDS * number
        slot = (slot + 1) & varying.mask
    return NULL


cdef inline void put_text(const uint8_t* at, int64_t size, bint has_slack, Outputs* out) noexcept nogil:
    """Writes a text with its length."""
    if size < 128:
        out.texts[0] = <uint8_t>size
        out.texts += 1
    else:
        out.texts = put_varint(out.texts, size)
    out.texts = put_within(out.texts, at, size, has_slack)


cdef inline void put_variable(
    const uint8_t* at, int64_t start, int64_t stop, const uint8_t* end, bint has_slack, Outputs* out
) noexcept nogil:
    """Writes a variable and its mark."""
    cdef uint64_t number
    if take_number(at + start, stop - start, end - 8, &number):
        out.template[0] = NUMBER
        out.numbers = put_varint(out.numbers, number)
    else:
        out.template[0] = TEXT
        put_text(at + start, stop - start, has_slack, out)
    out.template += 1


cdef int64_t split_first_tokens(
    const uint8_t* at, int64_t length, const uint8_t* end, const Varying* varying, const Marks* marks, Outputs* out
) noexcept nogil:
    """Divides the first `MAX_PLACES` tokens of a string whose shape has varying words.

    end: end of the readable memory. Returns the end of the last variable; -1 if the string is divided to its end.
    """
    cdef int32_t starts[MAX_PLACES]
    cdef int32_t stops[MAX_PLACES]
    cdef uint64_t shape, variables, words
    cdef int64_t found = find_tokens(at, length, end, marks.tokens, starts, stops, &shape), index, group, start, stop
    cdef int64_t position = 0
    cdef const uint64_t* places = places_of(varying, shape)
    cdef bint has_slack = end - at >= length + SLACK
    if places == NULL:
        return 0
    for group in range((found + 63) >> 6):
        words = places[group]
        variables = 0
        for index in range(64 * group, min(found, 64 * group + 64)):
            stop = stops[index]
            variables |= (marks.stops[stop >> 6] >> (stop & 63) & 1) << (index & 63)
        variables |= words
        if found - 64 * group < 64:
            variables &= (<uint64_t>1 << (found & 63)) - 1
        while variables:
            index = 64 * group + lowest_bit(variables)
            start, stop = starts[index], stops[index]
            out.template = put_within(out.template, at + position, start - position, has_slack)
            if words & variables & -variables:
                out.template[0] = WORD
                out.template += 1
                put_text(at + start, stop - start, has_slack, out)
            else:
                put_variable(at, start, stop, end, has_slack, out)
            variables &= variables - 1
            position = stop
    if found == MAX_PLACES and position < length:
        return position
    out.template = put_within(out.template, at + position, length - position, has_slack)
    return -1


cdef void split_row(
    const uint8_t* at, int64_t length, const uint8_t* end, const Marks* marks, int64_t position, Outputs* out
) noexcept nogil:
    """Divides a string from a position on, which is its start or the end of a variable.

    end: end of the readable memory.
    """
    cdef int64_t words = (length + 63) >> 6, word = position >> 6, stop_word = word, near, start, stop
    cdef uint64_t first, behind, gaps
    cdef bint has_slack = end - at >= length + SLACK
    first = marks.firsts[word] & ~<uint64_t>0 << (position & 63) if words else 0
    behind = marks.stops[word] & ~<uint64_t>0 << (position & 63) << 1
    while True:
        while first == 0:
            word += 1
            if word >= words:
                out.template = put_within(out.template, at + position, length - position, has_slack)
                return
            first = marks.firsts[word]
        while behind == 0:
            stop_word += 1
            behind = marks.stops[stop_word]
        gaps = ~marks.tokens[word] & ((first & -first) - 1)
        near = word
        while gaps == 0 and near > 0:
            near -= 1
            gaps = ~marks.tokens[near]
        start = 64 * near + bits_in(gaps)
        stop = 64 * stop_word + lowest_bit(behind)
        first &= first - 1
        behind &= behind - 1
        out.template = put_within(out.template, at + position, start - position, has_slack)
        put_variable(at, start, stop, end, has_slack, out)
        position = stop


def divide(
    const offset[::1] offsets, const uint8_t[::1] data, const uint8_t[::1] valid, int64_t first_bit,
    int64_t max_templates, const uint64_t[::1] bits, const uint64_t[::1] shapes, const uint64_t[:, ::1] places,
    int32_t[::1] codes, int32_t[::1] number_ends, uint8_t[::1] numbers, int32_t[::1] text_ends, uint8_t[::1] texts,
):
    """Divides strings into codes of templates, numbered by first use, and variables.

    valid: the validity bitmap, read from bit `first_bit` on. bits: the alphabet bit of each of 256 bytes. shapes,
    places: the varying words, shapes ascending, see `lsm_fragment.native.encodings.varying.choose`. number_ends,
    text_ends: receive 0 and the end of each row's numbers and texts. numbers: capacity of at least the strings' bytes.
    texts: one byte more per row, and per 128 bytes. Both have `SLACK` bytes more. Nulls get code 0 and no variables.
    Returns the offsets of the templates as 64-bit integers, their bytes, and the alphabets of their text slots, as
    integers too; None if there are more than `max_templates`.
    """
    cdef int64_t rows = codes.shape[0], row, longest = 0, size, slots = 16
    cdef Nulls nulls = nulls_of(valid, first_bit, rows)
    cdef Found found
    cdef uint64_t* masks
    cdef Marks marks
    cdef Varying varying
    cdef uint8_t nothing = 0
    cdef const uint8_t* base = &data[0] if data.shape[0] else &nothing
    cdef const uint8_t* end = base + data.shape[0]
    cdef uint8_t* first_number = &numbers[0] if numbers.shape[0] else &nothing
    cdef uint8_t* first_text = &texts[0] if texts.shape[0] else &nothing
    cdef uint8_t* texts_of_row
    cdef uint8_t* template
    cdef Outputs out
    cdef int32_t code = 0
    cdef int64_t known, position
    cdef bint has_memory = True
    require(places.shape[0] == shapes.shape[0] and places.shape[1] == PLACE_WORDS, "it has another length")
    varying.count = shapes.shape[0]
    varying.shapes = &shapes[0] if shapes.shape[0] else NULL
    varying.places = &places[0, 0] if shapes.shape[0] else NULL
    if bits.shape[0] != 256:
        raise ValueError("an array is malformed: it has another length")
    varying.mask = 1
    while varying.mask < <uint64_t>(2 * varying.count):
        varying.mask = 2 * varying.mask + 1
    max_templates = min(max_templates, rows)
    while slots < 2 * max_templates:
        slots *= 2
    for row in range(rows):
        longest = max(longest, <int64_t>(offsets[row + 1] - offsets[row]))
    found.room, found.ends_room, found.count, found.mask = ARENA, 64, 0, slots - 1
    found.alphabets_room = 64
    found.data = <uint8_t*>malloc(found.room)
    found.ends = <int64_t*>malloc(found.ends_room * sizeof(int64_t))
    found.slots = <int64_t*>malloc(found.ends_room * sizeof(int64_t))
    found.alphabets = <uint64_t*>malloc(found.alphabets_room * sizeof(uint64_t))
    found.table = <uint64_t*>calloc(slots, sizeof(uint64_t))
    varying.table = <int32_t*>calloc(varying.mask + 1, sizeof(int32_t))
    masks = <uint64_t*>malloc(3 * (longest // 64 + 2) * sizeof(uint64_t))
    marks.tokens, marks.firsts = masks, masks + longest // 64 + 2
    marks.stops = masks + 2 * (longest // 64 + 2)
    out.numbers, out.texts = first_number, first_text
    try:
        if not (
            found.data and found.ends and found.slots and found.alphabets and found.table and varying.table and masks
        ):
            raise MemoryError("no memory for templates")
        found.ends[0] = found.slots[0] = 0
        with nogil:
            fill(&varying)
            number_ends[0] = text_ends[0] = 0
            for row in range(rows):
                codes[row] = 0
                if not is_null(nulls, row):
                    size = offsets[row + 1] - offsets[row]
                    has_memory = grow(&found, size + SLACK)
                    if not has_memory:
                        break
                    texts_of_row, known, position = out.texts, found.count, 0
                    template = out.template = found.data + found.ends[found.count]
                    find_variables(base + offsets[row], size, end, marks.tokens, marks.firsts, marks.stops)
                    if varying.count:
                        position = split_first_tokens(base + offsets[row], size, end, &varying, &marks, &out)
                    if position >= 0:
                        split_row(base + offsets[row], size, end, &marks, position, &out)
                    code = code_of(&found, out.template - template, max_templates)
                    if code < 0:
                        break
                    codes[row] = code
                    if out.texts > texts_of_row or found.count > known:
                        has_memory = add_letters(
                            &found, code, found.count > known, texts_of_row, out.texts, &bits[0]
                        )
                        if not has_memory:
                            break
                number_ends[row + 1] = <int32_t>(out.numbers - first_number)
                text_ends[row + 1] = <int32_t>(out.texts - first_text)
        if not has_memory:
            raise MemoryError("no memory for templates")
        if code < 0:
            return None
        return (
            (<char*>found.ends)[: (found.count + 1) * sizeof(int64_t)],
            (<char*>found.data)[: found.ends[found.count]],
            (<char*>found.alphabets)[: found.slots[found.count] * sizeof(uint64_t)],
        )
    finally:
        free(found.data)
        free(found.ends)
        free(found.slots)
        free(found.alphabets)
        free(found.table)
        free(varying.table)
        free(masks)
