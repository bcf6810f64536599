# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Gathers rows of several sources in merged order, from decoded arrays directly into output buffers.

Sources are numbered from 0. Each has its rows in pieces; `origins` has the source of each output row, and the
rows of one source keep their order. So one forward cursor per source replays the order, without positions.
A piece is `rows` rows of an array from `start` on: a row of a table of 64-bit integers with the layout of `Piece`,
whose addresses must stay valid. The caller guarantees that the pieces of each source have the rows that `origins`
names (`agrees`), and that offsets and codes are in range, as `lsm_fragment.encodings.coding` checks for every chunk.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from lsm_fragment.native.gil cimport release_gil, restore_gil
from lsm_fragment.native.words cimport hash_of, offset

cdef extern from *:
    """
    /* Asks for the cache line of an address, which need not be valid. */
    static inline void prefetch(const void* address) { __builtin_prefetch(address); }
    """
    void prefetch(const void* address) noexcept nogil

cdef enum:
    FEW = 16  # sources: the processor sees by itself how each goes on
    AHEAD_BYTES = 128
    LINE_BYTES = 64  # of the cache

cdef struct Wide:
    uint64_t low
    uint64_t high

ctypedef fused word:
    uint8_t
    uint16_t
    uint32_t
    uint64_t
    Wide

cdef enum:
    VALUES = 0
    CODES = 1
    NULLS = 2
    TEMPLATES = 3

cdef int64_t NO_LIMIT = 0x7FFFFFFFFFFFFFFF

cdef struct Piece:
    int64_t kind
    int64_t rows
    int64_t start
    const uint8_t* validity
    int64_t bit_offset
    const uint8_t* values
    const uint8_t* offsets
    const int32_t* codes
    int64_t dictionary_size
    int64_t memo
    # Bytes of a row beside its string, or of a code; of the heaviest decoded row; of the dictionary.
    int64_t row_bytes
    int64_t heaviest_bytes
    int64_t dictionary_bytes
    # Numbers of the dictionary's strings, below `stop`, comparable within one series; NULL and 0 if there are none.
    # A negative series marks pieces of one dictionary, which have no numbers.
    const int32_t* ids
    int64_t series
    int64_t stop


cdef struct Walk:
    const Piece* pieces
    int64_t* piece_at
    int64_t* row_at
    const uint16_t* origins
    bint has_short_runs
    int64_t rows
    int64_t row
    int64_t left
    # The current segment, set by `next_segment`: `count` rows of `piece` from `start`, to output row `out`.
    const Piece* piece
    int64_t start
    int64_t count
    int64_t out


cdef struct Head:
    # Cursor of a source: its next value, string, offset or (at `bit`) bit; its stride, 0 in a piece of equal rows; and
    # the remaining rows of its piece.
    const uint8_t* bytes
    int64_t bit
    int64_t step
    int64_t left
    const Piece* piece


cdef uint8_t[16] ZEROS
cdef uint8_t[1] ONES
memset(ZEROS, 0, sizeof(ZEROS))
memset(ONES, 0xFF, sizeof(ONES))


cdef struct Coded:
    # Cursor of a source of codes: the rows from `row` to `stop` of a piece, and the piece's memo, or NULL.
    const Piece* piece
    const int32_t* codes
    const int32_t* ids
    int32_t* memo
    int64_t row
    int64_t stop
    bint may_be_null


cdef int begin(
    Walk* walk, const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const uint16_t[::1] origins,
    bint has_short_runs,
) except -1:
    cdef int64_t sources = firsts.shape[0], source
    if pieces.shape[1] * 8 != sizeof(Piece):
        raise ValueError("a piece has another number of fields")
    walk.pieces = <const Piece*>&pieces[0, 0]
    walk.piece_at = <int64_t*>malloc(2 * sources * sizeof(int64_t))
    if walk.piece_at == NULL:
        raise MemoryError()
    walk.row_at = walk.piece_at + sources
    for source in range(sources):
        walk.piece_at[source] = firsts[source]
        walk.row_at[source] = 0
    walk.origins = &origins[0]
    walk.has_short_runs = has_short_runs
    walk.rows = origins.shape[0]
    walk.row = walk.left = 0
    return 0


