"""Marks, digits and lengths: the parts of templates and their variables (TEMPLATE of SPEC section 5)."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from lsm_fragment.native.words cimport bits_in, loaded

cdef extern from *:
    """
    /* The least number of a variable by its digits, and an end marker. */
    static const unsigned long long LEAST[22] = {
        0ULL, 0ULL, 10ULL, 110ULL, 1110ULL, 11110ULL, 111110ULL, 1111110ULL, 11111110ULL, 111111110ULL,
        1111111110ULL, 11111111110ULL, 111111111110ULL, 1111111111110ULL, 11111111111110ULL, 111111111111110ULL,
        1111111111111110ULL, 11111111111111110ULL, 111111111111111110ULL, 1111111111111111110ULL,
        11111111111111111110ULL, 0xFFFFFFFFFFFFFFFFULL,
    };

    /* The digits of the least number by its bits. */
    static const unsigned char DIGITS[65] = {
        1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 6,
        7, 7, 7, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 11, 11, 11, 12, 12, 12, 12, 13, 13,
        13, 14, 14, 14, 15, 15, 15, 16, 16, 16, 16, 17, 17, 17, 18, 18, 18, 19, 19, 19, 19,
    };

    /* Variables of up to three digits by number, each followed by its length. */
    static unsigned char SHORT[1110][4];

    static inline void fill_short(void) {
        int number = 0, digits, value, limit, place;
        for (digits = 1, limit = 10; digits <= 3; digits++, limit *= 10)
            for (value = 0; value < limit; value++, number++) {
                int left = value;
                for (place = digits - 1; place >= 0; place--, left /= 10)
                    SHORT[number][place] = (unsigned char)('0' + left % 10);
                SHORT[number][3] = (unsigned char)digits;
            }
    }

    /* Copies 32 bytes at a time: mostly a single iteration. The empty statement keeps compilers from turning the loop
       into one slow memcpy. */
    static inline void copy_loosely(unsigned char* out, const unsigned char* source, long long size) {
        long long done = 0;
        do {
            memcpy(out + done, source + done, 32);
            done += 32;
            __asm__ volatile("" ::: "memory");
        } while (done < size);
    }

    /* Returns the eight digits of a value below 10^8 as text, the first one in the lowest byte. Splits into fours, twos
       and ones, in parallel. */
    static inline unsigned long long eight_digits(unsigned int value) {
        unsigned long long fours = value / 10000 | (unsigned long long)(value % 10000) << 32;
        unsigned long long upper = fours * 10486 >> 20 & 0x0000007F0000007FULL;
        unsigned long long twos = upper | (fours - 100 * upper) << 16;
        unsigned long long tens = twos * 103 >> 10 & 0x000F000F000F000FULL;
        return (tens | (twos - 10 * tens) << 8) + 0x3030303030303030ULL;
    }
    """
    const uint64_t* LEAST
    const uint8_t* DIGITS
    const uint8_t (*SHORT)[4]
    void fill_short()
    void copy_loosely(uint8_t* out, const uint8_t* source, int64_t size) noexcept nogil
    uint64_t eight_digits(uint32_t value) noexcept nogil

cdef enum:
    NUMBER = 0x11  # mark of a variable of 1 to 19 digits
    TEXT = 0x12  # mark of any other variable with a digit or a mark
    WORD = 0x13  # mark of a token taken as a word
    MAX_NUMBER_DIGITS = 19
    SLACK = 32  # bytes behind their operands that `put_loosely` and `put_digits` may read or write
    SHORTS = 1110
    LONG = 128  # use memcpy above this size


cdef inline int digits_in(uint64_t number) noexcept nogil:
    """Returns the number of digits of the variable for a number."""
    cdef int digits = DIGITS[bits_in(number)]
    return digits + (number >= LEAST[digits + 1])


cdef inline uint8_t* put_few_digits(uint8_t* out, uint32_t value, int digits) noexcept nogil:
    """Writes the last `digits` of up to eight digits; overwrites eight bytes. Returns the end."""
    cdef uint64_t text = eight_digits(value) >> (64 - 8 * digits)
    memcpy(out, &text, 8)
    return out + digits


cdef inline uint8_t* put_digits(uint8_t* out, uint64_t number) noexcept nogil:
    """Writes the variable for a number; overwrites `SLACK` bytes behind it. Returns the end."""
    cdef int digits
    cdef uint64_t value
    if number < SHORTS:
        memcpy(out, SHORT[number], 4)
        return out + SHORT[number][3]
    digits = digits_in(number)
    value = number - LEAST[digits]
    if digits > 16:
        out = put_few_digits(out, <uint32_t>(value // 10000000000000000ULL), digits - 16)
        value %= 10000000000000000ULL
        digits = 16
    if digits > 8:
        out = put_few_digits(out, <uint32_t>(value // 100000000), digits - 8)
        value %= 100000000
        digits = 8
    return put_few_digits(out, <uint32_t>value, digits)


cdef inline bint take_number(
    const uint8_t* at, int64_t length, const uint8_t* last_word, uint64_t* number
) noexcept nogil:
    """Converts a variable of 1 to 19 digits to its number. Returns whether it is one.

    last_word: the last address that allows an 8-byte read.
    """
    cdef uint64_t value = 0, digits
    cdef int64_t index
    cdef uint8_t digit
    if 1 <= length <= 8 and at <= last_word:
        # Pads with zeros in front, then joins ones, twos and fours in parallel.
        digits = (loaded(at, 8) << (64 - 8 * length)) ^ (0x3030303030303030ULL << (64 - 8 * length))
        if ((digits + 0x7676767676767676ULL) | digits) & 0x8080808080808080ULL:
            return False
        digits = (10 * digits + (digits >> 8)) & 0x00FF00FF00FF00FFULL
        digits = (100 * digits + (digits >> 16)) & 0x0000FFFF0000FFFFULL
        number[0] = ((10000 * digits + (digits >> 32)) & 0xFFFFFFFFULL) + LEAST[length]
        return True
    if length < 1 or length > MAX_NUMBER_DIGITS:
        return False
    for index in range(length):
        digit = at[index] - <uint8_t>48
        if digit > 9:
            return False
        value = 10 * value + digit
    number[0] = value + LEAST[length]
    return True


cdef inline uint8_t* put_varint(uint8_t* out, uint64_t value) noexcept nogil:
    """Writes a varint, and overwrites up to 8 bytes. Returns its end."""
    cdef int size
    while value >> 28:
        out[0] = <uint8_t>(value | 0x80)
        out += 1
        value >>= 7
    size = (bits_in(value | 1) + 6) * 37 >> 8  # divided by 7
    value = (value & 0x3FFF) | (value & 0xFFFC000) << 2
    value = (value & 0x7F007F) | (value & 0x3F803F80) << 1
    value |= 0x80808080ULL & ((<uint64_t>1 << (8 * (size - 1))) - 1)
    memcpy(out, &value, 8)
    return out + size


cdef inline const uint8_t* take_varint(const uint8_t* at, uint64_t* value) noexcept nogil:
    cdef uint64_t found = at[0] & 0x7F
    cdef int shift = 7
    while at[0] & 0x80:
        at += 1
        found |= <uint64_t>(at[0] & 0x7F) << shift
        shift += 7
    value[0] = found
    return at + 1


cdef inline uint8_t* put(uint8_t* out, const uint8_t* source, int64_t size) noexcept nogil:
    """Copies a few bytes, faster than memcpy. Returns the end."""
    cdef uint64_t first, last
    cdef uint32_t short_first, short_last
    if size > 16:
        memcpy(out, source, size)
    elif size >= 8:
        memcpy(&first, source, 8)
        memcpy(&last, source + size - 8, 8)
        memcpy(out, &first, 8)
        memcpy(out + size - 8, &last, 8)
    elif size >= 4:
        memcpy(&short_first, source, 4)
        memcpy(&short_last, source + size - 4, 4)
        memcpy(out, &short_first, 4)
        memcpy(out + size - 4, &short_last, 4)
    elif size > 0:
        out[0] = source[0]
        out[size >> 1] = source[size >> 1]
        out[size - 1] = source[size - 1]
    return out + size


cdef inline uint8_t* put_loosely(uint8_t* out, const uint8_t* source, int64_t size) noexcept nogil:
    """Copies bytes; reads and overwrites up to `SLACK` bytes behind them. Returns the end."""
    if size > LONG:
        memcpy(out, source, size)
    else:
        copy_loosely(out, source, size)
    return out + size


cdef inline uint64_t letters_of(
    const uint8_t* at, int64_t size, const uint64_t* bits, const uint8_t* end
) noexcept nogil:
    """Returns the union of the alphabet bits of bytes, eight at a time, so that long texts cost little. end: end of the
    readable memory."""
    cdef uint64_t united = 0, word
    cdef int64_t place
    while size > 0 and end - at >= 8:
        word = loaded(at, 8)
        if size < 8:
            # Pads with copies of the first byte.
            word = word & ~(~<uint64_t>0 << 8 * size) | (word & 0xFF) * 0x0101010101010101ULL << 8 * size
        united |= bits[word & 0xFF] | bits[word >> 8 & 0xFF] | bits[word >> 16 & 0xFF] | bits[word >> 24 & 0xFF]
        united |= bits[word >> 32 & 0xFF] | bits[word >> 40 & 0xFF] | bits[word >> 48 & 0xFF] | bits[word >> 56]
        at += 8
        size -= 8
    for place in range(size):
        united |= bits[at[place]]
    return united


cdef struct Layout:
    # Templates and the positions of their marks. Template t has the slots firsts[t] to firsts[t + 1].
    int64_t templates
    const int64_t* offsets
    const uint8_t* data
    const int64_t* firsts
    const int64_t* places  # position of each slot's mark in `data`
    const uint8_t* kinds  # NUMBER, TEXT or WORD
