"""Divides strings into templates and variables: finds varying words, then extracts all variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment import native
from lsm_fragment.arrays.alphabets import BITS
from lsm_fragment.arrays.buffers import binary_parts, validity_bitmap
from lsm_fragment.arrays.templated import (
    I64,
    PLACE_WORDS,
    U64,
    binaries,
    room_for,
    templated,
    templates_of,
)
from lsm_fragment.arrays.types import MAX_OFFSET_32, is_large_offsets

_SAMPLE_ROWS: Final = 4096
_ROUNDS: Final = 16
_SAMPLE_BYTES: Final = 1 << 20
"""Look for varying words in at most this many rows, and bytes in proportion."""
_MAX_SCALE: Final = 32
"""Extrapolate from a sampled row to at most this many: a sample shows too few templates for more."""
_MANY_TEMPLATES_DIVISOR: Final = 32
"""Look for varying words only if there are fewer rows than this per template."""
_NEVER_MANY: Final = 512
"""Do not look for varying words with up to this many templates."""


class VaryingWords(NamedTuple):
    """The tokens that are variables although they are words, by shape of the string."""

    shapes: U64
    """Hashes of shapes, ascending. Shape (n,)."""
    places: U64
    """A bit for each token of the shape. Shape (n, 4)."""


NO_VARYING_WORDS: Final = VaryingWords(
    np.empty(0, dtype=np.uint64), np.empty((0, PLACE_WORDS), dtype=np.uint64)
)


def find_varying_words(array: pa.Array, max_rows: int = _SAMPLE_ROWS) -> VaryingWords:
    """Finds the places where words vary so much that they would make too many templates.

    Looks at a sample of at most `max_rows`, spread over all rows.
    """
    offsets, data = binary_parts(array)
    rows = _spread_rows(array, offsets, max_rows)
    if not len(rows):
        return NO_VARYING_WORDS
    found = native.encodings.varying.look(offsets, native.as_bytes(data), rows)
    shapes, firsts = np.frombuffer(found[0], np.uint64), np.frombuffer(found[1], np.int64)
    rows = rows[: len(shapes)]
    order = np.argsort(shapes, kind="stable")
    in_order = shapes[order]
    begins = _begins(in_order)
    places = np.zeros((len(begins), PLACE_WORDS), dtype=np.uint64)
    native.encodings.varying.choose(
        order, np.append(begins, len(order)), firsts, np.frombuffer(found[2], np.uint64),
        np.frombuffer(found[3], np.uint8), (offsets[rows + 1] - offsets[rows]).astype(np.int64),
        min(len(array) / len(rows), _MAX_SCALE), places,
    )  # fmt: skip
    has_any = places.any(axis=1)
    return VaryingWords(in_order[begins[has_any]], places[has_any])


def _begins(ascending: U64) -> I64:
    """Returns the position of each distinct value; there is at least one value."""
    return np.flatnonzero(np.diff(ascending, prepend=~ascending[:1]))


def varying_words_in(arrays: Iterable[pa.Array]) -> VaryingWords:
    """Returns the words that are variables in templates. arrays: strings without nulls."""
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
    """Returns the word variables of each template that has any, in the order of the templates."""
    offsets, data = binary_parts(templates)
    shapes = np.empty(len(templates), dtype=np.uint64)
    places = np.zeros((len(templates), PLACE_WORDS), dtype=np.uint64)
    native.encodings.varying.words_in(offsets, native.as_bytes(data), shapes, places)
    has_any = places.any(axis=1)
    return VaryingWords(shapes[has_any], places[has_any])


def _spread_rows(array: pa.Array, offsets: npt.NDArray[Any], max_rows: int) -> I64:
    """Returns the rows of a sample, without nulls and very long strings. Its first rows are spread, too."""
    rows = np.linspace(0, max(0, len(array) - 1), min(len(array), max_rows), dtype=np.int64)
    rows = np.concatenate([rows[first::_ROUNDS] for first in range(_ROUNDS)])
    lengths = (offsets[rows + 1] - offsets[rows]).astype(np.int64)
    max_bytes = _SAMPLE_BYTES * max_rows // _SAMPLE_ROWS
    is_chosen = lengths <= max_bytes // _ROUNDS
    if array.null_count:
        is_chosen &= array.is_valid().to_numpy(zero_copy_only=False)[rows]
    chosen: I64 = rows[is_chosen & (np.cumsum(lengths * is_chosen) <= max_bytes)]
    return chosen


class Divided(NamedTuple):
    array: pa.Array
    """A templated array."""
    alphabets: U64
    """The alphabet of each slot of texts (`lsm_fragment.arrays.alphabets`)."""


def split(
    array: pa.Array, max_templates: int, words: VaryingWords = NO_VARYING_WORDS
) -> pa.Array | None:
    """Divides strings into a templated array; see `divide`."""
    divided = divide(array, max_templates, words)
    return None if divided is None else divided.array


def split_into_few(array: pa.Array) -> pa.Array | None:
    """Divides strings into a templated array, with words as variables if it has many templates otherwise."""
    divided = split(array, len(array))
    if divided is None or not has_many_templates(len(templates_of(divided)), len(array)):
        return divided
    return split(array, len(array), find_varying_words(array))


def has_many_templates(templates: float, rows: int) -> bool:
    """Returns whether there are so many templates that words may vary in them."""
    return templates > max(_NEVER_MANY, rows / _MANY_TEMPLATES_DIVISOR)


def divide(
    array: pa.Array, max_templates: int, words: VaryingWords = NO_VARYING_WORDS
) -> Divided | None:
    """Divides strings into templates, in the order of their first use, and variables.

    words: the words that are variables, beside tokens with digits. Returns None if there are no templates or
    more than `max_templates`, or if 32-bit offsets are exceeded.
    """
    rows = len(array)
    offsets, data = binary_parts(array)
    size = int(offsets[-1]) - int(offsets[0])
    # Numbers take no more bytes than their digits. Texts do not touch, so each has a byte more for its
    # length, and # one per 128 bytes.
    room = size + rows + size // 128
    if room > MAX_OFFSET_32 or array.null_count == rows:
        return None
    codes = np.empty(rows, dtype=np.int32)
    number_ends, text_ends = np.empty((2, rows + 1), dtype=np.int32)
    numbers, texts = room_for(size), room_for(room)
    found = native.encodings.tokens.divide(
        offsets, native.as_bytes(data), *native.validity(array), max_templates, BITS, *words,
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
            pa.int32(), rows, [validity_bitmap(array), pa.py_buffer(codes)], array.null_count
        ),
        binaries(number_ends, pa.py_buffer(numbers[: number_ends[-1]])),
        binaries(text_ends, pa.py_buffer(texts[: text_ends[-1]])),
    )
    return Divided(divided, np.frombuffer(found[2], dtype=np.uint64))
