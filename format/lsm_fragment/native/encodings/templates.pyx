# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Joins templates and variables (TEMPLATE of SPEC section 5); `lsm_fragment.native.encodings.tokens` divides strings.

The caller guarantees that codes are below the number of templates, and that each row has a variable for each mark of
its template, as `find_ends` checks.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from lsm_fragment.native.nulls cimport Nulls, is_null, nulls_of, require
from lsm_fragment.native.encodings.variables cimport (
    LEAST,
    MAX_NUMBER_DIGITS,
    NUMBER,
    SLACK,
    WORD,
    Layout,
    digits_in,
    fill_short,
    letters_of,
    put,
    put_digits,
    put_loosely,
    take_varint,
)
from lsm_fragment.native.words cimport bits_in, loaded, lowest_bit, mixed, offset

cdef extern from *:
    """
    #define XXH_INLINE_ALL
    #include "arrow/vendored/xxhash/xxhash.h"
    #include <stdint.h>

    """
    uint64_t XXH3_64bits(const void* data, size_t length) nogil

cdef enum:
    BATCH = 1 << 14  # join this much text before hashing it: reading bytes just written stalls
    BATCH_ROWS = 256
    MAX_GROWTH = 3  # bytes of text per byte of a number, at most
    MAX_VARINT_BYTES = 10
    SURE_VARINT_BYTES = 8  # a varint of up to this size is always a valid number

fill_short()

cdef uint64_t LOW = 0x0101010101010101ULL
cdef uint64_t HIGH = 0x8080808080808080ULL


cdef inline uint64_t from_on(uint64_t bytes, int least) noexcept nogil:
    """Sets the upper bit of each byte that is at least `least`. All bytes are below 0x80."""
    return (bytes + <uint64_t>(0x80 - least) * LOW) & HIGH


# --- templates ------------------------------------------------------------------------------

cdef inline uint64_t marks_in(uint64_t bytes) noexcept nogil:
    """Sets the upper bit of each of eight bytes that is a mark."""
    cdef uint64_t high = bytes & HIGH
    bytes ^= high
    return from_on(bytes, NUMBER) & ~from_on(bytes, WORD + 1) & ~high


def count_marks(const uint8_t[::1] data):
    """Returns the number of marks in templates."""
    cdef int64_t at, count = 0, whole = data.shape[0] & ~7
    with nogil:
        for at in range(0, whole, 8):
            count += ones_of(marks_in(loaded(&data[at], 8)))
        if whole < data.shape[0]:
            count += ones_of(marks_in(loaded(&data[whole], data.shape[0] - whole)))
    return count


cdef inline int64_t ones_of(uint64_t upper_bits) noexcept nogil:
    """Counts the bytes with the upper bit set. All other bits are 0."""
    return <int64_t>(((upper_bits >> 7) * LOW) >> 56)


def count_slots(const offset[::1] offsets, const uint8_t[::1] data, int32_t[::1] numbers, int32_t[::1] texts):
    """Counts the number and text slots of each template. Returns the sum of each.

    offsets: ascend.
    """
    cdef int64_t template, at, stop, number_marks, text_marks, all_numbers = 0, all_texts = 0
    cdef int64_t count = offsets.shape[0] - 1
    cdef uint64_t bytes, marks
    require(0 <= offsets[0] and offsets[count] <= data.shape[0], "a buffer is too short")
    require(numbers.shape[0] == count and texts.shape[0] == count, "it has another length")
    with nogil:
        for template in range(count):
            at, stop = offsets[template], offsets[template + 1]
            number_marks = text_marks = 0
            while at < stop:
                bytes = loaded(&data[at], min(stop - at, 8))
                marks = marks_in(bytes)
                # This bit tells texts from numbers.
                number_marks += ones_of(marks & ~bytes << 6)
                text_marks += ones_of(marks & bytes << 6)
                at += 8
            numbers[template], texts[template] = <int32_t>number_marks, <int32_t>text_marks
            all_numbers += number_marks
            all_texts += text_marks
    return all_numbers, all_texts


