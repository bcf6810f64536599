# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Finds the places of strings where words vary, so that few templates remain (TEMPLATE of SPEC section 5).

Strings of one shape have their tokens in the same places. If these have too many combinations for the number of rows,
places become variables, as few as are needed; a sample tells which. (Drain, ICWS 2017, also looks for places that vary
among strings with equally many tokens, one string at a time, and has no shapes.)
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
    NUMBER_CONTENT = 1  # content of a token in a template: a mark, or the hash of a word, which is greater
    TEXT_CONTENT = 2
    MAX_TOKENS = 1 << 17  # stop sampling here
    MAX_TRIES = 1 << 19  # rows to scan in search of the best places
    FEW_TEMPLATES = 4  # always accept this many templates per shape
    TEMPLATE_WEIGHT = 4  # cost of a byte of a template in bytes of words: merges look each source's templates up

cdef uint64_t PLACE_MULTIPLIER = 0x9E3779B97F4A7C15ULL


def look(const offset[::1] offsets, const uint8_t[::1] data, const int64_t[::1] rows):
    """Collects the tokens of some rows, none of them null.

    Stops at `MAX_TOKENS`. Returns arrays of 64-bit integers: the shape of each row seen; the index of each row's first
    token, and the end; each token's content in a template, equal for all numbers, for all texts, and for equal words.
    Also bytes: the length of each token, capped at 255.
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
    """Returns whether any bit from `start` to below `stop` is set."""
    cdef int64_t word = start >> 6
    cdef uint64_t found = bits[word] & ~<uint64_t>0 << (start & 63)
    while not found and 64 * (word + 1) < stop:
        word += 1
        found = bits[word]
    return found != 0 and 64 * word + lowest_bit(found) < stop


cdef struct ShapeRows:
    # The sampled rows of one shape.
    int64_t count
    const int64_t* rows
    const int64_t* firsts
    const uint64_t* contents
    const uint8_t* lengths
    const int64_t* sizes  # bytes of the strings
    uint64_t* totals  # for each row, the sum of its parts in places that are not variables
    uint64_t* tried
    uint64_t* keys  # hash table of sums, with the number of rows for each
    int32_t* counts
    uint64_t mask
    int64_t* tries  # rows left to scan in search of the best place


cdef struct Distinct:
    int64_t all
    int64_t once
    int64_t twice


cdef inline uint64_t part_of(const ShapeRows* sample, int64_t row, int64_t place) noexcept nogil:
    return mixed(sample.contents[sample.firsts[sample.rows[row]] + place] + <uint64_t>(place + 1) * PLACE_MULTIPLIER) | 1


cdef Distinct distinct_in(ShapeRows* sample, const uint64_t* sums) noexcept nogil:
    """Counts the distinct sums, and those of exactly one and of exactly two rows."""
    cdef Distinct found
    cdef int64_t row
    cdef uint64_t slot, key
    found.all = found.once = found.twice = 0
    memset(sample.keys, 0, 8 * (sample.mask + 1))
    for row in range(sample.count):
        key = sums[row] or 1
        slot = mixed(key) & sample.mask
        while sample.keys[slot] != 0 and sample.keys[slot] != key:
            slot = (slot + 1) & sample.mask
        if sample.keys[slot] == 0:
            sample.keys[slot] = key
            sample.counts[slot] = 0
            found.all += 1
        sample.counts[slot] += 1
        if sample.counts[slot] == 1:
            found.once += 1
        elif sample.counts[slot] == 2:
            found.once -= 1
            found.twice += 1
        elif sample.counts[slot] == 3:
            found.twice -= 1
    return found


cdef double templates_of(const ShapeRows* sample, Distinct found, double scale) noexcept nogil:
    """Estimates the number of templates of all rows from the sample (Chao 1984)."""
    return min(
        scale * sample.count, found.all + <double>found.once * (found.once - 1) / (2.0 * (found.twice + 1))
    )


cdef void change(ShapeRows* sample, int64_t place, bint takes_out, uint64_t* out) noexcept nogil:
    """Computes the sums of rows without a place, or with it restored. out: may be the sums."""
    cdef int64_t row
    cdef uint64_t part
    for row in range(sample.count):
        part = part_of(sample, row, place)
        out[row] = sample.totals[row] - part if takes_out else sample.totals[row] + part


cdef int64_t best_place(ShapeRows* sample, const int64_t* kinds, int64_t places, int64_t different) noexcept nogil:
    """Returns the place whose removal leaves the fewest distinct rows; -1 if no place varies.

    kinds: number of distinct tokens of each place, 0 if it is a variable. different: number of distinct rows.
    """
    cdef int64_t place, best = -1, least = different - different // 16, most = 1
    cdef Distinct left
    for place in range(places):  # fallback if no single place makes a difference: the most distinct tokens
        if kinds[place] > most:
            best, most = place, kinds[place]
    if different > sample.count - sample.count // 16 or sample.tries[0] < 0:
        return best
    for place in range(places):
        if kinds[place] > 1:
            sample.tries[0] -= sample.count
            change(sample, place, True, sample.tried)
            left = distinct_in(sample, sample.tried)
            if left.all < least:
                best, least = place, left.all
    return best


cdef int64_t bytes_at(const ShapeRows* sample, int64_t place) noexcept nogil:
    """Returns the bytes of all rows' tokens in a place as variables, with their lengths."""
    cdef int64_t row, total = sample.count
    for row in range(sample.count):
        total += sample.lengths[sample.firsts[sample.rows[row]] + place]
    return total