cdef inline bint next_segment(Walk* walk) noexcept nogil:
    cdef int64_t source, end
    cdef uint16_t origin
    if walk.left == 0:
        if walk.row == walk.rows:
            return False
        origin = walk.origins[walk.row]
        end = walk.row + 1
        while end < walk.rows and walk.origins[end] == origin:
            end += 1
        walk.left = end - walk.row
    source = walk.origins[walk.row]
    walk.piece = walk.pieces + walk.piece_at[source]
    walk.start = walk.piece.start + walk.row_at[source]
    walk.count = min(walk.left, walk.piece.rows - walk.row_at[source])
    walk.out = walk.row
    walk.row += walk.count
    walk.left -= walk.count
    walk.row_at[source] += walk.count
    if walk.row_at[source] == walk.piece.rows:
        walk.piece_at[source] += 1
        walk.row_at[source] = 0
    return True


cdef inline bint is_valid(const Piece* piece, int64_t row) noexcept nogil:
    if piece.validity == NULL:
        return piece.kind != NULLS
    row += piece.bit_offset
    return (piece.validity[row >> 3] >> (row & 7)) & 1


def kinds(const int64_t[:, ::1] pieces):
    """Returns a bitmask of the piece kinds present."""
    cdef int64_t number, seen = 0
    for number in range(pieces.shape[0]):
        seen |= <int64_t>1 << ((<const Piece*>&pieces[number, 0]).kind & 63)
    return seen


def rows_of(const int64_t[:, ::1] pieces, int64_t kind):
    """Returns the rows of all pieces of a kind."""
    cdef int64_t number, rows = 0
    cdef const Piece* piece
    for number in range(pieces.shape[0]):
        piece = <const Piece*>&pieces[number, 0]
        rows += piece.rows if piece.kind == kind else 0
    return rows


def string_weights(uintptr_t offsets, int64_t strings, bint is_large):
    """Returns the bytes of the longest string, and of all together. offsets: the address of their offsets, of 8 or 4
    bytes."""
    if is_large:
        return weights_of(<const int64_t*>offsets, strings)
    return weights_of(<const int32_t*>offsets, strings)


cdef weights_of(const offset* offsets, int64_t strings):
    cdef int64_t string, most = 0
    for string in range(strings):
        most = max(most, <int64_t>(offsets[string + 1] - offsets[string]))
    return most, <int64_t>(offsets[strings] - offsets[0])


def may_have_nulls(const int64_t[:, ::1] pieces):
    """Returns whether a piece is of kind NULLS or has a validity bitmap."""
    cdef int64_t number
    cdef const Piece* piece
    for number in range(pieces.shape[0]):
        piece = <const Piece*>&pieces[number, 0]
        if piece.kind == NULLS or piece.validity != NULL:
            return True
    return False


def mark_nulls(int64_t[:, ::1] pieces):
    """Marks all-null pieces as NULLS."""
    cdef int64_t number, row
    cdef Piece* piece
    for number in range(pieces.shape[0]):
        piece = <Piece*>&pieces[number, 0]
        if piece.kind == NULLS or piece.validity == NULL:
            continue
        for row in range(piece.start, piece.start + piece.rows):
            if is_valid(piece, row):
                break
        else:
            piece.kind = NULLS
            piece.validity = NULL


def weigh(const int64_t[:, ::1] pieces, const offset[::1] like):
    """Weighs pieces of flat values, without nulls. Returns an upper bound of their bytes after gathering, and one after
    decoding (of templates without their variables). A dictionary counts as min(its size, the bytes that its rows
    reference).

    like: an array with the type of the offsets.
    """
    cdef int64_t number, size, used, rows = 0, held = 0, most = 0
    cdef const Piece* piece
    cdef const offset* at
    for number in range(pieces.shape[0]):
        if pieces[number, 0] in (CODES, TEMPLATES):
            rows += pieces[number, 1]
    state = release_gil(rows)
    for number in range(pieces.shape[0]):
        piece = <const Piece*>&pieces[number, 0]
        if piece.kind == NULLS:
            continue
        size = piece.row_bytes * piece.rows
        if piece.kind == VALUES:
            if piece.offsets != NULL:
                at = <const offset*>piece.offsets
                size += at[piece.start + piece.rows] - at[piece.start]
            held += size
            most += size
            continue
        used = used_bytes(piece, like, piece.dictionary_bytes if piece.kind == CODES else NO_LIMIT)
        held += size + min(used, piece.dictionary_bytes)
        most += piece.heaviest_bytes * piece.rows if piece.kind == CODES else size + used
    restore_gil(state)
    return held, most


