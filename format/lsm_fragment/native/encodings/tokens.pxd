"""Finds the tokens of strings, and hashes their shapes (TEMPLATE of SPEC section 5).

A token is a run of ASCII letters and digits, bytes from 0x80 on, and marks. The shape of a string is its text with
every token replaced by the same mark, so strings of one shape have equally many tokens, in the same places.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from lsm_fragment.native.encodings.variables cimport NUMBER, WORD
from lsm_fragment.native.words cimport loaded, lowest_bit, mixed

cdef extern from *:
    """
    #include <stdint.h>

    typedef unsigned char Bytes __attribute__((vector_size(16)));

    /* Returns a bit mask of the upper bits of 16 bytes, the first byte's in the lowest bit. */
    static inline uint64_t upper_bits(Bytes bytes) {
    #ifdef __SSE2__
        typedef char Signed __attribute__((vector_size(16)));
        return (unsigned)__builtin_ia32_pmovmskb128((Signed)bytes);
    #else
        uint64_t halves[2], gather = 0x0102040810204080ULL, upper = 0x8080808080808080ULL;
        memcpy(halves, &bytes, 16);
        return ((halves[0] & upper) >> 7) * gather >> 56 | ((halves[1] & upper) >> 7) * gather >> 56 << 8;
    #endif
    }

    /* Bit masks over 16 bytes: token bytes, and digits or marks. */
    static inline void classify(const uint8_t* at, uint64_t* tokens, uint64_t* digits) {
        Bytes bytes;
        memcpy(&bytes, at, 16);
        Bytes digit = (Bytes)(bytes - 48 < 10) | (Bytes)(bytes - 0x11 < 3);
        Bytes letter = (Bytes)((bytes | 32) - 97 < 26);
        *digits = upper_bits(digit);
        *tokens = upper_bits(digit | letter | bytes);
    }

    /* Adds two words and a carry, and updates the carry. */
    static inline uint64_t add_carrying(uint64_t one, uint64_t other, uint64_t* carry) {
        uint64_t sum;
        uint64_t first = __builtin_add_overflow(one, other, &sum);
        *carry = first | __builtin_add_overflow(sum, *carry, &sum);
        return sum;
    }
    """
    void classify(const uint8_t* at, uint64_t* tokens, uint64_t* digits) noexcept nogil
    uint64_t add_carrying(uint64_t one, uint64_t other, uint64_t* carry) noexcept nogil

cdef enum:
    MAX_PLACES = 256  # tokens of a string that may become varying words
    PLACE_WORDS = 4  # 64 places each


# The classes of `classify`, for one byte.

cdef inline bint is_mark(uint8_t byte) noexcept nogil:
    return NUMBER <= byte <= WORD


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return 48 <= byte <= 57


cdef inline bint is_of_token(uint8_t byte) noexcept nogil:
    return is_digit(byte) or is_mark(byte) or 97 <= (byte | 32) <= 122 or byte >= 0x80


cdef inline void find_variables(
    const uint8_t* at, int64_t length, const uint8_t* end, uint64_t* tokens, uint64_t* firsts, uint64_t* stops
) noexcept nogil:
    """Fills three bitmaps: token bytes, the first digit or mark of each variable, the end of each variable.

    `stops` has one bit more than the string has bytes; bits beyond the string are 0. end: end of the readable memory.
    """
    cdef uint8_t rest[16]
    cdef int64_t start = 0, word = 0
    cdef uint64_t token, digit, some_token, some_digit, plain
    cdef uint64_t sought = 0, inside = 0, before = 0  # carried from word to word
    cdef int shift
    while start < length:
        token = digit = 0
        shift = 0
        while shift < 64 and start < length:
            if end - at - start >= 16:
                classify(at + start, &some_token, &some_digit)
            else:
                memcpy(rest, at + start, length - start)
                classify(rest, &some_token, &some_digit)
            token |= some_token << shift
            digit |= some_digit << shift
            shift += 16
            start += 16
        if start > length:
            token &= ~(~<uint64_t>0 << (length & 63))
            digit &= token
        # Adding 1 at the start of a run of ones carries to the first position behind the run.
        plain = token & ~digit
        firsts[word] = add_carrying(plain, token & ~(token << 1 | before), &sought) & digit
        stops[word] = add_carrying(token, firsts[word], &inside) & ~token
        tokens[word] = token
        before = token >> 63
        word += 1
    stops[word] = inside


cdef inline int64_t find_tokens(
    const uint8_t* at, int64_t length, const uint8_t* end, const uint64_t* tokens, int32_t* starts, int32_t* stops,
    uint64_t* shape,
) noexcept nogil:
    """Finds the first `MAX_PLACES` tokens of a string, and the hash of its shape.

    end: end of the readable memory. tokens: see `find_variables`. Returns the number of tokens found.
    """
    cdef int64_t words = (length + 63) >> 6, word, count = 0, start = 0, stop = 0
    cdef uint64_t edges, before = 0, total = 0
    cdef bint is_inside = False
    for word in range(words):
        edges = tokens[word] ^ (tokens[word] << 1 | before)  # starts and ends of tokens
        before = tokens[word] >> 63
        while edges:
            if not is_inside:
                start = 64 * word + lowest_bit(edges)
                edges &= edges - 1
                is_inside = True
                if edges == 0:
                    break
            total += gap_hash(at + stop, start - stop, count, end)
            stop = 64 * word + lowest_bit(edges)
            edges &= edges - 1
            is_inside = False
            if count < MAX_PLACES:
                starts[count], stops[count] = <int32_t>start, <int32_t>stop
            count += 1
    if is_inside:
        total += gap_hash(at + stop, start - stop, count, end)
        stop = length
        if count < MAX_PLACES:
            starts[count], stops[count] = <int32_t>start, <int32_t>stop
        count += 1
    shape[0] = mixed(total + gap_hash(at + stop, length - stop, count, end))
    return min(count, MAX_PLACES)


cdef inline uint64_t gap_hash(const uint8_t* at, int64_t size, int64_t number, const uint8_t* end) noexcept nogil:
    """Hashes the text before a token. The hashes are summed, so that one need not wait for the other."""
    cdef uint64_t gap, total = <uint64_t>(number + (size << 32)) * <uint64_t>0x9E3779B97F4A7C15ULL
    while size > 8:
        total = (total ^ loaded(at, 8)) * <uint64_t>0xD6E8FEB86659FD93ULL
        total ^= total >> 32
        at += 8
        size -= 8
    if size > 0 and end - at >= 8:
        gap = loaded(at, 8) & ~<uint64_t>0 >> (64 - 8 * size)
    else:
        gap = loaded(at, size)
    total = (total ^ gap) * <uint64_t>0xD6E8FEB86659FD93ULL
    return total ^ total >> 32
