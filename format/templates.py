"""Holds strings as templates and variables: the form in which merges move them and queries look at them.

A templated array is a struct of a dictionary-coded `template` and of the `variables`, as bytes that
`format.native.templates` describes; nulls are those of the struct. No column is stored under such a type, so
it is told from others by its type alone. It stands for strings: `joined` gives them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from format import native
from format.nodes import IntArray, binary_parts, dictionary_codes
from format.types import is_large_offsets, is_templated, value_type

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]

TEMPLATES_SHARE: Final = 4
"""Rows to each template, at least, for which templates are worth their place."""
SLACK_BYTES: Final = 32
"""Bytes behind templates and text that native code may touch."""
_MOST_GROWTH: Final = 3
"""Bytes of text that a byte of variables makes at most: a byte stands for up to three digits."""
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


def count_marks(templates: pa.Array) -> int:
    """Returns how many slots templates have, without taking memory for them."""
    offsets, data = binary_parts(templates)
    return native.templates.count_marks(native.as_bytes(data[int(offsets[0]) : int(offsets[-1])]))


def layout_of(templates: pa.Array) -> Layout:
    """Divides templates. templates: strings without nulls."""
    offsets, data = binary_parts(templates)
    start, stop = int(offsets[0]), int(offsets[-1])
    seen = np.zeros(stop - start + SLACK_BYTES, dtype=np.uint8)
    seen[: stop - start] = native.as_bytes(data[start:stop])
    starts = offsets.astype(np.int64) - start
    slots = native.templates.count_marks(seen)
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
    """A templated array's rows, as native code takes them."""

    codes: I32
    ends: I32
    """Where the variables of each row begin, and the last ones end. Shape (rows + 1,)."""
    variables: U8
    valid: U8 | None
    """The validity bitmap, None if nothing is null."""
    first_bit: int


def rows_of(array: pa.Array) -> TemplatedRows:
    """Returns what native code takes of a templated array beside the layout of its templates."""
    ends, data = binary_parts(variables_of(array))
    return TemplatedRows(codes_of(array), ends, native.as_bytes(data), *native.validity(array))


def templated_type(dtype: pa.DataType) -> pa.DataType:
    """Returns the type of templated arrays that stand for strings of type `dtype`."""
    return pa.struct([("template", pa.dictionary(pa.int32(), dtype)), ("variables", pa.binary())])


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


def variables_of(array: pa.Array) -> pa.Array:
    """Returns each row's variables as bytes."""
    return array.field(1)


def templated(templates: pa.Array, codes: pa.Array, variables: pa.Array) -> pa.Array:
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
        children=[coded, variables],
    )


def split(array: pa.Array, most_templates: int) -> pa.Array | None:
    """Divides strings into a templated array, templates in the order of their first use.

    Returns None if there are more than `most_templates` or none, or more bytes than offsets of 32 bits reach.
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
    ends = np.empty(rows + 1, dtype=np.int32)
    variables = room_for(room, np.uint8)
    validity, first_bit = native.validity(array)
    found = native.templates.split(
        offsets, native.as_bytes(data), validity, first_bit, most_templates, codes, ends, variables
    )
    if found is None:
        return None
    starts, texts = np.frombuffer(found[0], dtype=np.int64), found[1]
    if not is_large_offsets(array.type):
        starts = starts.astype(np.int32)
    return templated(
        pa.Array.from_buffers(
            array.type, len(starts) - 1, [None, pa.py_buffer(starts), pa.py_buffer(texts)], 0
        ),
        pa.Array.from_buffers(
            pa.int32(), rows, [_bitmap(array), pa.py_buffer(codes)], array.null_count
        ),
        binaries(ends, variables[: ends[-1]]),
    )


def joined(array: pa.Array) -> pa.Array:
    """Returns the strings that a templated array stands for.

    Raises `pa.ArrowInvalid` where 32-bit offsets do not reach.
    """
    dtype, layout, rows = value_type(array.type), layout_of(templates_of(array)), rows_of(array)
    lengths = np.empty(len(array), dtype=np.int64)
    size = native.templates.join_lengths(*layout, *rows, lengths)
    if not is_large_offsets(dtype) and size > _MAX_OFFSET_32:
        raise pa.ArrowInvalid(f"{size} bytes of strings exceed 32-bit offsets")
    offsets = np.empty(len(array) + 1, np.int64 if is_large_offsets(dtype) else np.int32)
    text = room_for(size + SLACK_BYTES, np.uint8)
    native.templates.join(*layout, *rows, offsets, text)
    buffers = [_bitmap(array), pa.py_buffer(offsets), pa.py_buffer(text[:size])]
    return pa.Array.from_buffers(dtype, len(array), buffers, array.null_count)


def most_text_bytes(array: pa.Array) -> int:
    """Returns an upper bound of the text of all rows, without looking at their variables."""
    layout, rows = layout_of(templates_of(array)), rows_of(array)
    by_template = np.bincount(rows.codes, minlength=len(layout.offsets) - 1)
    constants = int((np.diff(layout.offsets) * by_template).sum())
    return constants + _MOST_GROWTH * int(rows.ends[-1] - rows.ends[0])


def variable_texts(array: pa.Array) -> pa.Array:
    """Returns the variables of each row as one string, each followed by a line feed, which none of them
    has."""
    templates = templates_of(array)
    layout = layout_of(templates)
    lines = np.full((len(layout.kinds), 2), ord("\n"), dtype=np.uint8)
    lines[:, 0] = layout.kinds
    offsets = 2 * layout.firsts
    if not is_large_offsets(templates.type):
        offsets = offsets.astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(lines)]
    marks = pa.Array.from_buffers(templates.type, len(templates), buffers, 0)
    codes = coded_templates(array).indices
    return joined(templated(marks, codes, variables_of(array)))


def text(array: pa.Array) -> pa.Array:
    """Returns an array as it is, a templated one joined."""
    return joined(array) if is_templated(array.type) else array


def text_lengths(array: pa.Array) -> I64:
    """Returns the bytes of each row's text, 0 for nulls."""
    lengths = np.empty(len(array), dtype=np.int64)
    native.templates.join_lengths(*layout_of(templates_of(array)), *rows_of(array), lengths)
    return lengths


def add_hashes(array: pa.Array, seed: int, numbers: U64) -> None:
    """Adds to each row's number what its text contributes (SPEC section 7)."""
    native.templates.add_hashes(*layout_of(templates_of(array)), *rows_of(array), seed, numbers)


def extreme_texts(array: pa.Array) -> pa.Array:
    """Returns the least and the greatest text. At least one row must not be null."""
    layout = layout_of(templates_of(array))
    between = np.zeros(len(layout.offsets) - 1, dtype=np.int64)
    low, high = native.templates.extremes(*layout, *rows_of(array), between)
    return joined(array.take(pa.array([low, high])))


def room_for(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns an array of any content. Its memory comes from Arrow's pool, whose pages are reused."""
    item = np.dtype(dtype)
    return np.frombuffer(pa.allocate_buffer(count * item.itemsize), dtype=item)


def binaries(ends: I32, data: U8) -> pa.Array:
    """Makes an array of binaries, none of them null."""
    return pa.Array.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)], 0
    )


def _bitmap(array: pa.Array) -> pa.Buffer | None:
    """Returns the validity of an array as a bitmap that begins with its first row."""
    if not array.null_count:
        return None
    if array.offset % 8 == 0:
        return array.buffers()[0].slice(array.offset // 8)
    bits = array.is_valid()
    return bits.buffers()[1]
