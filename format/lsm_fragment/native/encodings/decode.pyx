# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Walks the nodes of a chunk, and decodes integers directly into Arrow buffers (SPEC section 5).

Integers of any encoding are a stream of blocks of up to 1,024, which stay in the cache until they are converted to
their final form: values of any width, floats, offsets, codes, or the values that codes refer to.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

from pyarrow import allocate_buffer, py_buffer

from lsm_fragment.native.encodings.packed cimport ENTRY, VALUES, blocks_of, take_block
from lsm_fragment.native.words cimport MAX_FRACTION_DIGITS, offset, ones_of, power_of_ten, word

cdef enum:
    NODE = 32
    HAS_VALIDITY = 1
    MAX_LENGTH_BITS = 48  # of a value's length: the lengths of a block then cannot overflow
    MAX_EXACT_BITS = 53  # of an integer that a double holds exactly

cpdef enum:  # the encodings that this module decodes; `lsm_fragment.encodings.node.Encoding` takes their numbers
    ALL_NULL = 0
    CONSTANT = 2
    PACKED = 3
    RUN_LENGTH = 4
    MULTIPLE = 11

cdef enum:
    MAX_ENCODINGS = 32

cdef enum:  # faults of a stream; all are below 0
    UNFIT = -1
    BAD_RUNS = -2
    BAD_LENGTHS = -3
    BAD_CODE = -4
    BAD_DECIMAL = -5

cdef int IN_MULTIPLES = 1 << CONSTANT | 1 << PACKED
cdef int IN_RUNS = 1 << CONSTANT | 1 << PACKED | 1 << MULTIPLE
cdef int IN_CHILDREN = 1 << CONSTANT | 1 << PACKED | 1 << MULTIPLE | 1 << RUN_LENGTH

# The node fields that each encoding uses, set by `declare`; bit k is that of encoding k.
cdef uint32_t KNOWN = 0, WITH_WIDTH = 0, WITH_PARAM = 0
cdef int[MAX_ENCODINGS] CHILDREN


def declare(int encoding, int children, bint has_width, bint has_param):
    """Registers an encoding: the number of children of its nodes (-1 for any), and whether they use width and param."""
    global KNOWN, WITH_WIDTH, WITH_PARAM
    if not 0 <= encoding < MAX_ENCODINGS:
        raise ValueError(f"{encoding} is not the number of an encoding")
    KNOWN |= <uint32_t>1 << encoding
    WITH_WIDTH |= <uint32_t>has_width << encoding
    WITH_PARAM |= <uint32_t>has_param << encoding
    CHILDREN[encoding] = children


cdef struct Node:
    uint8_t encoding
    uint8_t flags
    uint8_t width
    uint8_t reserved
    uint32_t children
    uint64_t length
    uint64_t null_count
    int64_t param


cdef struct Integers:
    # A constant, or packed integers if there are entries; multiplied by a factor.
    int64_t left
    uint64_t constant
    uint64_t factor
    const uint8_t* entries
    const uint8_t* data
    int64_t available
    int min_width


cdef struct Runs:
    Integers lengths
    uint64_t lengths_block[VALUES]
    uint64_t values_block[VALUES]
    int64_t at
    int64_t loaded
    uint64_t value
    int64_t left  # of the current run


cdef struct Flow:
    int64_t left
    Integers values
    Runs* runs  # NULL if there are none


# --- streams of blocks ----------------------------------------------------------------------

cdef int64_t next_integers(Integers* source, uint64_t* out) noexcept nogil:
    """Reads a block of integers. Returns their number; below 0 for a fault."""
    cdef int64_t count = min(<int64_t>VALUES, source.left), size, index
    cdef uint64_t constant = source.constant * source.factor
    if source.entries == NULL:
        for index in range(count):
            out[index] = constant
    else:
        size = take_block(out, source.entries, source.data, count, source.available, source.min_width)
        if size < 0:
            return UNFIT
        source.entries += ENTRY
        source.data += size
        source.available -= size
        if source.factor != 1:
            for index in range(count):
                out[index] *= source.factor
    source.left -= count
    if source.left == 0 and source.available:
        return UNFIT
    return count


