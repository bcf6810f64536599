# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Builds normalised keys: bytes of each row's sort columns that compare as the rows do (SPEC section 6).

A column contributes a byte that places nulls (0 or 2 for a null, 1 for a value), and then the value. Numbers are
big-endian with the sign flipped, floats as doubles. Strings have each 0 as 0 255, and 0 0 at their end. For descending
columns the value's bytes are inverted. A null number is followed by as many zeros as a value has bytes. So keys of only
numbers have one width, and no key is a proper prefix of another.

Columns are rows of a table of 64-bit integers with the layout of `Column`; addresses must stay valid. Keys are in
`data` at `offsets`, which is empty if all keys have the same width.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

from lsm_fragment.native.keys.key_bytes cimport Key, difference, prefix_of, word_at
from lsm_fragment.native.words cimport reversed_bytes

cdef enum:
    NOTHING = 0
    SIGNED = 1
    UNSIGNED = 2
    FLOAT = 3
    BOOL = 4
    BYTES = 5
    STRING = 6
    IS_VALUE = 1
    SMALL = 16
    SLACK = 16
    BAD_CODE = 2
    MAX_DICTIONARY_BYTES = 1 << 16

cdef struct Column:
    int64_t kind
    # Bytes of a stored value, and of a value in a key; 0 for strings.
    int64_t width
    int64_t key_width
    int64_t is_descending
    int64_t null_byte
    int64_t offset_width
    const uint8_t* validity
    int64_t validity_start
    const uint8_t* values
    int64_t first_bit
    const uint8_t* offsets
    const int32_t* codes
    int64_t dictionary_size


cdef struct Part:
    # One column's contribution to keys. A small dictionary's contributions are computed once per value, into `bytes` at
    # `places`.
    Column column
    uint8_t* bytes
    int64_t* places


cdef class Parts:
    """The columns of keys. Their arrays must stay in memory."""

    cdef Part* parts
    cdef int64_t count
    cdef int64_t width

    def __cinit__(self, const int64_t[:, ::1] columns, int64_t rows):
        """rows: the approximate number of keys to build."""
        cdef const Column* column
        cdef int64_t index
        if columns.shape[1] * 8 != sizeof(Column):
            raise ValueError("a column has another number of fields")
        self.count = columns.shape[0]
        self.parts = <Part*>calloc(self.count, sizeof(Part))
        if self.parts == NULL:
            raise MemoryError()
        for index in range(self.count):
            column = <const Column*>&columns[index, 0]
            self.parts[index].column = column[0]
            self.width += 1 + column.key_width
            if column.kind == STRING and column.codes != NULL:
                make_dictionary(self.parts + index, rows)

    def __dealloc__(self):
        for index in range(self.count):
            free(self.parts[index].bytes)
            free(self.parts[index].places)
        free(self.parts)

    def lengths(self, int64_t start, int64_t max_bytes, int64_t[::1] offsets):
        """Fills `offsets` for the keys of rows from `start` on, up to `max_bytes`.

        Returns the number of rows, at least 1. Raises `ValueError` for a code beyond its dictionary.
        """
        cdef int64_t rows = offsets.shape[0] - 1, row = 0, total = 0, index, value, size
        cdef const Part* part
        cdef bint is_good = True
        with nogil:
            offsets[0] = 0
            while row < rows:
                size = self.width
                for index in range(self.count):
                    part = self.parts + index
                    if part.column.kind == STRING and is_valid(&part.column, start + row):
                        value = value_of(&part.column, start + row)
                        if value < 0:
                            is_good = False
                            break
                        size += string_length(part, value) - 1
                if not is_good or (row and total + size > max_bytes):
                    break
                total += size
                row += 1
                offsets[row] = total
        if not is_good:
            raise ValueError("a code is beyond its dictionary")
        return row

    def write(self, int64_t start, const int64_t[::1] offsets, int64_t rows, uint8_t[::1] out):
        """Writes the keys of rows from `start` on.

        offsets: of the keys in `out`; empty if all have the same width. out: has `SLACK` bytes more than the keys.
        Raises `ValueError` for a code beyond its dictionary.
        """
        cdef int64_t row, index, value
        cdef const Part* part
        cdef uint8_t* at
        cdef bint is_good = True
        with nogil:
            for row in range(rows):
                at = &out[0] + (offsets[row] if offsets.shape[0] else row * self.width)
                for index in range(self.count):
                    part = self.parts + index
                    if not is_valid(&part.column, start + row):
                        at[0] = <uint8_t>part.column.null_byte
                        memset(at + 1, 0, part.column.key_width)
                        at += 1 + part.column.key_width
                        continue
                    value = value_of(&part.column, start + row)
                    if value < 0:
                        is_good = False
                        break
                    if part.places != NULL:
                        at = copy_string(part, value, at)
                    elif part.column.kind == STRING:
                        at = write_string(&part.column, value, at)
                    else:
                        at = write_number(&part.column, value, at)
                if not is_good:
                    break
        if not is_good:
            raise ValueError("a code is beyond its dictionary")


    def first_disorder(self, int64_t rows):
        """Returns the first row that comes before its predecessor; -1 if there is none.

        Raises `ValueError` for a code beyond its dictionary.
        """
        cdef int64_t row, index, sign = 0, found = -1
        with nogil:
            for row in range(1, rows):
                for index in range(self.count):
                    sign = compared(&self.parts[index].column, row - 1, row)
                    if sign:
                        break
                if sign > 0:
                    found = row
                    break
        if sign == BAD_CODE:
            raise ValueError("a code is beyond its dictionary")
        return found


