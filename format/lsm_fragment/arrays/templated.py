"""Templated arrays: strings as templates and variables, which merges move and queries read.

A templated array is a struct of a dictionary-coded `template` and its variables, `numbers` and `texts`, as
bytes in the form of `lsm_fragment.native.encodings.templates`. Nulls are those of the struct. No column has
such a storage type, so the type alone identifies it. `joined` gives the strings that it stands for.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment import native
from lsm_fragment.arrays.alphabets import BITS
from lsm_fragment.arrays.buffers import binary_parts, dictionary_codes, validity_bitmap
from lsm_fragment.arrays.types import (
    MAX_OFFSET_32,
    is_large_offsets,
    is_templated,
    is_worded,
    value_type,
)
from lsm_fragment.arrays.worded import expanded
from lsm_fragment.encodings.node import IntArray

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
Bits = npt.NDArray[np.bool_]

NUMBER: Final = 0x11
"""The mark of a variable of 1 to 19 digits."""
WORD: Final = 0x13
"""The mark of a token taken as a word."""
_NEW_DIVISOR: Final = 16
"""Divide strings only if there are at least this many rows per template: merges look templates up for each
input, and many cost more time than the text."""
_FEW_TEMPLATES: Final = 1024
"""Let up to this many templates have fewer rows: young fragments are small, and merges search anew."""
_KEPT_DIVISOR: Final = 4
"""Join strings that are divided if there are fewer rows per template."""
MAX_GROWTH: Final = 3
"""Maximum bytes of text per byte of a number."""
SLACK_BYTES: Final = 32
"""Bytes behind templates and text that native code may read or write."""
_TEMPLATE_BYTES: Final = 32
_SLOT_BYTES: Final = 32
LARGE_OFFSET_BYTES: Final = 8
PLACE_WORDS: Final = 4
"""Words of bits for the tokens of a shape."""


class Layout(NamedTuple):
    """Templates and the positions of their marks, in native form."""

    offsets: I64
    """Offsets of the templates. Shape (templates + 1,)."""
    data: U8
    """The templates' bytes, followed by `SLACK_BYTES`."""
    firsts: I64
    """Index of each template's first slot, and the number of slots. Shape (templates + 1,)."""
    places: I64
    """Position of each slot's mark in `data`. Shape (slots,)."""
    kinds: U8
    """The mark of each slot."""

    def have_words(self) -> Bits:
        """Returns which templates have words as variables. Shape (templates,)."""
        before = np.cumsum(np.append(0, self.kinds == WORD))[self.firsts]
        has_any: Bits = before[1:] > before[:-1]
        return has_any

    def may_be(self, values: pa.Array) -> Bits:
        """Returns which templates can give any of the values, with some variables. Shape (templates,).

        Takes time proportional to templates times values.
        """
        offsets, data = binary_parts(values)
        found = np.empty(len(self.offsets) - 1, dtype=np.uint8)
        native.encodings.varying.may_be(
            self.offsets, self.data, offsets.astype(np.int64), native.as_bytes(data), found
        )
        return found.view(np.bool_)


