# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Splits CSV into rows and cells (quoted as in RFC 4180), and copies the cells of a column.

The marks of a file are its delimiter, its quote and what begins a line of comment, one byte each; `NO_MARK` stands
for a quote or a comment that the file does not have.

As in most readers, text after a closing quote belongs to the cell, and a quote within an unquoted cell is a
character like any other. A line ends with CR, LF or both.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from lsm_fragment.native.words cimport LANE, WINDOW, bytes_like, copy_lanes, lowest_bit, places_of

cdef enum:
    NO_MARK = -1
    CR = 13
    LF = 10
    # A row of another width becomes Python objects of some 300 bytes, and a block may have millions.
    MAX_ODD = 65536

cdef enum Form:
    PLAIN = 0
    QUOTED = 1  # the span lies between the quotes
    FOLDED = 2  # the span begins after the opening quote; quotes in it are doubled, or text follows them

cdef struct Marks:
    uint8_t delimiter
    int quote
    int comment

cdef struct Cell:
    int64_t start
    int64_t stop
    int64_t after  # position of the delimiter or line end that follows
    Form form
    bint is_whole  # False if the data may end within the cell


cdef struct Row:
    int64_t cells
    int64_t after  # position of the next row
    bint is_whole


cdef inline bint ends_cell(uint8_t byte, uint8_t delimiter) noexcept nogil:
    return byte == delimiter or byte == LF or byte == CR


cdef inline int64_t unquoted_end(const uint8_t* data, int64_t at, int64_t size, uint8_t delimiter) noexcept nogil:
    cdef uint64_t word, found
    while at + 8 <= size:
        memcpy(&word, data + at, 8)
        found = bytes_like(word, delimiter) | bytes_like(word, LF) | bytes_like(word, CR)
        if found:
            return at + (lowest_bit(found) >> 3)
        at += 8
    while at < size and not ends_cell(data[at], delimiter):
        at += 1
    return at


cdef inline int64_t single_quote(
    const uint8_t* data, int64_t at, int64_t size, uint8_t quote, Form* form
) noexcept nogil:
    """Returns the place of the next quote that is not doubled, or `size`. Notes doubled ones as `FOLDED`.

    Finds the quotes of a whole window at once, because they may be a few bytes apart, as in cells of JSON.
    """
    cdef uint64_t found, first
    while at + WINDOW <= size:
        found = places_of(data + at, quote)
        while found:
            first = found & -found
            if not found & (first << 1):
                if not first >> (WINDOW - 1):
                    return at + lowest_bit(first)
                at -= 1  # the next window tells whether it is doubled
                break
            form[0] = FOLDED
            found ^= first | (first << 1)
        at += WINDOW
    while at < size:
        if data[at] == quote:
            if at + 1 == size or data[at + 1] != quote:
                return at
            form[0] = FOLDED
            at += 1
        at += 1
    return size


cdef Cell quoted_cell(
    const uint8_t* data, int64_t start, int64_t size, bint is_last, Marks marks
) noexcept nogil:
    """Returns the cell whose opening quote is before `start`. is_last: the data is complete."""
    cdef Cell cell
    cdef int64_t at
    cell.start, cell.form, cell.is_whole = start, QUOTED, False
    at = single_quote(data, start, size, marks.quote, &cell.form) + 1
    if at > size or at == size and not is_last:
        return cell
    if at < size and not ends_cell(data[at], marks.delimiter):
        cell.form = FOLDED
    cell.after = unquoted_end(data, at, size, marks.delimiter)
    cell.stop = cell.after if cell.form == FOLDED else at - 1
    cell.is_whole = cell.after < size or is_last
    return cell


cdef Cell plain_cell(
    const uint8_t* data, int64_t start, int64_t size, bint is_last, uint8_t delimiter
) noexcept nogil:
    cdef Cell cell
    cell.start, cell.form = start, PLAIN
    cell.stop = cell.after = unquoted_end(data, start, size, delimiter)
    cell.is_whole = cell.after < size or is_last
    return cell


cdef Row one_row(
    const uint8_t* data, int64_t at, int64_t size, bint is_last,
    int32_t* starts, int32_t* stops, uint8_t* forms, int64_t columns, Marks marks,
) noexcept nogil:
    """Splits the row at `at`, and records its first `columns` cells."""
    cdef Row row
    cdef Cell cell
    row.cells = 0
    while True:
        if at < size and data[at] == marks.quote:
            cell = quoted_cell(data, at + 1, size, is_last, marks)
        else:
            cell = plain_cell(data, at, size, is_last, marks.delimiter)
        row.is_whole = cell.is_whole
        if not row.is_whole:
            return row
        if row.cells < columns:
            starts[row.cells], stops[row.cells] = <int32_t>cell.start, <int32_t>cell.stop
            forms[row.cells] = cell.form
        row.cells += 1
        at = cell.after
        if at == size or data[at] != marks.delimiter:
            break
        at += 1
    if at < size and data[at] == CR:
        if at + 1 == size and not is_last:
            row.is_whole = False  # a line feed may follow
        at += 1
        if at < size and data[at] == LF:
            at += 1
    elif at < size:
        at += 1
    row.after = at
    return row


cdef int64_t max_cells(const uint8_t* data, int64_t size, uint8_t delimiter) noexcept nogil:
    cdef int64_t place, start = 0, stop, found = 1
    cdef uint8_t few, byte
    while start < size:
        # As many as a byte can count, and without branches, so that the compiler counts many bytes at once.
        few, stop = 0, min(start + 255, size)
        for place in range(start, stop):
            byte = data[place]
            few += (byte == delimiter) | (byte == LF) | (byte == CR)
        found += few
        start = stop
    return found


