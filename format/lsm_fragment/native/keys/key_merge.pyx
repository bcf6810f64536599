# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Merges sorted inputs by their normalised keys (`lsm_fragment.native.keys.normalised`): a tree of losers with
offset-value coding.

Each input has a cursor over a key slice, a batch of its keys. The root of the tree has the input with the least key,
every other node the input that lost there. Each loser keeps a code: the position where its key first differs from the
key that it lost to, in units of six bytes, and these bytes. Codes relative to the same key compare as their keys do,
so most comparisons read no key. The code of the root's key is relative to the previous key in merged order, and tells
whether the two are equal. A slice comes with the codes of its keys, each relative to the key before it in the slice: the
merge reads keys only where two codes are equal.

Cursors are rows of a table of 64-bit integers with the layout of `Cursor`; addresses must stay valid while a cursor has
them. The caller supplies slices as the merge asks for them, so neither slices nor output limit the number of rows.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport free, malloc

from lsm_fragment.native.keys.key_bytes cimport Key, difference, prefix_of, word_at

cpdef enum State:
    SLICE
    GATE
    ENDED

cpdef enum Stop:
    DONE
    FULL
    NEEDS_SLICE
    AT_GATE
    DISORDER
    TOO_MANY

cdef uint64_t SAME = 0
cdef uint64_t LAST = ~<uint64_t>0
cdef enum:
    UNIT = 6
    # The upper 16 bits of a code fall as the position grows. Keys that differ at the unit `FAR` or later have the code of
    # this position and no bytes.
    FIRST = 0xFFFE
    FAR = 0xFFFD


cdef struct Cursor:
    int64_t state
    const uint8_t* keys
    const int64_t* offsets
    int64_t width
    int64_t row
    int64_t rows
    const uint64_t* codes
    # Weight of every row of the slice: in the heaviest column, and beside its key.
    int64_t row_bytes
    int64_t more_bytes
    # The current key group, and its rows from this input.
    int64_t group
    int64_t group_rows


cdef struct Entry:
    # A competing input, and the code of its key.
    int32_t input
    uint64_t code


cdef struct Progress:
    # Rows of the output so far, and the weight of their keys.
    int64_t rows
    int64_t key_bytes
    int64_t max_key_bytes
    # The current key group, the input of its first row, and whether other inputs have rows of it.
    int64_t group
    int64_t owner
    int64_t is_shared
    # 0 for no limit.
    int64_t max_rows_of_group


def place(
    int64_t[:, ::1] cursors, int64_t number, int64_t state, const uint8_t[::1] keys, const int64_t[::1] offsets,
    int64_t width, const uint64_t[::1] codes, int64_t row_bytes, int64_t more_bytes,
):
    """Gives a cursor a key slice, or a gate. offsets: of the keys and their end; empty if all have the same width.
    codes: the result of `refer_to_previous`. more_bytes: weight of each row beside its key."""
    cdef Cursor* cursor
    cdef int64_t rows = codes.shape[0]
    if cursors.shape[1] * 8 != sizeof(Cursor) or not 0 <= number < cursors.shape[0]:
        raise ValueError("a cursor has another number of fields")
    if offsets.shape[0] and offsets.shape[0] != rows + 1:
        raise ValueError("keys of other rows")
    if (offsets[rows] if offsets.shape[0] else rows * width) > keys.shape[0]:
        raise ValueError("keys end before their rows")
    cursor = <Cursor*>&cursors[number, 0]
    cursor.state = state
    cursor.keys = &keys[0] if keys.shape[0] else NULL
    cursor.offsets = &offsets[0] if offsets.shape[0] else NULL
    cursor.width = width
    cursor.row = 0
    cursor.rows = rows
    cursor.codes = &codes[0] if rows else NULL
    cursor.row_bytes = row_bytes
    cursor.more_bytes = more_bytes


def refer_to_previous(
    const uint8_t[::1] keys, const int64_t[::1] offsets, int64_t width, uint64_t[::1] codes
):
    """Computes the code of each key relative to the key before it; the first one is undefined. A key that comes before
    its predecessor gets `LAST`, which no other key has."""
    cdef Cursor cursor
    cdef Key last, key
    cdef int64_t place
    cursor.keys = &keys[0] if keys.shape[0] else NULL
    cursor.offsets = &offsets[0] if offsets.shape[0] else NULL
    cursor.width = width
    cursor.row = 0
    cursor.rows = codes.shape[0]
    if offsets.shape[0] and offsets.shape[0] != cursor.rows + 1:
        raise ValueError("keys of other rows")
    if (offsets[cursor.rows] if offsets.shape[0] else cursor.rows * width) > keys.shape[0]:
        raise ValueError("keys end before their rows")
    if not cursor.rows:
        return
    with nogil:
        codes[0] = SAME
        key = head_of(&cursor)
        while cursor.row + 1 < cursor.rows:
            last = key
            cursor.row += 1
            key = head_of(&cursor)
            place = difference(&last, &key, 0)
            if place >= 0 and word_at(&key, place) < word_at(&last, place):
                codes[cursor.row] = LAST
            else:
                codes[cursor.row] = code_of(&key, place)