cdef int64_t next_repeated(Flow* flow, uint64_t* out) noexcept nogil:
    """Reads a block of run-length encoded integers. Returns their number; below 0 for a fault."""
    cdef Runs* runs = flow.runs
    cdef int64_t count = min(<int64_t>VALUES, flow.left), filled = 0, size, index
    cdef uint64_t length
    while filled < count:
        if runs.left == 0:
            if runs.at == runs.loaded:
                if runs.lengths.left == 0:
                    return BAD_RUNS
                runs.loaded = next_integers(&runs.lengths, runs.lengths_block)
                if runs.loaded < 0 or next_integers(&flow.values, runs.values_block) < 0:
                    return UNFIT
                runs.at = 0
            length = runs.lengths_block[runs.at]
            if length == 0 or length > <uint64_t>(flow.left - filled):
                return BAD_RUNS
            runs.left = <int64_t>length
            runs.value = runs.values_block[runs.at]
            runs.at += 1
        size = min(runs.left, count - filled)
        for index in range(filled, filled + size):
            out[index] = runs.value
        filled += size
        runs.left -= size
    if filled == flow.left and (runs.at < runs.loaded or runs.lengths.left):
        return BAD_RUNS
    return count


cdef inline int64_t next_block(Flow* flow, uint64_t* out) noexcept nogil:
    """Reads the next block, up to 1,024 integers. Returns their number; below 0 for a fault."""
    cdef int64_t count = next_integers(&flow.values, out) if flow.runs == NULL else next_repeated(flow, out)
    flow.left -= count
    return count


# --- conversion of integers -----------------------------------------------------------------

cdef int64_t put_words(Flow* flow, word* out, bint are_floats) noexcept nogil:
    """Writes integers truncated to the width of `out`, or as bit patterns of floats."""
    cdef uint64_t block[VALUES]
    cdef int64_t count, index
    cdef word sign
    cdef word all_but_sign = <word>-1 >> 1
    while flow.left:
        if word is uint64_t:
            count = next_block(flow, out)
        else:
            count = next_block(flow, block)
            for index in range(count):
                out[index] = <word>block[index]
        if count < 0:
            return count
        if are_floats:
            for index in range(count):
                sign = out[index] >> (8 * sizeof(word) - 1)
                out[index] ^= <word>(0 - sign) & all_but_sign
        out += count
    return 0


cdef int64_t put_wide(Flow* flow, uint64_t* out) noexcept nogil:
    """Writes integers sign-extended to 128 bits."""
    cdef uint64_t block[VALUES]
    cdef int64_t count, index
    while flow.left:
        count = next_block(flow, block)
        if count < 0:
            return count
        for index in range(count):
            out[2 * index] = block[index]
            out[2 * index + 1] = <uint64_t>(<int64_t>block[index] >> 63)
        out += 2 * count
    return 0


cdef int64_t put_offsets(Flow* flow, offset* out, int64_t total) noexcept nogil:
    """Writes the running sum of lengths, from 0 to `total`, which `offset` can hold."""
    cdef uint64_t block[VALUES]
    cdef uint64_t every
    cdef int64_t count, index, at = 0
    out[0] = 0
    while flow.left:
        count = next_block(flow, block)
        if count < 0:
            return count
        every = 0
        for index in range(count):
            every |= block[index]
        if every >> MAX_LENGTH_BITS:
            return BAD_LENGTHS
        for index in range(count):
            at += <int64_t>block[index]
            out[index + 1] = <offset>at
        if at > total:
            return BAD_LENGTHS
        out += count
    return 0 if at == total else BAD_LENGTHS


cdef int64_t put_codes(Flow* flow, int32_t* out, int64_t values) noexcept nogil:
    """Writes codes, checked to be in [0, values)."""
    cdef uint64_t block[VALUES]
    cdef uint64_t every = 0
    cdef int32_t most = -1
    cdef int64_t count, index
    while flow.left:
        count = next_block(flow, block)
        if count < 0:
            return count
        for index in range(count):
            every |= block[index]
            out[index] = <int32_t>block[index]
            most = max(most, out[index])
        out += count
    return 0 if every >> 31 == 0 and most < values else BAD_CODE


