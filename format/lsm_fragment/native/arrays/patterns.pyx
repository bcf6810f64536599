# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Matches patterns against templates whose variables are unknown, and searches text for substrings.

A pattern is a sequence of steps; a state is the number of steps done. The set of states is a bitmap of one or more
words. A byte moves state s to s + 1 if bit s of its `steps` is set, and keeps state s if bit s of its `loops` is set.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from lsm_fragment.native.encodings.variables cimport MAX_NUMBER_DIGITS, NUMBER, WORD
from lsm_fragment.native.words cimport loaded, lowest_bit, offset


cdef struct Moves:
    uint64_t* steps
    uint64_t* loops

cdef struct Machine:
    int64_t words
    const uint64_t* steps  # for each of the 64 bits of an alphabet
    const uint64_t* loops
    uint64_t* states
    uint64_t* before
    uint64_t* reached
    Moves digits  # union of the moves of all bytes in `number`
    uint64_t number
    Moves plain  # union of the moves of a text's non-distinctive bytes
    Moves distinctive
    uint64_t telling  # alphabet bits whose moves differ from those of most others
    Memory* memories  # cache for patterns of one word

cdef uint64_t MULTIPLIER = 0x9E3779B97F4A7C15ULL

cdef enum:
    BITMAPS = 9  # per machine
    MEMORIES = 512  # a power of 2

cdef struct Memory:  # cached transition of one word of states over a variable
    uint64_t before
    uint64_t alphabet
    uint64_t after
    uint8_t kind  # the variable's mark, 0 if the entry is empty


cdef Moves moves_at(uint64_t* memory, int64_t words) noexcept nogil:
    cdef Moves moves
    moves.steps, moves.loops = memory, memory + words
    return moves


cdef inline bint move(
    const uint64_t* steps, const uint64_t* loops, const uint64_t* states, uint64_t* out, int64_t words
) noexcept nogil:
    """Moves all states by one byte. Returns whether any state is left. out: may be the states."""
    cdef int64_t word
    cdef uint64_t moved, carried = 0, left = 0, kept
    for word in range(words):
        moved = states[word] & steps[word]
        kept = states[word] & loops[word]
        out[word] = moved << 1 | carried | kept
        carried = moved >> 63
        left |= out[word]
    return left != 0


cdef void unite(const Machine* machine, uint64_t alphabet, Moves moves) noexcept nogil:
    """Adds the moves of all bytes of an alphabet."""
    cdef int64_t word, at
    while alphabet:
        at = lowest_bit(alphabet) * machine.words
        for word in range(machine.words):
            moves.steps[word] |= machine.steps[at + word]
            moves.loops[word] |= machine.loops[at + word]
        alphabet &= alphabet - 1


cdef void clear(const Machine* machine, Moves moves) noexcept nogil:
    memset(moves.steps, 0, 8 * machine.words)
    memset(moves.loops, 0, 8 * machine.words)


cdef void close(Machine* machine, Moves moves) noexcept nogil:
    """Adds all states reachable by any number of bytes: adding a state to a run of steps carries to the run's end."""
    cdef int64_t word
    cdef uint64_t steps, total, carried = 0
    for word in range(machine.words):
        steps = moves.steps[word]
        total = steps + (machine.states[word] & steps)
        machine.states[word] |= (total + carried) ^ steps
        carried = (total < steps) | (total + carried < total)


cdef bint over_number(Machine* machine, uint64_t alphabet) noexcept nogil:
    """Moves over 1 to `MAX_NUMBER_DIGITS` bytes of an alphabet. Returns whether any state is left."""
    cdef int64_t word, digits
    cdef uint64_t left = 0
    if alphabet != machine.number:  # the digits, for all slots of numbers
        clear(machine, machine.digits)
        unite(machine, alphabet, machine.digits)
        machine.number = alphabet
    memset(machine.reached, 0, 8 * machine.words)
    for digits in range(MAX_NUMBER_DIGITS):
        memcpy(machine.before, machine.states, 8 * machine.words)
        if not move(machine.digits.steps, machine.digits.loops, machine.before, machine.states, machine.words):
            break
        for word in range(machine.words):
            machine.reached[word] |= machine.states[word]
        if memcmp(machine.before, machine.states, 8 * machine.words) == 0:
            break
    memcpy(machine.states, machine.reached, 8 * machine.words)
    for word in range(machine.words):
        left |= machine.states[word]
    return left != 0


cdef bint over_text(Machine* machine, uint64_t alphabet, uint64_t distinctive) noexcept nogil:
    """Moves over bytes of an alphabet, at least one of them distinctive. Returns whether any state is left."""
    clear(machine, machine.plain)
    unite(machine, alphabet & ~distinctive, machine.plain)
    close(machine, machine.plain)
    clear(machine, machine.distinctive)
    unite(machine, alphabet & distinctive, machine.distinctive)
    if not move(
        machine.distinctive.steps, machine.distinctive.loops, machine.states, machine.states, machine.words
    ):
        return False
    unite(machine, alphabet & ~distinctive, machine.distinctive)
    close(machine, machine.distinctive)
    return True


