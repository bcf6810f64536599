# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Numbers the words of text, and expands numbers (VOCABULARY of SPEC section 5)."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memchr, memcmp, memcpy, memset

import numpy as np
from pyarrow import allocate_buffer

from lsm_fragment.native.encodings.vocabulary cimport (
    BYTES,
    HELD_BYTES,
    KEPT_BITS,
    LETTERS,
    MAX_DIGITS,
    NUMBER,
    NUMBERS,
    PAIRS,
    SIZE,
    TRIPLES,
    Vocabulary,
    Word,
    empty,
    enter_sizes,
    enter_spelled,
    hash_of_word,
    is_digit,
    is_letter,
    number_of,
    tag_of,
    word_at,
)
from lsm_fragment.native.gil cimport release_gil, restore_gil
from lsm_fragment.native.words cimport WINDOW, copy_lanes, loaded, offset, ones_of, places_of

cdef extern from *:
    """
    #define ROW_BIT (1 << 30)

    /* Finds where words of a strip of some text end: where a letter or digit follows another byte, and where rows
       start. Returns how many do.

       begin, stop: the strip, of the `size` bytes. rows: a bit for each byte of the strip that a row starts with. last:
       1 if the byte before the strip is a letter or a digit; set for the next strip. ends: the places from `begin` on,
       with a bit if a row starts there; up to seven more are overwritten. */
    FOR_EACH_LEVEL static int64_t find_ends(
        const uint8_t* data, int64_t begin, int64_t stop, int64_t size, const uint64_t* rows, uint64_t* last, int32_t* ends
    ) {
        uint8_t window[64];
        int64_t count = 0;
        for (int64_t at = begin; at < stop; at += 64) {
            const uint8_t* from = data + at;
            if (at + 64 > size) {
                memset(window, 0, 64);
                memcpy(window, from, size - at);
                from = window;
            }
            const uint64_t letters = places_of_letters(from), starts = *rows++;
            uint64_t places = (letters & ~(letters << 1 | *last)) | starts;
            *last = letters >> 63;
            /* Eight at a time: most windows have no more, so that no branch is guessed wrong. */
            const int found = __builtin_popcountll(places);
            int32_t* out = ends + count;
            for (int done = 0; done < found; done += 8)
                for (int index = 0; index < 8; index++) {
                    const int place = __builtin_ctzll(places | 1ULL << 63);
                    *out++ = (int32_t)(at - begin + place) | (int32_t)(starts >> place & 1) * ROW_BIT;
                    places &= places - 1;
                }
            count += found;
        }
        return count;
    }
    """
    int64_t find_ends(
        const uint8_t* data, int64_t begin, int64_t stop, int64_t size, const uint64_t* rows, uint64_t* last, int32_t* ends
    ) noexcept nogil
    int32_t ROW_BIT

cdef enum:
    LINE_BREAK = 10
    LINES = 1 << 13  # that are remembered
    MIN_LINE = 16
    MAX_LINE = 1 << 10
    LOOKED_LINES = 1 << 12  # look at so many before deciding that lines hardly recur
    LOOKED_BYTES = 1 << 16
    MANY_LINES = 256  # look for lines where there is one for each so many bytes
    WINDOWS = 64
    STRIP = WINDOWS * WINDOW  # bytes whose words are found before they are numbered
    BLOCK = 64  # words that are hashed before the first of them is looked up

MAX_WORD_BYTES = SIZE
MAX_WORDS = TRIPLES - BYTES
FIRST_WORD = BYTES


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


cdef struct Numbering:
    # The numbers that were written so far.
    Vocabulary known
    uint16_t* out
    uint16_t* end  # behind it is room for `SIZE` and `BLOCK` more
    uint16_t** starts  # where the numbers of the next row start


cdef struct Line:
    # A line of text, and its numbers.
    int64_t at
    int64_t out
    int32_t size  # 0 where there is none
    int32_t count
    bint is_used


