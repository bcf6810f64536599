# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Makes lines of the items of a JSON array, as the bytes come."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    NO_TEXT = 1  # a byte that no text of JSON has


cdef class ItemLines:
    """The lines of an array's items. Each byte becomes one byte, so that lines end where commas were.

    Items are not checked: what is not JSON gives lines that are not JSON either.
    """

    cdef int64_t depth
    cdef bint in_text, is_escaped, has_item
    cdef readonly bint is_closed
    cdef bint after_comma

    def __init__(self):
        self.depth = 0
        self.in_text = self.is_escaped = self.has_item = self.is_closed = self.after_comma = False

    cdef uint8_t changed(self, uint8_t byte) noexcept nogil:
        if self.in_text:
            if self.is_escaped:
                self.is_escaped = False
            elif byte == c"\\":
                self.is_escaped = True
            elif byte == c'"':
                self.in_text = False
            return NO_TEXT if byte == c"\n" or byte == c"\r" else byte
        if byte == c" " or byte == c"\t" or byte == c"\n" or byte == c"\r":
            return c" "
        if byte == c"," and self.depth == 1:
            if not self.has_item:
                return byte  # an item is missing, as the parser of the line finds
            self.has_item, self.after_comma = False, True
            return c"\n"
        if byte == c"[" or byte == c"{":
            self.depth += 1
            if self.depth == 1 and not self.is_closed:
                return c" "
        elif byte == c"]" or byte == c"}":
            self.depth -= 1
            if self.depth == 0 and byte == c"]" and not self.is_closed:
                self.is_closed = True
                return c"," if self.after_comma and not self.has_item else c" "
        self.has_item = True
        self.in_text = byte == c'"'
        return byte

    def of(self, const uint8_t[::1] data):
        """Returns the next bytes of the lines."""
        cdef int64_t place, size = data.shape[0]
        cdef bytearray lines = bytearray(size)
        cdef uint8_t[::1] into = lines
        with nogil:
            for place in range(size):
                into[place] = self.changed(data[place])
        return bytes(lines)
