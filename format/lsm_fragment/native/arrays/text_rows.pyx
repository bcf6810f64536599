# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Writes rows of text: the cells of several columns side by side, as CSV and JSON need them."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcpy

from lsm_fragment.native.nulls cimport Nulls, is_null, nulls_of


cpdef enum Cell:
    PLAIN = 0
    DOUBLED = 1  # CSV: a quote becomes two
    ESCAPED = 2  # JSON: quotes, backslashes and control characters
    REAL = 3  # digits alone get .0, so that the number is read back as a float
    MOMENT = 4  # the first space becomes T
    INTEGER = 5  # no text yet: the number itself

cdef enum:
    ESCAPE = 92  # \
    LONGEST_ESCAPE = 6  # \u001f
    LONGEST_INTEGER = 20  # with its sign
    QUOTE = 34

cdef extern from *:
    """
    #include <stdint.h>

    /* Bytes that JSON escapes: control characters, " and \\. Branch-free, so that compilers vectorise it. */
    static inline int64_t escaped_bytes(const uint8_t* at, int64_t size) {
        int64_t count = 0;
        for (int64_t i = 0; i < size; i++) count += (at[i] < 0x20) | (at[i] == '"') | (at[i] == '\\\\');
        return count;
    }
    static inline int64_t quotes_in(const uint8_t* at, int64_t size, uint8_t quote) {
        int64_t count = 0;
        for (int64_t i = 0; i < size; i++) count += at[i] == quote;
        return count;
    }
    static const char PAIRS[] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
        "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    """
    const char* PAIRS
    int64_t escaped_bytes(const uint8_t* at, int64_t size) noexcept nogil
    int64_t quotes_in(const uint8_t* at, int64_t size, uint8_t quote) noexcept nogil

cdef struct Column:
    const uint8_t* data
    const int64_t* offsets  # of texts; the numbers of INTEGER
    const int32_t* codes  # NULL where a row has its own text
    Nulls nulls
    const uint8_t* before
    int64_t before_bytes
    const uint8_t* null
    int64_t null_bytes
    int kind
    uint8_t quote  # 0 where values stand without quotes
    bint has_special  # quotes or characters to escape


def written(list columns, int64_t rows, bytes end):
    """Returns the rows, each with its cells in turn and `end`.

    columns: (texts, codes, before, null, kind, quote) of each. texts: offsets, data, of a dictionary if there
    are `codes`; of INTEGER, the numbers and no data. codes: (values, valid, start), whose values are None if row i has text i; valid and start are a
    validity bitmap and the bit of its first row. before: comes before each cell; null: stands for a null cell. quote: the byte
    around each value, which DOUBLED doubles within; empty for none.
    Raises ValueError for a bitmap that is too short.
    """
    cdef Column* all_columns = <Column*>calloc(max(1, len(columns)), sizeof(Column))
    cdef int64_t room = 0, size = 0
    cdef int count = <int>len(columns)
    cdef const uint8_t* last = <const uint8_t*>PyBytes_AS_STRING(end)
    cdef int64_t last_bytes = len(end)
    cdef uint8_t* out
    cdef object made
    if all_columns == NULL:
        raise MemoryError
    try:
        for index in range(count):
            room += fill(&all_columns[index], columns[index], rows)
        room += rows * last_bytes
        made = PyBytes_FromStringAndSize(NULL, room)
        out = <uint8_t*>PyBytes_AS_STRING(made)
        with nogil:
            size = write_rows(all_columns, count, rows, last, last_bytes, out)
    finally:
        free(all_columns)
    return made if size == room else made[:size]


cdef int64_t fill(Column* column, tuple given, int64_t rows) except -1:
    """Returns the most bytes that the column's cells take."""
    cdef const int64_t[::1] offsets
    cdef const uint8_t[::1] data
    cdef const int32_t[::1] codes
    cdef bytes before, null, quote
    cdef int64_t texts, used, row, special = 0, most
    texts_of, (values, valid, start), before, null, kind, quote = given
    offsets, data = texts_of
    column.nulls = nulls_of(valid, start, rows)
    column.offsets = &offsets[0] if offsets.shape[0] else NULL
    column.data = &data[0] if data.shape[0] else NULL
    column.before, column.before_bytes = <const uint8_t*>PyBytes_AS_STRING(before), len(before)
    column.null, column.null_bytes = <const uint8_t*>PyBytes_AS_STRING(null), len(null)
    column.kind, column.quote = kind, ord(quote) if quote else 0
    if column.kind == INTEGER:
        if offsets.shape[0] < rows:
            raise ValueError("a column has too few numbers")
        return rows * (column.before_bytes + column.null_bytes + LONGEST_INTEGER + 2)
    texts = offsets.shape[0] - 1
    used = offsets[texts] - offsets[0]
    if used and column.kind == ESCAPED:
        special = escaped_bytes(column.data + offsets[0], used)
    elif used and column.kind == DOUBLED:
        special = quotes_in(column.data + offsets[0], used, column.quote)
    column.has_special = special > 0
    if values is None:
        most = used + (LONGEST_ESCAPE - 1) * special
    else:
        codes = values
        column.codes = &codes[0] if rows else NULL
        most = 0
        for row in range(rows):
            if not is_null(column.nulls, row):
                most += offsets[codes[row] + 1] - offsets[codes[row]]
        most *= LONGEST_ESCAPE if special else 1
    # .0 or two quotes
    return most + rows * (column.before_bytes + column.null_bytes + 2)