def max_templates(rows: int) -> int:
    """Returns the maximum number of templates into which this many strings are divided."""
    return min(max_kept_templates(rows), max(_FEW_TEMPLATES, rows // _NEW_DIVISOR))


def max_kept_templates(rows: int) -> int:
    """Returns the maximum number of templates of this many strings that are divided already."""
    return rows // _KEPT_DIVISOR


def count_marks(templates: pa.Array) -> int:
    """Returns the number of slots in templates, without allocating them."""
    offsets, data = binary_parts(templates)
    return native.encodings.templates.count_marks(
        native.as_bytes(data[int(offsets[0]) : int(offsets[-1])])
    )


class Slots(NamedTuple):
    """Numbers of slots in templates."""

    numbers: I32
    """Slots for numbers of each template."""
    texts: I32
    """Slots for texts of each template."""
    all_numbers: int
    all_texts: int


def slots_of(templates: pa.Array) -> Slots:
    """Counts the slots of templates. templates: strings without nulls."""
    offsets, data = binary_parts(templates)
    numbers, texts = np.empty((2, len(templates)), dtype=np.int32)
    found = native.encodings.templates.count_slots(offsets, native.as_bytes(data), numbers, texts)
    return Slots(numbers, texts, *found)


def layout_of(templates: pa.Array, slots: int | None = None) -> Layout:
    """Finds the marks of templates. templates: strings without nulls. slots: their number, if known."""
    offsets, data = binary_parts(templates)
    start, stop = int(offsets[0]), int(offsets[-1])
    seen = np.zeros(stop - start + SLACK_BYTES, dtype=np.uint8)
    seen[: stop - start] = native.as_bytes(data[start:stop])
    starts = offsets.astype(np.int64) - start
    slots = native.encodings.templates.count_marks(seen) if slots is None else slots
    layout = Layout(
        starts,
        seen,
        np.empty(len(starts), dtype=np.int64),
        np.empty(slots, dtype=np.int64),
        np.empty(slots, dtype=np.uint8),
    )
    native.encodings.templates.find_marks(*layout)
    return layout


class TemplatedRows(NamedTuple):
    """A templated array, in native form."""

    template_offsets: I64
    """The first fields are those of `Layout`."""
    templates: U8
    firsts: I64
    places: I64
    kinds: U8
    codes: I32
    number_ends: I32
    """Offsets of the numbers of each row. Shape (rows + 1,)."""
    numbers: U8
    text_ends: I32
    """Offsets of the texts of each row. Shape (rows + 1,)."""
    texts: U8
    valid: U8 | None
    """The validity bitmap; None if nothing is null."""
    first_bit: int


def rows_of(array: pa.Array) -> TemplatedRows:
    """Converts a templated array to native form."""
    number_ends, numbers = binary_parts(numbers_of(array))
    text_ends, texts = binary_parts(texts_of(array))
    valid, first_bit = native.validity(array)
    return TemplatedRows(
        *layout_of(templates_of(array)),
        codes=codes_of(array),
        number_ends=number_ends,
        numbers=native.as_bytes(numbers),
        text_ends=text_ends,
        texts=native.as_bytes(texts),
        valid=valid,
        first_bit=first_bit,
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
    buffers = [validity_bitmap(array), pa.py_buffer(codes_of(array))]
    indices = pa.Array.from_buffers(pa.int32(), len(array), buffers, array.null_count)
    return pa.DictionaryArray.from_arrays(indices, templates_of(array), safe=False)


def codes_of(array: pa.Array) -> IntArray:
    """Returns the code of each row's template, without copying; null places hold anything."""
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

    codes: 32-bit integers below the number of templates where they are not null.
    """
    buffers = [None, codes.buffers()[1]]
    indices = pa.Array.from_buffers(pa.int32(), len(codes), buffers, 0, codes.offset)
    coded = pa.DictionaryArray.from_arrays(indices, templates, safe=False)
    return pa.Array.from_buffers(
        templated_type(templates.type),
        len(codes),
        [validity_bitmap(codes)],
        codes.null_count,
        children=[coded, numbers, texts],
    )


def have_words(templates: pa.Array) -> bool:
    """Returns whether any of the templates has words as variables."""
    offsets, data = binary_parts(templates)
    return bool((native.as_bytes(data[int(offsets[0]) : int(offsets[-1])]) == WORD).any())


def joined(array: pa.Array) -> pa.Array:
    """Returns the strings that a templated array stands for.

    Raises `pa.ArrowInvalid` if they exceed 32-bit offsets.
    """
    rows, is_large = rows_of(array), is_large_offsets(value_type(array.type))
    size = max_text_bytes(array)
    if not is_large and size > MAX_OFFSET_32:
        size = native.encodings.templates.join_lengths(*rows, np.empty(len(array), dtype=np.int64))
        if size > MAX_OFFSET_32:
            raise pa.ArrowInvalid(f"{size} bytes of strings exceed 32-bit offsets")
    offsets, text = room_for_text(len(array), size, is_large=is_large)
    native.encodings.templates.join(*rows, offsets, text)
    return strings_of(array, value_type(array.type), offsets, text)


def room_for_text(rows: int, size: int, *, is_large: bool) -> tuple[npt.NDArray[Any], U8]:
    """Allocates the offsets of strings, and `size` bytes for the strings."""
    offsets = np.empty(rows + 1, np.int64 if is_large else np.int32)
    return offsets, room_for(size)


def strings_of(rows: pa.Array, dtype: pa.DataType, offsets: npt.NDArray[Any], text: U8) -> pa.Array:
    """Makes strings that are null where `rows` are."""
    used = text[: offsets[-1]]
    if len(used) < len(text) // 2:  # do not hold much more memory than the strings have bytes
        used = used.copy()
    buffers = [validity_bitmap(rows), pa.py_buffer(offsets), pa.py_buffer(used)]
    return pa.Array.from_buffers(dtype, len(rows), buffers, rows.null_count)


def max_text_bytes(array: pa.Array, slots: Slots | None = None) -> int:
    """Returns an upper bound of the bytes of all rows' text, without reading their variables.

    slots: of the templates, if known.
    """
    templates = templates_of(array)
    counted = slots or slots_of(templates)
    return native.encodings.templates.max_bytes(
        binary_parts(templates)[0], counted.numbers, counted.texts, codes_of(array),
        binary_parts(numbers_of(array))[0], binary_parts(texts_of(array))[0], *native.validity(array),
    )  # fmt: skip


class TextSurvey(NamedTuple):
    """Statistics of a templated array for writing it."""

    contributions: U64
    """Contribution of each row to the row hash (SPEC section 7). Shape (rows,)."""
    alphabets: U64
    """The alphabet of each slot of texts (`lsm_fragment.arrays.alphabets`)."""
    text_bytes: int
    """The bytes of all rows' text."""
    extremes: pa.Array
    """The least and the greatest text; empty if all rows are null."""


def survey_texts(array: pa.Array, seed: int = 0) -> TextSurvey:
    """Surveys a templated array in one pass. seed: of the column, for the row hash."""
    rows, dtype = rows_of(array), value_type(array.type)
    contributions = np.empty(len(array), dtype=np.uint64)
    alphabets = np.zeros(len(rows.kinds), dtype=np.uint64)
    between = np.zeros(len(rows.template_offsets) - 1, dtype=np.int64)
    text_bytes, *extremes = native.encodings.templates.survey(
        *rows, seed, BITS, contributions, alphabets, between
    )
    found = pa.array([text for text in extremes if text is not None], pa.binary())
    return TextSurvey(contributions, alphabets[rows.kinds != NUMBER], text_bytes, found.cast(dtype))


def layout_bytes(templates: int, slots: int) -> int:
    """Returns the memory that a reader needs for templates and slots while decoding."""
    return _TEMPLATE_BYTES * templates + _SLOT_BYTES * slots


def text(array: pa.Array) -> pa.Array:
    """Returns the strings of a templated or worded array, and any other array unchanged."""
    if is_worded(array.type):
        return expanded(array)
    return joined(array) if is_templated(array.type) else array


def text_lengths(array: pa.Array) -> I64:
    """Returns the bytes of each row's text, 0 for nulls."""
    lengths = np.empty(len(array), dtype=np.int64)
    native.encodings.templates.join_lengths(*rows_of(array), lengths)
    return lengths


def room_for(size: int) -> U8:
    """Allocates `size` uninitialised bytes, and `SLACK_BYTES` more, from Arrow's pool, which reuses
    memory."""
    return np.frombuffer(pa.allocate_buffer(size + SLACK_BYTES), dtype=np.uint8)


def binaries(ends: I32, data: pa.Buffer) -> pa.Array:
    """Makes an array of binaries, none of them null."""
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), data], 0)