cdef inline int64_t compared(const Column* column, int64_t a, int64_t b) noexcept nogil:
    """Compares rows `a` and `b` in one column: -1, 0 or 1; `BAD_CODE` for a code beyond the dictionary."""
    cdef bint has_a = is_valid(column, a), has_b = is_valid(column, b)
    cdef int64_t sign
    if not (has_a and has_b):
        if has_a == has_b:
            return 0
        return 1 if has_a == (column.null_byte < IS_VALUE) else -1
    a = value_of(column, a)
    b = value_of(column, b)
    if a < 0 or b < 0:
        return BAD_CODE
    if a == b:
        return 0
    if column.kind == STRING:
        sign = compared_strings(column, a, b)
    elif column.kind == BYTES:
        sign = sign_of(memcmp(column.values + a * column.width, column.values + b * column.width, column.width))
    elif column.width > 8:
        sign = compared_wide(column, a, b)
    else:
        sign = (ordered(column, a) > ordered(column, b)) - (ordered(column, a) < ordered(column, b))
    return -sign if column.is_descending else sign


cdef inline int64_t compared_strings(const Column* column, int64_t a, int64_t b) noexcept nogil:
    cdef int64_t length_a, length_b, shared, sign = 0
    cdef const uint8_t* at = string_at(column, a, &length_a)
    cdef const uint8_t* other = string_at(column, b, &length_b)
    shared = min(length_a, length_b)
    if shared:
        sign = memcmp(at, other, shared)
    return sign_of(sign if sign else length_a - length_b)


cdef inline int64_t sign_of(int64_t number) noexcept nogil:
    return (number > 0) - (number < 0)


cdef inline int64_t compared_wide(const Column* column, int64_t a, int64_t b) noexcept nogil:
    cdef const uint64_t* x = <const uint64_t*>(column.values + a * column.width)
    cdef const uint64_t* y = <const uint64_t*>(column.values + b * column.width)
    cdef int64_t word = column.width // 8 - 1
    if x[word] != y[word]:
        return 1 if <int64_t>x[word] > <int64_t>y[word] else -1
    for word in range(word - 1, -1, -1):
        if x[word] != y[word]:
            return 1 if x[word] > y[word] else -1
    return 0


cdef int make_dictionary(Part* part, int64_t rows) except -1:
    """Precomputes the contributions of a dictionary's values, if they are few compared with the rows."""
    cdef int64_t size = part.column.dictionary_size, value, length, total = 0
    cdef uint8_t* at
    if size > rows // 2:
        return 0
    for value in range(size):
        string_at(&part.column, value, &length)
        total += length
        if total > MAX_DICTIONARY_BYTES:
            return 0
    part.places = <int64_t*>malloc((size + 1) * sizeof(int64_t))
    part.bytes = <uint8_t*>malloc(2 * total + 3 * size + SLACK)
    if part.places == NULL or part.bytes == NULL:
        raise MemoryError()
    at = part.bytes
    for value in range(size):
        part.places[value] = at - part.bytes
        at = write_string(&part.column, value, at)
    part.places[size] = at - part.bytes
    memset(at, 0, SLACK)
    return 0