cdef int64_t write_rows(
    const Column* columns, int count, int64_t rows, const uint8_t* end, int64_t end_bytes, uint8_t* out
) noexcept nogil:
    cdef int64_t row, text, size
    cdef int index
    cdef uint8_t* at = out
    cdef const uint8_t* value
    cdef const Column* column
    for row in range(rows):
        for index in range(count):
            column = &columns[index]
            memcpy(at, column.before, column.before_bytes)
            at += column.before_bytes
            if is_null(column.nulls, row):
                memcpy(at, column.null, column.null_bytes)
                at += column.null_bytes
                continue
            if column.kind == INTEGER:
                at = integer(column.offsets[row], at)
                continue
            text = row if column.codes == NULL else column.codes[row]
            value = column.data + column.offsets[text]
            size = column.offsets[text + 1] - column.offsets[text]
            if column.quote:
                at[0] = column.quote
                at += 1
            at = written_value(column, value, size, at)
            if column.quote:
                at[0] = column.quote
                at += 1
        memcpy(at, end, end_bytes)
        at += end_bytes
    return at - out


cdef inline uint8_t* written_value(
    const Column* column, const uint8_t* value, int64_t size, uint8_t* at
) noexcept nogil:
    """Returns where the value ends."""
    cdef uint8_t* space
    if column.has_special:
        return doubled(value, size, column.quote, at) if column.kind == DOUBLED else escaped(value, size, at)
    memcpy(at, value, size)
    if column.kind == REAL and is_whole(value, size):
        at[size] = c'.'
        at[size + 1] = c'0'
        size += 2
    elif column.kind == MOMENT and size:
        space = <uint8_t*>memchr(at, c' ', size)
        if space != NULL:
            space[0] = c'T'
    return at + size


cdef inline uint8_t* integer(int64_t number, uint8_t* at) noexcept nogil:
    """Writes a number in decimal. Returns where it ends."""
    cdef uint64_t left = <uint64_t>number
    cdef uint8_t[LONGEST_INTEGER] digits
    cdef int first = LONGEST_INTEGER
    if number < 0:
        at[0] = c'-'
        at += 1
        left = 0 - left
    while left >= 100:
        first -= 2
        memcpy(digits + first, PAIRS + 2 * (left % 100), 2)
        left //= 100
    if left >= 10:
        first -= 2
        memcpy(digits + first, PAIRS + 2 * left, 2)
    else:
        first -= 1
        digits[first] = <uint8_t>(c'0' + left)
    memcpy(at, digits + first, LONGEST_INTEGER - first)
    return at + LONGEST_INTEGER - first


cdef inline bint is_whole(const uint8_t* value, int64_t size) noexcept nogil:
    """Returns whether a number is digits alone, with or without a minus."""
    cdef int64_t index
    for index in range(size):
        if not (c'0' <= value[index] <= c'9' or (index == 0 and value[index] == c'-')):
            return False
    return size > 0


cdef uint8_t* doubled(const uint8_t* value, int64_t size, uint8_t quote, uint8_t* at) noexcept nogil:
    cdef int64_t index
    for index in range(size):
        at[0] = value[index]
        at += 1
        if value[index] == quote:
            at[0] = quote
            at += 1
    return at


cdef uint8_t* escaped(const uint8_t* value, int64_t size, uint8_t* at) noexcept nogil:
    cdef int64_t index
    cdef uint8_t byte, short
    cdef const char* digits = b"0123456789abcdef"
    for index in range(size):
        byte = value[index]
        if byte >= 0x20 and byte != QUOTE and byte != ESCAPE:
            at[0] = byte
            at += 1
            continue
        at[0] = ESCAPE
        short = short_escape(byte)
        if short:
            at[1] = short
            at += 2
            continue
        memcpy(at + 1, b"u00", 3)
        at[4] = digits[byte >> 4]
        at[5] = digits[byte & 15]
        at += 6
    return at


cdef inline uint8_t short_escape(uint8_t byte) noexcept nogil:
    """Returns the letter after the backslash; 0 where the character is written by its number."""
    if byte == QUOTE or byte == ESCAPE:
        return byte
    if byte == 8:
        return c'b'
    if byte == 9:
        return c't'
    if byte == 10:
        return c'n'
    if byte == 12:
        return c'f'
    if byte == 13:
        return c'r'
    return 0