cdef bint number(Numbering* to, const uint8_t* data, int64_t at, int64_t stop, int64_t size) noexcept nogil:
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
            to.out += spelled(data + at, length, to.out)
        if to.out > to.end:
            return False
        at += length
    return True


# Called by its address, so that compilers keep it out of the loop over words, few of which are not known.
cdef bint (*number_unknown)(Numbering*, const uint8_t*, int64_t, int64_t, int64_t) noexcept nogil
number_unknown = number


cdef bint number_words(
    Numbering* to, const uint8_t* data, const int32_t* ends, int64_t count, int64_t begin
) noexcept nogil:
    """Writes the numbers of words, as `number` does. Returns False if there are too many.

    data: of a strip. ends: see `find_ends`; `SIZE` bytes from each on may be read. begin: of the first word, before the
    strip if that is negative.
    """
    cdef Word[BLOCK] words
    cdef int64_t[BLOCK] sizes
    cdef uint32_t[BLOCK] numbers  # that the table's first entries have
    cdef bint[BLOCK] is_start
    cdef Word word
    cdef int64_t done = 0, at = begin, start, length, found, index
    cdef uint64_t hashed
    cdef uint32_t likely, entry
    cdef bint is_long
    cdef const Word* known = to.known.words
    cdef const uint8_t* known_sizes = to.known.sizes
    cdef uint16_t* out = to.out
    cdef uint16_t** starts = to.starts
    # One loop after the other, so that no word waits for the one before.
    while done < count:
        start, found = at, 0
        while done < count and found < BLOCK:
            length = (ends[done] & ~ROW_BIT) - at
            # The first bytes of a longer word are a word, unless it is cut elsewhere, or may be an id, which is spelled:
            # then all of it is left to `number`.
            is_long = length > SIZE and not is_digit(data[at]) and data[at + SIZE] >> 6 != 2
            sizes[found] = SIZE if is_long else length
            is_start[found] = not is_long and ends[done] >= ROW_BIT
            length = min(length, <int64_t>SIZE)
            memcpy(&word, data + at, SIZE)
            word.low &= KEPT_BITS[length][0]
            word.high &= KEPT_BITS[length][1]
            words[found] = word
            at += sizes[found]
            done += not is_long
            found += 1
        for index in range(found):
            hashed = hash_of_word(words[index])
            entry = to.known.table[hashed >> (64 - to.known.bits)]
            numbers[index] = entry & NUMBER if (entry ^ tag_of(hashed)) <= NUMBER else 0
        at = start
        for index in range(found):
            likely = numbers[index]
            if (
                likely
                and known[likely].low == words[index].low
                and known[likely].high == words[index].high
                and known_sizes[likely] == sizes[index]
            ):
                out[0] = <uint16_t>likely
                out += 1
            else:
                to.out = out
                if not number_unknown(to, data, at, at + sizes[index], at + sizes[index] + SIZE):
                    return False
                out = to.out
            at += sizes[index]
            starts[0] = out  # for the row that starts here, if one does: a branch would often be guessed wrong
            starts += is_start[index]
        if out > to.end:
            return False
    to.out, to.starts = out, starts
    return True


cdef bint number_strip(
    Numbering* to,
    const uint8_t* text,
    int64_t at,
    int64_t stop,
    int64_t size,
    const uint64_t* row_bits,
    uint64_t* last,
    int64_t* begin,
) noexcept nogil:
    """Writes the numbers of the words that end in the strip from `at` on, or end with the bytes at `stop`. Returns False
    if there are too many.

    size: the bytes that may be read. row_bits, last: see `find_ends`. begin: of the first word, from `at` on; set to that
    of the next strip.
    """
    cdef int32_t[STRIP + 9] ends
    cdef const uint8_t* data = text + at
    cdef int64_t until = min(at + STRIP, stop), count, done, end
    count = find_ends(text, at, until, size, row_bits, last, ends)
    while count and (ends[count - 1] & ~ROW_BIT) >= until - at:  # of the last window, behind its bytes
        count -= 1
    if until == stop:
        ends[count] = <int32_t>(stop - at)
        count += 1
    done = count
    while done and (ends[done - 1] & ~ROW_BIT) + SIZE > size - at:
        done -= 1
    if not number_words(to, data, ends, done, begin[0]):
        return False
    if done:
        begin[0] = ends[done - 1] & ~ROW_BIT
    for done in range(done, count):
        end = ends[done] & ~ROW_BIT
        if not number(to, data, begin[0], end, size - at):
            return False
        to.starts[0] = to.out
        to.starts += ends[done] >= ROW_BIT
        begin[0] = end
    begin[0] -= STRIP
    return True


