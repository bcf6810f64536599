# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Numbers the words of text, and expands numbers (VOCABULARY of SPEC section 5)."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

import numpy as np
from pyarrow import allocate_buffer

from lsm_fragment.native.encodings.vocabulary cimport (
    BYTES,
    HELD_BYTES,
    LETTERS,
    MAX_DIGITS,
    NUMBERS,
    PAIRS,
    SIZE,
    TRIPLES,
    Vocabulary,
    Word,
    empty,
    enter_sizes,
    enter_spelled,
    is_digit,
    is_letter,
    number_of,
    word_at,
)
from lsm_fragment.native.gil cimport release_gil, restore_gil
from lsm_fragment.native.words cimport WINDOW, lowest_bit, offset, places_of_letters

cdef enum:
    STRIP = 1 << 14  # bytes whose words are found before they are numbered

MAX_WORD_BYTES = SIZE
MAX_WORDS = TRIPLES - BYTES
FIRST_WORD = BYTES


cdef int64_t find_starts(
    const uint8_t* data, int64_t begin, int64_t stop, int64_t size, uint64_t* last, int32_t* starts
) noexcept nogil:
    """Finds where words start: where a letter or digit follows another byte. Returns how many do.

    begin, stop: a strip of the `size` bytes. last: 1 if the byte before the strip is a letter or a digit, set
    for the next strip. starts: the places from `begin` on.
    """
    cdef uint8_t[WINDOW] window
    cdef int64_t at = begin, count = 0
    cdef uint64_t letters, places
    while at < stop:
        if at + WINDOW <= size:
            letters = places_of_letters(data + at)
        else:
            memset(window, 0, WINDOW)
            memcpy(window, data + at, size - at)
            letters = places_of_letters(window)
        places = letters & ~(letters << 1 | last[0])
        last[0] = letters >> (WINDOW - 1)
        while places:
            starts[count] = <int32_t>(at - begin + lowest_bit(places))
            count += 1
            places &= places - 1
        at += WINDOW
    return count


cdef inline int64_t word_bytes(const uint8_t* text, int64_t size) noexcept nogil:
    """Returns the bytes of the first word of some text that has no other start of a word."""
    cdef int64_t length = size
    if length > SIZE:
        length = SIZE
        while length > SIZE - 3 and text[length] >> 6 == 2:
            length -= 1  # not within a character of UTF-8, so that words are strings too
    return length


cdef inline int64_t letters_in(const uint8_t* word, int64_t size) noexcept nogil:
    """Returns how many letters and digits of ASCII a word begins with."""
    cdef int64_t count = 0
    while count < size and is_letter(word[count]):
        count += 1
    return count


cdef inline int64_t rank_of(int64_t letter) noexcept nogil:
    """Returns the place of a letter or digit of ASCII among all of them."""
    return letter - 48 - 7 * (letter >= 65) - 6 * (letter >= 97)


cdef int64_t spelled(const uint8_t* text, int64_t size, uint16_t* out) noexcept nogil:
    """Writes the numbers that spell a word without a number of its own: by threes, if all of it are digits, then letters and
    digits by twos, then bytes. Returns how many numbers these are."""
    cdef int64_t at = 0, count = 0
    while at < size and is_digit(text[at]):
        at += 1
    if at == size:
        at = 0
        while at + 3 <= size:
            out[count] = <uint16_t>(TRIPLES + 100 * (text[at] - 48) + 10 * (text[at + 1] - 48) + text[at + 2] - 48)
            count += 1
            at += 3
    else:
        at = 0
    while at < size:
        if at + 1 < size and is_letter(text[at]) and is_letter(text[at + 1]):
            out[count] = <uint16_t>(PAIRS + LETTERS * rank_of(text[at]) + rank_of(text[at + 1]))
            at += 2
        else:
            out[count] = text[at]
            at += 1
        count += 1
    return count


# Called by its address, so that compilers keep it out of the loop over words, few of which are spelled.
cdef int64_t (*spell)(const uint8_t*, int64_t, uint16_t*) noexcept nogil
spell = spelled


cdef struct Numbering:
    # The numbers that were written so far.
    Vocabulary known
    uint16_t* out
    uint16_t* end  # behind it is room for `SIZE` more


cdef inline bint number(Numbering* to, const uint8_t* data, int64_t at, int64_t stop, int64_t size) noexcept nogil:
    """Writes the numbers of the bytes from `at` to `stop`, of `size`. Returns False if there are too many."""
    cdef int64_t length, letters, found
    while at < stop:
        length = word_bytes(data + at, stop - at)
        found = 0
        letters = letters_in(data + at, length) if is_digit(data[at]) else 0
        if letters > MAX_DIGITS:
            length = letters  # what is behind them is a word of its own
        else:
            found = number_of(&to.known, word_at(data + at, length, size - at), length)
        if found:
            to.out[0] = <uint16_t>found
            to.out += 1
        else:
            to.out += spell(data + at, length, to.out)
        if to.out > to.end:
            return False
        at += length
    return True