def find_marks(const int64_t[::1] offsets, const uint8_t[::1] data, int64_t[::1] firsts, int64_t[::1] places,
               uint8_t[::1] kinds):
    """Finds the marks of templates: position and kind of each, and the first one of each template.

    offsets: ascend from 0. data: at least 8 bytes more than the last offset, none a mark. places, kinds: `count_marks`
    elements.
    """
    cdef int64_t template = 0, at, slot = 0, stop = offsets[offsets.shape[0] - 1]
    cdef uint64_t marks
    require(data.shape[0] >= stop + 8, "a buffer is too short")
    with nogil:
        firsts[0] = 0
        for at in range(0, stop, 8):
            marks = marks_in(loaded(&data[at], 8))
            while marks:
                places[slot] = at + (lowest_bit(marks) >> 3)
                kinds[slot] = data[places[slot]]
                while offsets[template + 1] <= places[slot]:
                    template += 1
                    firsts[template] = slot
                slot += 1
                marks &= marks - 1
        for template in range(template + 1, offsets.shape[0]):
            firsts[template] = slot


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


# --- rows ------------------------------------------------------------------------------------

cdef struct Rows:
    # Rows of a templated array. The variables of row r begin at numbers + number_ends[r] and texts + text_ends[r].
    int64_t count
    const int32_t* codes
    const int32_t* number_ends
    const uint8_t* numbers
    const int32_t* text_ends
    const uint8_t* texts
    Nulls nulls


cdef Rows rows_of(
    const int32_t[::1] codes, const int32_t[::1] number_ends, const uint8_t[::1] numbers, const int32_t[::1] text_ends,
    const uint8_t[::1] texts, const uint8_t[::1] valid, int64_t first_bit,
) except *:
    cdef Rows rows
    rows.count = codes.shape[0]
    rows.codes = &codes[0] if codes.shape[0] else NULL
    rows.number_ends = &number_ends[0]
    rows.numbers = &numbers[0] if numbers.shape[0] else NULL
    rows.text_ends = &text_ends[0]
    rows.texts = &texts[0] if texts.shape[0] else NULL
    rows.nulls = nulls_of(valid, first_bit, codes.shape[0])
    return rows


cdef inline const uint8_t* take_sound(const uint8_t* at, const uint8_t* stop, uint64_t* number) noexcept nogil:
    """Reads the varint of a variable. Returns its end; NULL if it is invalid or does not end before `stop`."""
    cdef uint64_t found = 0
    cdef int shift = 0
    cdef bint is_sound
    while at < stop and shift < 7 * MAX_VARINT_BYTES:
        found |= <uint64_t>(at[0] & 0x7F) << shift
        if at[0] < 0x80:
            number[0] = found
            if shift < 7 * SURE_VARINT_BYTES:
                return at + 1
            is_sound = found < LEAST[MAX_NUMBER_DIGITS + 1] and (shift < 63 or at[0] <= 1)
            return at + 1 if is_sound else NULL
        at += 1
        shift += 7
    return NULL


cdef const uint8_t* skip_numbers(const uint8_t* at, const uint8_t* stop, int64_t count) noexcept nogil:
    """Returns the end of `count` numbers; NULL if they do not end before `stop` or one is too large."""
    cdef const uint8_t* first = at
    cdef const uint8_t* end
    cdef uint64_t ends, number
    cdef int64_t found
    while count:
        if stop - at >= 8:
            ends = ~loaded(at, 8) & HIGH
        elif at < stop:
            ends = ~loaded(at, stop - at) & HIGH & ((<uint64_t>1 << (8 * (stop - at))) - 1)
        else:
            return NULL
        if ends:
            # Only the first number that ends within these eight bytes may be longer than eight.
            end = at + (lowest_bit(ends) >> 3) + 1
            if end - first > SURE_VARINT_BYTES and take_sound(first, end, &number) != end:
                return NULL
            found = ones_of(ends)
            if found < count:
                count -= found
                first = at + (bits_in(ends) >> 3)
            else:
                while count > 1:
                    ends &= ends - 1
                    count -= 1
                return at + (lowest_bit(ends) >> 3) + 1
        at += 8
    return at


