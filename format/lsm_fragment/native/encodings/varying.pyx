# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Finds the places of strings where words vary, so that few templates are left (TEMPLATE of SPEC section 5).

Strings of one shape have their tokens in the same places. Where these have more combinations than rows are worth, places
are taken out, as far as it takes: which ones, a sample tells. (Drain, ICWS 2017, also looks for places that vary among
strings of as many tokens, one string at a time, and has no shapes.)
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from lsm_fragment.native.nulls cimport require
from lsm_fragment.native.encodings.tokens cimport (
    MAX_PLACES,
    PLACE_WORDS,
    find_tokens,
    find_variables,
    is_digit,
    is_mark,
    is_of_token,
)
from lsm_fragment.native.encodings.variables cimport MAX_NUMBER_DIGITS, NUMBER, TEXT, WORD, take_number
from lsm_fragment.native.words cimport hash_of, lowest_bit, mixed, offset

cdef enum:
    NUMBER_CONTENT = 1  # what stands in a template for a token: a mark, or the hash of a word, which is greater
    TEXT_CONTENT = 2
    MAX_TOKENS = 1 << 17  # of a sample
    MAX_TRIES = 1 << 19  # rows that are looked at to find the best places
    FEW_TEMPLATES = 4  # that strings of one shape may always have
    TEMPLATE_WEIGHT = 4  # a byte of a template costs as much as so many of words: merges look each source's templates up

cdef uint64_t PLACE_MULTIPLIER = 0x9E3779B97F4A7C15ULL


def look(const offset[::1] offsets, const uint8_t[::1] data, const int64_t[::1] rows):
    """Looks at the tokens of some rows, none of them null.

    Stops when it has seen `MAX_TOKENS`. Returns arrays of 64-bit integers: the shape of each row that it has looked at;
    where each row's tokens begin and the last one's end; what a template has for each token, which is the same for all
    numbers, for all texts, and for equal words. Besides, bytes: the length of each token, 255 for longer ones.
    """
    cdef int64_t count = rows.shape[0], row, number, longest = 0, size, found, index, used = 0, room = 1024, words
    cdef int64_t looked_at = 0
    cdef uint8_t nothing = 0
    cdef const uint8_t* base = &data[0] if data.shape[0] else &nothing
    cdef const uint8_t* end = base + data.shape[0]
    cdef const uint8_t* at
    cdef int32_t starts[MAX_PLACES]
    cdef int32_t stops[MAX_PLACES]
    cdef uint64_t shape, value
    cdef uint64_t* memory
    cdef uint64_t* shapes
    cdef int64_t* firsts
    cdef uint64_t* tokens
    cdef uint64_t* digits
    cdef uint64_t* contents = <uint64_t*>malloc(8 * room)
    cdef uint8_t* lengths = <uint8_t*>malloc(room)
    cdef void* moved = contents
    for number in range(count):
        longest = max(longest, <int64_t>(offsets[rows[number] + 1] - offsets[rows[number]]))
    words = longest // 64 + 2
    memory = <uint64_t*>malloc(8 * (3 * words + 2 * count + 1))
    try:
        if contents == NULL or lengths == NULL or memory == NULL:
            raise MemoryError("no memory for the tokens of a sample")
        tokens, digits = memory, memory + words
        shapes, firsts = memory + 3 * words, <int64_t*>(memory + 3 * words + count)
        with nogil:
            firsts[0] = 0
            for number in range(count):
                row = rows[number]
                at, size = base + offsets[row], offsets[row + 1] - offsets[row]
                find_variables(at, size, end, tokens, digits, memory + 2 * words)
                found = find_tokens(at, size, end, tokens, starts, stops, &shape)
                if used + found > room:
                    room = 2 * (used + found)
                    moved = realloc(contents, 8 * room)
                    if moved == NULL:
                        break
                    contents = <uint64_t*>moved
                    moved = realloc(lengths, room)
                    if moved == NULL:
                        break
                    lengths = <uint8_t*>moved
                for index in range(found):
                    if not has_bit(digits, starts[index], stops[index]):
                        value = hash_of(at + starts[index], stops[index] - starts[index]) | 4
                    elif take_number(at + starts[index], stops[index] - starts[index], end - 8, &value):
                        value = NUMBER_CONTENT
                    else:
                        value = TEXT_CONTENT
                    contents[used + index] = value
                    lengths[used + index] = <uint8_t>min(stops[index] - starts[index], 255)
                used += found
                shapes[number] = shape
                firsts[number + 1] = used
                looked_at += 1
                if used >= MAX_TOKENS:
                    break
        if moved == NULL:
            raise MemoryError("no memory for the tokens of a sample")
        return (
            (<char*>shapes)[: 8 * looked_at], (<char*>firsts)[: 8 * (looked_at + 1)], (<char*>contents)[: 8 * used],
            (<char*>lengths)[:used],
        )
    finally:
        free(contents)
        free(lengths)
        free(memory)


