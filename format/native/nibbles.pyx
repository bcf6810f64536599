# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Packs text of at most 16 different bytes by four bits each (NIBBLES of SPEC section 5)."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uintptr_t
from libc.string cimport memcpy, memset

from pyarrow import allocate_buffer

from format.native.gil cimport let_go, take_back

cdef enum:
    MOST_BYTES = 16  # of an alphabet
    STRIDE = 4096
    UNKNOWN = 1 << 8  # in a word for what is no byte of the alphabet
    IMPOSSIBLE = 1 << 16  # in a pair of bytes for a code beyond the alphabet

ALPHABET_BYTES = MOST_BYTES


def find_alphabet(const uint8_t[::1] data):
    """Returns the bytes that occur, in their order; None if these are more than 16."""
    cdef bint[256] occurs
    cdef int64_t index
    cdef int count = 0
    memset(occurs, 0, sizeof(occurs))
    state = let_go(data.shape[0])
    for index in range(data.shape[0]):
        if not occurs[data[index]]:
            occurs[data[index]] = True
            count += 1
            if count > MOST_BYTES:
                break
    take_back(state)
    return bytes([byte for byte in range(256) if occurs[byte]]) if count <= MOST_BYTES else None


def pack(const uint8_t[::1] data, const uint8_t[::1] alphabet, uint8_t[::1] out):
    """Writes the place of each byte in the alphabet, two of them to a byte of `out`, the first one in its lower half.

    Returns whether all bytes are of the alphabet. Raises ValueError for an alphabet of more than 16 bytes, or if `out`
    is not half as long as `data`.
    """
    cdef uint16_t[256] low, high
    cdef int64_t index, start = 0, stop, pairs = data.shape[0] // 2
    cdef uint16_t both, all = 0
    if alphabet.shape[0] > MOST_BYTES or out.shape[0] != (data.shape[0] + 1) // 2:
        raise ValueError("an alphabet of more than 16 bytes, or no room for half of the bytes")
    for index in range(256):
        low[index] = high[index] = UNKNOWN
    for index in range(alphabet.shape[0]):
        low[alphabet[index]] = <uint16_t>index
        high[alphabet[index]] = <uint16_t>(index << 4)
    state = let_go(data.shape[0])
    while start < pairs and not all & UNKNOWN:
        stop = min(pairs, start + STRIDE)
        for index in range(start, stop):
            both = low[data[2 * index]] | high[data[2 * index + 1]]
            all |= both
            out[index] = <uint8_t>both
        start = stop
    if data.shape[0] & 1:
        both = low[data[2 * pairs]]
        all |= both
        out[pairs] = <uint8_t>both
    take_back(state)
    return not all & UNKNOWN


def unpack(codes, alphabet, int64_t size, bint is_text):
    """Returns `size` bytes as a buffer of Arrow: those of the alphabet that the codes stand for.

    codes, alphabet: buffers of Arrow. is_text: whether the bytes have to be ASCII. Raises ValueError for codes of
    another number or beyond the alphabet, and for an alphabet that is not as SPEC.md has it.
    """
    cdef const uint8_t* letters = <const uint8_t*><uintptr_t>alphabet.address
    cdef const uint8_t* source = <const uint8_t*><uintptr_t>codes.address
    cdef uint32_t[256] pairs
    cdef uint32_t pair, all = 0
    cdef uint16_t two
    cdef uint8_t* target
    cdef int64_t index
    cdef int count, code
    if size < 0 or codes.size != size // 2 + (size & 1):
        raise ValueError(f"{size} bytes of text in {codes.size} bytes of half ones")
    if alphabet.size != MOST_BYTES:
        raise ValueError("an alphabet of another length")
    count = letters_of(letters)
    if not count or (is_text and letters[count - 1] >= 0x80):
        raise ValueError("an alphabet that does not ascend, or is not ASCII")
    for code in range(256):
        pairs[code] = IMPOSSIBLE
        if code & 15 < count and code >> 4 < count:
            pairs[code] = letters[code & 15] | <uint32_t>letters[code >> 4] << 8
    out = allocate_buffer(size)
    target = <uint8_t*><uintptr_t>out.address
    state = let_go(size)
    for index in range(size // 2):
        pair = pairs[source[index]]
        all |= pair
        two = <uint16_t>pair
        memcpy(target + 2 * index, &two, 2)
    if size & 1:
        pair = source[size // 2]
        all |= IMPOSSIBLE * (pair >= <uint32_t>count)
        target[size - 1] = letters[pair & 15]
    take_back(state)
    if all & IMPOSSIBLE:
        raise ValueError("half bytes beyond their alphabet")
    return out


cdef int letters_of(const uint8_t* alphabet) noexcept nogil:
    """Returns how many bytes an alphabet has: those that ascend, with zeros after them; 0 if there is something else."""
    cdef int count = 1, index
    while count < MOST_BYTES and alphabet[count] > alphabet[count - 1]:
        count += 1
    for index in range(count, MOST_BYTES):
        if alphabet[index]:
            return 0
    return count