def find_ends(
    const int32_t[::1] number_slots, const int32_t[::1] text_slots, const int32_t[::1] codes,
    const uint8_t[::1] valid, int64_t first_bit, const uint8_t[::1] numbers, const uint8_t[::1] texts,
    int32_t[::1] number_ends, int32_t[::1] text_ends, uint8_t[::1] characters,
):
    """Locates each row's variables. Validates untrusted input; assumes only that codes are in range. Returns whether
    the variables are exactly those of the templates.

    number_slots, text_slots: see `count_slots`. characters: zeros, one per byte of `texts`, or None; receives the bytes
    of the texts, and stays 0 in the places of their lengths.
    """
    cdef int64_t row, slot, template, rows = codes.shape[0]
    cdef Nulls nulls = nulls_of(valid, first_bit, rows)
    cdef uint8_t nothing = 0
    cdef const uint8_t* number = &numbers[0] if numbers.shape[0] else &nothing
    cdef const uint8_t* text = &texts[0] if texts.shape[0] else &nothing
    cdef const uint8_t* first_number = number
    cdef const uint8_t* first_text = text
    cdef const uint8_t* number_stop = number + numbers.shape[0]
    cdef const uint8_t* text_stop = text + texts.shape[0]
    cdef const uint8_t* end
    cdef uint64_t size
    cdef uint8_t* out = NULL
    cdef bint is_sound = True
    if characters is not None:
        if characters.shape[0] != texts.shape[0]:
            raise ValueError("an array is malformed: it has another length")
        out = &characters[0] if characters.shape[0] else NULL
    with nogil:
        number_ends[0] = text_ends[0] = 0
        for row in range(rows):
            if not is_null(nulls, row):
                template = codes[row]
                number = skip_numbers(number, number_stop, number_slots[template])
                if number == NULL:
                    is_sound = False
                    break
                for slot in range(text_slots[template]):
                    end = take_sound(text, text_stop, &size)
                    if end == NULL or size > <uint64_t>(text_stop - end):
                        is_sound = False
                        break
                    if out != NULL:
                        memcpy(out + (end - first_text), end, size)
                    text = end + size
                if not is_sound:
                    break
            number_ends[row + 1] = <int32_t>(number - first_number)
            text_ends[row + 1] = <int32_t>(text - first_text)
    return is_sound and number == number_stop and text == text_stop


# --- joining --------------------------------------------------------------------------------

cdef inline int64_t joined_bytes(const Layout* layout, const Rows* rows, int64_t row) noexcept nogil:
    """Returns the bytes of a row's text."""
    cdef int32_t code = rows.codes[row]
    cdef const uint8_t* number = rows.numbers + rows.number_ends[row]
    cdef const uint8_t* stop = rows.numbers + rows.number_ends[row + 1]
    cdef const uint8_t* text = rows.texts + rows.text_ends[row]
    cdef int64_t size = constant_bytes(layout, code)
    cdef uint64_t value
    while number < stop:
        number = take_varint(number, &value)
        size += digits_in(value)
    stop = rows.texts + rows.text_ends[row + 1]
    while text < stop:
        text = take_varint(text, &value)
        size += value
        text += value
    return size


cdef inline int64_t constant_bytes(const Layout* layout, int32_t code) noexcept nogil:
    """Returns the bytes of a template without its marks."""
    cdef int64_t slots = layout.firsts[code + 1] - layout.firsts[code]
    return layout.offsets[code + 1] - layout.offsets[code] - slots


cdef struct Variables:
    # The variables not taken yet, and their ends.
    const uint8_t* number
    const uint8_t* number_stop
    const uint8_t* text
    const uint8_t* text_stop
    const uint8_t* texts_end  # of all rows


cdef inline Variables variables_of(const Rows* rows, int64_t row) noexcept nogil:
    cdef Variables left
    left.number, left.number_stop = rows.numbers + rows.number_ends[row], rows.numbers + rows.number_ends[row + 1]
    left.text, left.text_stop = rows.texts + rows.text_ends[row], rows.texts + rows.text_ends[row + 1]
    left.texts_end = rows.texts + rows.text_ends[rows.count]
    return left


cdef inline uint8_t* join_row(
    const Layout* layout, int32_t code, Variables* left, uint8_t* out, const uint64_t* bits, uint64_t* alphabets
) noexcept nogil:
    """Writes a row's text, and takes its variables. Returns the end; NULL if there are too few variables.

    `out` and the templates have `SLACK` bytes of room behind them. alphabets: receives the bits of each slot's texts,
    or NULL.
    """
    cdef int64_t slot, start = layout.offsets[code], stop = layout.firsts[code + 1]
    cdef const uint8_t* number = left.number
    cdef const uint8_t* text = left.text
    cdef uint64_t value
    for slot in range(layout.firsts[code], stop):
        out = put_loosely(out, layout.data + start, layout.places[slot] - start)
        start = layout.places[slot] + 1
        if layout.kinds[slot] == NUMBER:
            number = take_sound(number, left.number_stop, &value)
            if number == NULL:
                return NULL
            out = put_digits(out, value)
        else:
            text = take_sound(text, left.text_stop, &value)
            if text == NULL or value > <uint64_t>(left.text_stop - text):
                return NULL
            out = put(out, text, value)
            if alphabets != NULL:
                alphabets[slot] |= letters_of(text, value, bits, left.texts_end)
            text += value
    left.number, left.text = number, text
    return put_loosely(out, layout.data + start, layout.offsets[code + 1] - start)


