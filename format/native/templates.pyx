# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Divides strings into templates and variables, and joins them again (TEMPLATE of SPEC section 5).

A token is a run of ASCII letters and digits, bytes from 0x80 on, and the marks. A token that has a digit or a mark is a
variable; the template has a mark in its place. In memory the variables of a row stand one after the other: a number
as a varint, any other one as its length, a varint too, and its bytes.

The caller guarantees that codes are below the number of templates, and that each row has the variables that
its template has marks.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from format.native.nulls cimport Nulls, is_null, nulls_of
from format.native.variables cimport (
    MOST_NUMBER_DIGITS,
    NUMBER,
    SLACK,
    TEXT,
    Layout,
    digits_in,
    fill_short,
    put,
    put_digits,
    put_loosely,
    put_varint,
    take_number,
    take_varint,
)
from format.native.words cimport bits_in, hash_of, loaded, lowest_bit, mixed, offset

cdef extern from *:
    """
    #define XXH_INLINE_ALL
    #include "arrow/vendored/xxhash/xxhash.h"
    """
    uint64_t XXH3_64bits(const void* data, size_t length) nogil

cdef enum:
    PREFIX = 32
    BATCH = 1 << 14  # bytes of text that are joined before they are hashed, as reading at once what was written waits
    BATCH_ROWS = 256
    ARENA = 1 << 16

fill_short()

cdef uint64_t LOW = 0x0101010101010101ULL
cdef uint64_t HIGH = 0x8080808080808080ULL


# --- splitting ------------------------------------------------------------------------------

cdef struct Found:
    # Templates found so far: bytes end to end, and where each begins; the last one ends at ends[count].
    uint8_t* data
    int64_t room
    int64_t* ends
    int64_t ends_room
    int64_t count
    uint64_t* table
    uint64_t mask


cdef inline uint64_t from_on(uint64_t bytes, int least) noexcept nogil:
    """Sets the upper bit of each byte, all below 0x80, that is at least `least`."""
    return (bytes + <uint64_t>(0x80 - least) * LOW) & HIGH


cdef inline uint64_t bit_of_each(uint64_t bytes) noexcept nogil:
    """Gathers the upper bits of eight bytes, that of the first in the lowest bit."""
    return (((bytes & HIGH) >> 7) * <uint64_t>0x0102040810204080ULL) >> 56


cdef inline void classify(const uint8_t* at, int64_t length, uint64_t* tokens, uint64_t* digits) noexcept nogil:
    """Finds bytes of tokens, and digits and marks. A bit for each byte; those beyond the end are 0."""
    cdef int64_t word = 0
    cdef uint64_t bytes, lower, high, digit, token, letter, all_tokens = 0, all_digits = 0
    cdef int shift = 0
    while length > 0:
        bytes = loaded(at, 8) if length >= 8 else loaded(at, length)
        high = bytes & HIGH
        bytes ^= high
        digit = from_on(bytes, 48) & ~from_on(bytes, 58)
        digit |= from_on(bytes, NUMBER) & ~from_on(bytes, TEXT + 1)
        digit &= ~high
        lower = bytes | (LOW << 5)
        letter = from_on(lower, 97) & ~from_on(lower, 123)
        all_digits |= bit_of_each(digit) << shift
        all_tokens |= bit_of_each(digit | letter | high) << shift
        at += 8
        length -= 8
        shift += 8
        if shift == 64 or length <= 0:
            tokens[word] = all_tokens
            digits[word] = all_digits
            word += 1
            all_tokens = all_digits = 0
            shift = 0


cdef bint grow(Found* found, int64_t more) noexcept nogil:
    """Makes room for one more template of at most `more` bytes. Returns whether there is memory."""
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
        found.ends_room = room
    return True


cdef int32_t code_of(Found* found, int64_t size, int64_t most) noexcept nogil:
    """Returns the code of the template that stands behind the last one, new or not; -1 if it is one too many."""
    cdef const uint8_t* template = found.data + found.ends[found.count]
    cdef uint64_t hashed = hash_of(template, size)
    cdef uint64_t slot = hashed & found.mask, entry
    cdef int64_t known
    while True:
        entry = found.table[slot]
        if entry == 0:
            if found.count >= most:
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