cdef inline bint has_bit(const uint64_t* bits, int64_t start, int64_t stop) noexcept nogil:
    """Returns whether any bit is set from `start` on and below `stop`."""
    cdef int64_t word = start >> 6
    cdef uint64_t found = bits[word] & ~<uint64_t>0 << (start & 63)
    while not found and 64 * (word + 1) < stop:
        word += 1
        found = bits[word]
    return found != 0 and 64 * word + lowest_bit(found) < stop


cdef struct Group:
    # Rows of one shape.
    int64_t count
    const int64_t* rows
    const int64_t* firsts
    const uint64_t* contents
    const uint8_t* lengths
    const int64_t* sizes  # of the strings
    uint64_t* totals  # of each row, the sum of its parts in places that are not taken out
    uint64_t* tried
    uint64_t* keys  # a table of sums, with how many rows have each
    int32_t* counts
    uint64_t mask
    int64_t* tries  # rows that may still be looked at to find the best place


cdef struct Distinct:
    int64_t all
    int64_t once
    int64_t twice


cdef inline uint64_t part_of(const Group* group, int64_t row, int64_t place) noexcept nogil:
    return mixed(group.contents[group.firsts[group.rows[row]] + place] + <uint64_t>(place + 1) * PLACE_MULTIPLIER) | 1


cdef Distinct distinct_in(Group* group, const uint64_t* sums) noexcept nogil:
    """Counts how many different sums there are, and how many of them one row has, or two."""
    cdef Distinct found
    cdef int64_t row
    cdef uint64_t slot, key
    found.all = found.once = found.twice = 0
    memset(group.keys, 0, 8 * (group.mask + 1))
    for row in range(group.count):
        key = sums[row] or 1
        slot = mixed(key) & group.mask
        while group.keys[slot] != 0 and group.keys[slot] != key:
            slot = (slot + 1) & group.mask
        if group.keys[slot] == 0:
            group.keys[slot] = key
            group.counts[slot] = 0
            found.all += 1
        group.counts[slot] += 1
        if group.counts[slot] == 1:
            found.once += 1
        elif group.counts[slot] == 2:
            found.once -= 1
            found.twice += 1
        elif group.counts[slot] == 3:
            found.twice -= 1
    return found


cdef double templates_of(const Group* group, Distinct found, double scale) noexcept nogil:
    """Returns how many templates all rows have, of which these are a sample (Chao 1984)."""
    return min(
        scale * group.count, found.all + <double>found.once * (found.once - 1) / (2.0 * (found.twice + 1))
    )


cdef void change(Group* group, int64_t place, bint takes_out, uint64_t* out) noexcept nogil:
    """Gets the sums of rows without a place, or with it again. out: may be the sums."""
    cdef int64_t row
    cdef uint64_t part
    for row in range(group.count):
        part = part_of(group, row, place)
        out[row] = group.totals[row] - part if takes_out else group.totals[row] + part


cdef int64_t best_place(Group* group, const int64_t* kinds, int64_t places, int64_t different) noexcept nogil:
    """Returns the place without which the fewest different rows are left; -1 if words vary in none.

    kinds: how many different tokens each place has, 0 if it is taken out. different: how many different rows there are.
    """
    cdef int64_t place, best = -1, least = different - different // 16, most = 1
    cdef Distinct left
    for place in range(places):  # one that alone makes hardly any difference counts by its kinds
        if kinds[place] > most:
            best, most = place, kinds[place]
    if different > group.count - group.count // 16 or group.tries[0] < 0:
        return best
    for place in range(places):
        if kinds[place] > 1:
            group.tries[0] -= group.count
            change(group, place, True, group.tried)
            left = distinct_in(group, group.tried)
            if left.all < least:
                best, least = place, left.all
    return best