cdef bint number_stretch(
    Numbering* to,
    const uint8_t* text,
    int64_t at,
    int64_t stop,
    int64_t size,
    const uint64_t* no_starts,
) noexcept nogil:
    """Writes the numbers of the bytes from `at` to `stop`, of `size`, of one row. Returns False if there are too many.

    no_starts: a strip without starts of rows.
    """
    cdef int64_t begin = 0
    cdef uint64_t last = 1  # no word ends where the bytes start
    while at < stop:
        if not number_strip(to, text, at, stop, size, no_starts, &last, &begin):
            return False
        at += STRIP
    return True


cdef inline uint64_t hash_of_line(const uint8_t* at, int64_t size) noexcept nogil:
    """Hashes some of the bytes of a line, of which there are at least `MIN_LINE`."""
    cdef uint64_t total = <uint64_t>size
    total = (total ^ loaded(at + size - 8, 8)) * <uint64_t>0x9E3779B97F4A7C15ULL
    total = (total ^ total >> 32 ^ loaded(at + size - 16, 8)) * <uint64_t>0xD6E8FEB86659FD93ULL
    total = (total ^ total >> 32 ^ loaded(at + (size >> 1) - 4, 8)) * <uint64_t>0x9E3779B97F4A7C15ULL
    return total ^ total >> 32 ^ loaded(at, 8)


cdef bint has_lines(const uint8_t* text, int64_t size) noexcept nogil:
    """Returns whether rows have many lines, by the beginning of their text."""
    cdef int64_t window, windows = min(size, <int64_t>LOOKED_BYTES) // WINDOW, lines = 0
    for window in range(windows):
        lines += ones_of(places_of(text + WINDOW * window, LINE_BREAK))
    return lines * MANY_LINES > windows * WINDOW


cdef int64_t number_lines(
    Numbering* to,
    Line* known,
    const uint8_t* text,
    int64_t size,
    const offset* offsets,
    int64_t rows,
    int32_t* counts,
) noexcept nogil:
    """Writes the numbers of rows line by line; those of a line that came before are copied. Returns how many rows that
    are: not all, if lines hardly recur; -1 if there are too many numbers.

    A line ends before the first letter behind its line break, where a word ends, too.
    """
    cdef uint64_t[WINDOWS] no_starts
    cdef uint16_t* first = to.out
    cdef uint16_t* row_start
    cdef int64_t row, at, stop, end, length, out, looked = 0, recurred = 0
    cdef const uint8_t* line_break
    cdef Line* line
    cdef bint is_known
    memset(no_starts, 0, sizeof(no_starts))
    for row in range(rows):
        at, stop = offsets[row] - offsets[0], offsets[row + 1] - offsets[0]
        row_start = to.out
        while at < stop:
            if looked > LOOKED_LINES and 2 * recurred < looked:
                to.out = row_start  # its words have their numbers already
                return row
            line_break = <const uint8_t*>memchr(text + at, LINE_BREAK, stop - at)
            end = line_break - text if line_break else stop
            while end < stop and not (is_letter(text[end]) or text[end] > 127):
                end += 1
            length = end - at
            looked += 1
            if length < MIN_LINE or length > MAX_LINE:
                if not number_stretch(to, text, at, end, size, no_starts):
                    return -1
            else:
                line = &known[hash_of_line(text + at, length) >> 8 & (LINES - 1)]
                is_known = line.size == length and memcmp(text + line.at, text + at, length) == 0
                if is_known:
                    if to.out + line.count > to.end:
                        return -1
                    copy_lanes(<const uint8_t*>(first + line.out), 2 * line.count, <uint8_t*>to.out)
                    to.out += line.count
                    recurred += 1
                else:
                    out = to.out - first
                    if not number_stretch(to, text, at, end, size, no_starts):
                        return -1
                    if not line.is_used:
                        line.at, line.out, line.size = at, out, <int32_t>length
                        line.count = <int32_t>(to.out - first - out)
                line.is_used = is_known  # a line that recurs stays until two others come in its place
            at = end
        counts[row] = <int32_t>(to.out - row_start)
    return rows


