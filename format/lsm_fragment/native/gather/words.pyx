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
    NUMBERS,
    SIZE,
    Vocabulary,
    Word,
    empty,
    number_of,
    word_at,
    words_of,
)
from lsm_fragment.native.gil cimport release_gil, restore_gil


TABLE_BYTES = HELD_BYTES


cdef class WordTable:
    """The words of a column's chunks, which get the same numbers in all of them.

    One thread adds words. Others may gather rows with the words that are known: these stay where they are.
    """

    cdef Vocabulary known
    cdef object memory

    def __cinit__(self):
        self.memory = allocate_buffer(HELD_BYTES)
        self.known = empty(<void*><uintptr_t>self.memory.address)

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
        their text.

        Words that it has no room for are spelled. numbers, ends: those by the words of an array, uint16, and the offsets
        of rows in them. text, word_ends: the words end to end, and their offsets.
        """
        cdef int64_t rows = ends.shape[0] - 1, count = word_ends.shape[0] - 1, word, start, size, index, row, total = 0, written = 0
        cdef int64_t first = ends[0], last = ends[rows], at
        cdef const uint16_t* source = <const uint16_t*>(&numbers[0] if numbers.shape[0] else NULL)
        cdef bint are_spelled = False
        cdef uint16_t[NUMBERS] by_number
        cdef int64_t readable = text.shape[0]
        cdef uint16_t number
        cdef Word key
        cdef Vocabulary* known = &self.known
        for index in range(BYTES):
            by_number[index] = <uint16_t>index
        state = release_gil(last - first)
        for word in range(count):
            start = word_ends[word]
            size = word_ends[word + 1] - start
            key = word_at(&text[start], size, readable - start)
            number = <uint16_t>number_of(known, key, size)
            by_number[BYTES + word] = number
            are_spelled |= number == 0
        total = last - first
        if are_spelled:
            for at in range(first, last):
                word = <int64_t>source[at] - BYTES
                if word >= 0 and by_number[BYTES + word] == 0:
                    total += word_ends[word + 1] - word_ends[word] - 1
        restore_gil(state)
        out = allocate_buffer(2 * total)
        new_ends = np.empty(rows + 1, dtype=np.int32)
        text_ends = np.empty(rows + 1, dtype=np.int32)
        cdef int32_t[::1] new = new_ends, in_text = text_ends
        cdef uint16_t* into = <uint16_t*><uintptr_t>out.address
        cdef uint16_t* begin = into
        new[0] = in_text[0] = 0
        state = release_gil(total)
        for row in range(rows):
            for at in range(ends[row], ends[row + 1]):
                number = by_number[source[at]]
                if number or source[at] == 0:
                    into[0] = number
                    into += 1
                    written += known.sizes[number]
                else:
                    word = <int64_t>source[at] - BYTES
                    start = word_ends[word]
                    size = word_ends[word + 1] - start
                    for index in range(size):
                        into[index] = text[start + index]
                    into += size
                    written += size
            new[row + 1] = <int32_t>(into - begin)
            in_text[row + 1] = <int32_t>written
        restore_gil(state)
        return out, new_ends, text_ends

    def gathered(
        self, const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const uint16_t[::1] origins, int64_t size,
        int64_t max_numbers,
    ):
        """Returns the text of rows in merged order (an Arrow buffer of `size` bytes), and what
        `lsm_fragment.native.encodings.vocabulary.encode` returns of it: None if it has more than `max_numbers` numbers.

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
        memory = allocate_buffer(2 * sources * sizeof(int64_t) + NUMBERS * (sizeof(Word) + 1))
        cdef int32_t[::1] counted = counts
        cdef int64_t* piece_of = <int64_t*><uintptr_t>memory.address
        cdef int64_t* row_of = piece_of + sources
        cdef uint8_t* out = <uint8_t*><uintptr_t>text.address
        cdef uint16_t* into = <uint16_t*><uintptr_t>numbers.address
        cdef uint16_t* begin = into
        cdef uint16_t* end = into + max_numbers
        cdef bint fits = True
        used.words = <Word*>(row_of + sources)
        used.sizes = <uint8_t*>(used.words + NUMBERS)
        used.count = BYTES
        for number in range(BYTES):
            by_number[number] = <uint16_t>number
        memset(&by_number[BYTES], 0, (NUMBERS - BYTES) * sizeof(uint16_t))
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
                    into = begin
                counted[row] = stop - ends[0]
                for at in range(ends[0], stop):
                    number = source[at]
                    memcpy(out, &known.words[number], SIZE)
                    out += known.sizes[number]
                    if fits:
                        if not by_number[number] and number:
                            by_number[number] = <uint16_t>used.count
                            used.words[used.count] = known.words[number]
                            used.sizes[used.count] = known.sizes[number]
                            used.count += 1
                        into[0] = by_number[number]
                        into += 1
            row_of[origins[row]] += 1
        restore_gil(state)
        gathered = text.slice(0, size)
        if not fits:
            return gathered, None
        return gathered, (numbers.slice(0, 2 * (into - begin)), counts, *words_of(&used))