cdef bint over_bytes(
    Machine* machine, const uint8_t* data, int64_t size, const uint64_t* steps, const uint64_t* loops
) noexcept nogil:
    """Moves over known bytes. Returns whether any state is left. steps, loops: for each of 256 bytes."""
    cdef int64_t index, words = machine.words
    cdef uint64_t states = machine.states[0]
    if words == 1:  # fast path for most patterns
        for index in range(size):
            states = (states & steps[data[index]]) << 1 | (states & loops[data[index]])
        machine.states[0] = states
        return states != 0
    for index in range(size):
        if not move(
            steps + words * data[index], loops + words * data[index], machine.states, machine.states, words
        ):
            return False
    return True


cdef uint64_t telling_bits(const Machine* machine) noexcept nogil:
    """Returns the alphabet bits that do not behave like all others."""
    cdef int64_t word, bit, words = machine.words
    cdef uint64_t steps, loops, telling = 0
    for word in range(words):
        steps = loops = ~<uint64_t>0
        for bit in range(64):
            steps &= machine.steps[bit * words + word]
            loops &= machine.loops[bit * words + word]
        for bit in range(64):
            if machine.steps[bit * words + word] != steps or machine.loops[bit * words + word] != loops:
                telling |= <uint64_t>1 << bit
    return telling


cdef inline uint64_t told(const Machine* machine, uint64_t alphabet, uint64_t distinctive) noexcept nogil:
    """Canonicalises an alphabet: keeps one bit of each kind for all bits that the pattern does not distinguish."""
    cdef uint64_t plain = ~machine.telling & ~distinctive, found = alphabet & machine.telling
    distinctive &= ~machine.telling
    if alphabet & plain:
        found |= plain & (~plain + 1)
    if alphabet & distinctive:
        found |= distinctive & (~distinctive + 1)
    return found


cdef inline bint over_variable(
    Machine* machine, uint8_t kind, uint64_t alphabet, uint64_t distinctive
) noexcept nogil:
    """Moves over a variable. Returns whether any state is left."""
    cdef uint64_t place
    cdef Memory* memory
    if kind == WORD:
        distinctive = ~<uint64_t>0
    alphabet = told(machine, alphabet, distinctive)
    if machine.memories == NULL:
        return over_number(machine, alphabet) if kind == NUMBER else over_text(machine, alphabet, distinctive)
    place = (machine.states[0] * MULTIPLIER ^ alphabet) * MULTIPLIER >> 48 ^ kind
    memory = &machine.memories[place & (MEMORIES - 1)]
    if memory.kind != kind or memory.before != machine.states[0] or memory.alphabet != alphabet:
        memory.kind, memory.before, memory.alphabet = kind, machine.states[0], alphabet
        if not (over_number(machine, alphabet) if kind == NUMBER else over_text(machine, alphabet, distinctive)):
            machine.states[0] = 0
        memory.after = machine.states[0]
    machine.states[0] = memory.after
    return memory.after != 0


cdef bint skip(Machine* machine, const uint64_t* anything) noexcept nogil:
    """Keeps only the states that skip any text. Returns whether any state is left."""
    cdef int64_t word
    cdef uint64_t left = 0
    for word in range(machine.words):
        machine.states[word] &= anything[word]
        left |= machine.states[word]
    return left != 0