cdef inline bint skip_row(const Layout* layout, int32_t code, Variables* left) noexcept nogil:
    """Skips a row's variables. Returns False if there are too few."""
    cdef int64_t slot, count = 0
    cdef const uint8_t* text = left.text
    cdef uint64_t size
    for slot in range(layout.firsts[code], layout.firsts[code + 1]):
        if layout.kinds[slot] == NUMBER:
            count += 1
            continue
        text = take_sound(text, left.text_stop, &size)
        if text == NULL or size > <uint64_t>(left.text_stop - text):
            return False
        text += size
    left.text = text
    left.number = skip_numbers(left.number, left.number_stop, count)
    return left.number != NULL


cdef inline int64_t max_joined_bytes(const Layout* layout, const Rows* rows, int64_t row) noexcept nogil:
    """Returns an upper bound of the bytes of a row's text, without reading its variables."""
    return (
        constant_bytes(layout, rows.codes[row])
        + MAX_GROWTH * (rows.number_ends[row + 1] - rows.number_ends[row])
        + rows.text_ends[row + 1] - rows.text_ends[row]
    )


def max_bytes(
    const offset[::1] template_offsets, const int32_t[::1] number_slots, const int32_t[::1] text_slots,
    const int32_t[::1] codes, const int32_t[::1] number_ends, const int32_t[::1] text_ends,
    const uint8_t[::1] valid, int64_t first_bit,
):
    """Returns an upper bound of the bytes of all rows' text, without reading their variables.

    number_slots, text_slots: see `count_slots`.
    """
    cdef int64_t row, total = 0, count = codes.shape[0], templates = number_slots.shape[0]
    cdef Nulls nulls = nulls_of(valid, first_bit, count)
    cdef int32_t code
    require(text_slots.shape[0] == templates and template_offsets.shape[0] == templates + 1, "it has another length")
    require(min(number_ends.shape[0], text_ends.shape[0]) > count, "a buffer is too short")
    with nogil:
        for row in range(count):
            if not is_null(nulls, row):
                code = codes[row]
                total += template_offsets[code + 1] - template_offsets[code] - number_slots[code] - text_slots[code]
                total += MAX_GROWTH * (number_ends[row + 1] - number_ends[row]) + text_ends[row + 1] - text_ends[row]
    return total


def join_lengths(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] places, const uint8_t[::1] kinds,
    const int32_t[::1] codes, const int32_t[::1] number_ends, const uint8_t[::1] numbers, const int32_t[::1] text_ends,
    const uint8_t[::1] texts, const uint8_t[::1] valid, int64_t first_bit, int64_t[::1] out,
):
    """Writes the bytes of each row's text, 0 for nulls. Returns their sum."""
    cdef Layout layout = layout_of(template_offsets, templates, firsts, places, kinds)
    cdef Rows rows = rows_of(codes, number_ends, numbers, text_ends, texts, valid, first_bit)
    cdef int64_t row, total = 0
    with nogil:
        for row in range(rows.count):
            out[row] = 0 if is_null(rows.nulls, row) else joined_bytes(&layout, &rows, row)
            total += out[row]
    return total


def join(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] places, const uint8_t[::1] kinds,
    const int32_t[::1] codes, const int32_t[::1] number_ends, const uint8_t[::1] numbers, const int32_t[::1] text_ends,
    const uint8_t[::1] texts, const uint8_t[::1] valid, int64_t first_bit, offset[::1] offsets, uint8_t[::1] out,
):
    """Joins rows to text. out: `max_bytes` bytes, and `SLACK` more. offsets: receives where each row begins, and the
    end of the last."""
    cdef Layout layout = layout_of(template_offsets, templates, firsts, places, kinds)
    cdef Rows rows = rows_of(codes, number_ends, numbers, text_ends, texts, valid, first_bit)
    cdef uint8_t* begin = &out[0]
    cdef uint8_t* at = begin
    cdef Variables left
    cdef int64_t row
    with nogil:
        offsets[0] = 0
        for row in range(rows.count):
            if not is_null(rows.nulls, row):
                left = variables_of(&rows, row)
                at = join_row(&layout, rows.codes[row], &left, at, NULL, NULL)
                if at == NULL:
                    break
            offsets[row + 1] = <offset>(at - begin)
    require(at != NULL, "a row has fewer variables than its template")


