# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Gathers strings that are stored as numbers of words (VOCABULARY of SPEC section 5): their text, and their numbers in
the vocabulary of a row group.

A `WordTable` gives the words of all chunks of a column the same numbers, so that rows of many chunks are gathered without
comparing words.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t, uintptr_t
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
    words_of,
)
from lsm_fragment.native.gil cimport release_gil, restore_gil


TABLE_BYTES = HELD_BYTES


cdef inline bint spells(uint16_t number) noexcept nogil:
    """Returns whether a number is no word's."""
    return number < BYTES or number >= TRIPLES


cdef inline bint are_digits(int64_t number) noexcept nogil:
    """Returns whether a number is two digits."""
    cdef int64_t pair = number - PAIRS
    return 0 <= pair < 10 * LETTERS and pair % LETTERS < 10


cdef inline bint is_spelled_always(const uint16_t* numbers, int64_t count) noexcept nogil:
    """Returns whether numbers that spell are of words that any vocabulary spells, by the numbers of `spelled`."""
    cdef int64_t at = 0, size
    cdef bint has_letters
    while at < count:
        size = 0
        if TRIPLES <= numbers[at] < PAIRS:
            while at < count and size + 3 <= SIZE and TRIPLES <= numbers[at] < PAIRS:
                size += 3
                at += 1
            if at < count and size + 2 <= SIZE and are_digits(numbers[at]):
                size += 2
                at += 1
            elif at < count and size < SIZE and is_digit(numbers[at]):
                size += 1
                at += 1
        elif PAIRS <= numbers[at] < PAIRS + 10 * LETTERS:
            has_letters = False
            while at < count and size + 2 <= SIZE and numbers[at] >= PAIRS:
                has_letters |= not are_digits(numbers[at])
                size += 2
                at += 1
            if at < count and size < SIZE and is_letter(numbers[at]):
                has_letters |= not is_digit(numbers[at])
                size += 1
                at += 1
            if not has_letters:
                return False
        if size <= MAX_DIGITS or (at < count and size < SIZE):
            return False
    return True