cdef int64_t split_row(
    const uint8_t* at, int64_t length, uint64_t* tokens, uint64_t* digits, uint8_t* template, uint8_t** variables,
) noexcept nogil:
    """Divides a string. Returns the bytes of the template; moves `variables` behind those that it writes."""
    cdef int64_t words = (length + 63) >> 6, word = 0, near, position = 0, start, stop
    cdef uint8_t* out = template
    cdef uint64_t bits, gaps, number
    cdef int bit
    classify(at, length, tokens, digits)
    bits = digits[0] if words else 0
    while True:
        while bits == 0:
            word += 1
            if word >= words:
                return put(out, at + position, length - position) - template
            bits = digits[word]
        bit = lowest_bit(bits)
        near = word
        gaps = ~tokens[near] & ((<uint64_t>1 << bit) - 1)
        while gaps == 0 and near > 0:
            near -= 1
            gaps = ~tokens[near]
        start = 64 * near + bits_in(gaps) if gaps else 0
        near = word
        gaps = ~tokens[near] & ~((<uint64_t>2 << bit) - 1)
        while gaps == 0:
            near += 1
            if near == words:
                break
            gaps = ~tokens[near]
        stop = min(64 * near + lowest_bit(gaps), length) if gaps else length
        out = put(out, at + position, start - position)
        if take_number(at + start, stop - start, &number):
            out[0] = NUMBER
            variables[0] = put_varint(variables[0], number)
        else:
            out[0] = TEXT
            variables[0] = put(put_varint(variables[0], stop - start), at + start, stop - start)
        out += 1
        position = stop
        word = stop >> 6
        if word >= words:
            return out - template
        bits = digits[word] & (~<uint64_t>0 << (stop & 63))