cdef inline Key head_of(const Cursor* cursor) noexcept nogil:
    cdef Key key
    if cursor.offsets != NULL:
        key.at = cursor.keys + cursor.offsets[cursor.row]
        key.length = cursor.offsets[cursor.row + 1] - cursor.offsets[cursor.row]
    else:
        key.at = cursor.keys + cursor.row * cursor.width
        key.length = cursor.width
    return key


cdef inline uint64_t code_of(const Key* key, int64_t place) noexcept nogil:
    """Returns the code of a key whose first difference is at the byte `place`; -1 for equal keys."""
    cdef int64_t unit = place // UNIT
    if place < 0:
        return SAME
    if unit >= FAR:
        return code_at(FAR, 0)
    return code_at(unit, word_at(key, unit * UNIT))


cdef inline uint64_t code_at(int64_t unit, uint64_t word) noexcept nogil:
    """Returns the code of a key that first differs in a unit. word: the eight bytes of the key from there on."""
    return <uint64_t>(FIRST - unit) << 48 | word >> 16


cdef inline int64_t unit_of(uint64_t code) noexcept nogil:
    """Returns the unit where a key first differs; `FAR` if it is this or a later one."""
    return FIRST - <int64_t>(code >> 48)


cdef bint beats(const Cursor* cursors, int32_t a, int32_t b, uint64_t* code_a, uint64_t* code_b) noexcept nogil:
    """Returns whether the key of `a` comes before that of `b`. Updates the loser's code to be relative to the
    winner's."""
    cdef Key x, y
    cdef int64_t unit, place
    cdef uint64_t word_x, word_y
    cdef bint is_first
    if code_a[0] != code_b[0]:
        return code_a[0] < code_b[0]
    if code_a[0] == SAME or code_a[0] == LAST:
        return a < b
    unit = unit_of(code_a[0])
    x = head_of(cursors + a)
    y = head_of(cursors + b)
    place = UNIT * (unit if unit == FAR else unit + 1)
    word_x = word_at(&x, place)
    word_y = word_at(&y, place)
    if unit + 1 < FAR and word_x >> 16 != word_y >> 16:  # mostly: the difference is in the next unit
        is_first = word_x < word_y
        (code_b if is_first else code_a)[0] = code_at(unit + 1, word_y if is_first else word_x)
        return is_first
    place = difference(&x, &y, place)
    is_first = a < b if place < 0 else word_at(&x, place) < word_at(&y, place)
    if is_first:
        code_b[0] = code_of(&y, place)
    else:
        code_a[0] = code_of(&x, place)
    return is_first


cdef inline void replay(
    const Cursor* cursors, int32_t* losers, uint64_t* codes, int32_t winner, uint64_t code, int64_t inputs
) noexcept nogil:
    """Plays a cursor with a new key, of this code, from its leaf to the root."""
    cdef int64_t node = (inputs + winner) >> 1
    cdef int32_t loser, changed
    cdef uint64_t other, changed_code
    cdef bint changes
    while node:
        loser = losers[node]
        other = codes[node]
        if other == code:
            changes = beats(cursors, loser, winner, &other, &code)
        else:
            changes = other < code
        # Swaps without a branch: winners are hard to predict.
        changed = (loser ^ winner) & -<int32_t>changes
        changed_code = (other ^ code) & -<uint64_t>changes
        losers[node] = loser ^ changed
        codes[node] = other ^ changed_code
        winner ^= changed
        code ^= changed_code
        node >>= 1
    losers[0] = winner
    codes[0] = code


cdef inline uint64_t referring(const Cursor* cursor, const Key* key) noexcept nogil:
    """Returns the code of a cursor's key relative to `key`, which comes before it."""
    cdef Key head
    if cursor.state == ENDED:
        return LAST
    head = head_of(cursor)
    return code_of(&head, difference(key, &head, 0))


cdef const Cursor* table_of(const int64_t[:, ::1] cursors) except NULL:
    if cursors.shape[1] * 8 != sizeof(Cursor):
        raise ValueError("a cursor has another number of fields")
    return <const Cursor*>&cursors[0, 0]


def build(const int64_t[:, ::1] cursors, int32_t[::1] losers, uint64_t[::1] codes):
    """Builds the tree. losers, codes: one element per cursor."""
    cdef const Cursor* table = table_of(cursors)
    cdef int64_t inputs = cursors.shape[0], node
    cdef Key nothing
    cdef Entry* winners = <Entry*>malloc(2 * inputs * sizeof(Entry))
    cdef Entry first, second
    if winners == NULL:
        raise MemoryError()
    nothing.at = NULL
    nothing.length = 0
    with nogil:
        for node in range(inputs):
            winners[inputs + node].input = <int32_t>node
            winners[inputs + node].code = referring(table + node, &nothing)
        for node in range(inputs - 1, 0, -1):
            first = winners[2 * node]
            second = winners[2 * node + 1]
            if not beats(table, first.input, second.input, &first.code, &second.code):
                first, second = second, first
            winners[node] = first
            losers[node] = second.input
            codes[node] = second.code
        losers[0] = winners[1].input
        codes[0] = winners[1].code
    free(winners)