def join_stored(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] places, const uint8_t[::1] kinds, const int32_t[::1] codes, const uint8_t[::1] valid,
    int64_t first_bit, const uint8_t[::1] numbers, const uint8_t[::1] texts, const uint8_t[::1] chosen,
    offset[::1] offsets, uint8_t[::1] out,
):
    """Joins rows whose variables are end to end. Validates untrusted input; assumes only that codes are in range.
    Returns whether the variables are exactly those of the templates.

    chosen: 1 for the rows to join, 0 for those to skip; None for all. out: `max_stored_bytes` bytes, and `SLACK` more.
    offsets: receives where each chosen row begins, and the end of the last.
    """
    cdef Layout layout = layout_of(template_offsets, templates, firsts, places, kinds)
    cdef Nulls nulls = nulls_of(valid, first_bit, codes.shape[0])
    cdef uint8_t nothing = 0
    cdef Variables left
    cdef uint8_t* begin = &out[0]
    cdef uint8_t* at = begin
    cdef const uint8_t* flags = NULL
    cdef int64_t row, place = 0
    if chosen is not None and codes.shape[0]:
        require(chosen.shape[0] == codes.shape[0], "it has another length")
        flags = &chosen[0]
    left.number = &numbers[0] if numbers.shape[0] else &nothing
    left.number_stop = left.number + numbers.shape[0]
    left.text = &texts[0] if texts.shape[0] else &nothing
    left.text_stop = left.texts_end = left.text + texts.shape[0]
    with nogil:
        offsets[0] = 0
        for row in range(codes.shape[0]):
            if not is_null(nulls, row):
                if flags == NULL or flags[row]:
                    at = join_row(&layout, codes[row], &left, at, NULL, NULL)
                elif not skip_row(&layout, codes[row], &left):
                    at = NULL
                if at == NULL:
                    break
            if flags == NULL or flags[row]:
                place += 1
                offsets[place] = <offset>(at - begin)
    return at != NULL and left.number == left.number_stop and left.text == left.text_stop


def max_stored_bytes(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] places, const uint8_t[::1] kinds, const int32_t[::1] codes, const uint8_t[::1] valid,
    int64_t first_bit, int64_t number_bytes, int64_t text_bytes,
):
    """Returns an upper bound of the bytes of all rows' text from the total bytes of their variables."""
    cdef Nulls nulls = nulls_of(valid, first_bit, codes.shape[0])
    cdef Layout layout = layout_of(template_offsets, templates, firsts, places, kinds)
    cdef int64_t row, total = MAX_GROWTH * number_bytes + text_bytes
    with nogil:
        for row in range(codes.shape[0]):
            if not is_null(nulls, row):
                total += constant_bytes(&layout, codes[row])
    return total


# --- survey of the text, row by row ---------------------------------------------------------

cdef int64_t scratch_bytes(const Layout* layout, const Rows* rows) noexcept nogil:
    """Returns an upper bound of the bytes of the longest row's text."""
    cdef int64_t row, most = 1 + SLACK
    for row in range(rows.count):
        if not is_null(rows.nulls, row):
            most = max(most, SLACK + max_joined_bytes(layout, rows, row))
    return most