cdef class WordTable:
    """The words of a column's chunks, which get the same numbers in all of them.

    One thread adds words. Others may gather rows with the words that are known: these stay where they are.
    """

    cdef Vocabulary known
    cdef object memory

    def __cinit__(self):
        self.memory = allocate_buffer(HELD_BYTES)
        self.known = empty(<void*><uintptr_t>self.memory.address)
        enter_sizes(self.known.sizes)
        enter_spelled(self.known.words)

    @property
    def count(self):
        """The number of words."""
        return self.known.count - BYTES

    def listed(self, int64_t count):
        """Returns the bytes of each of the first `count` words, and these words end to end.

        Any thread may call it, for words that were known when it got rows: others may be added meanwhile.
        """
        cdef Vocabulary first = self.known
        first.count = BYTES + count
        return words_of(&first)

    def renumbered(
        self, const uint8_t[::1] numbers, const int32_t[::1] ends, const uint8_t[::1] text, const int32_t[::1] word_ends
    ):
        """Returns the numbers of rows by this table (an Arrow buffer of uint16), and the ends of rows in them and in
        their text; None if the table has no room for some word, or the array's words had none.

        numbers, ends: those by the words of an array, uint16, and the offsets of rows in them. text, word_ends: the words
        end to end, and their offsets.
        """
        cdef int64_t rows = ends.shape[0] - 1, count = word_ends.shape[0] - 1, word, start, size, row, written = 0
        cdef int64_t first = ends[0], last = ends[rows], at
        cdef int64_t checked = first  # bytes before this one are words that are always spelled
        cdef const uint16_t* source = <const uint16_t*>(&numbers[0] if numbers.shape[0] else NULL)
        cdef bint are_numbered = True
        cdef uint16_t[NUMBERS] by_number
        cdef int64_t readable = text.shape[0]
        cdef uint16_t number
        cdef Vocabulary* known = &self.known
        out = allocate_buffer(2 * (last - first))
        new_ends = np.empty(rows + 1, dtype=np.int32)
        text_ends = np.empty(rows + 1, dtype=np.int32)
        cdef int32_t[::1] new = new_ends, in_text = text_ends
        cdef uint16_t* into = <uint16_t*><uintptr_t>out.address
        state = release_gil(last - first)
        for at in range(NUMBERS):
            by_number[at] = <uint16_t>at
        for word in range(count):
            start = word_ends[word]
            size = word_ends[word + 1] - start
            number = <uint16_t>number_of(known, word_at(&text[start], size, readable - start), size)
            by_number[BYTES + word] = number
            are_numbered &= number != 0
        new[0] = in_text[0] = 0
        for row in range(rows):
            if not are_numbered:
                break
            for at in range(ends[row], ends[row + 1]):
                if spells(source[at]) and at >= checked:
                    checked = at + 1
                    while checked < ends[row + 1] and spells(source[checked]):
                        checked += 1
                    are_numbered &= is_spelled_always(source + at, checked - at)
                number = by_number[source[at]]
                into[at - first] = number
                written += known.sizes[number]
            new[row + 1] = <int32_t>(ends[row + 1] - first)
            in_text[row + 1] = <int32_t>written
        restore_gil(state)
        return (out, new_ends, text_ends) if are_numbered else None

    def gathered(
        self, const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const uint16_t[::1] origins, int64_t size,
        int64_t max_numbers,
    ):
        """Returns the text of rows in merged order (an Arrow buffer of `size` bytes), and what
        `lsm_fragment.native.encodings.vocabulary.encode` returns of it: None if it has more than `max_numbers` numbers, or
        some word has no place in a vocabulary.

        pieces: for each the addresses of its array's numbers, 0 for nulls, and of the ends of rows, its first row there,
        and its rows. firsts, origins: see `lsm_fragment.native.gather.rows`.
        """
        cdef int64_t sources = firsts.shape[0], rows = origins.shape[0], row, at, stop, place, number
        cdef uint16_t[NUMBERS] by_number  # in the row group
        cdef Vocabulary* known = &self.known
        cdef Vocabulary used
        cdef const uint16_t* source
        cdef const int32_t* ends
        text = allocate_buffer(size + SIZE)
        numbers = allocate_buffer(2 * max_numbers)
        counts = np.empty(rows, dtype=np.int32)
        memory = allocate_buffer(HELD_BYTES + 2 * sources * sizeof(int64_t))
        cdef int32_t[::1] counted = counts
        cdef int64_t* piece_of = <int64_t*>(<uint8_t*><uintptr_t>memory.address + HELD_BYTES)
        cdef int64_t* row_of = piece_of + sources
        cdef uint8_t* out = <uint8_t*><uintptr_t>text.address
        cdef uint16_t* into = <uint16_t*><uintptr_t>numbers.address
        cdef uint16_t* begin = into
        cdef uint16_t* end = into + max_numbers
        cdef bint fits = True
        used = empty(<void*><uintptr_t>memory.address)
        for number in range(NUMBERS):
            by_number[number] = <uint16_t>number
        memset(&by_number[BYTES], 0, (TRIPLES - BYTES) * sizeof(uint16_t))
        for at in range(sources):
            piece_of[at] = firsts[at]
            row_of[at] = 0
        state = release_gil(size)
        for row in range(rows):
            at = origins[row]
            place = piece_of[at]
            while row_of[at] == pieces[place, 3]:
                place += 1
                piece_of[at] = place
                row_of[at] = 0
            source = <const uint16_t*><uintptr_t>pieces[place, 0]
            counted[row] = 0
            if source is not NULL:
                ends = <const int32_t*><uintptr_t>pieces[place, 1] + pieces[place, 2] + row_of[at]
                stop = ends[1]
                if end - into < stop - ends[0]:
                    fits = False
                counted[row] = stop - ends[0]
                for at in range(ends[0], stop):
                    number = source[at]
                    memcpy(out, &known.words[number], SIZE)
                    out += known.sizes[number]
                    if fits:
                        if not by_number[number] and number:
                            by_number[number] = <uint16_t>number_of(&used, known.words[number], known.sizes[number])
                            fits = by_number[number] != 0
                        into[0] = by_number[number]
                        into += 1
            row_of[origins[row]] += 1
        restore_gil(state)
        gathered = text.slice(0, size)
        if not fits:
            return gathered, None
        return gathered, (numbers.slice(0, 2 * (into - begin)), counts, *words_of(&used))