cdef int64_t put_values(Flow* flow, uint8_t* out, const uint8_t* values, int64_t count, int64_t width) noexcept nogil:
    """Writes the value of each code. values: `count` values of `width` bytes."""
    cdef uint64_t block[VALUES]
    cdef int64_t size
    while flow.left:
        size = next_block(flow, block)
        if size < 0:
            return size
        if not are_below(block, size, count):
            return BAD_CODE
        if width == 1:
            look_up(block, size, <const uint8_t*>values, <uint8_t*>out)
        elif width == 2:
            look_up(block, size, <const uint16_t*>values, <uint16_t*>out)
        elif width == 4:
            look_up(block, size, <const uint32_t*>values, <uint32_t*>out)
        elif width == 8:
            look_up(block, size, <const uint64_t*>values, <uint64_t*>out)
        else:
            copy_values(block, size, values, out, width)
        out += size * width
    return 0


cdef inline bint are_below(const uint64_t* codes, int64_t count, uint64_t limit) noexcept nogil:
    cdef bint fits = True
    cdef int64_t index
    for index in range(count):
        fits &= codes[index] < limit
    return fits


cdef inline void look_up(const uint64_t* codes, int64_t count, const word* values, word* out) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        memcpy(out + index, values + codes[index], sizeof(word))  # a payload may begin at any address


cdef inline void copy_values(
    const uint64_t* codes, int64_t count, const uint8_t* values, uint8_t* out, int64_t width
) noexcept nogil:
    cdef int64_t index
    for index in range(count):
        memcpy(out + index * width, values + <int64_t>codes[index] * width, width)


cdef extern from *:
    """
    /* Returns whether all integers are in [-limit, limit]. */
    FOR_EACH_LEVEL static int put_quotients(
        double* out, const uint64_t* integers, int64_t count, double power, int64_t limit
    ) {
        int64_t beyond = 0;
        for (int64_t at = 0; at < count; at++) {
            int64_t integer = (int64_t)integers[at];
            beyond |= (integer < -limit) | (integer > limit);
            out[at] = (double)integer / power;
        }
        return !beyond;
    }
    """
    bint put_quotients(
        double* out, const uint64_t* integers, int64_t count, double power, int64_t limit
    ) noexcept nogil


cdef int64_t put_decimals(Flow* flow, double* out, double power) noexcept nogil:
    """Writes integers divided by a power of ten."""
    cdef uint64_t block[VALUES]
    cdef int64_t count
    cdef bint fits = True
    while flow.left:
        count = next_block(flow, block)
        if count < 0:
            return count
        fits &= put_quotients(out, block, count, power, <int64_t>1 << MAX_EXACT_BITS)
        out += count
    return 0 if fits else BAD_DECIMAL


cdef bint put_exceptions(
    double* out, int64_t length, const uint8_t* rows, const uint8_t* values, int64_t count
) noexcept nogil:
    """Writes the exceptions. Returns whether their rows are below `length` and ascend."""
    cdef int64_t index, last = -1
    cdef uint32_t row
    for index in range(count):
        memcpy(&row, rows + 4 * index, 4)
        if row >= length or row <= last:
            return False
        memcpy(out + row, values + 8 * index, 8)
        last = row
    return True