cdef void choose_places(ShapeRows* sample, double scale, uint64_t* out) noexcept nogil:
    """Sets the bits of the places that become variables.

    Adds places one by one, the best first, until few templates remain. Keeps the state with the fewest bytes of
    templates and words. scale: rows of the array per row of the sample.
    """
    cdef int64_t kinds[MAX_PLACES]
    cdef int64_t taken[MAX_PLACES]
    cdef int64_t row, place, index, count = 0, best = 0, size = 0
    cdef int64_t all_places = sample.firsts[sample.rows[0] + 1] - sample.firsts[sample.rows[0]]
    cdef double words = 0, left, cost, least, templates, one
    cdef Distinct found
    memset(sample.totals, 0, 8 * sample.count)
    for row in range(sample.count):
        if sample.firsts[sample.rows[row] + 1] - sample.firsts[sample.rows[row]] != all_places:
            return  # two shapes of one hash
        size += sample.sizes[sample.rows[row]]
    for place in range(all_places):
        for row in range(sample.count):
            sample.tried[row] = part_of(sample, row, place)
            sample.totals[row] += sample.tried[row]
        kinds[place] = distinct_in(sample, sample.tried).all
    one = TEMPLATE_WEIGHT * <double>size / sample.count
    found = distinct_in(sample, sample.totals)
    templates = templates_of(sample, found, scale)
    least = templates * one
    while templates > FEW_TEMPLATES:
        place = best_place(sample, kinds, all_places, found.all)
        if place < 0:
            break
        change(sample, place, True, sample.totals)
        kinds[place] = 0
        taken[count] = place
        count += 1
        words += scale * bytes_at(sample, place)
        found = distinct_in(sample, sample.totals)
        templates = templates_of(sample, found, scale)
        cost = templates * one + words
        if cost < least:
            best, least = count, cost
    while count > best:  # undo the steps behind the best state
        count -= 1
        change(sample, taken[count], False, sample.totals)
        words -= scale * bytes_at(sample, taken[count])
    for index in range(count):
        place = taken[index]
        change(sample, place, False, sample.tried)
        left = words - scale * bytes_at(sample, place)
        cost = templates_of(sample, distinct_in(sample, sample.tried), scale) * one + left
        if cost <= least:
            least, words = cost, left
            change(sample, place, False, sample.totals)
        else:
            out[place >> 6] |= <uint64_t>1 << (place & 63)


def choose(
    const int64_t[::1] rows, const int64_t[::1] bounds, const int64_t[::1] firsts, const uint64_t[::1] contents,
    const uint8_t[::1] lengths, const int64_t[::1] sizes, double scale, uint64_t[:, ::1] places,
):
    """Chooses the places of varying words for each shape of a sample.

    rows: indices into `firsts`, ordered by shape. bounds: the first row of each shape, and the end. firsts, contents,
    lengths: see `look`. sizes: the bytes of each row. scale: rows of the array per row of the sample. places: zeros;
    receives a bit for each place. Shape (shapes, 4).
    """
    cdef int64_t shape_number, most = 1, slots = 2, start, tries = MAX_TRIES
    cdef ShapeRows sample
    cdef uint64_t* memory
    require(bounds.shape[0] == places.shape[0] + 1 and places.shape[1] == PLACE_WORDS, "it has another length")
    for shape_number in range(places.shape[0]):
        most = max(most, bounds[shape_number + 1] - bounds[shape_number])
    while slots < 2 * most:
        slots *= 2
    memory = <uint64_t*>malloc(8 * (2 * most + slots) + sizeof(int32_t) * slots)
    if memory == NULL:
        raise MemoryError("no memory to choose words")
    sample.firsts, sample.sizes, sample.tries = &firsts[0], &sizes[0], &tries
    sample.contents = &contents[0] if contents.shape[0] else NULL
    sample.lengths = &lengths[0] if lengths.shape[0] else NULL
    sample.totals, sample.tried, sample.keys = memory, memory + most, memory + 2 * most
    sample.counts = <int32_t*>(memory + 2 * most + slots)
    with nogil:
        for shape_number in range(places.shape[0]):
            start, sample.count = bounds[shape_number], bounds[shape_number + 1] - bounds[shape_number]
            if sample.count == 0:
                continue
            sample.rows = &rows[start]
            slots = 2
            while slots < 2 * sample.count:
                slots *= 2
            sample.mask = slots - 1
            choose_places(&sample, scale, &places[shape_number, 0])
    free(memory)


def words_in(const offset[::1] offsets, const uint8_t[::1] data, uint64_t[::1] shapes, uint64_t[:, ::1] places):
    """Writes the shape of each template, which is that of its strings, and a bit for each token that is a WORD mark.

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


# --- which strings a template can stand for -------------------------------------------------

cdef bint is_one_of(const uint8_t* template, const uint8_t* template_stop, const uint8_t* at, const uint8_t* stop) noexcept nogil:
    """Returns whether a template, with some variables, gives this string."""
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
    """Finds for each template whether it can give any of the values."""
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