cdef int64_t used_bytes(const Piece* piece, const offset[::1] like, int64_t limit) noexcept nogil:
    """Returns the bytes of the coded strings, each with its offset; stops counting at `limit`."""
    cdef const offset* at = <const offset*>piece.offsets
    cdef int64_t row, total = 0
    cdef int32_t code
    for row in range(piece.start, piece.start + piece.rows):
        if total >= limit:
            break
        if piece.validity == NULL or is_valid(piece, row):
            code = piece.codes[row]
            total += at[code + 1] - at[code] + <int64_t>sizeof(offset)
    return total


def agrees(const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const int64_t[::1] counts):
    """Returns whether the pieces of each source have `counts` rows."""
    cdef int64_t source, piece, stop, rows
    if counts.shape[0] != firsts.shape[0]:
        return False
    for source in range(firsts.shape[0]):
        stop = firsts[source + 1] if source + 1 < firsts.shape[0] else pieces.shape[0]
        rows = 0
        for piece in range(firsts[source], stop):
            rows += pieces[piece, 1]
        if rows != counts[source]:
            return False
    return True


def fixed(const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const uint16_t[::1] origins, bint has_short_runs,
          int64_t width, uint8_t[::1] out):
    """Gathers values of `width` bytes; nulls become zeros."""
    cdef Walk walk
    cdef Head* heads
    begin(&walk, pieces, firsts, origins, has_short_runs)
    if width in (1, 2, 4, 8, 16) and walk.has_short_runs:
        heads = heads_of(&walk, firsts.shape[0])
        with nogil:
            if width == 1:
                each_value(&walk, heads, firsts, pieces.shape[0], &out[0])
            elif width == 2:
                each_value(&walk, heads, firsts, pieces.shape[0], <uint16_t*>&out[0])
            elif width == 4:
                each_value(&walk, heads, firsts, pieces.shape[0], <uint32_t*>&out[0])
            elif width == 8:
                each_value(&walk, heads, firsts, pieces.shape[0], <uint64_t*>&out[0])
            else:
                each_value(&walk, heads, firsts, pieces.shape[0], <Wide*>&out[0])
        free(heads)
        free(walk.piece_at)
        return
    with nogil:
        while next_segment(&walk):
            if walk.piece.kind == VALUES:
                memcpy(&out[walk.out * width], walk.piece.values + walk.start * width, walk.count * width)
            else:
                memset(&out[walk.out * width], 0, walk.count * width)
    free(walk.piece_at)


cdef Head* heads_of(const Walk* walk, int64_t sources) except NULL:
    """Allocates the cursor of each source."""
    cdef Head* heads = <Head*>malloc(sources * sizeof(Head))
    if heads == NULL:
        free(walk.piece_at)
        raise MemoryError()
    return heads


cdef bint is_simple(const Walk* walk, int64_t sources, int64_t pieces) noexcept nogil:
    """Returns whether every source is one piece of values."""
    cdef int64_t source
    if pieces != sources:
        return False
    for source in range(sources):
        if walk.piece_at[source] != source or walk.pieces[source].kind != VALUES:
            return False
    return True


cdef void each_row(const Walk* walk, int64_t sources, word* out) noexcept nogil:
    """Gathers values row by row. Each source is one piece of values."""
    cdef int64_t row, source
    cdef const word** heads = <const word**>walk.piece_at
    for source in range(sources):
        heads[source] = <const word*>walk.pieces[source].values + walk.pieces[source].start
    if sources <= FEW:
        for row in range(walk.rows):
            out[row] = heads[walk.origins[row]][0]
            heads[walk.origins[row]] += 1
        return
    for row in range(walk.rows):
        source = walk.origins[row]
        out[row] = heads[source][0]
        heads[source] += 1
        prefetch(<const uint8_t*>heads[source] + AHEAD_BYTES)