cdef class IntegerStream:
    """The integers of a node, to be read once, in one of several forms.

    Every method allocates an Arrow buffer, after calling `charge` with its size, and raises `ValueError` if the
    integers do not fit the arguments.
    """

    cdef Flow flow
    cdef Runs runs
    cdef int64_t length
    cdef bint is_read
    cdef object charge
    cdef object payload  # keeps alive the memory that the stream reads

    def words(self, int width, bint are_floats=False):
        """Returns integers of `width` bytes, or floats of that width. 16 bytes: the values of decimals."""
        cdef int64_t fault
        out, at = self._allocated(width * self.length)
        cdef uintptr_t begin = at
        with nogil:
            if width == 1:
                fault = put_words(&self.flow, <uint8_t*>begin, are_floats)
            elif width == 2:
                fault = put_words(&self.flow, <uint16_t*>begin, are_floats)
            elif width == 4:
                fault = put_words(&self.flow, <uint32_t*>begin, are_floats)
            elif width == 8:
                fault = put_words(&self.flow, <uint64_t*>begin, are_floats)
            else:
                fault = put_wide(&self.flow, <uint64_t*>begin)
        self._check(fault)
        return out

    def offsets(self, int64_t total, bint is_large):
        """Returns the running sums of lengths from 0 to `total`, as offsets of 4 or 8 bytes."""
        cdef int64_t fault, width = 8 if is_large else 4
        if not is_large and total > 0x7FFFFFFF:
            raise ValueError(f"{total} bytes or elements in one chunk exceed 32-bit offsets")
        out, at = self._allocated(width * (self.length + 1))
        cdef uintptr_t begin = at
        with nogil:
            if is_large:
                fault = put_offsets(&self.flow, <int64_t*>begin, total)
            else:
                fault = put_offsets(&self.flow, <int32_t*>begin, total)
        if fault == BAD_LENGTHS:
            raise ValueError(f"lengths do not add up to {total}")
        self._check(fault)
        return out

    def codes(self, int64_t values):
        """Returns the integers as 4-byte codes, each below `values`."""
        cdef int64_t fault
        out, at = self._allocated(4 * self.length)
        cdef uintptr_t begin = at
        with nogil:
            fault = put_codes(&self.flow, <int32_t*>begin, values)
        self._check(fault)
        return out

    def looked_up(self, values, int64_t count, int64_t width):
        """Returns the value of each code. values: a buffer of `count` values of `width` bytes."""
        cdef int64_t fault
        cdef uintptr_t source = values.address
        if width < 0 or values.size < count * width:
            raise ValueError(f"{values.size} bytes of {count} values")
        out, at = self._allocated(width * self.length)
        cdef uintptr_t begin = at
        with nogil:
            fault = put_values(&self.flow, <uint8_t*>begin, <const uint8_t*>source, count, width)
        self._check(fault)
        return out

    def decimals(self, int digits, rows, exceptions):
        """Returns doubles: the integers divided by 10^digits, except in `rows` (4 bytes each), which take those of
        `exceptions`."""
        cdef int64_t fault, count = rows.size // 4
        cdef uintptr_t rows_begin = rows.address, exceptions_begin = exceptions.address
        cdef bint fits
        if not 0 <= digits <= MAX_FRACTION_DIGITS or exceptions.size != 8 * count:
            raise ValueError("decimals of impossible digits, or more exceptions than values")
        out, at = self._allocated(8 * self.length)
        cdef uintptr_t begin = at
        with nogil:
            fault = put_decimals(&self.flow, <double*>begin, power_of_ten(digits))
            fits = put_exceptions(
                <double*>begin, self.length, <const uint8_t*>rows_begin, <const uint8_t*>exceptions_begin, count
            )
        self._check(fault)
        if not fits:
            raise ValueError("exceptions lie beyond the values or not in their order")
        return out

    cdef _allocated(self, size):
        if self.is_read:
            raise ValueError("the integers of a node were read before, and had a fault")
        self.charge(size)
        self.is_read = True
        out = allocate_buffer(size)
        return out, out.address

    cdef int _check(self, int64_t fault) except -1:
        if fault == UNFIT:
            raise ValueError("packed integers do not fit their blocks")
        if fault == BAD_RUNS:
            raise ValueError(f"runs are empty, or do not add up to {self.length}")
        if fault == BAD_CODE:
            raise ValueError("a code points outside its dictionary")
        if fault == BAD_DECIMAL:
            raise ValueError("a decimal of more digits than a double has")
        return 0


# --- nodes ----------------------------------------------------------------------------------