def enter(
    const int64_t[:, ::1] cursors, int32_t[::1] losers, uint64_t[::1] codes, int32_t number, const uint8_t[::1] before
):
    """Plays the cursor at the root with a new key, or as an ended one.

    before: the last key that left the merge; no key on the path to the root comes before it.
    """
    cdef const Cursor* table = table_of(cursors)
    cdef int64_t inputs = cursors.shape[0], node = (inputs + number) >> 1
    cdef Key last
    last.at = &before[0]
    last.length = before.shape[0]
    with nogil:
        while node:
            codes[node] = referring(table + losers[node], &last)
            node >>= 1
        replay(table, &losers[0], &codes[0], number, referring(table + number, &last), inputs)


def runner_up(const int64_t[:, ::1] cursors, const int32_t[::1] losers):
    """Returns the cursor with the second least key; -1 if there is none."""
    cdef const Cursor* table = table_of(cursors)
    cdef int64_t node = (cursors.shape[0] + losers[0]) >> 1, place
    cdef int32_t best = -1, other
    cdef Key x, y
    with nogil:
        while node:
            other = losers[node]
            if table[other].state != ENDED:
                if best >= 0:
                    x = head_of(table + best)
                    y = head_of(table + other)
                    place = difference(&x, &y, 0)
                if best < 0 or (place >= 0 and word_at(&y, place) < word_at(&x, place)):
                    best = other
            node >>= 1
    return best


def merge(
    int64_t[:, ::1] cursors, int32_t[::1] losers, uint64_t[::1] codes, const uint8_t[::1] before,
    const int64_t[::1] widths, const uint8_t[::1] flips, int64_t[::1] progress, uint16_t[::1] origins,
    uint8_t[::1] starts, int64_t[::1] row_bytes,
):
    """Fills the output: the input of each row, whether it starts a key group, and its bytes. Returns why it stopped;
    the cursor in question is at the root.

    before: the last key that left the merge; empty at the start. widths, flips: of the columns that make up the key of
    a group (`prefix_of`); empty if whole keys do.
    """
    cdef Cursor* table = <Cursor*>table_of(cursors)
    cdef Progress so_far
    cdef int64_t inputs = cursors.shape[0], most = origins.shape[0], columns = widths.shape[0], row
    cdef int32_t* losing = &losers[0]
    cdef uint64_t* coded = &codes[0]
    cdef uint16_t* origin = &origins[0]
    cdef uint8_t* start = &starts[0]
    cdef int64_t* weight = &row_bytes[0]
    cdef int32_t winner
    cdef Key last, key
    cdef uint64_t code
    cdef bint starts_group
    cdef Cursor* cursor
    cdef int64_t result = DONE
    if progress.shape[0] * 8 != sizeof(Progress):
        raise ValueError("progress has another number of fields")
    so_far = (<Progress*>&progress[0])[0]
    last.at = &before[0] if before.shape[0] else NULL
    last.length = before.shape[0]
    with nogil:
        row = so_far.rows
        while True:
            winner = losing[0]
            cursor = table + winner
            if cursor.state == ENDED:
                break
            if cursor.state == GATE:
                result = AT_GATE
                break
            key = head_of(cursor)
            so_far.key_bytes += key.length + cursor.more_bytes
            if row == most or (row and so_far.key_bytes > so_far.max_key_bytes):
                so_far.key_bytes -= key.length + cursor.more_bytes
                result = FULL
                break
            code = coded[0]
            starts_group = code != SAME
            if starts_group and columns and last.length:
                starts_group = is_other_group(&last, &key, code, &widths[0], &flips[0], columns)
            if starts_group:
                so_far.group += 1
                so_far.owner = winner
                so_far.is_shared = False
            elif so_far.owner != winner:
                so_far.is_shared = True
            if so_far.max_rows_of_group:
                if cursor.group != so_far.group:
                    cursor.group = so_far.group
                    cursor.group_rows = 0
                cursor.group_rows += 1
                if cursor.group_rows > so_far.max_rows_of_group:
                    result = TOO_MANY
                    break
            origin[row] = <uint16_t>winner
            start[row] = starts_group
            weight[row] = cursor.row_bytes
            row += 1
            last = key
            cursor.row += 1
            if cursor.row == cursor.rows:
                result = NEEDS_SLICE
                break
            code = cursor.codes[cursor.row]
            if code == LAST:
                result = DISORDER
                break
            replay(table, losing, coded, winner, code, inputs)
        so_far.rows = row
    (<Progress*>&progress[0])[0] = so_far
    return result


cdef inline bint is_other_group(
    const Key* last, const Key* key, uint64_t code, const int64_t* widths, const uint8_t* flips, int64_t columns
) noexcept nogil:
    """Returns whether keys whose first difference is at `code` differ in their first columns."""
    cdef int64_t length = prefix_of(key, widths, flips, columns)
    cdef int64_t unit = unit_of(code), place = UNIT * unit
    if unit != FAR and place + UNIT <= length:
        return True
    while place < length:
        if place >= last.length or last.at[place] != key.at[place]:
            return True
        place += 1
    return False