cdef void each_value(
    const Walk* walk, Head* heads, const int64_t[::1] firsts, int64_t pieces, word* out
) noexcept nogil:
    """Gathers values row by row."""
    cdef int64_t source, row
    cdef Head* head
    cdef const Piece* end = walk.pieces + pieces
    if is_simple(walk, firsts.shape[0], pieces):
        each_row(walk, firsts.shape[0], out)
        return
    for source in range(firsts.shape[0]):
        enter_values(&heads[source], walk.pieces + firsts[source], end, sizeof(word))
    for row in range(walk.rows):
        head = heads + walk.origins[row]
        out[row] = (<const word*>head.bytes)[0]
        prefetch(head.bytes + AHEAD_BYTES)
        head.bytes += head.step
        head.left -= 1
        if head.left == 0:
            enter_values(head, head.piece + 1, end, sizeof(word))


cdef inline void enter_values(Head* head, const Piece* piece, const Piece* end, int64_t width) noexcept nogil:
    enter_rows(head, piece, end)
    if head.piece < end:
        head.step = width if head.piece.kind == VALUES else 0
        head.bytes = head.piece.values + head.piece.start * width if head.step else &ZEROS[0]


def validity(const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const uint16_t[::1] origins, bint has_short_runs,
             uint8_t[::1] out):
    """Gathers validity bits. out: zeros. Returns the null count."""
    return origins.shape[0] - gathered_bits(pieces, firsts, origins, has_short_runs, False, out)


def bits(const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const uint16_t[::1] origins, bint has_short_runs,
         uint8_t[::1] out):
    """Gathers booleans. out: zeros, which stay for nulls."""
    gathered_bits(pieces, firsts, origins, has_short_runs, True, out)


cdef int64_t gathered_bits(
    const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const uint16_t[::1] origins,
    bint has_short_runs, bint are_values, uint8_t[::1] out,
) except -1:
    """Gathers booleans, or else validity bits. out: zeros. Returns the number of set bits."""
    cdef Walk walk
    cdef Head* heads = NULL
    cdef Head head = [NULL, 0, 0, 0, NULL]
    cdef int64_t count = 0
    begin(&walk, pieces, firsts, origins, has_short_runs)
    if walk.has_short_runs:
        heads = heads_of(&walk, firsts.shape[0])
    with nogil:
        if heads:
            count = each_bit(&walk, heads, firsts, pieces.shape[0], are_values, out)
        else:
            while next_segment(&walk):
                enter_bits(&head, walk.piece, walk.piece + 1, are_values)
                head.bit += (walk.start - walk.piece.start) * head.step
                count += copy_bits(&head, walk.count, &out[0], walk.out)
    free(heads)
    free(walk.piece_at)
    return count


cdef int64_t each_bit(
    const Walk* walk, Head* heads, const int64_t[::1] firsts, int64_t pieces, bint are_values, uint8_t[::1] out
) noexcept nogil:
    """Gathers bits row by row, and writes whole bytes. Returns the number of set bits."""
    cdef int64_t source, row, first, count = 0
    cdef uint8_t bit, byte
    cdef Head* head
    cdef const Piece* end = walk.pieces + pieces
    for source in range(firsts.shape[0]):
        enter_bits(&heads[source], walk.pieces + firsts[source], end, are_values)
    for first in range(0, walk.rows, 8):
        byte = 0
        for row in range(first, min(first + 8, walk.rows)):
            head = heads + walk.origins[row]
            bit = (head.bytes[head.bit >> 3] >> (head.bit & 7)) & 1
            byte |= bit << (row - first)
            count += bit
            head.bit += head.step
            head.left -= 1
            if head.left == 0:
                enter_bits(head, head.piece + 1, end, are_values)
        out[first >> 3] = byte
    return count


cdef inline int64_t copy_bits(Head* head, int64_t rows, uint8_t* out, int64_t at) noexcept nogil:
    """Copies bits of `rows` rows from the cursor to bit `at`. Returns the number of set bits."""
    cdef int64_t row, count = 0
    cdef uint8_t bit
    for row in range(at, at + rows):
        bit = (head.bytes[head.bit >> 3] >> (head.bit & 7)) & 1
        out[row >> 3] |= bit << (row & 7)
        count += bit
        head.bit += head.step
    return count


cdef inline void enter_bits(Head* head, const Piece* piece, const Piece* end, bint are_values) noexcept nogil:
    enter_rows(head, piece, end)
    if head.piece >= end:
        return
    head.bytes = head.piece.values if are_values else head.piece.validity
    head.step = head.piece.kind == VALUES if are_values else head.bytes != NULL
    head.bit = head.piece.bit_offset + head.piece.start if head.step else 0
    if not head.step:
        head.bytes = &ZEROS[0] if are_values or head.piece.kind == NULLS else &ONES[0]