cdef inline bint is_valid(const Column* column, int64_t row) noexcept nogil:
    if column.validity == NULL:
        return column.kind != NOTHING
    row += column.validity_start
    return (column.validity[row >> 3] >> (row & 7)) & 1


cdef inline int64_t value_of(const Column* column, int64_t row) noexcept nogil:
    """Returns the index of a row's value; -1 if its code is beyond the dictionary."""
    cdef int64_t code
    if column.codes == NULL:
        return row
    code = column.codes[row]
    return code if 0 <= code < column.dictionary_size else -1


cdef inline const uint8_t* string_at(const Column* column, int64_t value, int64_t* length) noexcept nogil:
    cdef int64_t start, end
    if column.offset_width == 4:
        start = (<const int32_t*>column.offsets)[value]
        end = (<const int32_t*>column.offsets)[value + 1]
    else:
        start = (<const int64_t*>column.offsets)[value]
        end = (<const int64_t*>column.offsets)[value + 1]
    length[0] = end - start
    return column.values + start


cdef inline int64_t string_length(const Part* part, int64_t value) noexcept nogil:
    """Returns the bytes that a string takes in a key."""
    cdef int64_t length, size
    cdef const uint8_t* at
    cdef const uint8_t* end
    if part.places != NULL:
        return part.places[value + 1] - part.places[value]
    at = string_at(&part.column, value, &length)
    end = at + length
    size = length + 3
    while at < end:
        at = <const uint8_t*>memchr(at, 0, end - at)
        if at == NULL:
            break
        size += 1
        at += 1
    return size


cdef inline uint8_t* copy_string(const Part* part, int64_t value, uint8_t* out) noexcept nogil:
    """Copies the contribution of a small dictionary's value, `SLACK` bytes at a time. Returns the end."""
    cdef const uint8_t* at = part.bytes + part.places[value]
    cdef uint8_t* end = out + (part.places[value + 1] - part.places[value])
    while out < end:
        memcpy(out, at, SLACK)
        out += SLACK
        at += SLACK
    return end


cdef inline uint8_t* write_string(const Column* column, int64_t value, uint8_t* out) noexcept nogil:
    """Writes the contribution of a string. Returns the end."""
    cdef int64_t length, size
    cdef const uint8_t* at = string_at(column, value, &length)
    cdef const uint8_t* zero
    cdef uint8_t* began = out + 1
    out[0] = IS_VALUE
    out += 1
    while True:
        zero = <const uint8_t*>memchr(at, 0, length) if length else NULL
        size = length if zero == NULL else zero + 1 - at
        if size:
            memcpy(out, at, size)
        out += size
        at += size
        length -= size
        if zero == NULL:
            break
        out[0] = 0xFF
        out += 1
    out[0] = out[1] = 0
    out += 2
    if column.is_descending:
        while began < out:
            began[0] = ~began[0]
            began += 1
    return out


cdef inline uint8_t* write_number(const Column* column, int64_t value, uint8_t* out) noexcept nogil:
    """Writes the contribution of a fixed-width value. Returns the end."""
    cdef int64_t width = column.key_width
    cdef uint64_t word, flip = ~<uint64_t>0 if column.is_descending else 0
    out[0] = IS_VALUE
    out += 1
    if width > 8 or column.kind == BYTES:
        write_wide(column, column.values + value * width, flip, out)
        return out + width
    word = reversed_bytes((ordered(column, value) ^ flip) << (64 - 8 * width))
    if width == 8:
        memcpy(out, &word, 8)
    elif width == 4:
        memcpy(out, &word, 4)
    elif width == 2:
        memcpy(out, &word, 2)
    else:
        memcpy(out, &word, 1)
    return out + width