cdef bint number_rows(
    Numbering* to,
    const uint8_t* text,
    int64_t size,
    const offset* offsets,
    int64_t rows,
    uint16_t** row_starts,
    int32_t* counts,
) noexcept nogil:
    """Writes the numbers of rows. Returns False if there are too many.

    row_starts: room for two more than the rows.
    """
    cdef uint64_t[WINDOWS] starts
    cdef int64_t row = 1, strip = 0, begin = 0, first = offsets[0], place
    cdef uint64_t last = 1  # no word ends where the text starts
    row_starts[0] = to.out
    to.starts = row_starts + 1
    while strip < size:
        memset(starts, 0, sizeof(starts))
        while row < rows and offsets[row] - first < min(strip + STRIP, size):
            place = offsets[row] - first - strip
            if place > 0 or strip:
                starts[place >> 6] |= <uint64_t>1 << (place & 63)
            row += 1
        if not number_strip(to, text, strip, size, size, starts, &last, &begin):
            return False
        strip += STRIP
    to.starts[0] = to.out
    for row in range(rows):
        counts[row] = 0
        if offsets[row + 1] > offsets[row]:  # others start no words
            counts[row] = <int32_t>(row_starts[1] - row_starts[0])
            row_starts += 1
    return True


def encode(const offset[::1] offsets, const uint8_t[::1] data, int64_t max_numbers):
    """Numbers the words of rows. Returns the numbers (an Arrow buffer of uint16), how many each row has (int32),
    the bytes of each word (uint8), and the words end to end; None if there are more than `max_numbers` numbers.

    Words are numbered in the order of their first use.
    """
    cdef int64_t rows = offsets.shape[0] - 1, first = offsets[0], size = offsets[rows] - first, done = 0, taken
    cdef const uint8_t* text = &data[0] + first if size else NULL
    cdef Numbering to
    cdef uint16_t* scratch
    cdef bint fits = True
    memory = allocate_buffer(HELD_BYTES)
    numbers = allocate_buffer(2 * (max_numbers + SIZE + BLOCK))
    counts = np.empty(rows, dtype=np.int32)
    places = np.empty(rows + 2, dtype=np.uint64)
    cdef int32_t[::1] counted = counts
    cdef uint64_t[::1] placed = places
    cdef Line* lines = NULL
    to.known = empty(<void*><uintptr_t>memory.address)
    to.out = <uint16_t*><uintptr_t>numbers.address
    to.end = to.out + max_numbers
    to.starts = &scratch
    if rows and has_lines(text, size):
        remembered = allocate_buffer(LINES * sizeof(Line))
        lines = <Line*><uintptr_t>remembered.address
        memset(lines, 0, LINES * sizeof(Line))
    state = release_gil(size)
    if lines:
        done = number_lines(&to, lines, text, size, &offsets[0], rows, &counted[0])
        fits = done >= 0
    if fits and done < rows:
        taken = offsets[done] - first
        fits = number_rows(
            &to,
            text + taken,
            size - taken,
            &offsets[done],
            rows - done,
            <uint16_t**>&placed[0],
            &counted[done],
        )
    restore_gil(state)
    if not fits:
        return None
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
