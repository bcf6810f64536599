# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Packs text of few different letters by one to six bits each (LETTERS of SPEC section 5).

Batches of eight letters go through a 64-bit word, since they fill whole bytes. Copies of 16 bytes gather the letters
out of a frame and spread them into it; each copy overwrites the excess of the one before.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

from pyarrow import allocate_buffer

from lsm_fragment.native.gil cimport release_gil, restore_gil

cdef enum:
    MIN_FRAME = 8  # bytes: frames are compared word by word
    MAX_FRAME = 1024
    MAX_WORDS = 128  # of a frame
    MAX_WIDTH = 6
    MAX_LETTERS = 1 << MAX_WIDTH  # of an alphabet
    MAX_PAIRS = MAX_LETTERS * MAX_LETTERS
    BATCH = 8  # letters
    PLACES = BATCH * 256
    STRIP = 8192  # letters: fits the cache, and holds at least a batch of rows of any frame
    COPIED = 16  # bytes per copy
    IMPOSSIBLE = 1 << 16  # flag in a pair of letters: a code is beyond the alphabet

cdef uint64_t UNKNOWN = <uint64_t>1 << 63  # flag in a batch: a byte is not in the alphabet

MIN_FRAME_BYTES = MIN_FRAME
MAX_FRAME_BYTES = MAX_FRAME


cdef struct Step:  # copies up to 16 letters of a row, and then up to 16 bytes of the frame
    int at  # position in the row
    int letter  # index among the row's letters
    int then  # position in the row where the letters end


cdef struct Frame:
    int64_t length  # of a row; 0 without a frame
    int64_t letters  # per row
    int count  # of steps
    Step[MAX_FRAME] steps


# --- analysis -------------------------------------------------------------------------------