def offsets(const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const uint16_t[::1] origins, bint has_short_runs,
            offset[::1] out):
    """Gathers string lengths as offsets from 0. Returns the total, which 32-bit offsets may not hold."""
    cdef Walk walk
    cdef int64_t total
    cdef Head* heads = NULL
    begin(&walk, pieces, firsts, origins, has_short_runs)
    if are_values(&walk, pieces.shape[0]) and walk.has_short_runs:
        heads = heads_of(&walk, firsts.shape[0])
    with nogil:
        total = each_length(&walk, heads, firsts, pieces.shape[0], out) if heads else each_segment(&walk, out)
    free(heads)
    free(walk.piece_at)
    return total


cdef int64_t each_segment(Walk* walk, offset[::1] out) noexcept nogil:
    cdef int64_t row, total = 0
    cdef int32_t code
    cdef const offset* at
    out[0] = 0
    while next_segment(walk):
        at = <const offset*>walk.piece.offsets
        if walk.piece.kind == VALUES:
            for row in range(walk.count):
                total += at[walk.start + row + 1] - at[walk.start + row]
                out[walk.out + row + 1] = <offset>total
        elif walk.piece.kind == CODES:
            for row in range(walk.count):
                if is_valid(walk.piece, walk.start + row):
                    code = walk.piece.codes[walk.start + row]
                    total += at[code + 1] - at[code]
                out[walk.out + row + 1] = <offset>total
        else:
            for row in range(walk.count):
                out[walk.out + row + 1] = <offset>total
    return total


cdef int64_t each_length(
    const Walk* walk, Head* heads, const int64_t[::1] firsts, int64_t pieces, offset[::1] out
) noexcept nogil:
    """Gathers lengths row by row. Each cursor is at the offset of its next string."""
    cdef int64_t source, row, total = 0
    cdef const offset* at
    cdef Head* head
    cdef const Piece* end = walk.pieces + pieces
    out[0] = 0
    for source in range(firsts.shape[0]):
        enter_offsets(&heads[source], walk.pieces + firsts[source], end, out)
    for row in range(walk.rows):
        head = heads + walk.origins[row]
        if head.piece.kind == VALUES:
            at = <const offset*>head.bytes
            total += at[1] - at[0]
            head.bytes += sizeof(offset)
            prefetch(head.bytes + AHEAD_BYTES)
        out[row + 1] = <offset>total
        head.left -= 1
        if head.left == 0:
            enter_offsets(head, head.piece + 1, end, out)
    return total


cdef inline void enter_offsets(Head* head, const Piece* piece, const Piece* end, const offset[::1] like) noexcept nogil:
    enter_rows(head, piece, end)
    if head.piece < end:
        head.bytes = head.piece.offsets + head.piece.start * <int64_t>sizeof(offset)


cdef inline void enter_rows(Head* head, const Piece* piece, const Piece* end) noexcept nogil:
    """Advances to the first piece with rows, from `piece` on."""
    while piece < end and piece.rows == 0:
        piece += 1
    head.piece = piece
    if piece < end:
        head.left = piece.rows


def strings(const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const uint16_t[::1] origins, bint has_short_runs,
            const offset[::1] placed, uint8_t[::1] out):
    """Gathers the bytes of strings. placed: the result of `offsets`."""
    cdef Walk walk
    cdef int64_t row, size
    cdef int32_t code
    cdef const offset* at
    cdef uint8_t* base = &out[0] if out.shape[0] else NULL
    cdef Head* heads
    begin(&walk, pieces, firsts, origins, has_short_runs)
    if are_values(&walk, pieces.shape[0]) and walk.has_short_runs:
        heads = heads_of(&walk, firsts.shape[0])
        with nogil:
            each_string(&walk, heads, firsts, pieces.shape[0], placed, base)
        free(heads)
        free(walk.piece_at)
        return
    with nogil:
        while next_segment(&walk):
            at = <const offset*>walk.piece.offsets
            if walk.piece.kind == VALUES:
                size = at[walk.start + walk.count] - at[walk.start]
                if size:
                    memcpy(base + placed[walk.out], walk.piece.values + at[walk.start], size)
            elif walk.piece.kind == CODES:
                for row in range(walk.count):
                    size = placed[walk.out + row + 1] - placed[walk.out + row]
                    if size:
                        code = walk.piece.codes[walk.start + row]
                        memcpy(base + placed[walk.out + row], walk.piece.values + at[code], size)
    free(walk.piece_at)