def survey(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] firsts,
    const int64_t[::1] places, const uint8_t[::1] kinds,
    const int32_t[::1] codes, const int32_t[::1] number_ends, const uint8_t[::1] numbers, const int32_t[::1] text_ends,
    const uint8_t[::1] texts, const uint8_t[::1] valid, int64_t first_bit, uint64_t seed, const uint64_t[::1] bits, uint64_t[::1] contributions, uint64_t[::1] alphabets,
    int64_t[::1] between,
):
    """Joins each row's text once, and computes all statistics of it.

    contributions: receives mix(h(text) ^ seed), 0 for nulls (SPEC section 7). bits: the alphabet bit of each of 256
    bytes. alphabets: zeros, one per slot; receives the alphabets of the slots. between: zeros, one per template.
    Returns the bytes of all rows' text, and the least and the greatest text; None for both if all rows are null.
    """
    cdef Layout layout = layout_of(template_offsets, templates, firsts, places, kinds)
    cdef Rows rows = rows_of(codes, number_ends, numbers, text_ends, texts, valid, first_bit)
    cdef uint8_t* scratch
    cdef uint8_t* at = NULL
    cdef uint8_t* stops[BATCH_ROWS]
    cdef const uint64_t* bit_of = &bits[0]
    cdef uint64_t nothing = 0
    cdef uint64_t* of_slots = &alphabets[0] if alphabets.shape[0] else &nothing
    cdef int64_t row, most = scratch_bytes(&layout, &rows), first = 0, number, total = 0, changes = 1
    cdef int32_t code
    cdef Extreme low, high
    cdef Variables left
    if bits.shape[0] != 256 or alphabets.shape[0] != firsts[layout.templates] or contributions.shape[0] != rows.count:
        raise ValueError("an array is malformed: it has another length")
    scratch = <uint8_t*>malloc(BATCH + 3 * most)
    if scratch == NULL:
        raise MemoryError(f"no memory for three texts of {most} bytes")
    low.row = high.row = -1
    low.text, high.text = scratch + BATCH + most, scratch + BATCH + 2 * most
    low.size = high.size = 0
    try:
        with nogil:
            while first < rows.count:
                row, at = first, scratch
                while row < rows.count and row - first < BATCH_ROWS and at - scratch <= BATCH:
                    if not is_null(rows.nulls, row):
                        left = variables_of(&rows, row)
                        at = join_row(&layout, rows.codes[row], &left, at, bit_of, of_slots)
                        if at == NULL:
                            break
                    stops[row - first] = at
                    row += 1
                if at == NULL:
                    break
                total += at - scratch
                at = scratch
                for number in range(row - first):
                    if is_null(rows.nulls, first + number):
                        contributions[first + number] = 0
                        continue
                    contributions[first + number] = mixed(XXH3_64bits(at, stops[number] - at) ^ seed)
                    code = rows.codes[first + number]
                    if between[code] != changes:
                        if weigh(&low, &high, first + number, at, stops[number] - at):
                            changes += 1
                        elif is_between(&layout, code, &low, &high):
                            between[code] = changes
                    at = stops[number]
                first = row
        require(at != NULL or rows.count == 0, "a row has fewer variables than its template")
        if low.row < 0:
            return total, None, None
        return total, (<char*>low.text)[: low.size], (<char*>high.text)[: high.size]
    finally:
        free(scratch)


cdef struct Extreme:
    int64_t row
    uint8_t* text
    int64_t size


cdef inline bint is_between(const Layout* layout, int32_t code, const Extreme* low, const Extreme* high) noexcept nogil:
    """Returns whether the text before a template's first variable already rules out both extremes."""
    cdef int64_t start = layout.offsets[code]
    cdef int64_t stop = layout.places[layout.firsts[code]] if layout.firsts[code] < layout.firsts[code + 1] else start
    cdef int64_t size = stop - start
    return (
        memcmp(layout.data + start, low.text, min(size, low.size)) > 0
        and memcmp(layout.data + start, high.text, min(size, high.size)) < 0
    )


cdef inline bint weigh(Extreme* low, Extreme* high, int64_t row, const uint8_t* text, int64_t size) noexcept nogil:
    """Updates the extremes with a text. Returns whether one changed."""
    cdef bint is_low = low.row < 0 or order_of(text, size, low.text, low.size) < 0
    cdef bint is_high = high.row < 0 or order_of(text, size, high.text, high.size) > 0
    if is_low:
        replace(low, row, text, size)
    if is_high:
        replace(high, row, text, size)
    return is_low or is_high


cdef inline void replace(Extreme* extreme, int64_t row, const uint8_t* text, int64_t size) noexcept nogil:
    extreme.row = row
    extreme.size = size
    memcpy(extreme.text, text, size)


cdef inline int order_of(const uint8_t* one, int64_t size, const uint8_t* other, int64_t other_size) noexcept nogil:
    cdef int order = memcmp(one, other, min(size, other_size))
    return order if order else (size > other_size) - (size < other_size)