cdef class Cursor:
    """Walks the nodes of a chunk and their buffers in parallel. Its attributes are those of the current node.

    All nodes are checked up front, but unpacked one at a time.
    """

    cdef readonly int encoding
    cdef readonly int64_t length
    cdef readonly int64_t null_count
    cdef readonly int64_t param
    cdef readonly int64_t children
    cdef readonly int width
    cdef bint has_validity
    cdef object _meta, _payload, _charge
    cdef const uint8_t* _nodes
    cdef const uint8_t* _bytes
    cdef int64_t _count, _next, _size, _position

    def __init__(self, meta, payload, int64_t max_values, charge):
        """meta, payload: of a chunk, the payload as an Arrow buffer. charge: called with the size before each larger
        allocation.

        max_values: limits the values of one node, and those of all nodes without bytes together. Raises `ValueError`
        for nodes beyond the limit or with inconsistent fields.
        """
        self._meta = py_buffer(meta)
        self._payload = payload
        self._charge = charge
        self._nodes = <const uint8_t*><uintptr_t>self._meta.address
        self._bytes = <const uint8_t*><uintptr_t>payload.address
        self._size = payload.size
        self._count = self._meta.size // NODE
        self._next = self._position = 0
        if not self._count or self._meta.size % NODE:
            raise ValueError("the encoding tree has a wrong length")
        self._check_nodes(max_values)

    cdef int _check_nodes(self, uint64_t max_values) except -1:
        cdef Node node
        cdef int64_t number
        cdef uint64_t unbacked = 0
        for number in range(self._count):
            memcpy(&node, self._nodes + NODE * number, NODE)
            check_node(&node)
            if node.length > max_values:
                raise ValueError(f"{node.length} values in a payload of {self._size} bytes")
            if node.encoding in (CONSTANT, RUN_LENGTH) or (node.encoding == PACKED and not node.width):
                unbacked += node.length
        if unbacked > max_values:
            raise ValueError(f"{unbacked} values in a payload of {self._size} bytes")
        return 0

    def take(self, int64_t length):
        """Takes the next node. Returns its encoding. Raises `ValueError` unless it has `length` values."""
        cdef Node node
        self._peek(&node)
        if <int64_t>node.length != length:
            raise ValueError(f"{node.length} values where {length} belong")
        self._next += 1
        self.encoding = node.encoding
        self.length = length
        self.null_count = <int64_t>node.null_count
        self.param = node.param
        self.children = node.children
        self.width = node.width
        self.has_validity = node.flags & HAS_VALIDITY
        return self.encoding

    @property
    def next_length(self):
        """The length of the next node, for children whose parent does not know their length."""
        cdef Node node
        self._peek(&node)
        return node.length

    @property
    def next_encoding(self):
        cdef Node node
        self._peek(&node)
        return node.encoding

    @property
    def position(self):
        """Number of payload bytes taken so far."""
        return self._position

    cdef int _peek(self, Node* node) except -1:
        if self._next == self._count:
            raise ValueError("the encoding tree ends early")
        memcpy(node, self._nodes + NODE * self._next, NODE)
        return 0

    def buffer(self, int64_t size):
        """Returns the next `size` bytes of the payload, without copying."""
        cdef int64_t begin = self._position
        self._span(size)
        return self._payload.slice(begin, size)

    cdef const uint8_t* _span(self, int64_t size) except NULL:
        cdef const uint8_t* begin = self._bytes + self._position
        if size < 0 or size > self._size - self._position:
            raise ValueError("a buffer reaches past the end of the payload")
        self._position += (size + 7) & ~<int64_t>7
        return begin

    def validity(self):
        """Returns the bitmap of the node; None if it has none. Raises `ValueError` if its nulls do not match."""
        cdef int64_t size = (self.length + 7) >> 3, valid
        cdef const uint8_t* bits = self._bytes + self._position
        if not self.has_validity:
            return None
        bitmap = self.buffer(size)
        with nogil:
            valid = count_ones(bits, self.length)
        if self.length - valid != self.null_count:
            raise ValueError("the validity bitmap has another number of nulls than the node")
        return bitmap

    def integers(self):
        """Returns the integers of the node."""
        cdef IntegerStream stream = IntegerStream.__new__(IntegerStream)
        stream.charge = self._charge
        stream.payload = self._payload
        stream.length = stream.flow.left = self.length
        if self.encoding == RUN_LENGTH:
            self._open_runs(stream)
        else:
            self._open(&stream.flow.values)
        return stream

    def child_integers(self, int64_t length):
        """Takes the next node, which must hold integers, and returns them."""
        self._take_integers(length, IN_CHILDREN)
        return self.integers()

    cdef int _open_runs(self, IntegerStream stream) except -1:
        cdef int64_t count = self.next_length
        if count > self.length:
            raise ValueError("more runs than values")
        stream.flow.runs = &stream.runs
        self._take_integers(count, IN_RUNS)
        self._open(&stream.runs.lengths)
        self._take_integers(count, IN_RUNS)
        self._open(&stream.flow.values)
        return 0

    cdef int _open(self, Integers* source) except -1:
        source.factor = 1
        if self.encoding == MULTIPLE:
            source.factor = <uint64_t>self.param
            self._take_integers(self.length, IN_MULTIPLES)
        source.left = self.length
        if self.encoding == CONSTANT:
            source.constant = <uint64_t>self.param
            return 0
        source.entries = self._span(ENTRY * blocks_of(self.length))
        source.data = self._span(self.param)
        source.available = self.param
        source.min_width = self.width
        if not self.length and self.param:
            raise ValueError("packed integers do not fit their blocks")
        return 0

    cdef int _take_integers(self, int64_t length, int allowed) except -1:
        self.take(length)
        if not (1 << self.encoding) & allowed or self.has_validity:
            raise ValueError("an integer child has an encoding that is not for integers")
        return 0

    def continued(self, payload, charge):
        """Returns a cursor that continues with the next node. payload: the bytes that follow those taken. charge: see
        `__init__`."""
        cdef Cursor rest = Cursor.__new__(Cursor)
        rest._meta, rest._payload, rest._charge = self._meta, payload, charge
        rest._nodes = self._nodes
        rest._bytes = <const uint8_t*><uintptr_t>payload.address
        rest._size = payload.size
        rest._count, rest._next = self._count, self._next
        return rest

    def finish(self):
        """Raises `ValueError` if nodes or bytes are left over."""
        if self._position != self._size:
            raise ValueError("the payload is not filled exactly by its buffers")
        if self._next < self._count:
            raise ValueError("the encoding tree has nodes left over")