cdef bint are_values(const Walk* walk, int64_t pieces) noexcept nogil:
    cdef int64_t number
    for number in range(pieces):
        if walk.pieces[number].kind == CODES:
            return False
    return True


cdef void each_string(
    const Walk* walk, Head* heads, const int64_t[::1] firsts, int64_t pieces, const offset[::1] placed, uint8_t* out
) noexcept nogil:
    """Gathers strings row by row. Those of a piece are end to end, so only their sizes are needed, which `placed`
    has."""
    cdef int64_t source, row, size
    cdef Head* head
    cdef const Piece* end = walk.pieces + pieces
    for source in range(firsts.shape[0]):
        enter_bytes(&heads[source], walk.pieces + firsts[source], end, placed)
    for row in range(walk.rows):
        head = heads + walk.origins[row]
        size = placed[row + 1] - placed[row]
        if size:
            memcpy(out + placed[row], head.bytes, size)
        head.bytes += size
        prefetch(head.bytes)
        prefetch(head.bytes + LINE_BYTES)
        head.left -= 1
        if head.left == 0:
            enter_bytes(head, head.piece + 1, end, placed)


cdef inline void enter_bytes(Head* head, const Piece* piece, const Piece* end, const offset[::1] like) noexcept nogil:
    enter_rows(head, piece, end)
    if head.piece < end:
        head.bytes = head.piece.values
        if head.piece.kind == VALUES:
            head.bytes += (<const offset*>head.piece.offsets)[head.piece.start]


# --- rows that sources have ------------------------------------------------------------------

def lacking(const int64_t[::1] left, const uint16_t[::1] sources, const uint32_t[::1] counts, int64_t[::1] missing):
    """Starts taking `counts` rows from `sources`. Returns the places of sources with fewer rows left.

    left: remaining rows of each source. missing: receives the counts.
    """
    cdef int64_t place
    places = []
    if counts.shape[0] != sources.shape[0] or missing.shape[0] != sources.shape[0]:
        raise ValueError("counts of other sources")
    for place in range(sources.shape[0]):
        missing[place] = counts[place]
        if left[checked(sources[place], left.shape[0])] < counts[place]:
            places.append(place)
    return places


def take_rows(
    int64_t[:, ::1] cursors, int64_t[::1] left, const uint16_t[::1] sources, int64_t[::1] missing,
    int64_t[::1] places, int64_t[:, ::1] pieces,
):
    """Takes the missing rows of every source, as far as it has them.

    cursors: the current piece of each source; advances beyond the rows taken. left, missing: see `lacking`; both
    decrease. places, pieces: receive the places of sources that gave rows, and the pieces.
    Returns these sources.
    """
    cdef int64_t place, source, rows, count = 0
    cdef Piece* cursor
    taken = []
    if min(missing.shape[0], places.shape[0], pieces.shape[0]) < sources.shape[0]:
        raise ValueError("no room for all sources")
    if cursors.shape[0] != left.shape[0] or min(cursors.shape[1], pieces.shape[1]) * 8 != sizeof(Piece):
        raise ValueError("a piece has another number of fields")
    for place in range(sources.shape[0]):
        source = checked(sources[place], left.shape[0])
        rows = min(missing[place], left[source])
        if rows <= 0:
            continue
        cursor = <Piece*>&cursors[source, 0]
        memcpy(&pieces[count, 0], cursor, sizeof(Piece))
        pieces[count, 1] = rows
        places[count] = place
        cursor.start += rows
        left[source] -= rows
        missing[place] -= rows
        taken.append(source)
        count += 1
    return taken


cdef inline int64_t checked(int64_t source, int64_t sources) except -1:
    if source >= sources:
        raise ValueError("a source that there is not")
    return source


# --- one dictionary of several --------------------------------------------------------------