cdef inline int64_t line_end(const uint8_t* data, int64_t at, int64_t size) noexcept nogil:
    while at < size and data[at] != LF and data[at] != CR:
        at += 1
    return at


def cut(
    const uint8_t[::1] data, int64_t columns, bint takes_blank, bint is_last, int64_t max_bytes,
    tuple marks=(44, 34, NO_MARK),
):
    """Splits data into rows of `columns` cells, up to a row of more than `max_bytes`, or until many have other widths.

    takes_blank: whether a blank line is a row; otherwise it is skipped. is_last: whether the data is complete; if
    not, the last row, which may continue, is left out. `data` has at most 2 GiB. marks: delimiter, quote and comment.

    Returns the starts, stops and forms of the cells, row by row; a list of the rows of other widths, each with its
    number, cells, start and stop; the number of all rows; the position of the first row left out; whether that
    row exceeds `max_bytes`; and whether the cut ended early, because of rows of other widths.
    """
    cdef int64_t size = data.shape[0], at = 0, end, rows = 0, good = 0, odd_rows = 0
    cdef const uint8_t* bytes_ = &data[0] if size else NULL
    cdef Marks by = Marks(marks[0], marks[1], marks[2])
    cdef int64_t most = max_cells(bytes_, size, by.delimiter) // columns * columns + columns
    cdef int32_t[::1] starts = np.empty(most, np.int32), stops = np.empty(most, np.int32)
    cdef uint8_t[::1] forms = np.empty(most, np.uint8)
    cdef Row row
    cdef bint is_long = False
    odd = []
    with nogil:
        while at < size and odd_rows < MAX_ODD:
            if not takes_blank and (data[at] == LF or data[at] == CR):
                at += 1
                continue
            if data[at] == by.comment:
                end = line_end(bytes_, at, size)
                if not is_last and (end == size or end + 1 == size and data[end] == CR):
                    is_long = end - at > max_bytes
                    break
                at = min(end + 1 + (end + 1 < size and data[end] == CR and data[end + 1] == LF), size)
                continue
            row = one_row(
                bytes_, at, size, is_last,
                &starts[good * columns], &stops[good * columns], &forms[good * columns], columns, by,
            )
            if (row.after if row.is_whole else size) - at > max_bytes:
                is_long = True
                break
            if not row.is_whole:
                break
            if row.cells == columns:
                good += 1
            else:
                odd_rows += 1
                with gil:
                    odd.append((rows, row.cells, at, row.after))
            rows += 1
            at = row.after
    cells = good * columns
    found = (np.asarray(starts)[:cells], np.asarray(stops)[:cells], np.asarray(forms)[:cells])
    return (*found, odd, rows, at, is_long, odd_rows == MAX_ODD)


cdef int64_t unfold(const uint8_t* data, int64_t at, int64_t stop, uint8_t* into, uint8_t quote) noexcept nogil:
    """Copies a quoted cell without its quotes, doubled ones as one. Returns the length.

    Writes no more bytes than the cell has.
    """
    cdef int64_t length = 0, start, place, first
    cdef uint64_t found
    while at + WINDOW + LANE <= stop:
        start = at
        found = places_of(data + at, quote)
        if not found:
            memcpy(into + length, data + at, WINDOW)
            at += WINDOW
            length += WINDOW
        while found:
            first = lowest_bit(found)
            place = start + first
            if data[place + 1] != quote:
                break  # below, since it closes the quoted part
            copy_lanes(data + at, place + 1 - at, into + length)
            length += place + 1 - at
            at = place + 2
            found &= ~(<uint64_t>3 << first)
        if found:
            break
    while at < stop:
        if data[at] == quote:
            at += 1  # the second of a pair is text, another quote closes the quoted part
            if at == stop or data[at] != quote:
                memcpy(into + length, data + at, stop - at)
                return length + stop - at
        into[length] = data[at]
        at += 1
        length += 1
    return length


def column(
    const uint8_t[::1] data,
    const int32_t[::1] starts,
    const int32_t[::1] stops,
    const uint8_t[::1] forms,
    int64_t place,
    int64_t columns,
    int quote=34,
):
    """Returns offsets and bytes of the cells of the column at `place`, and whether each is a value: an empty
    unquoted cell is not."""
    cdef int64_t rows = starts.shape[0] // columns, row, cell, total = 0, size, length
    for row in range(rows):
        total += stops[place + row * columns] - starts[place + row * columns]
    cdef int32_t[::1] offsets = np.empty(rows + 1, np.int32)
    cdef uint8_t[::1] text = np.empty(max(total, 1), np.uint8), is_value = np.empty(rows, np.uint8)
    size = 0
    with nogil:
        for row in range(rows):
            cell = place + row * columns
            offsets[row] = <int32_t>size
            length = stops[cell] - starts[cell]
            is_value[row] = length > 0 or forms[cell] != PLAIN
            if forms[cell] == FOLDED:
                length = unfold(&data[0], starts[cell], stops[cell], &text[size], quote)
            elif length:
                memcpy(&text[size], &data[starts[cell]], length)
            size += length
        offsets[rows] = <int32_t>size
    return np.asarray(offsets), np.asarray(text)[:size], np.asarray(is_value)