def find_holes(const uint8_t[::1] data, int64_t length):
    """Returns a byte for each position of a row: 1 if rows differ there, else 0.

    data: rows of `length` bytes, end to end. Raises ValueError for an invalid frame length or a partial row.
    """
    cdef uint64_t[MAX_WORDS] first, differ
    cdef uint64_t word
    cdef int64_t words = (length + 7) // 8, last = length - 8, row, index
    cdef const uint8_t* source
    if not MIN_FRAME <= length <= MAX_FRAME or not data.shape[0] or data.shape[0] % length:
        raise ValueError(f"{data.shape[0]} bytes in rows of {length}")
    memset(differ, 0, sizeof(differ))
    source = &data[0]
    for index in range(words):
        memcpy(&first[index], source + min(8 * index, last), 8)
    state = release_gil(data.shape[0])
    for row in range(data.shape[0] // length):
        for index in range(words - 1):
            memcpy(&word, source + 8 * index, 8)
            differ[index] |= word ^ first[index]
        memcpy(&word, source + last, 8)
        differ[words - 1] |= word ^ first[words - 1]
        source += length
    restore_gil(state)
    holes = bytearray(length)
    for index in range(length):
        row = min(index // 8, words - 1)
        word = differ[row] >> 8 * (index - min(8 * row, last))
        holes[index] = 1 if word & 0xFF else 0
    return holes


def find_alphabet(const uint8_t[::1] data, const uint8_t[::1] holes):
    """Returns the bytes that occur in the holes of rows, ascending; None if there are more than 64.

    holes: see `find_holes`; empty if all bytes are letters.
    """
    cdef uint8_t[512] occurs  # for each byte: in frames, then in holes
    cdef int64_t start = 0, index, length = holes.shape[0]
    if length and data.shape[0] % length:
        raise ValueError(f"{data.shape[0]} bytes in rows of {length}")
    memset(occurs, 0, sizeof(occurs))
    state = release_gil(data.shape[0])
    if length:
        while start < data.shape[0]:
            for index in range(length):
                occurs[256 * (holes[index] & 1) + data[start + index]] = True
            start += length
    else:
        for index in range(data.shape[0]):
            occurs[256 + data[index]] = True
    restore_gil(state)
    found = bytes([byte for byte in range(256) if occurs[256 + byte]])
    return found if len(found) <= MAX_LETTERS else None


# --- packing --------------------------------------------------------------------------------

def pack(const uint8_t[::1] data, const uint8_t[::1] holes, const uint8_t[::1] alphabet, int width):
    """Packs letters as a bit field of their indices in the alphabet. Returns an Arrow buffer; None if a byte is not in
    the alphabet.

    holes: see `find_alphabet`. Raises ValueError for an invalid width, an alphabet beyond it, or partial rows.
    """
    cdef uint64_t[PLACES] places  # code of each byte as the first letter of a batch, as the second, ...
    cdef uint8_t[STRIP + COPIED] strip
    cdef Frame frame
    cdef uint64_t every = 0
    cdef int64_t index, size, left, strip_rows = 0, count = data.shape[0]
    cdef int byte, place
    cdef const uint8_t* source = &data[0]
    cdef const uint8_t* stop = source + count
    cdef uint8_t* target
    if not 1 <= width <= MAX_WIDTH or alphabet.shape[0] > 1 << width:
        raise ValueError(f"{alphabet.shape[0]} letters by {width} bits")
    lay(&frame, holes)
    if frame.length:
        if not frame.letters or count % frame.length:
            raise ValueError(f"{count} bytes in rows of {frame.length} with {frame.letters} letters")
        count = count // frame.length * frame.letters
        strip_rows = STRIP // (BATCH * frame.letters) * BATCH
    for place in range(BATCH):
        for byte in range(256):
            places[256 * place + byte] = UNKNOWN
        for index in range(alphabet.shape[0]):
            places[256 * place + alphabet[index]] = <uint64_t>index << (place * width)
    out = allocate_buffer(packed_bytes(count, width) + BATCH)
    target = <uint8_t*><uintptr_t>out.address
    left = count
    state = release_gil(data.shape[0])
    while left and not every & UNKNOWN:
        if frame.length:
            size = min(left, strip_rows * frame.letters)
            gather(&frame, source, stop, size // frame.letters, strip)
            every |= pack_strip(strip, size, target, width, places)
            source += size // frame.letters * frame.length
        else:
            size = min(left, <int64_t>STRIP)
            every |= pack_strip(source, size, target, width, places)
            source += size
        target += size // BATCH * width
        left -= size
    restore_gil(state)
    return None if every & UNKNOWN else out.slice(0, packed_bytes(count, width))


cdef uint64_t pack_strip(
    const uint8_t* letters, int64_t count, uint8_t* out, int width, const uint64_t* places
) noexcept nogil:
    """Packs letters. Overwrites up to 8 bytes behind them. Returns the batches or-ed."""
    cdef const uint8_t* eight
    cdef uint64_t batch, every = 0
    cdef int64_t index
    cdef int place
    for index in range(count // BATCH):
        eight = letters + BATCH * index
        batch = places[eight[0]] | places[0x100 + eight[1]] | places[0x200 + eight[2]] | places[0x300 + eight[3]]
        batch |= places[0x400 + eight[4]] | places[0x500 + eight[5]] | places[0x600 + eight[6]] | places[0x700 + eight[7]]
        every |= batch
        memcpy(out + width * index, &batch, 8)
    if count % BATCH:
        batch = 0
        index = count // BATCH
        for place in range(count % BATCH):
            batch |= places[256 * place + letters[BATCH * index + place]]
        every |= batch
        memcpy(out + width * index, &batch, 8)
    return every


cdef void gather(
    const Frame* frame, const uint8_t* rows, const uint8_t* stop, int64_t count, uint8_t* letters
) noexcept nogil:
    """Copies the letters of rows end to end. stop: end of the readable memory."""
    cdef uint8_t[MAX_FRAME + COPIED] last
    cdef const uint8_t* row
    cdef int64_t number
    cdef int index
    for number in range(count):
        row = rows
        if stop - rows < frame.length + COPIED:
            memcpy(last, rows, frame.length)
            row = last
        for index in range(frame.count):
            memcpy(letters + frame.steps[index].letter, row + frame.steps[index].at, COPIED)
        rows += frame.length
        letters += frame.letters


# --- unpacking ------------------------------------------------------------------------------

def unpack(codes, alphabet, int width, int64_t count, const uint8_t[::1] holes, const uint8_t[::1] frame_bytes, bint is_text):
    """Returns the text of `count` letters as an Arrow buffer.

    codes, alphabet: Arrow buffers. holes, frame_bytes: for each position of a row, whether it is a letter, and the byte
    of the frame otherwise; empty without a frame. is_text: all bytes must be ASCII. Raises ValueError for a wrong
    number of codes, codes beyond the alphabet, partial rows, and an alphabet or a frame that SPEC.md does not allow.
    """
    cdef const uint8_t* source = <const uint8_t*><uintptr_t>codes.address
    cdef uint32_t[MAX_PAIRS] pairs
    cdef uint8_t[STRIP + COPIED] strip
    cdef uint8_t[MAX_FRAME + COPIED] constants
    cdef Frame frame
    cdef uint32_t every = 0
    cdef int64_t size = count, available = codes.size, left = count, strip_rows = 0, index
    cdef uint8_t* target
    if not 1 <= width <= MAX_WIDTH:
        raise ValueError(f"letters of {width} bits")
    if count < 0 or available != packed_bytes(count, width):
        raise ValueError(f"{count} letters of {width} bits in {available} bytes")
    fill_pairs(pairs, alphabet, width, is_text)
    lay(&frame, holes)
    if frame.length:
        if not frame.letters or count % frame.letters or frame_bytes.shape[0] != frame.length:
            raise ValueError(f"{count} letters in rows of {frame.letters}")
        for index in range(frame.length):
            if is_text and not holes[index] and frame_bytes[index] >= 0x80:
                raise ValueError("a frame of text that is not ASCII")
        memcpy(constants, &frame_bytes[0], frame.length)
        size = count // frame.letters * frame.length
        strip_rows = STRIP // (BATCH * frame.letters) * BATCH
    out = allocate_buffer(size + COPIED)
    target = <uint8_t*><uintptr_t>out.address
    state = release_gil(size)
    while left:
        if frame.length:
            index = min(left, strip_rows * frame.letters)
            every |= unpack_strip(source, available, index, strip, width, pairs)
            spread(&frame, strip, constants, index // frame.letters, target)
            target += index // frame.letters * frame.length
        else:
            index = min(left, <int64_t>STRIP)
            every |= unpack_strip(source, available, index, target, width, pairs)
            target += index
        source += index // BATCH * width
        available -= index // BATCH * width
        left -= index
    restore_gil(state)
    if every & IMPOSSIBLE:
        raise ValueError("letters beyond their alphabet, or bits after the last one")
    return out.slice(0, size)


cdef int fill_pairs(uint32_t* pairs, alphabet, int width, bint is_text) except -1:
    """Fills the table that maps two codes to two letters."""
    cdef const uint8_t* letters = <const uint8_t*><uintptr_t>alphabet.address
    cdef int most = 1 << width, count = 1, first, second
    if alphabet.size != most:
        raise ValueError("an alphabet of another length")
    while count < most and letters[count] > letters[count - 1]:
        count += 1
    for first in range(count, most):
        if letters[first]:
            raise ValueError("an alphabet that does not ascend")
    if is_text and letters[count - 1] >= 0x80:
        raise ValueError("an alphabet of text that is not ASCII")
    for second in range(most):
        for first in range(most):
            pairs[second << width | first] = IMPOSSIBLE if max(first, second) >= count else (
                letters[first] | <uint32_t>letters[second] << 8
            )
    return 0


cdef uint32_t unpack_strip(
    const uint8_t* codes, int64_t available, int64_t count, uint8_t* out, int width, const uint32_t* pairs
) noexcept nogil:
    """Unpacks letters. Overwrites up to 7 bytes behind them. available: bytes of codes. Returns the pairs or-ed."""
    cdef uint64_t word, batch
    cdef uint32_t mask = (1 << 2 * width) - 1, first, second, third, fourth, every = 0
    cdef int64_t index, batches = (count + BATCH - 1) // BATCH, whole = 0
    if available >= 8:
        whole = min(count // BATCH, (available - 8) // width + 1)
    for index in range(batches):
        if index < whole:
            memcpy(&word, codes + width * index, 8)
        else:
            word = 0
            memcpy(&word, codes + width * index, min(<int64_t>8, available - width * index))
            if count - BATCH * index < BATCH and word >> width * (count - BATCH * index):
                every |= IMPOSSIBLE
        first = pairs[word & mask]
        second = pairs[word >> 2 * width & mask]
        third = pairs[word >> 4 * width & mask]
        fourth = pairs[word >> 6 * width & mask]
        every |= first | second | third | fourth
        batch = first | <uint64_t>second << 16 | <uint64_t>third << 32 | <uint64_t>fourth << 48
        memcpy(out + BATCH * index, &batch, 8)
    return every


cdef void spread(
    const Frame* frame, const uint8_t* letters, const uint8_t* constants, int64_t count, uint8_t* rows
) noexcept nogil:
    """Writes rows from letters and frame bytes. Overwrites up to 16 bytes behind them."""
    cdef int64_t number
    cdef int index
    cdef Step step
    for number in range(count):
        for index in range(frame.count):
            step = frame.steps[index]
            memcpy(rows + step.at, letters + step.letter, COPIED)
            memcpy(rows + step.then, constants + step.then, COPIED)
        rows += frame.length
        letters += frame.letters


# --- shared ---------------------------------------------------------------------------------

cdef int lay(Frame* frame, const uint8_t[::1] holes) except -1:
    """Divides a row into copy steps. Raises ValueError if it is too long."""
    cdef int at = 0, letter = 0, stop
    frame.length = holes.shape[0]
    frame.count = 0
    if frame.length > MAX_FRAME:
        raise ValueError(f"a frame of {frame.length} bytes, which has at most {MAX_FRAME}")
    while at < frame.length:
        stop = end_of(holes, at, True)
        frame.steps[frame.count] = Step(at, letter, stop)
        frame.count += 1
        letter += stop - at
        at = end_of(holes, stop, False)
    frame.letters = letter
    return 0


cdef inline int end_of(const uint8_t[::1] holes, int at, bint are_holes) noexcept nogil:
    """Returns the end of the current run of holes (or non-holes), capped at COPIED."""
    cdef int most = <int>min(holes.shape[0], <int64_t>at + COPIED)
    while at < most and (holes[at] != 0) == are_holes:
        at += 1
    return at


cdef inline int64_t packed_bytes(int64_t letters, int width) noexcept nogil:
    """Returns the bytes of a bit field, without overflow for any number of letters."""
    return letters // BATCH * width + (letters % BATCH * width + 7) // 8
