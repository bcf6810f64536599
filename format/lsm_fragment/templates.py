"""Holds strings as templates and variables: the form in which merges move them and queries look at them.

A templated array is a struct of a dictionary-coded `template` and of its variables, `numbers` and `texts`, as
bytes that `lsm_fragment.native.templates` describes. Nulls are those of the struct. No column is stored
under such a type, so it is told from others by its type alone. It stands for strings: `joined` gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment import native
from lsm_fragment.alphabets import BITS
from lsm_fragment.arrays.buffers import binary_parts, dictionary_codes, fixed_width_view
from lsm_fragment.encodings.node import IntArray
from lsm_fragment.moves import keep
from lsm_fragment.native.text import is_ascii
from lsm_fragment.types import is_large_offsets, is_templated, value_type

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
Bits = npt.NDArray[np.bool_]

NUMBER: Final = 0x11
"""The mark of a variable of 1 to 19 digits."""
WORD: Final = 0x13
"""The mark of a variable that may be any token."""
TEMPLATES_SHARE: Final = 4
"""Rows to each template, at least, for which templates are worth their place."""
MOST_GROWTH: Final = 3
"""Bytes of text that a byte of a number makes at most."""
SLACK_BYTES: Final = 32
"""Bytes behind templates and text that native code may touch."""
_TEMPLATE_BYTES: Final = 32
_SLOT_BYTES: Final = 32
_LARGE_OFFSET_BYTES: Final = 8
_PLACE_WORDS: Final = 4
"""Words of bits for the tokens of a shape."""
_LOOKED_AT_ROWS: Final = 4096
_ROUNDS: Final = 16
_LOOKED_AT_BYTES: Final = 1 << 20
"""The most rows and text that are looked at to find words that vary."""
_MANY_TEMPLATES_SHARE: Final = 32
"""Rows to each template from which words are not looked at."""
_NEVER_MANY: Final = 64
"""Templates up to which they are not looked at either."""
_MAX_OFFSET_32: Final = 2**31 - 1


class Layout(NamedTuple):
    """Templates divided at their marks, as native code takes them."""

    offsets: I64
    """Where each template begins, and the last one ends. Shape (templates + 1,)."""
    data: U8
    """The templates' bytes, and `SLACK_BYTES` behind them."""
    firsts: I64
    """The number of each template's first slot among all slots, and how many there are. Shape
    (templates + 1,)."""
    places: I64
    """Where the mark of each slot is in `data`. Shape (slots,)."""
    kinds: U8
    """The mark of each slot."""

    def have_words(self) -> Bits:
        """Returns which templates have words as variables. Shape (templates,)."""
        before = np.cumsum(np.append(0, self.kinds == WORD))[self.firsts]
        has_any: Bits = before[1:] > before[:-1]
        return has_any

    def may_be(self, values: pa.Array) -> Bits:
        """Returns which templates stand for any of the values, with some variables. Shape (templates,).

        Takes time for each template and value.
        """
        offsets, data = binary_parts(values)
        found = np.empty(len(self.offsets) - 1, dtype=np.uint8)
        native.varying.may_be(
            self.offsets, self.data, offsets.astype(np.int64), native.as_bytes(data), found
        )
        return found.view(np.bool_)


def count_marks(templates: pa.Array) -> int:
    """Returns how many slots templates have, without taking memory for them."""
    offsets, data = binary_parts(templates)
    return native.templates.count_marks(native.as_bytes(data[int(offsets[0]) : int(offsets[-1])]))


class Slots(NamedTuple):
    """How many slots templates have."""

    numbers: I32
    """Those of each template for numbers."""
    texts: I32
    """Those of each template for texts."""
    all_numbers: int
    all_texts: int


def slots_of(templates: pa.Array) -> Slots:
    """Counts the slots of templates. templates: strings without nulls."""
    offsets, data = binary_parts(templates)
    numbers, texts = np.empty((2, len(templates)), dtype=np.int32)
    found = native.templates.count_slots(offsets, native.as_bytes(data), numbers, texts)
    return Slots(numbers, texts, *found)


def layout_of(templates: pa.Array, slots: int | None = None) -> Layout:
    """Divides templates. templates: strings without nulls. slots: how many they have, if that is known."""
    offsets, data = binary_parts(templates)
    start, stop = int(offsets[0]), int(offsets[-1])
    seen = np.zeros(stop - start + SLACK_BYTES, dtype=np.uint8)
    seen[: stop - start] = native.as_bytes(data[start:stop])
    starts = offsets.astype(np.int64) - start
    slots = native.templates.count_marks(seen) if slots is None else slots
    layout = Layout(
        starts,
        seen,
        np.empty(len(starts), dtype=np.int64),
        np.empty(slots, dtype=np.int64),
        np.empty(slots, dtype=np.uint8),
    )
    native.templates.find_marks(*layout)
    return layout


