"""Reads templated rows of a chunk, whose variables no check has passed yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lsm_fragment import native
from lsm_fragment.arrays.buffers import fixed_width_view
from lsm_fragment.arrays.moves import keep
from lsm_fragment.arrays.templated import (
    LARGE_OFFSET_BYTES,
    U8,
    Bits,
    Layout,
    Slots,
    binaries,
    joined,
    room_for_text,
    strings_of,
    templated,
)
from lsm_fragment.arrays.types import MAX_OFFSET_32, is_large_offsets
from lsm_fragment.native.arrays.text import is_ascii


class StoredRows(NamedTuple):
    """Templated rows of a chunk; their variables are not validated yet."""

    templates: pa.Array
    slots: Slots
    """The slots of the templates."""
    codes: pa.Array
    """See `templated`."""
    numbers: pa.Buffer
    texts: pa.Buffer


def stored(rows: StoredRows, charge: Callable[[int], None]) -> pa.Array:
    """Makes a templated array of stored rows.

    charge: called with the size of the scratch memory before it is allocated. Raises `ValueError` if the
    variables do not match the rows' templates.
    """
    templates, slots, codes, numbers, texts = rows
    if max(numbers.size, texts.size) > MAX_OFFSET_32:
        raise ValueError("variables of templates exceed 32-bit offsets")
    number_ends, text_ends = np.empty((2, len(codes) + 1), dtype=np.int32)
    characters = None
    if not is_ascii(texts):
        charge(texts.size)
        characters = np.zeros(texts.size, dtype=np.uint8)
    if not native.encodings.templates.find_ends(
        slots.numbers, slots.texts, fixed_width_view(codes, np.int32), *native.validity(codes),
        native.as_bytes(numbers), native.as_bytes(texts), number_ends, text_ends, characters,
    ):  # fmt: skip
        raise ValueError("the variables do not match the templates")
    if characters is not None:
        _check_characters(characters)
    return templated(templates, codes, binaries(number_ends, numbers), binaries(text_ends, texts))


def _check_characters(texts: U8) -> None:
    """Raises `ValueError` if a text is not UTF-8. texts: zeros separate them, so that no character spans
    two."""
    ends = np.array([0, len(texts)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(texts)]
    pa.Array.from_buffers(pa.large_string(), 1, buffers, 0).validate(full=True)


def joined_stored(
    rows: StoredRows, layout: Layout, charge: Callable[[int], None], chosen: Bits | None = None
) -> pa.Array:
    """Returns the strings of stored rows.

    layout: of the templates. charge: called with the size before memory is allocated. chosen: the rows to
    return; None for all. Raises `ValueError` if the variables do not match the rows' templates.
    """
    templates, _, codes, numbers, texts = rows
    values = (fixed_width_view(codes, np.int32), *native.validity(codes))
    size = native.encodings.templates.max_stored_bytes(*layout, *values, numbers.size, texts.size)
    charge(LARGE_OFFSET_BYTES * len(codes) + size)
    is_large = is_large_offsets(templates.type)
    if not is_large and size > MAX_OFFSET_32:
        array = stored(rows, charge)
        return joined(array if chosen is None else keep(array, chosen))
    returned = codes if chosen is None else codes.filter(pa.array(chosen))
    offsets, text = room_for_text(len(returned), size, is_large=is_large)
    if not native.encodings.templates.join_stored(
        *layout, *values, native.as_bytes(numbers), native.as_bytes(texts), native.as_flags(chosen),
        offsets, text,
    ):  # fmt: skip
        raise ValueError("the variables do not match the templates")
    strings = strings_of(returned, templates.type, offsets, text)
    if not is_ascii(texts):
        strings.validate(full=True)
    return strings