def split(
    const offset[::1] offsets, const uint8_t[::1] data, const uint8_t[::1] valid, int64_t first_bit, int64_t most,
    int32_t[::1] codes, int32_t[::1] ends, uint8_t[::1] variables,
):
    """Divides strings into codes of templates, numbered by first use, and variables.

    valid: the validity bitmap, read from bit `first_bit` on. ends: gets the offsets of the variables. variables: at
    least as many bytes as the strings have, one for each row, and one for every 128 bytes. Nulls get code 0 and no variables.
    Returns the offsets of the templates, 64-bit integers, and their bytes; None if they are more than `most`.
    """
    cdef int64_t rows = codes.shape[0], row, longest = 0, size, slots = 16
    cdef Nulls nulls = nulls_of(valid, first_bit, rows)
    cdef Found found
    cdef uint64_t* masks
    cdef uint8_t nothing = 0
    cdef const uint8_t* base = &data[0] if data.shape[0] else &nothing
    cdef uint8_t* begin = &variables[0] if variables.shape[0] else &nothing
    cdef uint8_t* out = begin
    cdef int32_t code = 0
    cdef bint has_memory = True
    most = min(most, rows)
    while slots < 2 * most:
        slots *= 2
    for row in range(rows):
        longest = max(longest, <int64_t>(offsets[row + 1] - offsets[row]))
    found.room, found.ends_room, found.count, found.mask = ARENA, 64, 0, slots - 1
    found.data = <uint8_t*>malloc(found.room)
    found.ends = <int64_t*>malloc(found.ends_room * sizeof(int64_t))
    found.table = <uint64_t*>calloc(slots, sizeof(uint64_t))
    masks = <uint64_t*>malloc(2 * (longest // 64 + 1) * sizeof(uint64_t))
    try:
        if not found.data or not found.ends or not found.table or not masks:
            raise MemoryError("no memory for templates")
        found.ends[0] = 0
        with nogil:
            ends[0] = 0
            for row in range(rows):
                codes[row] = 0
                if not is_null(nulls, row):
                    size = offsets[row + 1] - offsets[row]
                    has_memory = grow(&found, size)
                    if not has_memory:
                        break
                    size = split_row(
                        base + offsets[row], size, masks, masks + longest // 64 + 1,
                        found.data + found.ends[found.count], &out,
                    )
                    code = code_of(&found, size, most)
                    if code < 0:
                        break
                    codes[row] = code
                ends[row + 1] = <int32_t>(out - begin)
        if not has_memory:
            raise MemoryError("no memory for templates")
        if code < 0:
            return None
        return (
            (<char*>found.ends)[: (found.count + 1) * sizeof(int64_t)],
            (<char*>found.data)[: found.ends[found.count]],
        )
    finally:
        free(found.data)
        free(found.ends)
        free(found.table)
        free(masks)


# --- templates as they are read -------------------------------------------------------------

def count_marks(const uint8_t[::1] data):
    """Returns how many marks templates have."""
    cdef int64_t at, count = 0
    with nogil:
        for at in range(data.shape[0]):
            count += NUMBER <= data[at] <= TEXT
    return count


def find_marks(const int64_t[::1] offsets, const uint8_t[::1] data, int64_t[::1] firsts, int64_t[::1] places,
               uint8_t[::1] kinds):
    """Finds the marks of templates: where each is, its kind, and the first one of each template.

    offsets: ascend within the data. places, kinds: as many as `count_marks` of all bytes between the offsets.
    """
    cdef int64_t template, at, slot = 0
    with nogil:
        firsts[0] = 0
        for template in range(offsets.shape[0] - 1):
            for at in range(offsets[template], offsets[template + 1]):
                if NUMBER <= data[at] <= TEXT:
                    places[slot] = at
                    kinds[slot] = data[at]
                    slot += 1
            firsts[template + 1] = slot


cdef Layout layout_of(
    const int64_t[::1] offsets, const uint8_t[::1] data, const int64_t[::1] firsts, const int64_t[::1] places,
    const uint8_t[::1] kinds,
) noexcept:
    cdef Layout layout
    layout.templates = offsets.shape[0] - 1
    layout.offsets = &offsets[0]
    layout.data = &data[0] if data.shape[0] else NULL
    layout.firsts = &firsts[0]
    layout.places = &places[0] if places.shape[0] else NULL
    layout.kinds = &kinds[0] if kinds.shape[0] else NULL
    return layout


# --- joining --------------------------------------------------------------------------------

cdef inline int64_t joined_bytes(const Layout* layout, int32_t code, const uint8_t* variables) noexcept nogil:
    """Returns the bytes of a row's text."""
    cdef int64_t slot, stop = layout.firsts[code + 1]
    cdef int64_t size = layout.offsets[code + 1] - layout.offsets[code] - (stop - layout.firsts[code])
    cdef uint64_t value
    for slot in range(layout.firsts[code], stop):
        variables = take_varint(variables, &value)
        if layout.kinds[slot] == NUMBER:
            size += digits_in(value)
        else:
            size += value
            variables += value
    return size


cdef inline uint8_t* join_row(
    const Layout* layout, int32_t code, const uint8_t* variables, uint8_t* out, int64_t most
) noexcept nogil:
    """Writes a row's text, and no variable more once it has `most` bytes. Returns where it ends.

    `out` and the templates have `SLACK` bytes of room behind them.
    """
    cdef int64_t slot, start = layout.offsets[code], stop = layout.firsts[code + 1]
    cdef uint64_t value
    cdef uint8_t* enough = out + most
    for slot in range(layout.firsts[code], stop):
        out = put_loosely(out, layout.data + start, layout.places[slot] - start)
        start = layout.places[slot] + 1
        if out >= enough:
            return out
        variables = take_varint(variables, &value)
        if layout.kinds[slot] == NUMBER:
            out = put_digits(out, value)
        else:
            out = put(out, variables, value)
            variables += value
    return put_loosely(out, layout.data + start, layout.offsets[code + 1] - start)


cdef inline int64_t most_joined_bytes(const Layout* layout, int32_t code, int64_t variable_bytes) noexcept nogil:
    """Returns an upper bound of a row's text, without looking at its variables."""
    cdef int64_t slots = layout.firsts[code + 1] - layout.firsts[code]
    return layout.offsets[code + 1] - layout.offsets[code] + MOST_NUMBER_DIGITS * slots + variable_bytes


def join_lengths(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] places, const uint8_t[::1] kinds,
    const int32_t[::1] codes, const int32_t[::1] ends, const uint8_t[::1] variables,
    const uint8_t[::1] valid, int64_t first_bit, int64_t[::1] out,
):
    """Gets the bytes of each row's text, 0 for nulls. Returns their sum."""
    cdef Layout layout = layout_of(template_offsets, templates, firsts, places, kinds)
    cdef Nulls nulls = nulls_of(valid, first_bit, codes.shape[0])
    cdef const uint8_t* base = &variables[0] if variables.shape[0] else NULL
    cdef int64_t row, total = 0
    with nogil:
        for row in range(codes.shape[0]):
            out[row] = 0 if is_null(nulls, row) else joined_bytes(&layout, codes[row], base + ends[row])
            total += out[row]
    return total


def join(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] places, const uint8_t[::1] kinds,
    const int32_t[::1] codes, const int32_t[::1] ends, const uint8_t[::1] variables,
    const uint8_t[::1] valid, int64_t first_bit, offset[::1] offsets, uint8_t[::1] out,
):
    """Joins rows to text. out: as many bytes as `join_lengths` says, and `SLACK`. offsets: gets where each row
    begins."""
    cdef Layout layout = layout_of(template_offsets, templates, firsts, places, kinds)
    cdef Nulls nulls = nulls_of(valid, first_bit, codes.shape[0])
    cdef const uint8_t* base = &variables[0] if variables.shape[0] else NULL
    cdef uint8_t* begin = &out[0]
    cdef uint8_t* at = begin
    cdef int64_t row, most = out.shape[0] + 1
    with nogil:
        offsets[0] = 0
        for row in range(codes.shape[0]):
            if not is_null(nulls, row):
                at = join_row(&layout, codes[row], base + ends[row], at, most)
            offsets[row + 1] = <offset>(at - begin)