cdef inline uint64_t ordered(const Column* column, int64_t value) noexcept nogil:
    """Returns a number of up to eight bytes as an unsigned integer of the same order, in the lowest bytes."""
    cdef uint64_t word
    cdef const uint8_t* at = column.values + value * column.width
    if column.kind == BOOL:
        value += column.first_bit
        return (column.values[value >> 3] >> (value & 7)) & 1
    if column.kind == FLOAT:
        return ordered_float((<const float*>at)[0] if column.width == 4 else (<const double*>at)[0])
    if column.width == 8:
        word = (<const uint64_t*>at)[0]
    elif column.width == 4:
        word = (<const uint32_t*>at)[0]
    elif column.width == 2:
        word = (<const uint16_t*>at)[0]
    else:
        word = at[0]
    return word ^ (<uint64_t>1 << (8 * column.width - 1)) if column.kind == SIGNED else word


cdef inline uint64_t ordered_float(double value) noexcept nogil:
    """Returns a float as an unsigned integer of the same order: zeros are equal, NaN is the greatest."""
    cdef uint64_t bits
    if value != value:
        return ~<uint64_t>0
    value += 0.0  # -0.0 becomes 0.0
    memcpy(&bits, &value, 8)
    return ~bits if bits >> 63 else bits | (<uint64_t>1 << 63)


cdef inline void write_wide(const Column* column, const uint8_t* at, uint64_t flip, uint8_t* out) noexcept nogil:
    """Writes bytes unchanged, or a decimal of several words from its highest byte on."""
    cdef int64_t place, width = column.width
    cdef uint64_t word
    if column.kind == BYTES:
        for place in range(width):
            out[place] = at[place] ^ <uint8_t>flip
        return
    for place in range(0, width, 8):
        memcpy(&word, at + width - 8 - place, 8)
        if place == 0:
            word ^= <uint64_t>1 << 63
        word = reversed_bytes(word ^ flip)
        memcpy(out + place, &word, 8)


def prefix_length(const uint8_t[::1] key, const int64_t[::1] widths, const uint8_t[::1] flips):
    """Returns the bytes that the first columns take in a key; see `prefix_of`."""
    cdef Key whole
    whole.at = &key[0]
    whole.length = key.shape[0]
    return prefix_of(&whole, &widths[0], &flips[0], widths.shape[0])


cdef struct Keys:
    const uint8_t* data
    const int64_t* offsets
    int64_t width


cdef Keys keys_at(const uint8_t[::1] data, const int64_t[::1] offsets, int64_t width) noexcept:
    cdef Keys keys
    keys.data = &data[0] if data.shape[0] else NULL
    keys.offsets = &offsets[0] if offsets.shape[0] else NULL
    keys.width = width
    return keys


cdef inline Key key_of(const Keys* keys, int64_t row) noexcept nogil:
    cdef Key key
    if keys.offsets != NULL:
        key.at = keys.data + keys.offsets[row]
        key.length = keys.offsets[row + 1] - keys.offsets[row]
    else:
        key.at = keys.data + row * keys.width
        key.length = keys.width
    return key


def repeats(
    const uint8_t[::1] data, const int64_t[::1] offsets, int64_t width, const int64_t[::1] order, uint8_t[::1] out
):
    """Finds for each row, in a given order, whether its key equals that of the row before."""
    cdef int64_t row
    cdef Key last, key
    cdef Keys keys = keys_at(data, offsets, width)
    if not out.shape[0]:
        return
    with nogil:
        last = key_of(&keys, order[0])
        out[0] = False
        for row in range(1, out.shape[0]):
            key = key_of(&keys, order[row])
            out[row] = key.length == last.length and difference(&last, &key, 0) < 0
            last = key


cdef struct Item:
    uint64_t word
    int64_t row


cdef struct Stretch:
    int64_t start
    int64_t stop
    int64_t place


