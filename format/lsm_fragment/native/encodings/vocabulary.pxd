"""The words of a text and their numbers (VOCABULARY of SPEC section 5).

A word is a run of letters and digits with the run of other bytes behind it, cut after 16 bytes and where a row ends. So
it fits two 64-bit words: it is compared by two instructions, and copied by one of 16 bytes that overwrites the excess of
the copy before. What is not numbered is spelled: by the greatest numbers, which are three digits or two letters or digits
each, and by those below 256, which are single bytes.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #define KEPT(size) {(size) >= 8 ? ~0ULL : (1ULL << 8 * ((size) & 7)) - 1, \
                        (size) >= 16 ? ~0ULL : (size) > 8 ? (1ULL << 8 * ((size) & 7)) - 1 : 0}

    /* For each size of a word, its bytes in two words of memory. */
    static const uint64_t KEPT_BITS[17][2] = {
        KEPT(0), KEPT(1), KEPT(2), KEPT(3), KEPT(4), KEPT(5), KEPT(6), KEPT(7), KEPT(8),
        KEPT(9), KEPT(10), KEPT(11), KEPT(12), KEPT(13), KEPT(14), KEPT(15), KEPT(16),
    };
    """
    const uint64_t[17][2] KEPT_BITS

cdef enum:
    SIZE = 16  # most bytes of a word
    BYTES = 256  # numbers of single bytes; those of words follow
    LETTERS = 62  # letters and digits of ASCII
    NUMBERS = 1 << 16
    PAIRS = NUMBERS - LETTERS * LETTERS  # the first number of two letters
    TRIPLES = PAIRS - 1000  # the first number of three digits
    NUMBER = NUMBERS - 1  # the bits of an entry that are a word's number; the others are of its hash
    PROBES = 16  # entries of the table that are looked at for a word: bounds what a hostile text takes
    MAX_DIGITS = 4  # letters and digits of a word that begins with a digit: longer ones hardly recur, and are spelled
    MIN_BITS = 10
    MAX_BITS = 17  # of the number of entries


cdef struct Word:
    uint64_t low
    uint64_t high


cdef struct Vocabulary:
    uint32_t* table  # numbers and hashes of words, 0 where there is none
    int bits  # of the number of entries
    Word* words  # by number
    uint8_t* sizes  # by number
    int64_t count  # the number of the next word


cdef enum:
    # The memory of a vocabulary, of which most is not touched if it has few words.
    HELD_BYTES = NUMBERS * 17 + (4 << MAX_BITS)


cdef inline bint is_digit(int64_t byte) noexcept nogil:
    return <uint64_t>(byte - 48) < 10


cdef inline bint is_letter(int64_t byte) noexcept nogil:
    """Returns whether a byte is a letter or a digit of ASCII."""
    return is_digit(byte) or <uint64_t>((byte | 32) - 97) < 26


cdef inline int64_t letter_at(int64_t rank) noexcept nogil:
    return rank + 48 + 7 * (rank >= 10) + 6 * (rank >= 36)


cdef inline void enter_sizes(uint8_t* sizes) noexcept nogil:
    """Sets the bytes of what the numbers that spell stand for."""
    memset(sizes, 1, BYTES)
    memset(sizes + TRIPLES, 3, PAIRS - TRIPLES)
    memset(sizes + PAIRS, 2, NUMBERS - PAIRS)