class TemplatedRows(NamedTuple):
    """A templated array, as native code takes it."""

    template_offsets: I64
    """This and what follows is `Layout`."""
    templates: U8
    firsts: I64
    places: I64
    kinds: U8
    codes: I32
    number_ends: I32
    """Where the numbers of each row begin, and the last ones end. Shape (rows + 1,)."""
    numbers: U8
    text_ends: I32
    """The same of the texts."""
    texts: U8
    valid: U8 | None
    """The validity bitmap, None if nothing is null."""
    first_bit: int


def rows_of(array: pa.Array) -> TemplatedRows:
    """Returns what native code takes of a templated array."""
    number_ends, numbers = binary_parts(numbers_of(array))
    text_ends, texts = binary_parts(texts_of(array))
    return TemplatedRows(
        *layout_of(templates_of(array)),
        codes_of(array),
        number_ends,
        native.as_bytes(numbers),
        text_ends,
        native.as_bytes(texts),
        *native.validity(array),
    )


def templated_type(dtype: pa.DataType) -> pa.DataType:
    """Returns the type of templated arrays that stand for strings of type `dtype`."""
    template = pa.dictionary(pa.int32(), dtype)
    return pa.struct([("template", template), ("numbers", pa.binary()), ("texts", pa.binary())])


def templates_of(array: pa.Array) -> pa.Array:
    """Returns the templates of a templated array; rows may use only some."""
    return array.field(0).dictionary


def coded_templates(array: pa.Array) -> pa.Array:
    """Returns each row's template, dictionary-coded, with the nulls of the array."""
    buffers = [_bitmap(array), pa.py_buffer(codes_of(array))]
    indices = pa.Array.from_buffers(pa.int32(), len(array), buffers, array.null_count)
    return pa.DictionaryArray.from_arrays(indices, templates_of(array), safe=False)


def codes_of(array: pa.Array) -> IntArray:
    """Returns the number of each row's template, without copying; null places hold anything."""
    return dictionary_codes(array.field(0))


def numbers_of(array: pa.Array) -> pa.Array:
    """Returns each row's numbers as bytes."""
    return array.field(1)


def texts_of(array: pa.Array) -> pa.Array:
    """Returns each row's texts as bytes."""
    return array.field(2)


def templated(templates: pa.Array, codes: pa.Array, numbers: pa.Array, texts: pa.Array) -> pa.Array:
    """Makes a templated array, null where codes are. The caller guarantees that each row has the variables of
    its template.

    codes: integers of 32 bits, below the number of templates where they are not null.
    """
    buffers = [None, codes.buffers()[1]]
    indices = pa.Array.from_buffers(pa.int32(), len(codes), buffers, 0, codes.offset)
    coded = pa.DictionaryArray.from_arrays(indices, templates, safe=False)
    return pa.Array.from_buffers(
        templated_type(templates.type),
        len(codes),
        [_bitmap(codes)],
        codes.null_count,
        children=[coded, numbers, texts],
    )


class VaryingWords(NamedTuple):
    """Where words are variables, by shapes of strings."""

    shapes: U64
    """Hashes of shapes, ascending. Shape (n,)."""
    places: U64
    """A bit for each token of the shape. Shape (n, 4)."""


NO_VARYING_WORDS: Final = VaryingWords(
    np.empty(0, dtype=np.uint64), np.empty((0, _PLACE_WORDS), dtype=np.uint64)
)


def find_varying_words(array: pa.Array) -> VaryingWords:
    """Finds where words vary so much in strings that they would make too many templates.

    Looks at rows that are spread over all of them.
    """
    offsets, data = binary_parts(array)
    rows = _spread_rows(array, offsets)
    if not len(rows):
        return NO_VARYING_WORDS
    found = native.varying.look(offsets, native.as_bytes(data), rows)
    shapes, firsts = np.frombuffer(found[0], np.uint64), np.frombuffer(found[1], np.int64)
    rows = rows[: len(shapes)]
    order = np.argsort(shapes, kind="stable")
    in_order = shapes[order]
    begins = _begins(in_order)
    places = np.zeros((len(begins), _PLACE_WORDS), dtype=np.uint64)
    native.varying.choose(
        order, np.append(begins, len(order)), firsts, np.frombuffer(found[2], np.uint64),
        np.frombuffer(found[3], np.uint8), (offsets[rows + 1] - offsets[rows]).astype(np.int64),
        len(array) / len(rows), places,
    )  # fmt: skip
    has_any = places.any(axis=1)
    return VaryingWords(in_order[begins[has_any]], places[has_any])