def sort(const uint8_t[::1] data, const int64_t[::1] offsets, int64_t width, int64_t[::1] order):
    """Fills `order` with the rows in the order of their keys; equal keys keep their order.

    Radix sort by eight bytes at a time, behind the common prefix; keys equal in them are sorted by the next eight.
    """
    cdef int64_t rows = order.shape[0], row, waiting = 0
    cdef Item* items = <Item*>malloc(2 * rows * sizeof(Item))
    cdef Stretch* stretches = <Stretch*>malloc((rows // SMALL + 1) * sizeof(Stretch))
    cdef Stretch stretch
    cdef Keys keys = keys_at(data, offsets, width)
    if items == NULL or stretches == NULL:
        free(items)
        free(stretches)
        raise MemoryError()
    with nogil:
        for row in range(rows):
            items[row].row = row
        stretch.start, stretch.stop, stretch.place = 0, rows, 0
        while True:
            waiting = sort_stretch(&keys, items, items + rows, &stretch, stretches, waiting)
            if waiting == 0:
                break
            waiting -= 1
            stretch = stretches[waiting]
        for row in range(rows):
            order[row] = items[row].row
    free(items)
    free(stretches)


cdef int64_t sort_stretch(
    const Keys* keys, Item* items, Item* others,
    const Stretch* stretch, Stretch* stretches, int64_t waiting,
) noexcept nogil:
    """Sorts rows whose keys are equal up to a position. Returns the number of stretches left to sort."""
    cdef int64_t start = stretch.start, stop = stretch.stop, place = stretch.place, row
    cdef Key key
    if stop - start <= SMALL:
        insert(keys, items + start, stop - start, place)
        return waiting
    if not load_words(keys, items + start, stop - start, place):
        place = common(keys, items + start, stop - start, place + 8)
        if place < 0:
            return waiting
        load_words(keys, items + start, stop - start, place)
    radix(items + start, others + start, stop - start)
    while start < stop:
        row = start + 1
        while row < stop and items[row].word == items[start].word:
            row += 1
        if row - start > SMALL:
            key = key_of(keys, items[start].row)
            if key.length > place + 8:
                stretches[waiting].start = start
                stretches[waiting].stop = row
                stretches[waiting].place = place + 8
                waiting += 1
        elif row - start > 1:
            insert(keys, items + start, row - start, place + 8)
        start = row
    return waiting


cdef bint load_words(const Keys* keys, Item* items, int64_t count, int64_t place) noexcept nogil:
    """Loads the eight bytes of each key from `place` on. Returns whether any differ."""
    cdef int64_t row
    cdef uint64_t varies = 0
    cdef Key key
    for row in range(count):
        key = key_of(keys, items[row].row)
        items[row].word = word_at(&key, place)
        varies |= items[row].word ^ items[0].word
    return varies != 0


cdef int64_t common(
    const Keys* keys, const Item* items, int64_t count, int64_t place
) noexcept nogil:
    """Returns the first position, from `place` on, where keys differ; -1 if all are equal."""
    cdef Key first = key_of(keys, items[0].row), key
    cdef int64_t row, at, least = -1
    for row in range(1, count):
        key = key_of(keys, items[row].row)
        at = difference(&first, &key, place)
        if at >= 0 and (least < 0 or at < least):
            least = at
            first.length = min(first.length, least + 1)
            if least == place:
                break
    return least


cdef void insert(
    const Keys* keys, Item* items, int64_t count, int64_t place
) noexcept nogil:
    """Insertion sort of a few rows whose keys are equal up to `place`."""
    cdef int64_t row, at, found
    cdef Item item
    cdef Key key, other
    for row in range(1, count):
        item = items[row]
        key = key_of(keys, item.row)
        at = row
        while at > 0:
            other = key_of(keys, items[at - 1].row)
            found = difference(&other, &key, place)
            if found < 0 or word_at(&other, found) < word_at(&key, found):
                break
            items[at] = items[at - 1]
            at -= 1
        items[at] = item


cdef void radix(Item* items, Item* others, int64_t count) noexcept nogil:
    """Radix sort of items by their words, from the lowest byte on; skips bytes that do not vary."""
    cdef int64_t counts[256]
    cdef int64_t row, byte, at, size
    cdef uint64_t varies = 0
    cdef bint is_sorted = True
    cdef Item* source = items
    cdef Item* target = others
    for row in range(1, count):
        varies |= items[row].word ^ items[0].word
        is_sorted = is_sorted and items[row - 1].word <= items[row].word
    if is_sorted:
        return
    for byte in range(0, 64, 8):
        if not (varies >> byte) & 0xFF:
            continue
        memset(counts, 0, sizeof(counts))
        for row in range(count):
            counts[(source[row].word >> byte) & 0xFF] += 1
        at = 0
        for row in range(256):
            size = counts[row]
            counts[row] = at
            at += size
        for row in range(count):
            at = (source[row].word >> byte) & 0xFF
            target[counts[at]] = source[row]
            counts[at] += 1
        source, target = target, source
    if source != items:
        memcpy(items, source, count * sizeof(Item))