# --- what is asked of the text, row by row --------------------------------------------------

cdef int64_t scratch_bytes(
    const Layout* layout, const int32_t* codes, const int32_t* ends, Nulls nulls, int64_t rows
) noexcept nogil:
    """Returns an upper bound of the longest row's text."""
    cdef int64_t row, most = 1 + SLACK
    for row in range(rows):
        if not is_null(nulls, row):
            most = max(most, SLACK + most_joined_bytes(layout, codes[row], ends[row + 1] - ends[row]))
    return most


def add_hashes(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] places, const uint8_t[::1] kinds,
    const int32_t[::1] codes, const int32_t[::1] ends, const uint8_t[::1] variables,
    const uint8_t[::1] valid, int64_t first_bit, uint64_t seed, uint64_t[::1] out,
):
    """Adds mix(h(text) ^ seed) to `out`, and nothing for nulls (SPEC section 7)."""
    cdef Layout layout = layout_of(template_offsets, templates, firsts, places, kinds)
    cdef int64_t row, rows = codes.shape[0]
    cdef Nulls nulls = nulls_of(valid, first_bit, rows)
    cdef const uint8_t* base = &variables[0] if variables.shape[0] else NULL
    cdef uint8_t* scratch
    cdef uint8_t* at
    cdef uint8_t* stops[BATCH_ROWS]
    cdef int64_t most, first = 0, number
    if rows == 0:
        return
    most = scratch_bytes(&layout, &codes[0], &ends[0], nulls, rows)
    scratch = <uint8_t*>malloc(BATCH + most)
    if scratch == NULL:
        raise MemoryError(f"no memory for a text of {most} bytes")
    with nogil:
        while first < rows:
            row, at = first, scratch
            while row < rows and row - first < BATCH_ROWS and at - scratch <= BATCH:
                if not is_null(nulls, row):
                    at = join_row(&layout, codes[row], base + ends[row], at, most)
                stops[row - first] = at
                row += 1
            at = scratch
            for number in range(row - first):
                if not is_null(nulls, first + number):
                    out[first + number] += mixed(XXH3_64bits(at, stops[number] - at) ^ seed)
                at = stops[number]
            first = row
    free(scratch)


