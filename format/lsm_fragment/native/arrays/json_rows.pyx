# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Parses lines of JSON objects to columns, and remembers the kinds of values of each field from block to block.

A **node** is a field, or the items of a list; node 0 is the line itself. A node has one **slot** per object or item of
its parent. A slot has a kind and eight bytes: a number, the span of a text, or the end of a list's items. A node's
**traits** are what its values were so far; a value that no type holds together with them is a mistake in its line. Each
trait remembers its first line, so that a line can be undone. Fields of lines that are not wanted have nodes, by which a
field given twice is found, and nulls for values.
"""

import numpy as np

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.math cimport ldexp
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from lsm_fragment.native.words cimport LANE, WINDOW, bytes_like, copy_lanes, lowest_bit, places_below, places_of

cdef extern from *:
    """
    #define leading_zeros(bits) __builtin_clzll(bits)
    static inline uint64_t quotient_of(uint64_t bits, uint64_t divisor, int* is_more) {
        unsigned __int128 wide = (unsigned __int128)bits << 62;
        *is_more = wide % divisor != 0;
        return (uint64_t)(wide / divisor);
    }
    """
    int leading_zeros(uint64_t bits) noexcept nogil
    uint64_t quotient_of(uint64_t bits, uint64_t divisor, int* is_more) noexcept nogil

cdef enum:
    TRAITS = 9
    MAX_DIGITS = 17  # identify every double
    MAX_POWER = 27  # the largest power of five in 64 bits
    MAX_PLAIN = 17  # bytes of a number whose digits fit 64 bits, whatever they are

cpdef enum Kind:
    NULL_ = 0
    BOOL = 1
    INT = 2
    UINT = 3  # an integer above int64
    DOUBLE = 4
    NUMBER = 5  # the span of a number that the caller reads
    TEXT = 6
    ESCAPED = 7  # the span of a text with escapes
    LIST = 8
    OBJECT = 9
    JSON = 10  # the span of a value that stays JSON

cpdef enum Trait:
    IS_NEGATIVE = 1
    IS_INEXACT = 2  # an integer that is not exact as a double
    IS_BOOL = 4
    IS_INT = 8
    IS_UINT = 16
    IS_DOUBLE = 32
    IS_TEXT = 64
    IS_LIST = 128
    IS_OBJECT = 256
    ARE_NUMBERS = 1 | 2 | 8 | 16 | 32

cpdef enum Problem:
    NONE = 0
    SYNTAX = 1
    NOT_OBJECT = 2
    TWICE = 3
    CONFLICT = 4
    ROUNDED = 5
    NESTED = 6
    COLUMNS = 7
    VALUES = 8
    FOREIGN = 9
    MEMORY = 10

cpdef enum Form:
    INFERRED = 0
    GIVEN = 1  # an object takes no other fields than those declared
    DECIMAL = 2  # numbers stay text
    AS_JSON = 3
    PASSED = 4  # values are checked for their syntax, and forgotten
    AS_TEXT = 5  # texts are texts, and other values stay JSON

ctypedef const uint8_t* Bytes

cdef struct Node:
    int32_t parent
    bint is_item
    Form form
    uint32_t allowed  # traits
    uint32_t traits
    int64_t first[TRAITS]  # lines
    int64_t created  # line
    uint8_t* name
    int64_t name_length
    bint is_verbatim  # the name needs no escapes
    int32_t child
    int32_t last_child
    int32_t next
    int32_t expected  # the child that followed this one last
    int64_t length
    int64_t filled  # the length with the missing values
    int64_t capacity
    uint8_t* kinds
    int64_t* values

cdef const char* INITY = b"inity"
cdef uint64_t TENTH = 0x1999999999999999  # of the largest integer
cdef uint64_t HASH_PRIME = 0x100000001B3
cdef uint64_t FIVES[MAX_POWER + 1]
cdef int _power
FIVES[0] = 1
for _power in range(MAX_POWER):
    FIVES[_power + 1] = FIVES[_power] * 5

cdef uint8_t ESCAPES[256]
memset(ESCAPES, 0, 256)
for _byte, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t'):
    ESCAPES[_byte] = _meaning


cdef inline Bytes blanks(Bytes p) noexcept nogil:
    while p[0] == 32 or p[0] == 9 or p[0] == 13:
        p += 1
    return p


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return byte - 48 < 10 and byte >= 48


cdef inline uint64_t ends_of_run(uint64_t word) noexcept nogil:
    """Returns a word whose lowest bit is in the first of eight bytes that is a quote, a backslash or a control
    character; zero without one."""
    cdef uint64_t ones = 0x0101010101010101
    return bytes_like(word, 34) | bytes_like(word, 92) | ((word - ones * 32) & ~word & (ones << 7))


cdef Bytes window_end(Bytes p, Bytes end) noexcept nogil:
    """Passes the simple escapes of a text, a window at a time, because they may be a few bytes apart.

    Returns the place of the closing quote, of another escape, of a control character, or near the end of the data.
    """
    cdef Bytes start
    cdef Bytes place
    cdef uint64_t found
    while p + WINDOW < end:
        start = p
        found = places_of(p, 34) | places_of(p, 92) | places_below(p, 32)
        while found:
            place = start + lowest_bit(found)
            if place[0] != 92 or not ESCAPES[place[1]]:
                return place
            p = place + 2
            found &= ~(<uint64_t>3 << (place - start))
        if p < start + WINDOW:
            p = start + WINDOW
    return p


cdef inline Bytes text_end(Bytes p, Bytes end, bint* is_escaped) noexcept nogil:
    """Returns the closing quote of a text, or NULL. p: after the opening one."""
    cdef uint64_t word, found
    is_escaped[0] = False
    while True:
        while p + 8 <= end:
            memcpy(&word, p, 8)
            found = ends_of_run(word)
            if found:
                p += lowest_bit(found) >> 3
                break
            p += 8
        else:
            while p[0] >= 32 and p[0] != 34 and p[0] != 92:
                p += 1
        if p[0] == 34:
            return p
        if p[0] != 92:
            return NULL
        is_escaped[0] = True
        if p[1] == 117:  # u
            if code_unit(p + 2) < 0:
                return NULL
            if code_unit(p + 2) >> 10 == 0x37:  # the second half of a pair alone
                return NULL
            if code_unit(p + 2) >> 10 == 0x36:
                if p[6] != 92 or p[7] != 117 or code_unit(p + 8) >> 10 != 0x37:
                    return NULL
                p += 6
            p += 6
        elif ESCAPES[p[1]]:
            p = window_end(p + 2, end)
        else:
            return NULL


cdef bint needs_no_escapes(Bytes name, int64_t length) noexcept nogil:
    cdef int64_t at
    for at in range(length):
        if name[at] < 32 or name[at] == 34 or name[at] == 92:
            return False
    return True


cdef inline Bytes digits_end(Bytes p) noexcept nogil:
    """Returns the end of at least one digit, or NULL."""
    if not is_digit(p[0]):
        return NULL
    while is_digit(p[0]):
        p += 1
    return p


cdef Bytes number_end(Bytes p, Bytes end) noexcept nogil:
    """Returns the end of a number, or of what `JsonRows._odd` takes for one; NULL if there is none."""
    p += p[0] == 45
    if p[0] == 78 and p[1] == 97 and p[2] == 78:
        return p + 3
    if p[0] == 73 and p[1] == 110 and p[2] == 102:
        return p + (8 if end - p >= 8 and memcmp(p + 3, INITY, 5) == 0 else 3)
    if p[0] == 48 and is_digit(p[1]):
        return NULL
    p = digits_end(p)
    if p is not NULL and p[0] == 46:
        p = digits_end(p + 1)
    if p is not NULL and p[0] | 32 == 101:
        p += 1
        p = digits_end(p + (p[0] == 45 or p[0] == 43))
    return p


cdef inline int32_t code_unit(Bytes p) noexcept nogil:
    """Returns the value of four hexadecimal digits, or -1."""
    cdef int32_t value = 0
    cdef int place
    cdef uint8_t byte
    for place in range(4):
        byte = p[place]
        if is_digit(byte):
            value = value * 16 + byte - 48
        elif 97 <= (byte | 32) <= 102:
            value = value * 16 + (byte | 32) - 87
        else:
            return -1
    return value


cdef int64_t unescape(Bytes p, int64_t size, uint8_t* into) noexcept nogil:
    """Copies a sound text without its escapes. Returns the length.

    Writes no more bytes than the text has.
    """
    cdef Bytes end = p + size
    cdef Bytes start
    cdef Bytes place
    cdef uint8_t* at = into
    cdef uint64_t word, found
    cdef int64_t step
    cdef int32_t code
    while p < end:
        while p + WINDOW + LANE <= end:
            start = p
            found = places_of(p, 92)
            if not found:
                memcpy(at, p, WINDOW)
                p += WINDOW
                at += WINDOW
            while found:
                place = start + lowest_bit(found)
                copy_lanes(p, place - p, at)
                at += place - p
                p = place
                if p[1] == 117:
                    break
                at[0] = ESCAPES[p[1]]
                at += 1
                p += 2
                found &= ~(<uint64_t>3 << (place - start))
            if found:
                break
        if p + 8 <= end:
            memcpy(&word, p, 8)
            memcpy(at, &word, 8)
            found = bytes_like(word, 92)
            step = 8 if found == 0 else lowest_bit(found) >> 3
            p += step
            at += step
            if found == 0:
                continue
        if p[0] != 92:
            at[0] = p[0]
            at += 1
            p += 1
            continue
        if p[1] != 117:
            at[0] = ESCAPES[p[1]]
            at += 1
            p += 2
            continue
        code = code_unit(p + 2)
        p += 6
        if code >> 10 == 0x36:
            code = 0x10000 + ((code & 0x3FF) << 10) + (code_unit(p + 2) & 0x3FF)
            p += 6
        if code < 0x80:
            at[0] = <uint8_t>code
            at += 1
        elif code < 0x800:
            at[0] = <uint8_t>(0xC0 | code >> 6)
            at[1] = <uint8_t>(0x80 | code & 0x3F)
            at += 2
        elif code < 0x10000:
            at[0] = <uint8_t>(0xE0 | code >> 12)
            at[1] = <uint8_t>(0x80 | code >> 6 & 0x3F)
            at[2] = <uint8_t>(0x80 | code & 0x3F)
            at += 3
        else:
            at[0] = <uint8_t>(0xF0 | code >> 18)
            at[1] = <uint8_t>(0x80 | code >> 12 & 0x3F)
            at[2] = <uint8_t>(0x80 | code >> 6 & 0x3F)
            at[3] = <uint8_t>(0x80 | code & 0x3F)
            at += 4
    return at - into


cdef inline double rounded(uint64_t bits, bint is_more, int exponent) noexcept nogil:
    """Returns the double nearest to bits * 2**exponent, or to a little more. `bits` has 55 bits or more."""
    cdef int extra = 11 - leading_zeros(bits)
    cdef uint64_t half = <uint64_t>1 << (extra - 1), kept = bits >> extra, rest = bits & ((half << 1) - 1)
    if rest > half or (rest == half and (is_more or kept & 1)):
        kept += 1
    return ldexp(<double>kept, exponent + extra)


cdef inline bint to_double(uint64_t digits, int64_t power, double* value) noexcept nogil:
    """Sets the double nearest to digits * 10**power. Returns False if only a slower way can tell."""
    cdef uint64_t divisor, quotient
    cdef int up, down, is_more
    if digits == 0:
        value[0] = 0
        return True
    if power < -MAX_POWER or power > MAX_POWER:
        return False
    if digits <= <uint64_t>1 << 53 and -22 <= power <= 22:
        if power < 0:
            value[0] = <double>digits / (<double>FIVES[-power] * <double>(1 << -power))
        else:
            value[0] = <double>digits * (<double>FIVES[power] * <double>(1 << power))
        return True
    if power >= 0:
        return False
    divisor = FIVES[-power]
    up, down = leading_zeros(digits), leading_zeros(divisor)
    quotient = quotient_of(digits << up, divisor << down, &is_more)
    value[0] = rounded(quotient, is_more, <int>(power - up - 62 + down))
    return True


cdef class JsonRows:
    """The fields of a file, and the rows of a block."""

    cdef Node* nodes
    cdef int32_t* table  # nodes by hash of parent and name
    cdef int32_t count, max_nodes, max_depth
    cdef uint32_t slots_of_table
    cdef int64_t max_cells, line, objects
    cdef Bytes data
    cdef Bytes end
    cdef Bytes line_start
    cdef Problem problem
    cdef int32_t at_node
    cdef uint32_t new_traits
    cdef Bytes at
    cdef uint8_t* scratch
    cdef int64_t scratch_size
    cdef frozenset wanted, mixed
    cdef bint has_mixed

    def __cinit__(self, int32_t max_columns, int64_t max_cells, int32_t max_depth, wanted=None, mixed=()):
        """wanted: the fields of lines to make columns of; None for all. mixed: the `names` of inferred fields whose
        values of all kinds are text."""
        self.wanted = None if wanted is None else frozenset(name.encode() for name in wanted)
        self.mixed, self.has_mixed = frozenset(mixed), len(mixed) > 0
        self.max_nodes = max_columns + 1
        self.max_cells, self.max_depth = max_cells, max_depth
        self.nodes = <Node*>calloc(self.max_nodes, sizeof(Node))
        self.slots_of_table = 64
        while self.slots_of_table < 2 * <uint32_t>self.max_nodes:
            self.slots_of_table *= 2
        self.table = <int32_t*>calloc(self.slots_of_table, sizeof(int32_t))
        if self.nodes is NULL or self.table is NULL:
            raise MemoryError
        self.count = 1
        self.nodes[0].parent = -1
        self.nodes[0].allowed = IS_OBJECT
        self.nodes[0].created = -1
        self._childless(0)

    def __dealloc__(self):
        cdef int32_t node
        if self.nodes is not NULL:
            for node in range(self.max_nodes):
                free(self.nodes[node].name)
                free(self.nodes[node].kinds)
                free(self.nodes[node].values)
        free(self.nodes)
        free(self.table)
        free(self.scratch)

    # --- nodes -------------------------------------------------------------------------------------------

    cdef void _childless(self, int32_t node) noexcept nogil:
        self.nodes[node].child = self.nodes[node].last_child = -1
        self.nodes[node].next = self.nodes[node].expected = -1

    cdef uint32_t _place(self, int32_t parent, Bytes name, int64_t length) noexcept nogil:
        """Returns the place in the table of a node, or of none, which a node of the name may take."""
        cdef uint64_t code = <uint64_t>parent + 1
        cdef int64_t at
        cdef int32_t node
        for at in range(length):
            code = (code ^ name[at]) * HASH_PRIME
        code ^= code >> 29
        cdef uint32_t place = <uint32_t>code & (self.slots_of_table - 1)
        while self.table[place] != 0:
            node = self.table[place]
            if (
                self.nodes[node].parent == parent
                and self.nodes[node].name_length == length
                and memcmp(self.nodes[node].name, name, length) == 0
            ):
                break
            place = (place + 1) & (self.slots_of_table - 1)
        return place

    cdef int32_t _new(self, int32_t parent, Bytes name, int64_t length, bint is_item) noexcept nogil:
        """Returns a new node, or -1 if there are too many or is no memory."""
        cdef Node* node
        cdef int32_t place = self.count
        if self.count == self.max_nodes:
            self.problem = COLUMNS
            return -1
        node = &self.nodes[place]
        node.name = <uint8_t*>realloc(node.name, length + 1)
        if node.name is NULL:
            self.problem = MEMORY
            return -1
        memcpy(node.name, name, length)
        node.name_length = length
        node.is_verbatim = needs_no_escapes(name, length)
        node.parent, node.is_item, node.created = parent, is_item, self.line
        node.form, node.allowed, node.traits, node.length = INFERRED, (1 << TRAITS) - 1, 0, 0
        self._childless(place)
        self._link(place)
        self.count += 1
        return place

    cdef void _link(self, int32_t place) noexcept nogil:
        cdef Node* node = &self.nodes[place]
        cdef Node* parent = &self.nodes[node.parent]
        if parent.child < 0:
            parent.child = place
        else:
            self.nodes[parent.last_child].next = self.nodes[parent.last_child].expected = place
        parent.last_child = place
        if not node.is_item:
            self.table[self._place(node.parent, node.name, node.name_length)] = place

    def declare(self, int32_t parent, name, int form, uint32_t allowed, uint32_t traits):
        """Adds a node of a known type, and returns it. name: None for the items of a list. traits: of all its
        values, even before the first."""
        cdef bytes text = b"" if name is None else name.encode()
        cdef int32_t node = self._new(parent, text, len(text), name is None)
        if node < 0:
            raise MemoryError
        self.nodes[node].created = -1
        self.nodes[node].form, self.nodes[node].allowed = <Form>form, allowed
        self.nodes[node].traits = traits
        for place in range(TRAITS):
            self.nodes[node].first[place] = -1
        return node

    def children(self, int32_t node):
        """Returns the fields of an object with their names, or the items of a list."""
        found = []
        cdef int32_t child = self.nodes[node].child
        while child >= 0:
            found.append((child, self.nodes[child].name[:self.nodes[child].name_length].decode()))
            child = self.nodes[child].next
        return found

    def path(self, int32_t node):
        """Returns the name of a field, as in `a.b[].c`."""
        return "".join("[]" if name is None else "." + name for name in self.names(node))[1:]

    def names(self, int32_t node):
        """Returns the names of the fields around a field, the outermost first, and its own; None for items of a list.

        The node may be one of the line that had a mistake.
        """
        found = []
        while node > 0:
            is_item = self.nodes[node].is_item
            found.append(None if is_item else self.nodes[node].name[:self.nodes[node].name_length].decode())
            node = self.nodes[node].parent
        return tuple(reversed(found))

    def column_of(self, int32_t node):
        """Returns the node of the column that has the node."""
        while self.nodes[node].parent > 0:
            node = self.nodes[node].parent
        return node

    def traits(self, int32_t node):
        return self.nodes[node].traits

    # --- lines -------------------------------------------------------------------------------------------

    cdef void _clear(self) noexcept nogil:
        cdef int32_t node
        for node in range(self.count):
            self.nodes[node].length = 0
        self.objects = 0

    def clear(self):
        """Forgets the rows, and keeps the fields."""
        self._clear()

    def parse(self, bytes data, int64_t start):
        """Parses the lines from `start` on, after the rows that are there. Returns where it stopped: at the end, at
        a mistake (`mistake`), or because there are enough values."""
        cdef Bytes p
        self.data = data
        self.end = self.data + len(data)
        self.problem = NONE
        with nogil:
            p = self._lines(self.data + start)
        if self.problem == MEMORY:
            raise MemoryError
        return p - self.data

    cdef Bytes _lines(self, Bytes p) noexcept nogil:
        cdef int64_t row
        while True:
            p = blanks(p)
            if p >= self.end:
                return self.end
            if p[0] == 10:
                p += 1
                continue
            self.line_start = p
            self.line += 1
            row = self.nodes[0].length
            p = self._line(p, row)
            if p is not NULL and self.objects * self.count > self.max_cells and self._cells() > self.max_cells:
                self.problem = VALUES
                p = NULL
            if p is NULL:
                self._undo(self.line, row)
                if self.problem == VALUES and row > 0:
                    self.problem = NONE
                return self.line_start

    cdef Bytes _line(self, Bytes p, int64_t row) noexcept nogil:
        if p[0] != 123:
            self.at_node, self.at = 0, p
            self.problem = NOT_OBJECT
            return NULL
        if not self._room(0, row):
            return NULL
        self.nodes[0].kinds[row], self.nodes[0].values[row] = OBJECT, p - self.data
        self.nodes[0].length = row + 1
        self.objects += 1
        p = self._object(p + 1, 0, row, 0)
        if p is NULL:
            return NULL
        p = blanks(p)
        if p[0] == 10:
            return p + 1
        if p == self.end:
            return p
        return self._mistake(p, 0, SYNTAX)

    cdef int64_t _cells(self) noexcept nogil:
        """Returns the number of values, missing ones included."""
        cdef int64_t found = 0
        cdef int32_t node
        self.nodes[0].filled = self.nodes[0].length
        for node in range(1, self.count):
            # A parent is older than its children.
            self.nodes[node].filled = self.nodes[node].length
            if not self.nodes[node].is_item:
                self.nodes[node].filled = self.nodes[self.nodes[node].parent].filled
            found += self.nodes[node].filled
        return found

    cdef Bytes _mistake(self, Bytes p, int32_t node, Problem problem) noexcept nogil:
        if self.problem == NONE:
            self.problem = problem
        self.at_node, self.at = node, p
        return NULL

    def mistake(self):
        """Returns the problem, the node, its traits with those of the value, and the byte of the line; None if there
        is no mistake. The line is `line_at`."""
        if self.problem == NONE:
            return None
        return int(self.problem), self.at_node, self.new_traits, self.at - self.line_start

    def undo_block(self, int64_t line):
        """Forgets the rows, and all that was learned since `line`."""
        self._undo(line + 1, 0)
        self._clear()

    @property
    def lines(self):
        """The number of lines that were tried."""
        return self.line

    cdef void _undo(self, int64_t line, int64_t row) noexcept nogil:
        """Forgets the rows from `row` on, and what the lines from `line` on added."""
        cdef int32_t place, trait, kept = self.count
        cdef Node* node
        cdef Node* parent
        while kept > 1 and self.nodes[kept - 1].created >= line:
            kept -= 1
        self.nodes[0].length = min(self.nodes[0].length, row)
        for place in range(1, kept):
            node = &self.nodes[place]
            parent = &self.nodes[node.parent]
            if not node.is_item:
                node.length = min(node.length, parent.length)
            else:
                node.length = min(node.length, parent.values[parent.length - 1] if parent.length else 0)
            for trait in range(TRAITS):
                if node.traits >> trait & 1 and node.first[trait] >= line:
                    node.traits &= ~(<uint32_t>1 << trait)
        if kept == self.count:
            return
        self.count = kept
        memset(self.table, 0, self.slots_of_table * sizeof(int32_t))
        for place in range(kept):
            self._childless(place)
        for place in range(1, kept):
            self._link(place)

    # --- values ------------------------------------------------------------------------------------------

    cdef bint _room(self, int32_t place, int64_t slot) noexcept nogil:
        """Makes room up to `slot`, and fills the slots before it with nulls."""
        cdef Node* node = &self.nodes[place]
        cdef int64_t capacity, ends
        cdef void* grown
        if slot >= node.capacity:
            capacity = max(slot + 1, node.capacity * 2, 64)
            grown = realloc(node.kinds, capacity)
            if grown is not NULL:
                node.kinds = <uint8_t*>grown
                grown = realloc(node.values, capacity * sizeof(int64_t))
            if grown is NULL:
                self.problem = MEMORY
                return False
            node.values = <int64_t*>grown
            node.capacity = capacity
        if node.length < slot:
            ends = self.nodes[node.child].length if node.child >= 0 else 0
            memset(node.kinds + node.length, NULL_, slot - node.length)
            while node.length < slot:
                node.values[node.length] = ends
                node.length += 1
        return True

    cdef inline Bytes _put(self, Bytes after, int32_t place, Kind kind, int64_t value, uint32_t traits) noexcept nogil:
        cdef Node* node = &self.nodes[place]
        if traits & ~node.traits and not self._learn(node, traits):
            return self._mistake(after, place, self.problem)
        node.kinds[node.length] = kind
        node.values[node.length] = value
        node.length += 1
        return after

    cdef bint _learn(self, Node* node, uint32_t traits) noexcept nogil:
        """Adds traits to a node. Returns False if no type holds them together."""
        cdef uint32_t all_ = node.traits | traits
        cdef int trait
        self.new_traits = traits
        if traits & ~node.allowed or (
            (all_ & ARE_NUMBERS != 0) + (all_ & IS_BOOL != 0) + (all_ & IS_TEXT != 0)
            + (all_ & IS_LIST != 0) + (all_ & IS_OBJECT != 0) > 1
        ):
            self.problem = CONFLICT
            return False
        if (all_ & IS_UINT and all_ & (IS_DOUBLE | IS_NEGATIVE)) or (all_ & IS_DOUBLE and all_ & IS_INEXACT):
            self.problem = ROUNDED
            return False
        for trait in range(TRAITS):
            if (traits & ~node.traits) >> trait & 1:
                node.first[trait] = self.line
        node.traits = all_
        return True

    cdef Bytes _object(self, Bytes p, int32_t node, int64_t slot, int32_t depth) noexcept nogil:
        """Parses the fields of an object. p: after the brace."""
        cdef int32_t expected = self.nodes[node].child, child
        cdef int32_t before = -1
        cdef int64_t length
        p = blanks(p)
        if p[0] == 125:
            return p + 1
        while True:
            child = -1
            if p[0] != 34:
                return self._mistake(p, node, SYNTAX)
            if expected >= 0:
                length = self.nodes[expected].name_length
                if (
                    self.nodes[expected].is_verbatim and self.end - p > length + 2 and p[length + 1] == 34
                    and memcmp(p + 1, self.nodes[expected].name, length) == 0
                ):
                    child = expected
                    p += length + 2
            if child < 0:
                p = self._field(p + 1, node, depth, &child)
                if p is NULL:
                    return NULL
                if before >= 0:
                    self.nodes[before].expected = child
            p = blanks(p)
            if p[0] != 58:
                return self._mistake(p, node, SYNTAX)
            if self.nodes[child].length > slot:
                return self._mistake(p, child, TWICE)
            if (self.nodes[child].length < slot or slot >= self.nodes[child].capacity) and not self._room(child, slot):
                return NULL
            p = self._value(blanks(p + 1), child, depth + 1)
            if p is NULL:
                return NULL
            p = blanks(p)
            if p[0] == 125:
                return p + 1
            if p[0] != 44:
                return self._mistake(p, node, SYNTAX)
            p = blanks(p + 1)
            before, expected = child, self.nodes[child].expected

    cdef Bytes _field(self, Bytes p, int32_t node, int32_t depth, int32_t* child) noexcept nogil:
        """Finds or adds the node of a field. p: after the opening quote of its name."""
        cdef bint is_escaped
        cdef Bytes end = text_end(p, self.end, &is_escaped)
        cdef Bytes name = p
        cdef int64_t length
        cdef uint8_t* grown
        if end is NULL:
            return self._mistake(p, node, SYNTAX)
        length = end - p
        if is_escaped:
            if length > self.scratch_size:
                grown = <uint8_t*>realloc(self.scratch, length)
                if grown is NULL:
                    self.problem = MEMORY
                    return NULL
                self.scratch, self.scratch_size = grown, length
            length = unescape(p, length, self.scratch)
            name = self.scratch
        child[0] = self.table[self._place(node, name, length)]
        if child[0] == 0:
            if self.nodes[node].form == GIVEN:
                return self._mistake(p, node, FOREIGN)
            if depth + 1 > self.max_depth:
                return self._mistake(p, node, NESTED)
            child[0] = self._new(node, name, length, False)
            if child[0] < 0:
                return self._mistake(p, node, self.problem)
            if node == 0 and not self._is_wanted(name, length):
                self.nodes[child[0]].form = PASSED
            elif self.has_mixed:
                self._mix(child[0])
        return end + 1

    cdef void _mix(self, int32_t node) noexcept with gil:
        """Makes a new field text if its values are to be."""
        cdef int trait
        try:
            is_mixed = self.names(node) in self.mixed
        except UnicodeDecodeError:  # refused once its column is made
            return
        if is_mixed:
            self.nodes[node].form, self.nodes[node].traits = AS_TEXT, IS_TEXT
            for trait in range(TRAITS):
                self.nodes[node].first[trait] = self.line

    cdef bint _is_wanted(self, Bytes name, int64_t length) noexcept with gil:
        return self.wanted is None or PyBytes_FromStringAndSize(<const char*>name, length) in self.wanted

    cdef Bytes _value(self, Bytes p, int32_t node, int32_t depth) noexcept nogil:
        """Parses a value into the next slot of a node. depth: of the value, from 1."""
        cdef Bytes end
        cdef bint is_escaped
        cdef int64_t slot, length
        cdef uint8_t byte = p[0]
        if byte == 110 and p[1] == 117 and p[2] == 108 and p[3] == 108:  # null
            slot = self.nodes[node].length
            self.nodes[node].kinds[slot] = NULL_
            self.nodes[node].values[slot] = (
                self.nodes[self.nodes[node].child].length if self.nodes[node].child >= 0 else 0
            )
            self.nodes[node].length = slot + 1
            return p + 4
        if self.nodes[node].form >= AS_JSON and (byte != 34 or self.nodes[node].form != AS_TEXT):
            return self._unread(p, node, depth)
        if byte == 34:
            end = text_end(p + 1, self.end, &is_escaped)
            if end is NULL:
                return self._mistake(p, node, SYNTAX)
            return self._put(end + 1, node, ESCAPED if is_escaped else TEXT, self._span(p + 1, end), IS_TEXT)
        if byte == 123:
            slot = self.nodes[node].length
            if self._put(p, node, OBJECT, 0, IS_OBJECT) is NULL:
                return NULL
            self.objects += 1
            return self._object(p + 1, node, slot, depth)
        if byte == 91:
            return self._list(p, node, depth)
        if byte == 116 and p[1] == 114 and p[2] == 117 and p[3] == 101:
            return self._put(p + 4, node, BOOL, 1, IS_BOOL)
        if byte == 102 and p[1] == 97 and p[2] == 108 and p[3] == 115 and p[4] == 101:
            return self._put(p + 5, node, BOOL, 0, IS_BOOL)
        return self._number(p, node)

    cdef inline int64_t _span(self, Bytes start, Bytes end) noexcept nogil:
        return <int64_t>((<uint64_t>(start - self.data) << 32) | <uint64_t>(end - start))

    cdef Bytes _list(self, Bytes p, int32_t node, int32_t depth) noexcept nogil:
        cdef int64_t slot = self.nodes[node].length
        cdef int32_t item
        if self._put(p, node, LIST, 0, IS_LIST) is NULL:
            return NULL
        item = self.nodes[node].child
        if item < 0:
            if depth + 1 > self.max_depth:
                return self._mistake(p, node, NESTED)
            item = self._new(node, p, 0, True)
            if item < 0:
                return self._mistake(p, node, self.problem)
            if self.has_mixed:
                self._mix(item)
        p = blanks(p + 1)
        if p[0] == 93:
            self.nodes[node].values[slot] = self.nodes[item].length
            return p + 1
        while True:
            if self.nodes[item].length >= self.nodes[item].capacity and not self._room(item, self.nodes[item].length):
                return NULL
            p = self._value(p, item, depth + 1)
            if p is NULL:
                return NULL
            p = blanks(p)
            if p[0] == 93:
                self.nodes[node].values[slot] = self.nodes[item].length
                return p + 1
            if p[0] != 44:
                return self._mistake(p, node, SYNTAX)
            p = blanks(p + 1)

    cdef Bytes _unread(self, Bytes p, int32_t node, int32_t depth) noexcept nogil:
        """Takes a value that stays JSON, or none of one that is not wanted."""
        cdef Bytes end
        if self.nodes[node].form == PASSED:
            end = self._passed(p, node, depth)
            return NULL if end is NULL else self._put(end, node, NULL_, 0, 0)
        if self.nodes[node].form == AS_TEXT:
            end = self._passed(p, node, depth)
            return NULL if end is NULL else self._put(end, node, JSON, self._span(p, end), 0)
        end = self._skipped(p)
        if end is NULL or end == p:
            return self._mistake(p, node, SYNTAX)
        return self._put(end, node, JSON, self._span(p, end), 0)

    cdef Bytes _passed(self, Bytes p, int32_t node, int32_t depth) noexcept nogil:
        """Checks the syntax of a value, and returns its end. depth: of the value, from 1."""
        cdef Bytes end
        cdef bint is_escaped
        if p[0] == 123 or p[0] == 91:
            return self._passed_inside(p, node, depth)
        if p[0] == 34:
            end = text_end(p + 1, self.end, &is_escaped)
            return self._mistake(p, node, SYNTAX) if end is NULL else end + 1
        if (
            (p[0] == 116 and p[1] == 114 and p[2] == 117 and p[3] == 101)
            or (p[0] == 110 and p[1] == 117 and p[2] == 108 and p[3] == 108)
        ):
            return p + 4
        if p[0] == 102 and p[1] == 97 and p[2] == 108 and p[3] == 115 and p[4] == 101:
            return p + 5
        end = number_end(p, self.end)
        return self._mistake(p, node, SYNTAX) if end is NULL else end

    cdef Bytes _passed_inside(self, Bytes p, int32_t node, int32_t depth) noexcept nogil:
        """Checks the syntax of an object or a list."""
        cdef bint is_object = p[0] == 123, is_escaped
        cdef uint8_t close = p[0] + 2
        cdef Bytes end
        p = blanks(p + 1)
        if depth + 1 > self.max_depth and not (is_object and p[0] == close):
            return self._mistake(p, node, NESTED)
        if p[0] == close:
            return p + 1
        while True:
            if is_object:
                end = text_end(p + 1, self.end, &is_escaped) if p[0] == 34 else NULL
                if end is NULL:
                    return self._mistake(p, node, SYNTAX)
                p = blanks(end + 1)
                if p[0] != 58:
                    return self._mistake(p, node, SYNTAX)
                p = blanks(p + 1)
            p = self._passed(p, node, depth + 1)
            if p is NULL:
                return NULL
            p = blanks(p)
            if p[0] == close:
                return p + 1
            if p[0] != 44:
                return self._mistake(p, node, SYNTAX)
            p = blanks(p + 1)

    cdef Bytes _skipped(self, Bytes p) noexcept nogil:
        """Returns the end of a value, whose inside the caller checks, or NULL."""
        cdef int64_t depth = 0
        cdef bint is_escaped
        while True:
            if p[0] == 34:
                p = text_end(p + 1, self.end, &is_escaped)
                if p is NULL:
                    return NULL
            elif p[0] == 123 or p[0] == 91:
                depth += 1
            elif p[0] == 125 or p[0] == 93:
                if depth == 0:
                    return p
                depth -= 1
            elif p[0] == 10 or p[0] == 0:
                return NULL if depth else p
            elif depth == 0:
                while p[0] > 32 and p[0] != 44 and p[0] != 93 and p[0] != 125:
                    p += 1
                return p
            p += 1
            if depth == 0:
                return p

    cdef Bytes _number(self, Bytes p, int32_t node) noexcept nogil:
        cdef Bytes start = p
        cdef bint is_negative = p[0] == 45, is_long = False
        cdef uint64_t digits = 0, whole
        cdef int64_t count = 0, power = 0, exponent = 0, value
        cdef bint is_small
        cdef double result
        p += is_negative
        if not is_digit(p[0]):
            return self._odd(start, p, node)
        if p[0] == 48 and is_digit(p[1]):
            return self._mistake(p, node, SYNTAX)
        while is_digit(p[0]):
            is_long = is_long or digits > TENTH or (digits == TENTH and p[0] > 53)
            digits = digits * 10 + (p[0] - 48)
            count += digits != 0
            p += 1
        if p[0] != 46 and p[0] | 32 != 101:
            return self._integer(start, p, node, digits, is_negative, is_long)
        whole = digits
        if p[0] == 46:
            p += 1
            if not is_digit(p[0]):
                return self._mistake(p, node, SYNTAX)
            while is_digit(p[0]):
                if count <= MAX_DIGITS:
                    digits = digits * 10 + (p[0] - 48)
                    count += digits != 0
                    power -= 1
                else:
                    is_long = True
                p += 1
        if p[0] | 32 == 101:
            p += 1
            is_small = p[0] == 45
            p += is_small or p[0] == 43
            if not is_digit(p[0]):
                return self._mistake(p, node, SYNTAX)
            while is_digit(p[0]):
                exponent = exponent * 10 + (p[0] - 48) if exponent < 100_000 else exponent
                p += 1
            power += -exponent if is_small else exponent
        if self.nodes[node].form == DECIMAL:
            return self._put(p, node, NUMBER, self._span(start, p), IS_TEXT)
        # An integer that is written with a point must be exact too, which the caller finds out.
        if is_long or whole >> 53 or count > MAX_DIGITS or not to_double(digits, power, &result):
            return self._put(p, node, NUMBER, self._span(start, p), IS_DOUBLE)
        if is_negative:
            result = -result
        memcpy(&value, &result, 8)
        return self._put(p, node, DOUBLE, value, IS_DOUBLE)

    cdef Bytes _odd(self, Bytes start, Bytes p, int32_t node) noexcept nogil:
        """Takes the values beyond all numbers, which JSON lacks and many writers write."""
        if p[0] == 78 and p[1] == 97 and p[2] == 78:
            p += 3
        elif p[0] == 73 and p[1] == 110 and p[2] == 102:
            p += 8 if self.end - p >= 8 and memcmp(p + 3, INITY, 5) == 0 else 3
        else:
            return self._mistake(start, node, SYNTAX)
        return self._put(p, node, NUMBER, self._span(start, p), IS_DOUBLE)

    cdef inline Bytes _integer(
        self, Bytes start, Bytes p, int32_t node, uint64_t digits, bint is_negative, bint is_long
    ) noexcept nogil:
        cdef int64_t value = <int64_t>digits
        cdef uint32_t traits = IS_INT
        if self.nodes[node].form == DECIMAL:
            return self._put(p, node, NUMBER, self._span(start, p), IS_TEXT)
        if is_long or (is_negative and digits > <uint64_t>1 << 63):
            self.new_traits = IS_INT
            return self._mistake(start, node, CONFLICT if not (self.nodes[node].allowed & IS_INT) else ROUNDED)
        # An integer is exact as a double if its bits, from the first 1 to the last, are at most 53.
        if is_negative and digits == 0:
            return self._put(p, node, NUMBER, self._span(start, p), traits)  # 0 or -0.0, by what the others are
        if digits >> 53 and digits << leading_zeros(digits) << 53:
            traits |= IS_INEXACT
        if is_negative:
            return self._put(p, node, INT, <int64_t>(0 - digits), traits | IS_NEGATIVE)
        if value < 0:
            return self._put(p, node, UINT, value, (traits & ~<uint32_t>IS_INT) | IS_UINT)
        return self._put(p, node, INT, value, traits)

    # --- columns -----------------------------------------------------------------------------------------

    def length(self, int32_t node):
        """Returns the number of slots so far: 0 if no line has named the field."""
        return self.nodes[node].length

    def seal(self):
        """Refuses all fields of a line that are not declared."""
        self.nodes[0].form = GIVEN

    def fill(self, int32_t node):
        """Fills the missing values of a field with nulls. Returns the number of its slots."""
        cdef int64_t slots = self.nodes[self.nodes[node].parent].length
        if node > 0 and not self.nodes[node].is_item and self.nodes[node].length < slots:
            if not self._room(node, slots):
                raise MemoryError
        return self.nodes[node].length

    def kinds(self, int32_t node):
        """Returns a copy of the kinds of all slots."""
        cdef int64_t length = self.nodes[node].length
        copy = np.empty(length, np.uint8)
        cdef uint8_t[::1] copy_ = copy
        if length:
            memcpy(&copy_[0], self.nodes[node].kinds, length)
        return copy

    def values(self, int32_t node):
        """Returns a copy of the eight bytes of each slot: an integer, a double, a boolean, or where a list ends."""
        cdef int64_t length = self.nodes[node].length
        copy = np.empty(length, np.int64)
        cdef int64_t[::1] copy_ = copy
        if length:
            memcpy(&copy_[0], self.nodes[node].values, length * 8)
        return copy

    def number(self, int32_t node, int64_t slot):
        """Returns the text of a number that is a span."""
        cdef uint64_t span = <uint64_t>self.nodes[node].values[slot]
        cdef Bytes start = self.data + (span >> 32)
        return start[:<uint32_t>span].decode()

    def texts(self, int32_t node):
        """Returns offsets and bytes of the texts of a node, as large as int32 offsets allow."""
        cdef int64_t length = self.nodes[node].length, slot, size = 0, at = 0
        cdef uint8_t* kinds = self.nodes[node].kinds
        cdef uint64_t* spans = <uint64_t*>self.nodes[node].values
        for slot in range(length):
            size += <uint32_t>spans[slot] if kinds[slot] >= NUMBER else 0
        offsets, text = np.empty(length + 1, np.int32), np.empty(max(size, 1), np.uint8)
        cdef int32_t[::1] offsets_ = offsets
        cdef uint8_t[::1] text_ = text
        with nogil:
            for slot in range(length):
                offsets_[slot] = <int32_t>at
                if kinds[slot] < NUMBER:
                    continue
                size = <uint32_t>spans[slot]
                if kinds[slot] == ESCAPED:
                    size = unescape(self.data + (spans[slot] >> 32), size, &text_[at])
                else:
                    memcpy(&text_[at], self.data + (spans[slot] >> 32), size)
                at += size
            offsets_[length] = <int32_t>at
        return offsets, text[:at]

    cdef int64_t _list_of(self, int32_t node, int64_t item) noexcept:
        """Returns the slot of the list that has an item: the first that ends behind it."""
        cdef int64_t low = 0, high = self.nodes[node].length, middle
        while low < high:
            middle = (low + high) // 2
            if self.nodes[node].values[middle] <= item:
                low = middle + 1
            else:
                high = middle
        return low

    def row_of(self, int32_t node, int64_t slot):
        """Returns the row that has the slot."""
        while node > 0:
            if self.nodes[node].is_item:
                slot = self._list_of(self.nodes[node].parent, slot)
            node = self.nodes[node].parent
        return slot

    def line_at(self, int64_t row):
        """Returns where the line of a row begins."""
        return self.nodes[0].values[row]

    @property
    def rows(self):
        return self.nodes[0].length


cdef inline int64_t plain_number(Bytes text, int64_t size, int64_t* value) noexcept nogil:
    """Parses a short number without an exponent, as most are, as `JsonRows._number` does. Returns its kind, or TEXT of
    all others."""
    cdef int64_t at = text[0] == 45, point
    cdef bint is_negative = at
    cdef uint64_t digits = 0
    cdef double result
    if size > MAX_PLAIN or at == size or not is_digit(text[at]) or (text[at] == 48 and at + 1 < size and text[at + 1] != 46):
        return TEXT
    while at < size and is_digit(text[at]):
        digits = digits * 10 + (text[at] - 48)
        at += 1
    if at == size:
        if is_negative and digits == 0:
            return TEXT
        value[0] = -<int64_t>digits if is_negative else <int64_t>digits
        return INT
    point = at
    at += 1
    if text[point] != 46 or at == size:
        return TEXT
    while at < size and is_digit(text[at]):
        digits = digits * 10 + (text[at] - 48)
        at += 1
    if at < size or not to_double(digits, point + 1 - size, &result):
        return TEXT
    if is_negative:
        result = -result
    memcpy(value, &result, 8)
    return DOUBLE


def numbers(
    const uint8_t[::1] data, const int32_t[:] starts, const int32_t[:] stops, const uint8_t[::1] is_there,
    bint stops_early=False,
):
    """Parses texts as numbers of JSON, which blanks may surround. Returns kinds and values: those of an integer of 64
    bits, or of a double; of the kind of text is what the caller has to read. stops_early: returns None then."""
    cdef int64_t count = starts.shape[0], place, size
    cdef JsonRows rows = JsonRows(1, 0, 1)
    cdef int32_t node = rows.declare(0, "", INFERRED, (1 << TRAITS) - 1, 0)
    cdef Bytes end, begin = &data[0] if data.shape[0] else NULL
    cdef uint8_t[64] text
    kinds, values = np.full(count, TEXT, np.uint8), np.zeros(count, np.int64)
    cdef uint8_t[::1] kinds_ = kinds
    cdef int64_t[::1] values_ = values
    if not rows._room(node, 0):
        raise MemoryError
    with nogil:
        for place in range(count):
            if not is_there[place]:
                kinds_[place] = NULL_
                continue
            size = stops[place] - starts[place]
            if size:
                kinds_[place] = <uint8_t>plain_number(begin + starts[place], size, &values_[place])
            if kinds_[place] == TEXT and size < 63:
                memcpy(text, begin + starts[place], size)
                text[size] = 0
                rows.data = text
                rows.end = rows.data + size
                rows.nodes[node].length = rows.nodes[node].traits = 0
                end = rows._number(blanks(rows.data), node)
                if end is not NULL and blanks(end) == rows.end and rows.nodes[node].kinds[0] <= DOUBLE:
                    kinds_[place] = rows.nodes[node].kinds[0]
                    values_[place] = rows.nodes[node].values[0]
            if stops_early and kinds_[place] == TEXT:
                break
    return None if stops_early and count and kinds_[place] == TEXT else (kinds, values)