def _begins(ascending: U64) -> I64:
    """Returns where each of the values begins; there is one at least."""
    return np.flatnonzero(np.diff(ascending, prepend=~ascending[:1]))


def varying_words_in(arrays: Iterable[pa.Array]) -> VaryingWords:
    """Returns the words that templates have as variables. arrays: strings without nulls."""
    found = [_words_of(array) for array in arrays]
    shapes = np.concatenate([NO_VARYING_WORDS.shapes, *(words.shapes for words in found)])
    if not len(shapes):
        return NO_VARYING_WORDS
    places = np.concatenate([words.places for words in found])
    order = np.argsort(shapes, kind="stable")
    shapes = shapes[order]
    begins = _begins(shapes)
    return VaryingWords(shapes[begins], np.bitwise_or.reduceat(places[order], begins))


def _words_of(templates: pa.Array) -> VaryingWords:
    """Returns the words of each template that has any, in the order of the templates."""
    offsets, data = binary_parts(templates)
    shapes = np.empty(len(templates), dtype=np.uint64)
    places = np.zeros((len(templates), _PLACE_WORDS), dtype=np.uint64)
    native.varying.words_in(offsets, native.as_bytes(data), shapes, places)
    has_any = places.any(axis=1)
    return VaryingWords(shapes[has_any], places[has_any])


def have_words(templates: pa.Array) -> bool:
    """Returns whether any of the templates has words as variables."""
    offsets, data = binary_parts(templates)
    return bool((native.as_bytes(data[int(offsets[0]) : int(offsets[-1])]) == WORD).any())


def _spread_rows(array: pa.Array, offsets: npt.NDArray[Any]) -> I64:
    """Returns rows of a sample without nulls and very long strings. The first of them are spread, too."""
    rows = np.linspace(0, max(0, len(array) - 1), min(len(array), _LOOKED_AT_ROWS), dtype=np.int64)
    rows = np.concatenate([rows[first::_ROUNDS] for first in range(_ROUNDS)])
    lengths = (offsets[rows + 1] - offsets[rows]).astype(np.int64)
    is_chosen = lengths <= _LOOKED_AT_BYTES // _ROUNDS
    if array.null_count:
        is_chosen &= array.is_valid().to_numpy(zero_copy_only=False)[rows]
    chosen: I64 = rows[is_chosen & (np.cumsum(lengths * is_chosen) <= _LOOKED_AT_BYTES)]
    return chosen


class Divided(NamedTuple):
    array: pa.Array
    """A templated array."""
    alphabets: U64
    """The bytes of each slot of texts (`lsm_fragment.alphabets`)."""


def split(
    array: pa.Array, most_templates: int, words: VaryingWords = NO_VARYING_WORDS
) -> pa.Array | None:
    """Divides strings into a templated array; see `divide`."""
    divided = divide(array, most_templates, words)
    return None if divided is None else divided.array


def split_into_few(array: pa.Array) -> pa.Array | None:
    """Divides strings into a templated array, with words as variables where it has many templates without."""
    divided = split(array, len(array))
    if divided is None or not has_many_templates(len(templates_of(divided)), len(array)):
        return divided
    return split(array, len(array), find_varying_words(array))


def has_many_templates(templates: float, rows: int) -> bool:
    """Returns whether rows have so many templates that words may vary in them."""
    return templates > max(_NEVER_MANY, rows / _MANY_TEMPLATES_SHARE)