def reach(
    const int64_t[::1] offsets, const uint8_t[::1] data, const int64_t[::1] firsts, const int64_t[::1] places,
    const uint8_t[::1] kinds, const uint64_t[::1] alphabets, uint64_t distinctive,
    const uint64_t[:, ::1] steps, const uint64_t[:, ::1] loops, const uint64_t[:, ::1] letter_steps,
    const uint64_t[:, ::1] letter_loops, int64_t last, const uint64_t[::1] anything, uint8_t[::1] out,
):
    """Finds for each template whether it leads from the first state to the state `last`.

    offsets to kinds: the layout of the templates. alphabets: of each slot. distinctive: the alphabet bits of which
    variables other than numbers and words have at least one. steps, loops: for each byte; letter_steps, letter_loops:
    for each bit of an alphabet. anything: None, or the states that skip any text; then only these accept variables.
    """
    cdef int64_t template, at, stop, slot, words = steps.shape[1]
    cdef bint is_alive
    cdef Machine machine
    cdef uint64_t* memory
    if not (
        steps.shape[0] == loops.shape[0] == 256 and letter_steps.shape[0] == letter_loops.shape[0] == 64
        and loops.shape[1] == letter_steps.shape[1] == letter_loops.shape[1] == words
        and 0 <= last < 64 * words and (anything is None or anything.shape[0] == words)
        and alphabets.shape[0] == kinds.shape[0] and out.shape[0] == offsets.shape[0] - 1
    ):
        raise ValueError("a pattern's states are malformed")
    memory = <uint64_t*>calloc(BITMAPS * words * 8 + MEMORIES * sizeof(Memory), 1)
    if memory == NULL:
        raise MemoryError("no memory for the states of a pattern")
    machine.words = words
    machine.steps, machine.loops = &letter_steps[0, 0], &letter_loops[0, 0]
    machine.states, machine.before, machine.reached = memory, memory + words, memory + 2 * words
    machine.digits = moves_at(memory + 3 * words, words)
    machine.plain = moves_at(memory + 5 * words, words)
    machine.distinctive = moves_at(memory + 7 * words, words)
    machine.number = 0
    machine.memories = <Memory*>(memory + BITMAPS * words) if words == 1 else NULL
    with nogil:
        machine.telling = telling_bits(&machine)
        for template in range(offsets.shape[0] - 1):
            memset(machine.states, 0, 8 * words)
            machine.states[0] = 1
            is_alive = True
            slot, at = firsts[template], offsets[template]
            while is_alive:
                stop = places[slot] if slot < firsts[template + 1] else offsets[template + 1]
                is_alive = over_bytes(&machine, &data[at], stop - at, &steps[0, 0], &loops[0, 0])
                if not is_alive or slot == firsts[template + 1]:
                    break
                if anything is not None:
                    is_alive = skip(&machine, &anything[0])
                else:
                    is_alive = over_variable(&machine, kinds[slot], alphabets[slot], distinctive)
                slot += 1
                at = stop + 1
            out[template] = machine.states[last >> 6] >> (last & 63) & 1
    free(memory)


def hold(const int32_t[::1] codes, const uint8_t[::1] holds, uint8_t[::1] out):
    """Sets the bit of each row whose template holds.

    codes: of the rows. holds: 1 or 0 for each template. out: a bitmap. Raises `ValueError` for a code out of range.
    """
    cdef int64_t row, start, rows = codes.shape[0], templates = holds.shape[0]
    cdef bint is_sound = True
    cdef uint8_t bits
    if out.shape[0] != (rows + 7) >> 3:
        raise ValueError("an array is malformed: it has another length")
    with nogil:
        for start in range(0, rows, 8):
            bits = 0
            for row in range(start, min(start + 8, rows)):
                if not 0 <= codes[row] < templates:
                    is_sound = False
                    break
                bits |= holds[codes[row]] << (row - start)
            out[start >> 3] = bits
    if not is_sound:
        raise ValueError("a code without a template")


# --- substrings in text ----------------------------------------------------------------------

cdef uint64_t LOW = 0x0101010101010101ULL
cdef uint64_t HIGH = 0x8080808080808080ULL


cdef int64_t next_of(
    const uint8_t* data, int64_t at, int64_t stop, const uint8_t* needle, int64_t size
) noexcept nogil:
    """Returns the first position of a needle from `at` on that ends by `stop`; `stop` if there is none."""
    cdef uint64_t first = LOW * needle[0], last = LOW * needle[size - 1], differs, hits
    while at + size + 7 <= stop:
        # A byte that is zero in both differences starts and ends like the needle.
        differs = (loaded(data + at, 8) ^ first) | (loaded(data + at + size - 1, 8) ^ last)
        hits = (differs - LOW) & ~differs & HIGH
        while hits:
            # The lowest hit is exact; a borrow may add false ones, which memcmp rejects.
            if memcmp(data + at + (lowest_bit(hits) >> 3), needle, size) == 0:
                return at + (lowest_bit(hits) >> 3)
            hits &= hits - 1
        at += 8
    while at + size <= stop:
        if memcmp(data + at, needle, size) == 0:
            return at
        at += 1
    return stop


def contain(const offset[::1] offsets, const uint8_t[::1] data, const uint8_t[::1] needle, uint8_t[::1] out):
    """Finds for each string whether it contains a needle. Searches all strings at once, end to end.

    needle: at least one byte.
    """
    cdef int64_t rows = offsets.shape[0] - 1, row = 0, at, stop, size = needle.shape[0]
    if size < 1 or out.shape[0] != rows:
        raise ValueError("an array is malformed: it has another length")
    if rows == 0 or data.shape[0] == 0:
        out[:] = 0
        return
    with nogil:
        memset(&out[0], 0, rows)
        at, stop = offsets[0], offsets[rows]
        while row < rows:
            at = next_of(&data[0], at, stop, &needle[0], size)
            while row < rows and offsets[row + 1] <= at:
                row += 1
            if row == rows or at == stop:
                break
            if at + size <= offsets[row + 1]:
                out[row] = 1
                at = offsets[row + 1]
            else:
                at += 1