def extremes(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] places, const uint8_t[::1] kinds,
    const int32_t[::1] codes, const int32_t[::1] ends, const uint8_t[::1] variables,
    const uint8_t[::1] valid, int64_t first_bit, int64_t[::1] between,
):
    """Returns the rows of the least and of the greatest text, or -1 where all rows are null.

    between: zeros, one for each template.
    """
    cdef Layout layout = layout_of(template_offsets, templates, firsts, places, kinds)
    cdef int64_t row, rows = codes.shape[0], most, size, whole, changes = 1
    cdef Nulls nulls = nulls_of(valid, first_bit, rows)
    cdef const uint8_t* base = &variables[0] if variables.shape[0] else NULL
    cdef uint8_t* scratch
    cdef Extreme low, high
    if rows == 0:
        return -1, -1
    most = scratch_bytes(&layout, &codes[0], &ends[0], nulls, rows)
    scratch = <uint8_t*>malloc(3 * most)
    if scratch == NULL:
        raise MemoryError(f"no memory for three texts of {most} bytes")
    low.row = high.row = -1
    low.text, high.text = scratch + most, scratch + 2 * most
    low.size = high.size = 0
    with nogil:
        for row in range(rows):
            if is_null(nulls, row) or between[codes[row]] == changes:
                continue
            # Most rows are told apart by their first bytes, so only those are joined at first.
            size = join_row(&layout, codes[row], base + ends[row], scratch, PREFIX) - scratch
            whole = -1
            if low.row < 0 or order_of(scratch, size, low.text, low.size, PREFIX) <= 0:
                whole = join_row(&layout, codes[row], base + ends[row], scratch, most) - scratch
                if low.row < 0 or order_of(scratch, whole, low.text, low.size, most) < 0:
                    replace(&low, row, scratch, whole)
                    changes += 1
            if high.row < 0 or order_of(scratch, size, high.text, high.size, PREFIX) >= 0:
                if whole < 0:
                    whole = join_row(&layout, codes[row], base + ends[row], scratch, most) - scratch
                if high.row < 0 or order_of(scratch, whole, high.text, high.size, most) > 0:
                    replace(&high, row, scratch, whole)
                    changes += 1
            if whole < 0 and is_between(&layout, codes[row], &low, &high):
                between[codes[row]] = changes
    free(scratch)
    return low.row, high.row


cdef struct Extreme:
    int64_t row
    uint8_t* text
    int64_t size


cdef inline bint is_between(const Layout* layout, int32_t code, const Extreme* low, const Extreme* high) noexcept nogil:
    """Returns whether the constant text before a template's first variable tells that it is neither extreme."""
    cdef int64_t start = layout.offsets[code]
    cdef int64_t stop = layout.places[layout.firsts[code]] if layout.firsts[code] < layout.firsts[code + 1] else start
    cdef int64_t size = stop - start
    return (
        memcmp(layout.data + start, low.text, min(size, low.size)) > 0
        and memcmp(layout.data + start, high.text, min(size, high.size)) < 0
    )


cdef inline void replace(Extreme* extreme, int64_t row, const uint8_t* text, int64_t size) noexcept nogil:
    extreme.row = row
    extreme.size = size
    memcpy(extreme.text, text, size)


cdef inline int order_of(
    const uint8_t* one, int64_t size, const uint8_t* other, int64_t other_size, int64_t most
) noexcept nogil:
    """Compares the first `most` bytes of two texts."""
    size, other_size = min(size, most), min(other_size, most)
    cdef int order = memcmp(one, other, min(size, other_size))
    return order if order else (size > other_size) - (size < other_size)