def root_of(meta):
    """Returns the encoding and null count of the root node. Raises `ValueError` if the bytes are no node."""
    cdef const uint8_t[::1] head = meta
    cdef Node node
    if head.shape[0] < NODE:
        raise ValueError("the encoding tree has a wrong length")
    memcpy(&node, &head[0], NODE)
    check_node(&node)
    return node.encoding, node.null_count


cdef int check_node(const Node* node) except -1:
    if node.flags & ~HAS_VALIDITY or node.reserved:
        raise ValueError("an encoding node has unknown flags")
    if node.encoding >= MAX_ENCODINGS or not (KNOWN >> node.encoding) & 1:
        raise ValueError(f"{node.encoding} is not a valid Encoding")
    if CHILDREN[node.encoding] >= 0 and <int64_t>node.children != CHILDREN[node.encoding]:
        raise ValueError(f"an encoding node has {node.children} children")
    if node.null_count > node.length or (
        node.encoding != ALL_NULL and (node.null_count > 0) != (node.flags & HAS_VALIDITY)
    ):
        raise ValueError("an encoding node contradicts itself about nulls")
    if node.encoding == ALL_NULL and (node.null_count != node.length or node.flags):
        raise ValueError("NULL with values that are none")
    if (node.width and not (WITH_WIDTH >> node.encoding) & 1) or (node.param and not (WITH_PARAM >> node.encoding) & 1):
        raise ValueError("an encoding node has a width or a parameter that it does not need")
    return 0


cdef int64_t count_ones(const uint8_t* bits, int64_t length) noexcept nogil:
    """Counts the set bits among the first `length` bits of a bitmap."""
    cdef uint64_t every
    cdef int64_t at = 0, ones = 0
    while at + 64 <= length:
        memcpy(&every, bits + (at >> 3), 8)
        ones += ones_of(every)
        at += 64
    if at < length:
        every = 0
        memcpy(&every, bits + (at >> 3), (length - at + 7) >> 3)
        ones += ones_of(every & (~<uint64_t>0 >> (64 - (length - at))))
    return ones