cdef int64_t bytes_at(const Group* group, int64_t place) noexcept nogil:
    """Returns the bytes that all rows' tokens in a place take as variables, with their lengths."""
    cdef int64_t row, total = group.count
    for row in range(group.count):
        total += group.lengths[group.firsts[group.rows[row]] + place]
    return total


cdef void choose_places(Group* group, double scale, uint64_t* out) noexcept nogil:
    """Sets the bits of the places that are taken out.

    Places are tried one after the other, the best one first, until hardly any templates are left. Of all that was seen, what
    makes the fewest bytes of templates and words stays. scale: all rows to each one of the sample.
    """
    cdef int64_t kinds[MAX_PLACES]
    cdef int64_t taken[MAX_PLACES]
    cdef int64_t row, place, index, count = 0, best = 0, size = 0
    cdef int64_t all_places = group.firsts[group.rows[0] + 1] - group.firsts[group.rows[0]]
    cdef double words = 0, left, cost, least, templates, one
    cdef Distinct found
    memset(group.totals, 0, 8 * group.count)
    for row in range(group.count):
        if group.firsts[group.rows[row] + 1] - group.firsts[group.rows[row]] != all_places:
            return  # two shapes of one hash
        size += group.sizes[group.rows[row]]
    for place in range(all_places):
        for row in range(group.count):
            group.tried[row] = part_of(group, row, place)
            group.totals[row] += group.tried[row]
        kinds[place] = distinct_in(group, group.tried).all
    one = TEMPLATE_WEIGHT * <double>size / group.count
    found = distinct_in(group, group.totals)
    templates = templates_of(group, found, scale)
    least = templates * one
    while templates > FEW_TEMPLATES:
        place = best_place(group, kinds, all_places, found.all)
        if place < 0:
            break
        change(group, place, True, group.totals)
        kinds[place] = 0
        taken[count] = place
        count += 1
        words += scale * bytes_at(group, place)
        found = distinct_in(group, group.totals)
        templates = templates_of(group, found, scale)
        cost = templates * one + words
        if cost < least:
            best, least = count, cost
    while count > best:  # what was taken out in vain
        count -= 1
        change(group, taken[count], False, group.totals)
        words -= scale * bytes_at(group, taken[count])
    for index in range(count):
        place = taken[index]
        change(group, place, False, group.tried)
        left = words - scale * bytes_at(group, place)
        cost = templates_of(group, distinct_in(group, group.tried), scale) * one + left
        if cost <= least:
            least, words = cost, left
            change(group, place, False, group.totals)
        else:
            out[place >> 6] |= <uint64_t>1 << (place & 63)


def choose(
    const int64_t[::1] rows, const int64_t[::1] bounds, const int64_t[::1] firsts, const uint64_t[::1] contents,
    const uint8_t[::1] lengths, const int64_t[::1] sizes, double scale, uint64_t[:, ::1] places,
):
    """Chooses the places where words are taken out, for each shape of a sample.

    rows: those of each shape one after the other, numbers of rows of `firsts`. bounds: where each shape's rows begin, and the
    last one's end. firsts, contents, lengths: see `look`. sizes: the bytes of each row. scale: all rows to each one
    of the sample. places: zeros; gets a bit for each place. Shape (shapes, 4).
    """
    cdef int64_t group_number, most = 1, slots = 2, start, tries = MAX_TRIES
    cdef Group group
    cdef uint64_t* memory
    require(bounds.shape[0] == places.shape[0] + 1 and places.shape[1] == PLACE_WORDS, "it has another length")
    for group_number in range(places.shape[0]):
        most = max(most, bounds[group_number + 1] - bounds[group_number])
    while slots < 2 * most:
        slots *= 2
    memory = <uint64_t*>malloc(8 * (2 * most + slots) + sizeof(int32_t) * slots)
    if memory == NULL:
        raise MemoryError("no memory to choose words")
    group.firsts, group.sizes, group.tries = &firsts[0], &sizes[0], &tries
    group.contents = &contents[0] if contents.shape[0] else NULL
    group.lengths = &lengths[0] if lengths.shape[0] else NULL
    group.totals, group.tried, group.keys = memory, memory + most, memory + 2 * most
    group.counts = <int32_t*>(memory + 2 * most + slots)
    with nogil:
        for group_number in range(places.shape[0]):
            start, group.count = bounds[group_number], bounds[group_number + 1] - bounds[group_number]
            if group.count == 0:
                continue
            group.rows = &rows[start]
            slots = 2
            while slots < 2 * group.count:
                slots *= 2
            group.mask = slots - 1
            choose_places(&group, scale, &places[group_number, 0])
    free(memory)