def codes(const int64_t[:, ::1] pieces, const int64_t[::1] firsts, const uint16_t[::1] origins, bint has_short_runs,
          const offset[::1] like, int64_t max_distinct, uint64_t[::1] table, int32_t[::1] memo, int32_t[::1] out,
          int64_t[:, ::1] used):
    """Gathers codes over one dictionary of the strings in use, numbered by first use.

    like: an array with the type of the offsets. table: zeros, a power of two above 2 * `max_distinct`; empty if memos
    are complete. memo: -1 in each slot. out: zeros. used: shape (max_distinct, 2), receives the piece and the old code
    of each string. Returns the number of strings; -1 if there are more than `max_distinct`.
    """
    cdef Walk walk
    cdef int64_t row, count = 0
    cdef Coded* heads
    cdef Coded* head
    cdef Coded segment
    begin(&walk, pieces, firsts, origins, has_short_runs)
    heads = <Coded*>malloc(firsts.shape[0] * sizeof(Coded))
    if heads == NULL:
        free(walk.piece_at)
        raise MemoryError()
    with nogil:
        if walk.has_short_runs:
            for row in range(firsts.shape[0]):
                enter_codes(&heads[row], walk.pieces + firsts[row], walk.pieces + pieces.shape[0], memo)
            for row in range(walk.rows):
                head = heads + walk.origins[row]
                if not put_code(&walk, head, like, max_distinct, &count, table, used, &out[row]):
                    count = -1
                    break
                if head.row == head.stop:
                    enter_codes(head, head.piece + 1, walk.pieces + pieces.shape[0], memo)
        else:
            while count >= 0 and next_segment(&walk):
                open_codes(&segment, walk.piece, walk.start, walk.count, memo)
                for row in range(walk.out, walk.out + walk.count):
                    if not put_code(&walk, &segment, like, max_distinct, &count, table, used, &out[row]):
                        count = -1
                        break
    free(heads)
    free(walk.piece_at)
    return count


cdef int32_t _code_of(
    const Walk* walk, const Piece* piece, int32_t code, const offset[::1] like, int64_t max_distinct, int64_t* count,
    uint64_t[::1] table, int64_t[:, ::1] used,
) noexcept nogil:
    """Returns the code of a string without a memo; -1 beyond `max_distinct`."""
    if table.shape[0] == 0:
        return _new_code(walk, piece, code, max_distinct, count, used)
    cdef const offset* at = <const offset*>piece.offsets
    cdef const uint8_t* value = piece.values + at[code]
    cdef int64_t length = at[code + 1] - at[code], known
    cdef uint64_t hashed = hash_of(value, length), mask = table.shape[0] - 1
    cdef uint64_t slot = hashed & mask, entry
    cdef const Piece* other
    cdef const offset* other_at
    while True:
        entry = table[slot]
        if entry == 0:
            known = _new_code(walk, piece, code, max_distinct, count, used)
            if known >= 0:
                table[slot] = (hashed & 0xFFFFFFFF00000000ULL) | <uint64_t>(known + 1)
            return <int32_t>known
        if (entry ^ hashed) >> 32 == 0:
            known = <int64_t>(entry & 0xFFFFFFFFULL) - 1
            other = walk.pieces + used[known, 0]
            other_at = (<const offset*>other.offsets) + used[known, 1]
            if other_at[1] - other_at[0] == length and memcmp(other.values + other_at[0], value, length) == 0:
                return <int32_t>known
        slot = (slot + 1) & mask


cdef inline int32_t _new_code(
    const Walk* walk, const Piece* piece, int32_t code, int64_t max_distinct, int64_t* count, int64_t[:, ::1] used
) noexcept nogil:
    if count[0] >= max_distinct:
        return -1
    used[count[0], 0] = piece - walk.pieces
    used[count[0], 1] = code
    count[0] += 1
    return <int32_t>(count[0] - 1)