def divide(
    array: pa.Array, most_templates: int, words: VaryingWords = NO_VARYING_WORDS
) -> Divided | None:
    """Divides strings into templates, in the order of their first use, and variables.

    words: those that are variables besides tokens with digits. Returns None if there are more templates than
    `most_templates` or none, or more bytes than offsets of 32 bits reach.
    """
    rows = len(array)
    offsets, data = binary_parts(array)
    size = int(offsets[-1]) - int(offsets[0])
    # Numbers take no more bytes than their digits. Texts do not touch, so that each has a byte more for its
    # length, and one for every 128 bytes.
    room = size + rows + size // 128
    if room > _MAX_OFFSET_32 or array.null_count == rows:
        return None
    codes = np.empty(rows, dtype=np.int32)
    number_ends, text_ends = np.empty((2, rows + 1), dtype=np.int32)
    numbers, texts = _room_for(size), _room_for(room)
    found = native.tokens.divide(
        offsets, native.as_bytes(data), *native.validity(array), most_templates, BITS, *words,
        codes, number_ends, numbers, text_ends, texts,
    )  # fmt: skip
    if found is None:
        return None
    starts, templates = np.frombuffer(found[0], dtype=np.int64), found[1]
    if not is_large_offsets(array.type):
        starts = starts.astype(np.int32)
    divided = templated(
        pa.Array.from_buffers(
            array.type, len(starts) - 1, [None, pa.py_buffer(starts), pa.py_buffer(templates)], 0
        ),
        pa.Array.from_buffers(
            pa.int32(), rows, [_bitmap(array), pa.py_buffer(codes)], array.null_count
        ),
        _binaries(number_ends, pa.py_buffer(numbers[: number_ends[-1]])),
        _binaries(text_ends, pa.py_buffer(texts[: text_ends[-1]])),
    )
    return Divided(divided, np.frombuffer(found[2], dtype=np.uint64))


class StoredRows(NamedTuple):
    """Rows as a chunk has them, of whose variables nothing is believed."""

    templates: pa.Array
    slots: Slots
    """Of the templates."""
    codes: pa.Array
    """See `templated`."""
    numbers: pa.Buffer
    texts: pa.Buffer


def stored(rows: StoredRows, charge: Callable[[int], None]) -> pa.Array:
    """Makes a templated array of stored rows.

    charge: called with the bytes that checking takes, before they are allocated. Raises `ValueError` if the
    variables are not those of the rows' templates.
    """
    templates, slots, codes, numbers, texts = rows
    if max(numbers.size, texts.size) > _MAX_OFFSET_32:
        raise ValueError("variables of templates exceed 32-bit offsets")
    number_ends, text_ends = np.empty((2, len(codes) + 1), dtype=np.int32)
    characters = None
    if not is_ascii(texts):
        charge(texts.size)
        characters = np.zeros(texts.size, dtype=np.uint8)
    if not native.templates.find_ends(
        slots.numbers, slots.texts, fixed_width_view(codes, np.int32), *native.validity(codes),
        native.as_bytes(numbers), native.as_bytes(texts), number_ends, text_ends, characters,
    ):  # fmt: skip
        raise ValueError("templates have other variables than there are")
    if characters is not None:
        _check_characters(characters)
    return templated(templates, codes, _binaries(number_ends, numbers), _binaries(text_ends, texts))