def words_in(const offset[::1] offsets, const uint8_t[::1] data, uint64_t[::1] shapes, uint64_t[:, ::1] places):
    """Gets the shape of each template, which is that of its strings, and a bit for each token that is a word taken out.

    offsets: ascend. places: zeros. Shape (templates, 4).
    """
    cdef int64_t count = shapes.shape[0], template, longest = 0, size, found, index, words
    cdef uint8_t nothing = 0
    cdef const uint8_t* base = &data[0] if data.shape[0] else &nothing
    cdef const uint8_t* at
    cdef int32_t starts[MAX_PLACES]
    cdef int32_t stops[MAX_PLACES]
    cdef uint64_t* masks
    require(offsets.shape[0] == count + 1, "it has another length")
    require(0 <= offsets[0] and offsets[count] <= data.shape[0], "a buffer is too short")
    require(places.shape[0] == count and places.shape[1] == PLACE_WORDS, "it has another length")
    for template in range(count):
        longest = max(longest, <int64_t>(offsets[template + 1] - offsets[template]))
    words = longest // 64 + 2
    masks = <uint64_t*>malloc(3 * 8 * words)
    if masks == NULL:
        raise MemoryError("no memory for the tokens of a template")
    with nogil:
        for template in range(count):
            at, size = base + offsets[template], offsets[template + 1] - offsets[template]
            find_variables(at, size, base + data.shape[0], masks, masks + words, masks + 2 * words)
            found = find_tokens(at, size, base + data.shape[0], masks, starts, stops, &shapes[template])
            for index in range(found):
                if stops[index] - starts[index] == 1 and at[starts[index]] == WORD:
                    places[template, index >> 6] |= <uint64_t>1 << (index & 63)
    free(masks)


# --- what templates with words may stand for ------------------------------------------------

cdef bint is_one_of(const uint8_t* template, const uint8_t* template_stop, const uint8_t* at, const uint8_t* stop) noexcept nogil:
    """Returns whether a template with some variables is this string."""
    cdef const uint8_t* start
    cdef int64_t digits
    cdef bint has_mark
    while template < template_stop:
        if not is_mark(template[0]):
            if at == stop or at[0] != template[0]:
                return False
            at += 1
        else:
            start, digits, has_mark = at, 0, False
            while at < stop and is_of_token(at[0]):
                digits += is_digit(at[0])
                has_mark |= is_mark(at[0])
                at += 1
            if at == start:
                return False
            if template[0] == NUMBER and (digits < at - start or digits > MAX_NUMBER_DIGITS):
                return False
            if template[0] == TEXT and (
                not (digits or has_mark) or (digits == at - start and digits <= MAX_NUMBER_DIGITS)
            ):
                return False
        template += 1
    return at == stop


def may_be(
    const int64_t[::1] template_offsets, const uint8_t[::1] templates, const int64_t[::1] value_offsets,
    const uint8_t[::1] values, uint8_t[::1] out,
):
    """Finds for each template whether it stands for any of the values, with some variables."""
    cdef int64_t template, value, count = template_offsets.shape[0] - 1
    cdef uint8_t nothing = 0
    cdef const uint8_t* first = &templates[0] if templates.shape[0] else &nothing
    cdef const uint8_t* first_value = &values[0] if values.shape[0] else &nothing
    require(out.shape[0] == count, "it has another length")
    require(template_offsets[count] <= templates.shape[0], "a buffer is too short")
    require(value_offsets[value_offsets.shape[0] - 1] <= values.shape[0], "a buffer is too short")
    with nogil:
        for template in range(count):
            out[template] = 0
            for value in range(value_offsets.shape[0] - 1):
                if is_one_of(
                    first + template_offsets[template], first + template_offsets[template + 1],
                    first_value + value_offsets[value], first_value + value_offsets[value + 1],
                ):
                    out[template] = 1
                    break