cdef inline void enter_spelled(Word* words) noexcept nogil:
    """Sets what the numbers that spell stand for."""
    cdef int64_t number, first, second
    memset(words, 0, BYTES * sizeof(Word))
    memset(words + TRIPLES, 0, (NUMBERS - TRIPLES) * sizeof(Word))
    for number in range(BYTES):
        words[number].low = number
    for number in range(PAIRS - TRIPLES):
        words[TRIPLES + number].low = (
            (48 + number // 100) | (48 + number // 10 % 10) << 8 | (48 + number % 10) << 16
        )
    for first in range(LETTERS):
        for second in range(LETTERS):
            words[PAIRS + LETTERS * first + second].low = letter_at(first) | letter_at(second) << 8


cdef inline Vocabulary empty(void* memory) noexcept nogil:
    """Returns a vocabulary without words, which does not know what spells. memory: of `HELD_BYTES`."""
    cdef Vocabulary known
    known.words = <Word*>memory
    known.table = <uint32_t*>(known.words + NUMBERS)
    known.sizes = <uint8_t*>(known.table + (1 << MAX_BITS))
    known.bits = MIN_BITS
    known.count = BYTES
    memset(known.table, 0, sizeof(uint32_t) << MIN_BITS)
    return known


cdef inline Word word_at(const uint8_t* at, int64_t size, int64_t readable) noexcept nogil:
    """Returns a word, filled up with zeros. readable: the bytes from `at` on that are in memory."""
    cdef Word word
    word.low = word.high = 0
    if readable < SIZE:
        memcpy(&word, at, size)
    else:
        memcpy(&word, at, SIZE)  # and no branch by size, which the processor would often guess wrong
        word.low &= KEPT_BITS[size][0]
        word.high &= KEPT_BITS[size][1]
    return word


cdef inline uint64_t hash_of_word(Word word) noexcept nogil:
    cdef uint64_t hashed = (word.low ^ word.high * <uint64_t>0x9E3779B97F4A7C15ULL) * <uint64_t>0xD6E8FEB86659FD93ULL
    return (hashed ^ hashed >> 32) * <uint64_t>0xD6E8FEB86659FD93ULL


cdef inline uint32_t tag_of(uint64_t hashed) noexcept nogil:
    """Returns the bits of a hash that an entry has."""
    return <uint32_t>hashed & ~<uint32_t>NUMBER


cdef inline void enter(Vocabulary* known, int64_t number) noexcept nogil:
    """Enters a word of the vocabulary into its table."""
    cdef uint64_t hashed = hash_of_word(known.words[number])
    cdef uint64_t mask = (<uint64_t>1 << known.bits) - 1, entry = hashed >> (64 - known.bits), step = 0
    while known.table[entry]:
        step += 1
        entry = (entry + step) & mask
    known.table[entry] = tag_of(hashed) | <uint32_t>number


cdef inline int64_t added(Vocabulary* known, Word word, int64_t size) noexcept nogil:
    """Adds a word. Returns its number."""
    cdef int64_t number = known.count
    known.count += 1
    known.words[number] = word
    known.sizes[number] = <uint8_t>size
    enter(known, number)
    return number


cdef inline bint has_room(Vocabulary* known) noexcept nogil:
    """Returns whether one more word may be added: numbers are left, and seven eighths of a table that may grow are free.

    A fuller one has more words elsewhere than where they are looked for first, each a branch guessed wrong.
    """
    cdef int64_t number
    if known.count == TRIPLES:
        return False
    if known.bits == MAX_BITS or known.count - BYTES < <int64_t>1 << (known.bits - 3):
        return True
    known.bits += 1  # a small table stays in the processor's cache, so it grows only with its words
    memset(known.table, 0, sizeof(uint32_t) << known.bits)
    for number in range(BYTES, known.count):
        enter(known, number)
    return True


cdef inline int64_t number_of(Vocabulary* known, Word word, int64_t size) noexcept nogil:
    """Returns the number of a word, which is added if it is new; 0 if there is no room for it."""
    cdef uint64_t hashed = hash_of_word(word)
    cdef uint64_t mask = (<uint64_t>1 << known.bits) - 1, entry = hashed >> (64 - known.bits)
    cdef uint32_t tag = tag_of(hashed), found
    cdef int64_t number
    cdef int probe
    for probe in range(1, PROBES + 1):
        found = known.table[entry]
        if not found:
            return added(known, word, size) if has_room(known) else 0
        if (found ^ tag) <= NUMBER:
            number = found & NUMBER
            # Zeros at the end may belong to a word.
            if (
                known.words[number].low == word.low
                and known.words[number].high == word.high
                and known.sizes[number] == size
            ):
                return number
        entry = (entry + probe) & mask  # ever farther away, so that no run of entries fills up
    return 0


cdef tuple words_of(Vocabulary* known)