def _check_characters(texts: U8) -> None:
    """Raises `ValueError` if a text is not UTF-8. texts: with zeros between them, which no character reaches
    across."""
    ends = np.array([0, len(texts)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(texts)]
    pa.Array.from_buffers(pa.large_string(), 1, buffers, 0).validate(full=True)


def joined(array: pa.Array) -> pa.Array:
    """Returns the strings that a templated array stands for.

    Raises `pa.ArrowInvalid` where 32-bit offsets do not reach.
    """
    rows, is_large = rows_of(array), is_large_offsets(value_type(array.type))
    size = most_text_bytes(array)
    if not is_large and size > _MAX_OFFSET_32:
        size = native.templates.join_lengths(*rows, np.empty(len(array), dtype=np.int64))
        if size > _MAX_OFFSET_32:
            raise pa.ArrowInvalid(f"{size} bytes of strings exceed 32-bit offsets")
    offsets, text = _room_for_text(len(array), size, is_large=is_large)
    native.templates.join(*rows, offsets, text)
    return _strings(array, value_type(array.type), offsets, text)


def joined_stored(
    rows: StoredRows, layout: Layout, charge: Callable[[int], None], chosen: Bits | None = None
) -> pa.Array:
    """Returns the strings of stored rows.

    layout: of the templates. charge: called with the size before memory is allocated for it. chosen: the rows
    to return; None for all. Raises `ValueError` if the variables are not those of the rows' templates.
    """
    templates, _, codes, numbers, texts = rows
    values = (fixed_width_view(codes, np.int32), *native.validity(codes))
    size = native.templates.most_stored_bytes(*layout, *values, numbers.size, texts.size)
    charge(_LARGE_OFFSET_BYTES * len(codes) + size)
    is_large = is_large_offsets(templates.type)
    if not is_large and size > _MAX_OFFSET_32:
        array = stored(rows, charge)
        return joined(array if chosen is None else keep(array, chosen))
    returned = codes if chosen is None else codes.filter(pa.array(chosen))
    offsets, text = _room_for_text(len(returned), size, is_large=is_large)
    if not native.templates.join_stored(
        *layout, *values, native.as_bytes(numbers), native.as_bytes(texts), native.as_flags(chosen),
        offsets, text,
    ):  # fmt: skip
        raise ValueError("templates have other variables than there are")
    strings = _strings(returned, templates.type, offsets, text)
    if not is_ascii(texts):
        strings.validate(full=True)
    return strings


def _room_for_text(rows: int, size: int, *, is_large: bool) -> tuple[npt.NDArray[Any], U8]:
    """Returns memory for the offsets of strings, and for at most so many bytes of them."""
    offsets = np.empty(rows + 1, np.int64 if is_large else np.int32)
    return offsets, _room_for(size)


def _strings(rows: pa.Array, dtype: pa.DataType, offsets: npt.NDArray[Any], text: U8) -> pa.Array:
    """Makes strings that are null where `rows` are."""
    used = text[: offsets[-1]]
    if len(used) < len(text) // 2:  # strings must not hold much more memory than they have bytes
        used = used.copy()
    buffers = [_bitmap(rows), pa.py_buffer(offsets), pa.py_buffer(used)]
    return pa.Array.from_buffers(dtype, len(rows), buffers, rows.null_count)


def most_text_bytes(array: pa.Array, slots: Slots | None = None) -> int:
    """Returns an upper bound of the text of all rows, without looking at their variables.

    slots: of the templates, if they were counted.
    """
    templates = templates_of(array)
    counted = slots or slots_of(templates)
    return native.templates.most_bytes(
        binary_parts(templates)[0], counted.numbers, counted.texts, codes_of(array),
        binary_parts(numbers_of(array))[0], binary_parts(texts_of(array))[0], *native.validity(array),
    )  # fmt: skip


class TextSurvey(NamedTuple):
    """What is asked of a templated array when it is written."""

    contributions: U64
    """What each row adds to the row hash (SPEC section 7). Shape (rows,)."""
    alphabets: U64
    """The bytes of each slot of texts (`lsm_fragment.alphabets`)."""
    text_bytes: int
    """The bytes of all rows' text."""
    extremes: pa.Array
    """The least and the greatest text; nothing where all rows are null."""


def survey_texts(array: pa.Array, seed: int = 0) -> TextSurvey:
    """Looks at each row of a templated array once. seed: of the column, for the row hash."""
    rows, dtype = rows_of(array), value_type(array.type)
    contributions = np.empty(len(array), dtype=np.uint64)
    alphabets = np.zeros(len(rows.kinds), dtype=np.uint64)
    between = np.zeros(len(rows.template_offsets) - 1, dtype=np.int64)
    text_bytes, *extremes = native.templates.survey(
        *rows, seed, BITS, contributions, alphabets, between
    )
    found = pa.array([text for text in extremes if text is not None], pa.binary())
    return TextSurvey(contributions, alphabets[rows.kinds != NUMBER], text_bytes, found.cast(dtype))


def layout_bytes(templates: int, slots: int) -> int:
    """Returns what a reader keeps of templates and slots while it decodes."""
    return _TEMPLATE_BYTES * templates + _SLOT_BYTES * slots


def text(array: pa.Array) -> pa.Array:
    """Returns an array as it is, a templated one joined."""
    return joined(array) if is_templated(array.type) else array


def text_lengths(array: pa.Array) -> I64:
    """Returns the bytes of each row's text, 0 for nulls."""
    lengths = np.empty(len(array), dtype=np.int64)
    native.templates.join_lengths(*rows_of(array), lengths)
    return lengths


def _room_for(size: int) -> U8:
    """Returns bytes of any content, and `SLACK_BYTES` more, in Arrow's pool, whose pages are reused."""
    return np.frombuffer(pa.allocate_buffer(size + SLACK_BYTES), dtype=np.uint8)


def _binaries(ends: I32, data: pa.Buffer) -> pa.Array:
    """Makes an array of binaries, none of them null."""
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), data], 0)


def _bitmap(array: pa.Array) -> pa.Buffer | None:
    """Returns the validity of an array as a bitmap that begins with its first row."""
    if not array.null_count:
        return None
    if array.offset % 8 == 0:
        return array.buffers()[0].slice(array.offset // 8)
    bits = array.is_valid()
    return bits.buffers()[1]