def assign_memos(int64_t[:, ::1] pieces, int64_t divisor, int64_t rows):
    """Assigns each piece a memo slot for `codes`. Pieces with strings numbered in the latest series share one, and so do
    pieces of one dictionary; others get their own if they have at most `divisor` dictionary values per row.

    rows: of all pieces. Returns the total size of the memos, an upper bound of the distinct strings, and whether memos
    are complete: then a string without a memo is a new one.
    """
    cdef int64_t number, series = 0, stop = 0, size, coded = 0, values = 0, shared = 0, shared_memo = -1
    cdef bint are_complete = True
    cdef Piece* piece
    for number in range(pieces.shape[0]):
        piece = <Piece*>&pieces[number, 0]
        if piece.kind == CODES and piece.series > series:
            series, stop = piece.series, 0
        if piece.kind == CODES and piece.series == series:
            stop = max(stop, piece.stop)
    if stop > divisor * rows:
        series = stop = 0
    size = stop
    for number in range(pieces.shape[0]):
        piece = <Piece*>&pieces[number, 0]
        piece.memo = -1
        if piece.kind != CODES:
            continue
        coded += piece.dictionary_size
        if series and piece.series == series:
            piece.memo = 0
            continue
        piece.ids = NULL
        are_complete = False
        if piece.series < 0:
            if piece.series != shared:
                shared, shared_memo = piece.series, size
                size += piece.dictionary_size
                values += piece.dictionary_size
            piece.memo = shared_memo
            continue
        piece.series = 0
        values += piece.dictionary_size
        if piece.dictionary_size <= divisor * piece.rows:
            piece.memo = size
            size += piece.dictionary_size
    return size, min(coded, stop + values), are_complete


cdef inline void open_codes(Coded* coded, const Piece* piece, int64_t start, int64_t rows, int32_t[::1] memo) noexcept nogil:
    """Moves the cursor to some rows of a piece."""
    coded.piece = piece
    coded.codes = piece.codes
    coded.ids = piece.ids
    coded.memo = &memo[piece.memo] if piece.kind == CODES and piece.memo >= 0 else NULL
    coded.row = start
    coded.stop = start + rows
    coded.may_be_null = piece.kind == NULLS or piece.validity != NULL


cdef inline void enter_codes(Coded* coded, const Piece* piece, const Piece* end, int32_t[::1] memo) noexcept nogil:
    """Moves the cursor to the first piece with rows, from `piece` on."""
    while piece < end and piece.rows == 0:
        piece += 1
    if piece < end:
        open_codes(coded, piece, piece.start, piece.rows, memo)


cdef inline bint put_code(
    const Walk* walk, Coded* coded, const offset[::1] like, int64_t max_distinct, int64_t* count,
    uint64_t[::1] table, int64_t[:, ::1] used, int32_t* out,
) noexcept nogil:
    """Writes the code of the next row, unless that is null. Returns False if there are too many strings."""
    cdef int64_t row = coded.row
    cdef int32_t code, found
    cdef int32_t* known
    coded.row += 1
    if coded.may_be_null and not is_valid(coded.piece, row):
        return True
    code = coded.codes[row]
    prefetch(<const uint8_t*>(coded.codes + row) + AHEAD_BYTES)
    if coded.memo == NULL:
        out[0] = _code_of(walk, coded.piece, code, like, max_distinct, count, table, used)
        return out[0] >= 0
    known = coded.memo + (coded.ids[code] if coded.ids != NULL else code)
    if known[0] < 0:
        known[0] = _code_of(walk, coded.piece, code, like, max_distinct, count, table, used)
    out[0] = known[0]
    return out[0] >= 0


def used_offsets(const int64_t[:, ::1] pieces, const int64_t[:, ::1] used, offset[::1] out):
    """Writes the offsets of the strings that `codes` found. Returns their total."""
    cdef int64_t number, total = 0
    cdef const Piece* table = <const Piece*>&pieces[0, 0]
    cdef const offset* at
    with nogil:
        out[0] = 0
        for number in range(used.shape[0]):
            at = (<const offset*>table[used[number, 0]].offsets) + used[number, 1]
            total += at[1] - at[0]
            out[number + 1] = <offset>total
    return total


def used_strings(const int64_t[:, ::1] pieces, const int64_t[:, ::1] used, const offset[::1] placed, uint8_t[::1] out):
    """Gathers the bytes of the strings that `codes` found."""
    cdef int64_t number
    cdef const Piece* table = <const Piece*>&pieces[0, 0]
    cdef const Piece* piece
    cdef const offset* at
    with nogil:
        for number in range(used.shape[0]):
            piece = table + used[number, 0]
            at = (<const offset*>piece.offsets) + used[number, 1]
            memcpy(&out[0] + placed[number], piece.values + at[0], at[1] - at[0])