def encode(const offset[::1] offsets, const uint8_t[::1] data, int64_t max_numbers):
    """Numbers the words of rows. Returns the numbers (an Arrow buffer of uint16), how many each row has (int32),
    the bytes of each word (uint8), and the words end to end; None if there are more than `max_numbers` numbers.

    Words are numbered in the order of their first use.
    """
    cdef int64_t rows = offsets.shape[0] - 1, first = offsets[0], size = offsets[rows] - first
    cdef int64_t row = 0, at = 0, strip = 0, stop, index, found, place, row_end
    cdef uint64_t last = 0
    cdef const uint8_t* text = &data[0] + first if size else NULL
    cdef int32_t[STRIP + 1] starts
    cdef Numbering to
    cdef uint16_t* row_start
    cdef bint fits = True
    memory = allocate_buffer(HELD_BYTES)
    numbers = allocate_buffer(2 * (max_numbers + SIZE))
    counts = np.empty(rows, dtype=np.int32)
    cdef int32_t[::1] counted = counts
    to.known = empty(<void*><uintptr_t>memory.address)
    to.out = row_start = <uint16_t*><uintptr_t>numbers.address
    to.end = to.out + max_numbers
    state = release_gil(size)
    while strip < size and fits:
        stop = min(strip + STRIP, size)
        found = find_starts(text, strip, stop, size, &last, starts)
        starts[found] = <int32_t>(stop - strip)
        for index in range(found + (stop == size)):
            place = strip + starts[index]
            # The word that ends here began at `at`, maybe in the strip before; rows may end within it.
            while at < place and fits:
                while offsets[row + 1] - first <= at:
                    counted[row] = <int32_t>(to.out - row_start)
                    row_start = to.out
                    row += 1
                row_end = min(place, <int64_t>(offsets[row + 1] - first))
                fits = number(&to, text, at, row_end, size)
                at = row_end
            if not fits:
                break
        strip = stop
    restore_gil(state)
    if not fits:
        return None
    while row < rows:
        counted[row] = <int32_t>(to.out - row_start)
        row_start = to.out
        row += 1
    stored = to.out - <uint16_t*><uintptr_t>numbers.address
    return numbers.slice(0, 2 * stored), counts, *words_of(&to.known)


cdef tuple words_of(Vocabulary* known):
    """Returns the bytes of each word, and the words end to end."""
    cdef int64_t number, size = 0
    lengths = np.empty(known.count - BYTES, dtype=np.uint8)
    cdef uint8_t[::1] each = lengths
    for number in range(BYTES, known.count):
        each[number - BYTES] = known.sizes[number]
        size += known.sizes[number]
    text = bytearray(size + SIZE)
    cdef uint8_t* out = text
    for number in range(BYTES, known.count):
        memcpy(out, &known.words[number], SIZE)
        out += known.sizes[number]
    return lengths, bytes(memoryview(text)[:size])


def measure(const uint8_t[::1] numbers, const int32_t[::1] ends, const uint8_t[::1] lengths, offset[::1] offsets):
    """Computes the offsets of rows in their text. Returns the last one, and whether any number is a byte beyond ASCII.

    numbers: uint16, of all rows. ends: the offsets of rows in them. lengths: the bytes of each word. Raises
    ValueError for a number without a word, and for text beyond the offsets' type.
    """
    cdef uint8_t[NUMBERS] sizes
    cdef int64_t rows = ends.shape[0] - 1, row, index, total = 0, words = lengths.shape[0]
    cdef uint16_t number = 0, missing = 0
    cdef bint has_loose_bytes = False
    memset(sizes, 0, NUMBERS)
    enter_sizes(sizes)
    if words:
        memcpy(sizes + BYTES, &lengths[0], words)
    cdef const uint8_t* at = &numbers[0] if numbers.shape[0] else NULL
    offsets[0] = 0
    state = release_gil(numbers.shape[0])
    for row in range(rows):
        for index in range(ends[row], ends[row + 1]):
            memcpy(&number, at + 2 * index, 2)
            if not sizes[number]:
                missing = number
            has_loose_bytes |= number >> 7 == 1
            total += sizes[number]
        offsets[row + 1] = <offset>total
    restore_gil(state)
    if missing:
        raise ValueError(f"word {missing - BYTES} of a vocabulary of {words}")
    if offset is int32_t and total > INT32_MAX:
        raise ValueError(f"{total} bytes of text in offsets of 32 bits")
    return total, has_loose_bytes


def expand(const uint8_t[::1] numbers, const uint8_t[::1] lengths, const uint8_t[::1] text, int64_t size):
    """Returns the text of numbers, an Arrow buffer.

    numbers, lengths: see `measure`, which has to come before. text: the words end to end. size: the bytes of all
    numbers.
    """
    cdef int64_t words = lengths.shape[0], index, used = 0, count = numbers.shape[0] // 2
    cdef uint16_t number = 0
    table = allocate_buffer(NUMBERS * (sizeof(Word) + 1))
    cdef Word* values = <Word*><uintptr_t>table.address
    cdef uint8_t* sizes = <uint8_t*>(values + NUMBERS)
    enter_sizes(sizes)
    enter_spelled(values)
    memset(values + BYTES, 0, words * sizeof(Word))
    for index in range(words):
        memcpy(&values[BYTES + index], &text[used], lengths[index])
        sizes[BYTES + index] = lengths[index]
        used += lengths[index]
    buffer = allocate_buffer(size + SIZE)
    cdef uint8_t* out = <uint8_t*><uintptr_t>buffer.address
    cdef const uint8_t* at = &numbers[0] if count else NULL
    state = release_gil(count)
    for index in range(count):
        memcpy(&number, at + 2 * index, 2)
        memcpy(out, &values[number], SIZE)
        out += sizes[number]
    restore_gil(state)
    return buffer.slice(0, size)
